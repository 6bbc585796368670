"""Animations: the frames that are written, and what is said where drawing is impossible."""

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from tandem.errors import EngineError, EnvironmentFault, RunFolderError, SettingError
from tandem.learning.collect.evaluation import EvaluationStopped
from tandem.reports import animation


class Blinking(gym.Env[Any, Any]):
    """Shows its step as a grey level, 20 a step, for `length` steps, which pay their action."""

    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(5)

    def __init__(self, length=6, fps=10, size=(40, 60), mode: str | None = "rgb_array") -> None:
        self.length, self.size, self.render_mode = length, size, mode
        self.metadata = {"render_fps": fps, "render_modes": ["rgb_array", "human"]}
        self.seeds: list[int | None] = []
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        self.t = 0
        return np.array([0.0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.array([float(self.t)]), float(action), self.t >= self.length, False, {}

    def render(self) -> Any:
        return np.full((*self.size, 3), 20 * self.t, np.uint8)


def frames(path: Path) -> list[tuple[int, int]]:
    """(grey level of the picture, milliseconds) of every frame of a GIF."""
    image = Image.open(path)
    found = []
    for i in range(image.n_frames):  # type: ignore[attr-defined]
        image.seek(i)
        found.append((image.convert("RGB").getpixel((5, 5))[0], image.info["duration"]))  # type: ignore[index]
    return found


def played(out: Path, action: int = 0, env: Any = None, **given: Any) -> Path:
    return animation.animate(lambda obs: action, env or Blinking(), out, **given)


def test_a_gif_shows_every_step_at_the_environments_rate(tmp_path: Path) -> None:
    env = Blinking()
    out = played(tmp_path / "new" / "a.gif", 2, env, seed=7)
    found = frames(out)
    assert [grey for grey, _ in found] == pytest.approx([0, 20, 40, 60, 80, 100, 120], abs=3)
    assert [ms for _, ms in found] == [100] * 6 + [600]  # the end stands half a second longer
    assert env.seeds == [7] and Image.open(out).info["loop"] == 0
    assert Image.open(out).size == (360, 240 + animation.STRIP)
    # a fast one's leaves pictures out, but never the end
    found = frames(played(tmp_path / "a.gif", env=Blinking(length=5, fps=50)))
    assert [grey for grey, _ in found] == pytest.approx([0, 40, 80, 100], abs=3)
    assert found[0][1] == 40


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_a_film_that_is_broken_off_leaves_the_one_before(suffix: str, tmp_path: Path) -> None:
    out = played(tmp_path / f"a.{suffix}", 2)
    before, asked = out.read_bytes(), iter([False] * 4)
    with pytest.raises(EvaluationStopped):
        played(out, 2, stopped=lambda: next(asked, True))
    assert out.read_bytes() == before and list(tmp_path.iterdir()) == [out]

    def interrupted(obs: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        animation.film(interrupted, Blinking(), tmp_path / f"b.{suffix}")
    assert list(tmp_path.iterdir()) == [out], "no empty file"


def test_episodes_have_seeds_and_are_cut_and_act_gets_observations(tmp_path, monkeypatch) -> None:
    env, given = Blinking(length=1000), {"episodes": 3, "seed": 5, "max_steps": 2, "fps": 5}
    found = frames(played(tmp_path / "a.gif", env=env, **given))
    assert env.seeds == [5, 6, 7] and found[0][1] == 200
    assert [grey for grey, _ in found] == pytest.approx([0, 20, 40] * 3, abs=3)
    monkeypatch.chdir(tmp_path)
    seen: list[float] = []

    def act(obs: Any) -> int:
        seen.append(float(obs[0]))
        return 1

    assert animation.animate(act, Blinking(length=4)) == tmp_path / "Blinking.gif"
    assert seen == [0.0, 1.0, 2.0, 3.0] and (tmp_path / "Blinking.gif").is_file()


def test_the_figures_stand_below(tmp_path: Path) -> None:
    """The strip differs between steps, the title does not."""
    image = Image.open(played(tmp_path / "a.gif", 3, Blinking(length=3, size=(100, 400))))
    strips = []
    for i in range(2):
        image.seek(i)
        strips.append(np.asarray(image.convert("RGB"))[100:].astype(int))
    changed = np.abs(strips[0] - strips[1]).max(axis=(0, 2)) > 40
    assert changed[200:].any() and not changed[:150].any()
    assert strips[0][:, :150].max() > 120  # the name is there


def test_cartpole_is_small_and_looks_like_cartpole(tmp_path: Path) -> None:
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    act = lambda o: int(3 * o[2] + o[3] > 0)  # noqa: E731
    out = animation.animate(act, env, tmp_path / "a.gif", max_steps=60)
    image = Image.open(out)
    assert image.size[0] == 400 and out.stat().st_size < 100_000
    picture = np.asarray(image.convert("RGB")).astype(int)[: -animation.STRIP]
    brown = np.abs(picture - [202, 152, 101]).max(axis=2) < 12  # the pole
    black = picture.max(axis=2) < 12  # the cart
    white = picture.min(axis=2) > 245
    assert 300 < brown.sum() < 1000 and 300 < black.sum() < 1200 and white.mean() > 0.95
    env.close()


def test_mp4_has_every_frame(tmp_path: Path) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    out = played(tmp_path / "a.mp4", env=Blinking(length=8, fps=50, size=(41, 61)))
    count, seconds = imageio_ffmpeg.count_frames_and_secs(str(out))
    assert count == 9 and seconds == pytest.approx(9 / 50, abs=0.03)


def test_what_cannot_be_written_is_refused_before_playing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for error, says, name, env in (
        (SettingError, r"a\.avi", "a.avi", Blinking()),
        (RunFolderError, "cannot write", "file/a.gif", Blinking()),
        (SettingError, "render_mode=None", "a.gif", Blinking(mode=None)),
    ):
        with pytest.raises(error, match=says):
            played(tmp_path / name, env=env)
        assert env.seeds == []


class Faulty(Blinking):  # its picture is something else, or an error
    def __init__(self, picture: Any) -> None:
        super().__init__()
        self.picture = picture

    def render(self) -> Any:
        if isinstance(self.picture, Exception):
            raise self.picture
        return self.picture


def test_a_faulty_render_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    no_gl = RuntimeError("an OpenGL platform library has not been loaded")
    install = r"MUJOCO_GL is glfw[\s\S]*libosmesa6[\s\S]*MUJOCO_GL=osmesa"
    for picture, error, says in (
        (no_gl, EngineError, install),
        (ValueError("no pygame"), EnvironmentFault, "ValueError: no pygame"),
        (np.zeros((4, 4, 3)), EnvironmentFault, r"float64 \(4, 4, 3\)"),
        (None, EnvironmentFault, "returned NoneType"),
    ):
        env = Faulty(picture)
        if error is EngineError:
            env.mujoco_renderer = None  # one of MuJoCo's
        with pytest.raises(error, match=says):
            played(tmp_path / "a.gif", env=env)


def test_episodes_in_a_window_are_played_to_their_ends_or_cut() -> None:
    whole = animation.show(lambda obs: 3, Blinking(length=4, mode="human"), episodes=2)
    assert [(last.score, last.cut) for last in whole] == [(12.0, False)] * 2
    (last,) = animation.show(lambda obs: 3, Blinking(length=4, mode="human"), max_steps=2)
    assert (last.step, last.score, last.cut) == (2, 6.0, True)


def test_a_window_needs_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not animation.has_display()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert animation.has_display()
    monkeypatch.delenv("WAYLAND_DISPLAY")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert animation.has_display()
