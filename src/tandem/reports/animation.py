"""Recording an agent's play as a GIF or MP4, or showing it in a window."""

from __future__ import annotations

import errno
import math
import os
import sys
import warnings
import zlib
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tandem.envs.factory import EnvLike, make, spare
from tandem.envs.opening import opening, reset
from tandem.errors import EngineError, EnvironmentFault, SettingError
from tandem.learning import notebook
from tandem.learning.collect.evaluation import EvaluationStopped
from tandem.learning.collect.trained_agent import Agent
from tandem.learning.figures import figures
from tandem.runs import config_file
from tandem.runs.atomic_files import writing
from tandem.settings import as_path, whole_number
from tandem.types import AnyArray, Array, EnvKwargs, Tree

if TYPE_CHECKING:
    from gymnasium import Env

WIDTH = 400  # pixels; larger images are shrunk, those at most half as wide are enlarged
LEAST = 300  # minimum width in pixels, for the text
STRIP = 22  # pixels below the image, for the text
GIF_RATE = 25  # maximum frames per second; others are dropped
COLORS = 128  # in the palette shared by all frames of a GIF


Act = Callable[[Tree], Array] | Agent


class Moment(NamedTuple):
    """One moment of play: after `step` steps of an episode, with `score` the sum of its rewards so
    far."""

    episode: int
    step: int
    score: float
    ended: bool  # the last moment of its episode
    cut: bool = False  # ended by max_steps, not by the environment


def animate(
    act: Act,
    env: Env,
    out: Path | None = None,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = 1000,
    fps: float | None = None,
    stopped: Callable[[], bool] | None = None,
    name: str = "",
) -> Path:
    """Play episodes and write them as a GIF or MP4.

    Args:
        act: A function from an observation to an action, or an agent, whose recurrent state is
            reset at the start of each episode.
        env: A Gymnasium environment made with render_mode="rgb_array"; it is left open.
        out: The file, .gif or .mp4; None: `<environment>.gif` in the current folder.
        seed: Episode i starts from seed + i.
        max_steps: The maximum length of an episode.
        fps: Frames per second; None: the environment's value, or 30. GIFs drop frames above 25.
        stopped: Called before each step; True ends the play with EvaluationStopped.
        name: The title in the images; "": the environment's id.

    Raises:
        SettingError: For the suffix, the render mode or a number.
        EngineError: ffmpeg or OpenGL is missing.
        EnvironmentFault: Rendering fails.
    """
    _expect_pictures(env)
    episodes, seed = whole_number("episodes", episodes, 1), whole_number("seed", seed)
    name = name or _name_of(env)
    out = _as_film(Path(name.replace("/", "-") + ".gif" if out is None else out).absolute())
    fps = float(fps or env.metadata.get("render_fps") or 30)
    pictures = _pictures(_play(act, env, episodes, seed, max_steps, stopped), env, name, episodes)
    return _write(out, pictures, fps)


def _write(out: Path, pictures: Iterator[tuple[Moment, Image.Image]], fps: float) -> Path:
    """Write a GIF or MP4; an existing file stays until the new one is complete."""
    beside = out.with_name(f".{out.stem}.{os.getpid()}{out.suffix}")
    try:
        if out.suffix.lower() == ".gif":
            gif = _gif(pictures, fps)
            with writing(out):
                beside.write_bytes(gif)
        else:
            _write_mp4(beside, out, pictures, fps)
        with writing(out):
            os.replace(beside, out)
    finally:
        beside.unlink(missing_ok=True)
    return out


def _name_of(env: Env) -> str:
    return str(getattr(getattr(env, "spec", None), "id", None) or type(env.unwrapped).__name__)


def _as_film(out: Path) -> Path:
    """Return the path if an animation can be written there. Called before a long play, not after
    it."""
    if out.suffix.lower() not in (".gif", ".mp4"):
        raise SettingError(
            f"cannot write {out.name!r}.",
            "a name that ends in .gif or .mp4",
            f"name it {out.stem}.gif, for example.",
        )
    with writing(out):
        TemporaryFile(dir=out.parent).close()
    return out


@dataclass(frozen=True)
class Animation:
    """Images of played episodes. A notebook displays them; elsewhere `save` writes them.

    name: the environment's. episodes: the last moment of each. fps: frames per second.
    """

    name: str
    episodes: tuple[Moment, ...]
    fps: float
    size: tuple[int, int]  # width and height
    _packed: tuple[tuple[Moment, bytes], ...] = field(repr=False)

    @cached_property
    def gif(self) -> bytes:
        """The bytes of a GIF in an endless loop."""
        return _gif(self._pictures(), self.fps)

    def save(self, out: str | Path) -> Path:
        """Write a .gif or .mp4, depending on the suffix, and return its path. Raises the errors of
        `animate`."""
        return _write(_as_film(as_path("out", out)), self._pictures(), self.fps)

    def __repr__(self) -> str:
        scores = ", ".join(f"{figures(last.score)} in {last.step} steps" for last in self.episodes)
        return f"Animation({self.name}: return {scores}; .save('play.gif') writes it)"

    def _repr_html_(self) -> str:
        """Return HTML with the GIF embedded, so that a notebook loads no other file."""
        return notebook.picture("gif", b64encode(self.gif).decode(), repr(self), self.size[0])

    def _pictures(self) -> Iterator[tuple[Moment, Image.Image]]:
        for moment, data in self._packed:
            yield moment, Image.frombytes("RGB", self.size, zlib.decompress(data))


def filmed(
    agent: Agent,
    env: EnvLike | None = None,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = 1000,
    fps: float | None = None,
) -> Animation:
    """Return the animation for `Agent.play`."""
    own = agent.name.partition(" ")[2]
    if env is None and not own:
        raise SettingError(
            f"{agent!r} was not trained in a named environment.",
            "an environment to play in",
            "name one, for example agent.play('CartPole-v1').",
        )
    if env is None and agent.origin:
        config_file.expect_env({"env": own, "origin": agent.origin}, repr(agent))
    env = agent.trained_in if env is None else env
    episodes, seed = whole_number("episodes", episodes, 1), whole_number("seed", seed)
    max_steps = whole_number("max_steps", max_steps, 1)
    kwargs = agent.env_kwargs if env == own else None
    with opening(seed, env), screen(env, "rgb_array", kwargs) as instance:
        _expect_pictures(instance)
        name = env if isinstance(env, str) else _name_of(instance)
        pictures = _pictures(
            _play(agent, instance, episodes, seed, max_steps), instance, name, episodes
        )
        packed, size = [], (0, 0)
        for moment, picture in pictures:
            size = picture.size
            packed.append((moment, zlib.compress(picture.tobytes(), 1)))
        rate = float(fps or instance.metadata.get("render_fps") or 30)
    ends = tuple(moment for moment, _ in packed if moment.ended)
    return Animation(name, ends, rate, size, tuple(packed))


def _expect_pictures(env: Env) -> None:
    """Raise SettingError for an environment that does not render images."""
    if (mode := getattr(env, "render_mode", None)) != "rgb_array":
        raise SettingError(
            f"the environment was made with render_mode={mode!r}.",
            "render_mode='rgb_array'",
            "use gymnasium.make(id, render_mode='rgb_array').",
        )


def show(
    act: Act, env: Env, episodes: int = 1, seed: int = 0, max_steps: int = 1000
) -> list[Moment]:
    """Play episodes in the window of an environment made with render_mode="human", with `act` as in
    `animate`. Return the last moment of each."""
    episodes, seed = whole_number("episodes", episodes, 1), whole_number("seed", seed)
    return [moment for moment in _play(act, env, episodes, seed, max_steps) if moment.ended]


def play(
    act: Callable[[Tree], Array], env: Env, max_steps: int, seed: int = 0
) -> tuple[list[Tree], float, int]:
    """Play one episode of at most max_steps. Return (its observations, the sum of its rewards, its
    steps)."""
    seen: list[Tree] = []

    def noted(obs: Tree) -> Array:
        seen.append(deepcopy(obs))  # the environment may reuse its memory
        return act(obs)

    *_, last = _play(noted, env, 1, seed, max_steps)
    return seen, last.score, last.step


def film(
    agent: Agent, env: EnvLike, out: Path, kwargs: EnvKwargs | None = None, **how: Any
) -> Path:
    """Write an agent's play as a GIF or MP4, in an environment created for rendering; `how` holds
    arguments of `animate`."""
    out = out.absolute()
    with opening(how.get("seed", 0), env), screen(env, "rgb_array", kwargs) as instance:
        return animate(agent, instance, out, **how, name=env if isinstance(env, str) else "")


@contextmanager
def screen(env: EnvLike, mode: str, kwargs: EnvKwargs | None = None) -> Iterator[Env]:
    """Yield an environment that renders in this mode. An id is made with it; any other `env` has
    its own mode."""
    from tandem.envs.adapted import adapted  # imports Gymnasium

    without_screen()
    with warnings.catch_warnings():
        # of missing displays or odd render modes; those that matter raise errors here
        warnings.simplefilter("ignore")
        made = _drawable(env, mode, kwargs) if isinstance(env, str) else make(env, kwargs)
        instance = spare(made)
        try:
            yield adapted([instance])[0]
        finally:
            if instance is not env:
                instance.close()


def _drawable(env: str, mode: str, kwargs: EnvKwargs | None) -> Env:
    plain = make(env, kwargs)
    if plain.render_mode == mode:  # a function may choose its own
        return plain
    modes = plain.metadata.get("render_modes") or []
    plain.close()
    if mode not in modes:
        raise SettingError(
            f"{env} cannot be rendered: its render modes are "
            f"{', '.join(map(str, modes)) or 'none'}.",
            f"an environment with render_mode={mode!r}",
            "add it to the environment's metadata, or do not render.",
        )
    return make(env, {**(kwargs or {}), "render_mode": mode})


def without_screen() -> None:
    """Tell SDL if there is no display; otherwise it prints complaints to stderr."""
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def has_display() -> bool:
    """Return True if a window can be opened: always on macOS and Windows."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _play(
    act: Act,
    env: Env,
    episodes: int,
    seed: int,
    max_steps: int,
    stopped: Callable[[], bool] | None = None,
) -> Iterator[Moment]:
    for episode in range(episodes):
        obs, _ = reset(env, seed=seed + episode)
        moment, state = Moment(episode, 0, 0.0, False), None
        yield moment
        while not moment.ended:
            if stopped is not None and stopped():
                raise EvaluationStopped
            action, state = (
                act.predict(obs, state, deterministic=True)
                if hasattr(act, "predict")
                else (act(obs), None)
            )
            obs, reward, terminated, truncated, _ = env.step(action)
            step, over = moment.step + 1, bool(terminated or truncated)
            cut = not over and step >= max_steps
            moment = Moment(
                episode, step, moment.score + np.asarray(reward).item(), over or cut, cut
            )
            yield moment


def _pictures(
    moments: Iterator[Moment], env: Env, name: str, episodes: int
) -> Iterator[tuple[Moment, Image.Image]]:
    """Yield each moment with its image (a Pillow image, RGB, even sides), with the figures in a
    strip below."""
    font = ImageFont.load_default(12)
    for moment in moments:
        frame = Image.fromarray(_render(env))
        if frame.width > WIDTH:
            size = WIDTH, round(frame.height * WIDTH / frame.width)
            frame = frame.resize(size, Image.Resampling.BOX)
        elif (times := WIDTH // frame.width) > 1:  # keeps pixels sharp
            size = times * frame.width, times * frame.height
            frame = frame.resize(size, Image.Resampling.NEAREST)
        width, height = max(frame.width, LEAST) // 2 * 2, frame.height // 2 * 2
        picture = Image.new("RGB", (width, height + STRIP), "#20242b")
        picture.paste(frame, ((width - frame.width) // 2, 0))
        draw = ImageDraw.Draw(picture)
        middle = height + STRIP // 2
        title = name if episodes == 1 else f"{name}   episode {moment.episode + 1}"
        draw.text((8, middle), title, "#aab2bf", font, anchor="lm")
        draw.text(
            (width - 8, middle),
            f"step {moment.step}   return {figures(moment.score)}{'   cut here' * moment.cut}",
            "white",
            font,
            anchor="rm",
        )
        yield moment, picture


def _render(env: Env) -> AnyArray:
    """Return the environment's image, uint8 [H, W, 3]."""
    try:
        frame = env.render()
    except Exception as error:
        if hasattr(env.unwrapped, "mujoco_renderer"):
            raise EngineError(
                f"MuJoCo could not render off screen: {type(error).__name__}: {error}.",
                f"a working OpenGL library (MUJOCO_GL is {os.environ.get('MUJOCO_GL', 'not set')})",
                "on a machine without a display: apt-get install libosmesa6, then restart with "
                "MUJOCO_GL=osmesa (MUJOCO_GL=egl with a GPU).",
            ) from error
        raise EnvironmentFault(
            f"the environment's render() failed: {type(error).__name__}: {error}.",
            "an image",
            "install what it requires, or fix its render().",
        ) from error
    if not (
        isinstance(frame, np.ndarray)
        and frame.dtype == np.uint8
        and frame.ndim == 3
        and frame.shape[2] == 3
    ):
        got = (
            f"{frame.dtype} {frame.shape}"
            if isinstance(frame, np.ndarray)
            else type(frame).__name__
        )
        raise EnvironmentFault(
            f"the environment's render() returned {got}.",
            "a uint8 array [height, width, 3]",
            "return the image in this format.",
        )
    return frame


def _gif(pictures: Iterator[tuple[Moment, Image.Image]], fps: float) -> bytes:
    """Return a GIF with one palette for all frames, as colors flicker otherwise. All frames are
    kept, compressed, until the palette is chosen."""
    stride, size = math.ceil(fps / GIF_RATE), (0, 0)
    packed: list[bytes] = []
    for moment, picture in pictures:
        if moment.step % stride == 0 or moment.ended:
            size = picture.size
            packed.append(zlib.compress(picture.tobytes(), 1))
        if moment.ended:
            packed += [packed[-1]] * round(fps / stride / 2)  # hold the end for half a second

    def unpack(data: bytes) -> Image.Image:
        return Image.frombytes("RGB", size, zlib.decompress(data))

    chosen = [packed[i] for i in np.linspace(0, len(packed) - 1, min(16, len(packed))).astype(int)]
    sheet = Image.new("RGB", (size[0], size[1] * len(chosen)))
    for i, data in enumerate(chosen):
        sheet.paste(unpack(data), (0, i * size[1]))
    palette = sheet.quantize(COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    frames = (unpack(data).quantize(palette=palette, dither=Image.Dither.NONE) for data in packed)
    first, gif = next(frames), BytesIO()
    first.save(
        gif,
        "GIF",
        save_all=True,
        append_images=chain(frames),
        duration=round(1000 * stride / fps),
        loop=0,
        optimize=False,
    )
    return gif.getvalue()


def _write_mp4(
    beside: Path, out: Path, pictures: Iterator[tuple[Moment, Image.Image]], fps: float
) -> None:
    _, first = next(pictures)
    with closing(mp4(beside, first.size, fps)) as video:
        for picture in chain([first], (p for _, p in pictures)):
            with writing(out):
                video.send(picture.tobytes())
    with writing(out):
        if b"moov" not in beside.read_bytes():  # the index, written last
            raise OSError(errno.EIO, "ffmpeg did not finish the file")


def mp4(file: Path, size: tuple[int, int], fps: float) -> Generator[None, bytes, None]:
    """Return a generator that takes the bytes of each frame and completes the file when closed."""
    import imageio_ffmpeg

    video = imageio_ffmpeg.write_frames(
        str(file), size, fps=fps, macro_block_size=2, ffmpeg_log_level="error"
    )
    video.send(None)
    return video
