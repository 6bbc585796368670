"""Atari games with preprocessed observations: stacks of grayscale images of 84 x 84, with skipped
frames (Gymnasium's wrappers over ale_py).

The end of an episode and the scale of rewards differ between training and evaluation. `training`
returns the additional arguments for training. Environments created by users are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tandem.envs.ids import import_gymnasium, plugged
from tandem.errors import SettingError
from tandem.settings import check_ranges, setting
from tandem.types import EnvKwargs, JSONDict

MNIH = "Mnih et al. 2015, extended data table 1"
METHODS = "Mnih et al. 2015, Methods"
ONLY_TRAINING = ("life_loss_ends", "clip_rewards")
SIZE = 84  # pixels, both ways (Mnih et al. 2015, Methods)


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of Atari games; other environments ignore it."""

    frame_stack: int = setting(
        4, "Atari: number of most recent frames in an observation", MNIH, minimum=1
    )
    frame_skip: int = setting(
        4,
        "Atari: frames per action; observations are the pixelwise maximum of the last two",
        MNIH,
        minimum=1,
    )
    noop_max: int = setting(
        30,
        "Atari: episodes start with 1 to this many no-op frames; 0: none",
        MNIH,
        minimum=0,
    )
    sticky_actions: float = setting(
        -1.0,
        "Atari: probability of repeating the last action per frame; -1: as in the id, 0.25 for "
        "ALE/...-v5",
        "Machado et al. 2018, section 5",
        minimum=0,
        maximum=1,
        special=-1,
        expected="a probability, or -1 for the id's own",
        fix="try sticky_actions=0.25.",
    )
    press_fire: bool = setting(
        True, "Atari: press FIRE when a life starts, if the game has it", "Stable-Baselines3 2.9"
    )
    life_loss_ends: bool = setting(
        True, "Atari: losing a life ends the episode, in training only", METHODS
    )
    clip_rewards: bool = setting(
        True, "Atari: clip training rewards between -1 and 1; scores are not clipped", METHODS
    )


def is_atari(env: object) -> bool:
    """Return true for the id of an Atari game."""
    if not isinstance(env, str):
        return False
    if env.startswith(("ALE/", "ale_py:")):
        return True
    plugged(env)  # it may be a game from a plug-in
    spec = import_gymnasium().registry.get(env)
    return spec is not None and str(spec.entry_point).startswith("ale_py.")


def takes_preprocessing(env: object) -> bool:
    """Return true if `Preprocessing` applies to an environment: an Atari id of ale_py or
    EnvPool."""
    return is_atari(env) or bool(getattr(env, "is_atari", False))


def arguments(env: object, chosen: Preprocessing) -> JSONDict:
    """Return the environment's arguments for training and evaluation; {} if it is not an Atari id.

    Raises SettingError for Atari settings with other environments, and for values out of range."""
    own = {f.name: getattr(chosen, f.name) for f in fields(Preprocessing)}
    if not takes_preprocessing(env):
        if odd := [f"{n}={v}" for n, v in own.items() if v != getattr(Preprocessing, n)]:
            fix = f"leave {'them' if odd[1:] else 'it'} out, and wrap the environment yourself."
            if odd == [f"frame_stack={chosen.frame_stack}"] and isinstance(env, str):
                stack = (
                    "gymnasium.wrappers:FrameStackObservation:"
                    f'{{"stack_size": {chosen.frame_stack}}}'
                )
                fix = f"leave it out, and give wrappers={[stack]}"
            raise SettingError(
                f"{', '.join(odd)} requires an Atari environment.",
                "an id such as ALE/Pong-v5 or envpool/Pong-v5",
                fix,
            )
        return {}
    check_ranges(chosen)
    return {n: v for n, v in own.items() if n not in ONLY_TRAINING}


def training(env: object, kwargs: EnvKwargs | None, chosen: Preprocessing) -> JSONDict | None:
    """Return `kwargs` of an environment with the additions for training."""
    more = {n: getattr(chosen, n) for n in ONLY_TRAINING} if takes_preprocessing(env) else {}
    return {**(kwargs or {}), **more} or None


def split(kwargs: EnvKwargs | None) -> tuple[Preprocessing, JSONDict]:
    """Split `kwargs` into (preprocessing, arguments of the game). Missing entries default to those
    for evaluation."""
    rest, options = dict(kwargs or {}), dict.fromkeys(ONLY_TRAINING, False)
    options |= {f.name: rest.pop(f.name) for f in fields(Preprocessing) if f.name in rest}
    return Preprocessing(**options), rest


def make(env: str, kwargs: EnvKwargs | None = None) -> Any:
    """Make one game with observations uint8 [frame_stack, 84, 84], the newest image last, and zeros
    before an episode's first image. Rewards are not clipped.

    kwargs: fields of `Preprocessing`, and arguments of ale_py's environment such as render_mode."""
    from tandem.envs.atari_fire import Fire  # imports Gymnasium, see `import_gymnasium`

    wrappers = import_gymnasium().wrappers
    does, rest = split(kwargs)
    game = wrappers.AtariPreprocessing(
        _game(env, does, rest),
        noop_max=does.noop_max,
        frame_skip=does.frame_skip,
        screen_size=SIZE,
        terminal_on_life_loss=does.life_loss_ends,
    )
    if does.press_fire and game.unwrapped.get_action_meanings()[1:2] == ["FIRE"]:
        game = Fire(game)
    return declared(
        wrappers.FrameStackObservation(game, does.frame_stack, padding_type="zero"),
        does.frame_stack,
    )


def declared(env: Any, frames: int) -> Any:
    """Declare the environment's observations as stacks [frames, ...] of the latest images, the
    newest last, with zeros before an episode's first. A replay buffer then stores each image once.
    """
    if frames > 1:
        env.observation_space.stack = frames
    return env


def history(
    env: str = "ALE/Breakout-v5",
    num_frames: int = 4,
    act_steps: int = 2,
    *,
    clip: bool = True,
    episodic: bool = True,
) -> Any:
    """Make a game with the older preprocessing of actor-critic methods.

    With `clip` and `episodic` False, it is the game used for evaluation.

    Args:
        env: Atari id.
        num_frames: Number of stacked grayscale images of 84 x 84.
        act_steps: Steps of the id per action (4 frames each for ALE/...-v5). Their rewards are
            summed.
        clip: Clip the summed reward to [-1, 1].
        episodic: End the episode when a life is lost.
    """
    quiet()
    skip = _spec(env).kwargs["frameskip"]
    if not isinstance(skip, int):
        raise SettingError(
            f"{env} skips a random number of frames, {skip}.",
            "an id with a fixed number of skipped frames",
            f"use 'ALE/{env.rpartition('/')[2].split('-')[0]}-v5'.",
        )
    frames = act_steps * skip
    game = make(
        env,
        {
            "frame_stack": num_frames,
            "frame_skip": frames,
            "noop_max": 30,
            "life_loss_ends": episodic,
        },
    )
    return import_gymnasium().wrappers.ClipReward(game, -1.0, 1.0) if clip else game


def vector(env: str, n: int, kwargs: EnvKwargs | None, threads: int = 1) -> Any:
    """Make ale_py's vector of n games, which steps, pools, resizes and stacks in C++. Images are
    bit-for-bit those of `make`.

    Raises SettingError for options that only `make` supports."""
    quiet()
    from ale_py.vector_env import AtariVectorEnv

    does, rest = split(kwargs)
    settings = _arguments(env, does, rest)
    del settings["frameskip"]
    if does.press_fire and not does.life_loss_ends:
        raise SettingError(
            "ale_py's vector environment presses FIRE at resets only, and life_loss_ends=False.",
            "life_loss_ends=True or press_fire=False",
            "use mode='plain'.",
        )
    games = AtariVectorEnv(
        settings.pop("game"),
        n,
        num_threads=threads,
        img_height=SIZE,
        img_width=SIZE,
        stack_num=does.frame_stack,
        frameskip=does.frame_skip,
        maxpool=does.frame_skip > 1,
        noop_max=does.noop_max,
        episodic_life=does.life_loss_ends,
        reward_clipping=False,
        use_fire_reset=does.press_fire,
        **settings,
    )
    if does.frame_stack > 1:
        games.single_observation_space.stack = does.frame_stack
    return games


def quiet() -> None:
    """Register the ids, and suppress ale_py's banner on stderr."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def _arguments(env: str, does: Preprocessing, rest: EnvKwargs) -> JSONDict:
    """Return ale_py's arguments for an id, with one frame per step."""
    result = {**_spec(env).kwargs, **rest, "frameskip": 1}
    if does.sticky_actions >= 0:
        result["repeat_action_probability"] = does.sticky_actions
    return result


def _spec(env: str) -> Any:
    return import_gymnasium().spec(env.removeprefix("ale_py:"))


def _game(env: str, does: Preprocessing, rest: EnvKwargs) -> Any:
    quiet()
    given = _arguments(env, does, rest)
    return import_gymnasium().make(env, disable_env_checker=True, **given)
