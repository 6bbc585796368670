"""Atari games as agents see them: grey pictures of 84 x 84, stacked, with frames skipped
(Gymnasium's wrappers over ale_py).

What ends an episode and what a reward is worth differ between training and evaluation: `training`
says what to add to an environment's arguments for the former. An environment that a user made is
never touched, whatever it is of.
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
    """Whether this is the id of an Atari game."""
    if not isinstance(env, str):
        return False
    if env.startswith(("ALE/", "ale_py:")):
        return True
    plugged(env)  # which may be a game of an installed package's
    spec = import_gymnasium().registry.get(env)
    return spec is not None and str(spec.entry_point).startswith("ale_py.")


def takes_preprocessing(env: object) -> bool:
    """Whether `Preprocessing` says something of an environment: an Atari id of ale_py's, or of
    EnvPool's."""
    return is_atari(env) or bool(getattr(env, "is_atari", False))


def arguments(env: object, chosen: Preprocessing) -> JSONDict:
    """What to make the environment with wherever the run's agent plays; {} for one that is no Atari
    id.

    Raises SettingError for settings of Atari games with another environment, and for ones out of
    range."""
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
    """`kwargs` of an environment with what is added for training."""
    more = {n: getattr(chosen, n) for n in ONLY_TRAINING} if takes_preprocessing(env) else {}
    return {**(kwargs or {}), **more} or None


def split(kwargs: EnvKwargs | None) -> tuple[Preprocessing, JSONDict]:
    """Returns (what is done to the game, arguments of the game itself). What `kwargs` do not say
    is as for evaluation."""
    rest, options = dict(kwargs or {}), dict.fromkeys(ONLY_TRAINING, False)
    options |= {f.name: rest.pop(f.name) for f in fields(Preprocessing) if f.name in rest}
    return Preprocessing(**options), rest


def make(env: str, kwargs: EnvKwargs | None = None) -> Any:
    """Returns one game: observations uint8 [frame_stack, 84, 84], the newest picture last and zeros
    before an episode's first.

    kwargs: any of `Preprocessing`, and arguments of ale_py's environment such as render_mode.
      Rewards are not clipped."""
    from tandem.envs.atari_fire import Fire  # with Gymnasium, see `import_gymnasium`

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
    """Returns the same environment, its observations declared to be stacks [frames, ...] of the
    newest pictures, the newest last, with zeros before an episode's first. A replay buffer then
    stores each picture once."""
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
    """A game in the older manner of actor-critics: grey, 84 x 84, the newest `num_frames` pictures,
    each action taken for `act_steps` steps of the id (4 frames each for ALE/...-v5), their rewards
    summed and the sum clipped to [-1, 1] (`clip`), a lost life the end of the episode (`episodic`).
    With both False it is the game that evaluations score."""
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
    """Returns ale_py's own vector of n games. It steps, pools, resizes and stacks in C++; pictures
    are those of `make` bit for bit.

    Raises SettingError where it cannot do what `make` does."""
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
    """Makes the ids known, and keeps ale_py from greeting on stderr."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def _arguments(env: str, does: Preprocessing, rest: EnvKwargs) -> JSONDict:
    """Arguments of ale_py for the game of an id, one frame a step."""
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
