"""Creation of environments from names, objects and functions, and of vectors of them."""

from __future__ import annotations

import copy
import re
import warnings
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from tandem.envs import atari, functions, particles
from tandem.envs.actions import random_actions
from tandem.envs.atari_vector import AtariVector
from tandem.envs.calls import has_methods, spec_of
from tandem.envs.envpool import is_id as is_envpool
from tandem.envs.ids import attribute, guarded, import_gymnasium, register
from tandem.envs.occupied import is_shared
from tandem.envs.opening import opening
from tandem.envs.stepped import Stepped
from tandem.envs.vector import Environments, Step, close, closed_on_error, episode_seed
from tandem.envs.vector_env import VectorEnvironments, is_vector
from tandem.envs.vector_source import VectorSource, brought
from tandem.envs.wrapped import Wrapped
from tandem.errors import (
    ResumeError,
    SettingError,
    TandemError,
    at_least,
    misfit,
    one_of,
)
from tandem.types import EnvKwargs, leaves

__all__ = [
    "Environments",
    "Step",
    "Stepped",
    "episode_seed",
    "environment_name",
    "make",
    "resume_fault",
    "separate",
    "spare",
    "spaces_of",
    "vectorize",
    "versioned",
]

EnvLike = Any  # a Gymnasium id, an environment, or a callable that returns one
Mode = Literal["auto", "native", "plain"]

NATIVE_FROM = 8  # below, NumPy's overhead exceeds the saved loop (CartPole breaks even at 5)


def environment_name(env: EnvLike) -> str:
    """Return the name for messages and files: the id if there is one, otherwise the name of the
    class or function."""
    if isinstance(env, str):
        return str(env)
    if isinstance(env, VectorSource):
        return env.name
    # on a wrapper class, `spec` is a property
    if not isinstance(env, type) and (spec := spec_of(env)) is not None:
        return str(spec.id)
    if is_instance(env):
        return type(env.unwrapped).__name__
    if isinstance(env, partial):  # a partial has no name
        return environment_name(env.args[0] if env.func is make else env.func)
    return str(getattr(env, "__name__", type(env).__name__))


def make(env: EnvLike, kwargs: EnvKwargs | None = None) -> Any:
    """Make a Gymnasium environment.

    Args:
        env: Gymnasium id ("CartPole-v1", "module:Id-v0"), class or function of a module
            ("module:MyEnv"), environment (returned unchanged), or a callable that returns one. The
            same forms work for PettingZoo: agents that move simultaneously
            ("mpe/simple_spread_v3") become a `Team`, and a two-player turn-based game
            ("classic/tictactoe_v3") becomes `Versus` against a random player. Functional JAX
            environments are given by id ("tandem/CartPole-v1", "gymnax/CartPole-v1") or as an
            object (`tandem.functional`). A `Wrapped` id gets its wrappers.
        kwargs: Arguments for an id or a callable, such as render_mode. Those of an Atari game can
            include the fields of `atari.Preprocessing`.

    Raises:
        UnknownNameError: The id is unknown.
        EngineError: The environment's packages are not installed.
        SettingError: The arguments do not fit.
    """

    def of_id(name: str) -> Any:
        """Make an environment from an id, or from a class or function of a module."""
        if (own := attribute(name)) is not None:
            return make(own, kwargs)
        return import_gymnasium().make(name, disable_env_checker=True, **(kwargs or {}))

    _refuse_vector(env)
    if isinstance(env, Wrapped):
        return env.around(lambda name: make(name, kwargs))
    if functions.is_id(env):
        return functions.view(env, kwargs)
    if atari.is_atari(env):
        return guarded(env, lambda: atari.make(env, kwargs))
    from tandem.envs import pettingzoo, versus  # import Gymnasium
    from tandem.envs import team as teams

    if isinstance(env, str) and env.partition("/")[0] in teams.FAMILIES:
        return guarded(env, lambda: teams.team(env, kwargs))
    if isinstance(env, str) and env.startswith("classic/"):
        return versus.classic(env, kwargs)
    if isinstance(env, str):
        return guarded(env, lambda: of_id(env))
    makes = callable(env) and not (is_instance(env) or functions.is_one(env))
    if kwargs and not makes:
        raise SettingError(
            f"arguments {dict(kwargs)} were given for an existing {environment_name(env)}.",
            "env_kwargs with an id, a class or a function",
            "create the environment with these arguments, and leave env_kwargs out.",
        )
    if makes and (why := misfit(env, **dict(kwargs or {}))):
        how = f"with {dict(kwargs)}" if kwargs else "without arguments"
        raise SettingError(
            f"{environment_name(env)} cannot be called {how}: {why}.",
            "a Gymnasium id, an environment, or a callable that returns one",
            "give the arguments that it takes in env_kwargs."
            if kwargs
            else "give the arguments in env_kwargs, or bind them, as in lambda: MyEnv(size=3).",
        )
    if functions.is_one(env):
        return functions.view(env, name=environment_name(env))
    env = partial(env, **kwargs) if kwargs else env
    instance = env if is_instance(env) else functions.called(env) if callable(env) else None
    if functions.is_one(instance):
        return functions.view(instance, name=environment_name(env))
    if instance is not None and pettingzoo.in_turn(instance) and not pettingzoo.together(instance):
        return versus.Versus(instance)
    if hasattr(instance, "possible_agents"):
        return teams.team(instance)
    if not isinstance(instance, import_gymnasium().Env):
        raise SettingError(
            f"{env!r} returned {instance!r} of type {type(instance).__name__}."
            if callable(env)
            else f"{env!r} is a {type(env).__name__}.",
            "a Gymnasium id, a gymnasium.Env, or a callable without arguments that returns a "
            "gymnasium.Env, or JAX functions: reset(key) and step(key, state, action)",
            "return a gymnasium.Env, or an object with these functions "
            "(docs/howto/environments.md)."
            if callable(env)
            else "pass an id, such as 'CartPole-v1', or a function that returns the environment; "
            "wrap an older interface: tandem.envs.plain.Plain(env).",
        )
    return instance


def versioned(env: EnvLike) -> EnvLike:
    """Add the newest version to an id without one ("CartPole"), as Gymnasium does; entries of the
    zoo have versions."""
    if not isinstance(env, str) or ":" in env or re.search(r"[-_]v\d+$", env):
        return env
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        instance = make(env)
    instance.close()
    return str(instance.spec.id) if instance.spec is not None else env


def brings_vector(env: EnvLike) -> bool:
    """Return true for a vector environment, or an object or id that makes one."""
    return isinstance(env, VectorSource) or is_vector(env) or is_envpool(env)


def _refuse_vector(env: EnvLike) -> None:
    if brings_vector(env):
        raise SettingError(
            f"{environment_name(env)} is a vector environment.",
            "a single environment; only tandem.train, tandem.evaluate and `tandem check` accept "
            "vectors",
            "give the environment, its id, or a function that returns it.",
        )


def spaces_of(
    env: EnvLike, kwargs: EnvKwargs | None = None, made: Any | None = None
) -> tuple[Any, Any]:
    """Return the Gymnasium (observation space, action space) of an environment, or of one
    environment of a vector. The environment is created for this, unless it is given as `made`,
    which stays open. Action masks in its info are part of the observation space, see
    `envs.action_masks`. Raises SpaceError if a space is missing."""
    from tandem.envs.adapted import adapted  # imports Gymnasium

    source = None
    if brings_vector(env):
        source, _ = brought(env)
    if source is not None:
        envs = source.environments(None, 0, kwargs)
        envs.close()
        return envs.observation_space, envs.action_space
    instance = make(env, kwargs) if made is None else make(made)
    try:
        (masked,) = adapted([instance])
        return masked.observation_space, masked.action_space
    finally:
        if made is None and not is_instance(env):
            close(environment_name(env), [instance])


def vectorize(
    env: EnvLike,
    n: int = 1,
    seed: int = 0,
    mode: Mode = "auto",
    kwargs: EnvKwargs | None = None,
    first: int = 0,
) -> Environments:
    """Make n environments that are stepped together.

    Args:
        env: As for `make`, or the `VectorSource` of a user's vector, which ignores `mode`.
        n: Number of environments.
        seed: Seed of the run.
        mode: "native" uses the environment's vector entry point, "plain" steps n environments one
            after another. "auto" is native if n is at least NATIVE_FROM and the registered vector
            can be resumed exactly, otherwise plain. Atari games without wrappers are native for
            every n, since ale_py's vector is faster even for one game and resumes exactly. So are
            particle worlds that `Particles` reproduces bit for bit, and functional environments,
            which take one JAX call.
        kwargs: Arguments for an id or a callable.
        first: Number of the first environment, which determines the seeds, if these environments
            are part of a larger set.
    """
    at_least("n", n, 1)
    one_of("mode", mode, get_args(Mode))
    if isinstance(env, VectorSource):
        return env.environments(n, seed, kwargs)
    if isinstance(env, Wrapped):
        if mode == "native":
            return _native(env, n, seed, kwargs, first)  # raises SettingError
        mode = "plain"
    if atari.is_atari(env):
        return _atari(env, n, seed, mode, kwargs, first)
    if particles.chosen(env, mode, kwargs):
        return guarded(env, lambda: particles.Particles(env, n, seed, kwargs, first))
    if mode == "native" and (isinstance(env, str) and not functions.is_id(env)):
        return _native(env, n, seed, kwargs, first)
    if mode == "auto" and n >= NATIVE_FROM and _has_native(env):
        try:
            native = _native(env, n, seed, kwargs, first)
            with closed_on_error(native.close):
                native.reset()
                native.state()
            return native
        # unsupported arguments or autoreset mode, or no exact resume: use plain environments
        except (SettingError, ResumeError):
            pass
    return _plain(env, n, seed, kwargs, first, mode)


def separate(env: EnvLike) -> EnvLike:
    """Return a version of `env` that can be used without affecting it: environments are copied,
    while ids and callables make new ones anyway. Raises SettingError if `env` cannot be copied,
    which vectors never can.

    Evaluation during training needs this, since stepping the training environment would interrupt
    its episode."""
    if not is_instance(env) and not is_vector(env):
        return env
    try:
        if is_vector(env):
            raise TypeError("it is a vector environment, and evaluation needs a second one")
        copied = copy.deepcopy(env)
        if is_shared(copied):
            raise TypeError("its copy steps the same environment")
    except Exception as error:
        raise SettingError(
            f"the environment {environment_name(env)} cannot be copied: {error}",
            "a separate environment for evaluation",
            "pass a callable that makes the environment, or its id.",
        ) from error
    return copied


def spare(env: Any) -> Any:
    """Return the environment or vector, or a copy if a run is stepping it (see `separate`)."""
    return separate(env) if is_shared(env) else env


def resume_fault(
    env: EnvLike,
    steps: int = 60,
    seed: int = 0,
    mode: Mode = "auto",
    kwargs: EnvKwargs | None = None,
) -> TandemError | None:
    """Check that `env` can be resumed exactly. Return None if so, otherwise the error that a
    resumed run would raise.

    Steps two environments with random actions, saves their state, continues for `steps` steps,
    repeats these from the saved state in new environments, and compares."""
    n = 1 if is_instance(env) else 2
    first = vectorize(separate(env), n, seed, mode, kwargs)
    with closed_on_error(first.close):
        second = vectorize(separate(env), n, seed, mode, kwargs)
    return resume_fault_between(first, second, steps, seed)


def resume_fault_between(
    first: Environments, second: Environments, steps: int, seed: int
) -> TandemError | None:
    """Check as `resume_fault` does that `second` continues exactly as `first`; close both."""
    n = first.n
    rng = np.random.default_rng(seed)
    try:
        obs = first.reset()
        for _ in range(steps):
            obs = first.step(random_actions(first.action, n, rng, obs)).obs
        data, arrays = first.state()
        actions, expected = [], []
        for _ in range(steps):
            actions.append(random_actions(first.action, n, rng, obs))
            expected.append(first.step(actions[-1]))
            obs = expected[-1].obs
        second.reset()
        second.load_state(data, arrays)
        for t, (a, one) in enumerate(zip(actions, expected, strict=True)):
            if differ(one, second.step(a)):
                return ResumeError(
                    f"{first.name} diverged {t + 1} steps after it was resumed; it is not exactly "
                    "resumable.",
                    "the same observations and rewards after the same seeds and actions",
                    "sample every random number from self.np_random, and reset all state that "
                    "changes.",
                )
    except ResumeError as fault:
        return fault
    finally:
        first.close()
        second.close()
    return None


def differ(one: Step, other: Step) -> bool:
    """Return true if two steps are not bit-for-bit identical."""
    return any(
        a.tobytes() != b.tobytes() for a, b in zip(leaves(one[:5]), leaves(other[:5]), strict=True)
    )


def is_instance(env: EnvLike) -> bool:
    return (
        not isinstance(env, str | type) and hasattr(env, "unwrapped") and not functions.is_one(env)
    )


def _plain(
    env: EnvLike,
    n: int,
    seed: int,
    kwargs: EnvKwargs | None,
    first: int,
    mode: Mode = "plain",
) -> Environments:

    def made(i: int) -> Any:
        with opening(episode_seed(seed, first + i, 0)):
            return make(env, kwargs)

    one = made(0)
    if mode != "plain" and has_methods(one, "together"):  # functional
        return one.together(n, seed, first)
    if mode == "native":
        one.close()
        return _native(env, n, seed, kwargs, first)
    envs = [one]
    own = [] if is_instance(env) else envs
    with closed_on_error(lambda: close(environment_name(env), own)):
        envs += (made(i) for i in range(1, n))
        return _stepped(env, envs, seed, first)


def _stepped(env: EnvLike, envs: list[Any], seed: int, first: int) -> Stepped:
    n, one = len(envs), envs[0]
    if len({id(getattr(e.unwrapped, "inner", e.unwrapped)) for e in envs}) < n:
        raise SettingError(
            f"envs={n}, but {environment_name(env)} is the same environment each time.",
            "a separate environment for each",
            "give envs=1, or what creates a new one: the class, as in tandem.train(…, "
            f"{type(one.unwrapped).__name__}), a function, or an id.",
        )
    from tandem.envs.adapted import adapted  # imports Gymnasium

    with opening(episode_seed(seed, first, 0)):
        return Stepped(environment_name(env), adapted(envs), seed, first=first)


def _atari(
    env: str, n: int, seed: int, mode: Mode, kwargs: EnvKwargs | None, first: int
) -> Environments:
    does = atari.split(kwargs)[0]
    # ale_py's vector presses FIRE only at resets, which suffices if a lost life causes a reset.
    native = mode == "native" or (mode == "auto" and (does.life_loss_ends or not does.press_fire))
    envs: Environments
    if native:
        envs = guarded(env, lambda: AtariVector(env, n, seed, kwargs, first))
    else:
        envs = _plain(env, n, seed, kwargs, first, "plain")
    envs.clips = does.clip_rewards
    return envs


def _native(env: EnvLike, n: int, seed: int, kwargs: EnvKwargs | None, first: int) -> Environments:
    if not _has_native(env):
        shown = environment_name(env) + (" with wrappers" if isinstance(env, Wrapped) else "")
        raise SettingError(
            f"{shown} has no vector entry point.",
            "an id registered with one",
            "use mode='auto' or mode='plain'.",
        )
    # -1 means no limit to gymnasium.make, but vector entry points take it literally
    if (kwargs or {}).get("max_episode_steps") == -1:
        raise SettingError(
            f"max_episode_steps=-1 truncates every episode of {environment_name(env)} at once in "
            "native mode.",
            "a positive number of steps; only mode='plain' supports episodes without a limit",
            "use mode='plain', or leave max_episode_steps out.",
        )
    envs = guarded(
        env,
        lambda: import_gymnasium().make_vec(
            env, n, vectorization_mode="vector_entry_point", **dict(kwargs or {})
        ),
    )
    with closed_on_error(envs.close):
        return VectorEnvironments(env, envs, seed, first, registered=True)


def _has_native(env: EnvLike) -> bool:
    if not isinstance(env, str) or isinstance(env, Wrapped):
        return False
    register(env)
    spec = import_gymnasium().registry.get(env)
    return spec is not None and spec.vector_entry_point is not None and not spec.additional_wrappers
