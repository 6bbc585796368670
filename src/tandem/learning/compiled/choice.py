"""Choice of compiled runs: requirements, and when compiling is beneficial."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tandem.algorithms import own
from tandem.errors import EngineError, SettingError, note
from tandem.learning.config import Options
from tandem.learning.parallel.choice import has_gpu
from tandem.settings import by_name
from tandem.spaces import Leaf, Spec

MODE = "compiled"
CALL = 32  # updates per call from which, on CPUs, the uncompiled loop has no overhead
CHOOSE = "choose ppo, a2c, trpo, pqn, dqn, sac, tqc, crossq, td3 or ddpg"
NOT_COMPILED = {
    "recurrent": 0,
    "noisy": "no",
    "intrinsic": "no",
    "prioritized": False,
    "memmap": False,
    "hindsight": "no",
    "reset_every": 0,
    "updates_per_step": "auto",
    "n_step": 1,
}
ALONE = {"workers": 0, "runners": 0, "learners": 1, "opponents": 0, "devices": 1}


def obstacles(
    kind: Any, settings: Any, options: Options, action: Leaf | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (obstacle to a compiled run, advice) as texts. action: None if it is not known yet."""
    name = own.name_of(kind)
    if action is not None and action.kind == "dict":
        yield "a Dict or Tuple of actions", "choose an environment with one type of action"
    if kind.team:
        yield f"{name}, which has several agents", CHOOSE
    elif kind.needs == "sequences":
        yield f"{name}, which replays sequences", CHOOSE
    for what, usual in NOT_COMPILED.items():
        if (value := by_name(settings).get(what, usual)) != usual:
            yield f"{what}={value}", f"give {what}={usual!r}"
    if kind.needs == "transitions":
        for what in ("normalize_observations", "normalize_rewards"):
            if getattr(settings, what):
                yield f"{what}=True for replayed transitions", f"give {what}=False"
    if settings.action_noise == "gsde":
        yield "action_noise='gsde'", "give action_noise='gaussian'"
    for what, one in ALONE.items():
        if (count := getattr(options, what)) not in (one, "auto"):
            yield f"{what}={count}", f"leave {what} out"


def check(
    name: str, functional: bool, kind: Any, settings: Any, options: Options, action: Leaf
) -> None:
    """Raise SettingError if a run cannot be compiled as requested. name: of the environment."""
    if not functional:
        raise SettingError(
            f"vectorization='compiled' is not supported with {name}, which is stepped in Python.",
            "an environment of JAX functions, such as tandem/CartPole-v1",
            "give such an environment, or leave vectorization out.",
        )
    for what, instead in obstacles(kind, settings, options, action):
        raise SettingError(
            f"vectorization='compiled' is not supported with {what}.",
            "the options listed in docs/howto/compiled.md",
            f"{instead}; or leave vectorization out.",
        )


def settled(
    name: str,
    functional: bool,
    kind: Any,
    settings: Any,
    options: Options,
    spaces: tuple[Spec, Leaf],
    framework: str,
    device: str,
) -> tuple[Any, Options]:
    """Return a run's settings and options with "auto" vectorization resolved, for an environment
    of this name and these spaces. Raises the errors of `check`, and EngineError for a compiled run
    on a backend other than JAX."""
    if settings.vectorization == MODE:
        check(name, functional, kind, settings, options, spaces[1])
        if framework != "jax":
            raise EngineError(
                f"vectorization='compiled' is not supported on {framework}.",
                "jax, which compiles environments, acting and learning into one function",
                "give framework='jax' (--framework jax), or leave vectorization out.",
            )
    elif (
        settings.vectorization != "auto"
        or not functional
        or framework != "jax"
        or not pays(kind, settings, options, spaces, device)
    ):
        return settings, options
    if options.eval_envs != "auto":
        note("eval_envs has no effect on the device, which evaluates up to 10 episodes together")
    # workers cannot contribute to a compiled run
    return replace(settings, vectorization=MODE), replace(options, workers=0)


def pays(
    kind: Any, settings: Any, options: Options, spaces: tuple[Spec, Leaf], device: str
) -> bool:
    """Return true if a run in a functional environment on JAX should be compiled by default. On
    CPUs it should not with convolutions, which XLA makes slow inside loops, nor with many updates
    per call, where transfers to the device cost little."""
    # custom algorithms may act or prepare with NumPy, so they are compiled only on request
    observation, action = spaces
    if any(obstacles(kind, settings, options, action)) or not own.is_ours(own.name_of(kind)):
        return False
    if device == "cuda" or (device == "auto" and has_gpu()):
        return True
    parts: list[Leaf] = (
        list(observation.values()) if isinstance(observation, dict) else [observation]
    )
    if any(leaf.image for leaf in parts):
        return False
    call = 0 if kind.needs == "rollouts" else max(settings.updates_per_call, 1)
    return bool(call < CALL)
