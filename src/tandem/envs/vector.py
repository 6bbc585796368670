"""Common interface of all vector environments, as used by the collector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tandem.envs.calls import EnvironmentCall, sealed
from tandem.envs.tensors import is_finite, to_numpy
from tandem.errors import EnvironmentFault, NonFiniteError, ResumeError, attempt
from tandem.spaces import MASK, Leaf, Spec, action_leaf, fits, flattener, observation_spec
from tandem.types import Array, JSONDict, Tree, leaves

Arrays = dict[str, Array]
SUCCESS = "is_success"  # info key of Gymnasium-Robotics and Stable-Baselines3
NONE = np.empty(0, np.int64)


class Step(NamedTuple):
    """One step of N environments. Every array is new, so the caller may keep it."""

    obs: Tree  # [N, ...]  observations to act on next
    reward: Array  # float32 [N]
    terminated: Array  # bool [N]
    truncated: Array  # bool [N]
    valid: Array  # bool [N]  false for an environment that only reset itself in this step
    # (environment, true last observation) where `obs` already belongs to the next episode
    final: list[tuple[int, Tree]] = []
    # [N, ...]  further results, by the names in `Environments.extra`
    extra: dict[str, Array] = {}
    # environments that failed in this step and were restarted; not `valid`
    lost: list[int] = []
    success: dict[int, float | None] = {}  # of ended episodes: 1 or 0, if `info` reports it


class Environments(ABC):
    """N environments with the same observation and action spaces, which reset themselves.

    After a step in which environment i ended, there are two cases. With a reset in the same step,
    `obs[i]` starts the next episode and `final` holds the last observation of the ended one.
    Otherwise `obs[i]` is that last observation, and the next step only resets, whatever the action
    (`valid[i]` is false there).
    """

    n: int
    name: str
    observation_space: Any  # Gymnasium space of one environment
    action_space: Any
    observation: Spec
    parts: dict[str, Leaf]  # parts of an observation, by name; "" for a single array
    action: Leaf
    gone = False  # true if the environments are permanently lost, with their episodes
    resumable = True  # if false, there is no saved state, and a resumed run begins new episodes
    # further results of each step, such as "rewards" of each agent of a team
    extra: Mapping[str, Leaf] = MappingProxyType({})
    # one environment, or the vector, including its wrappers
    around: Any | None = None
    unsealed = "give vectorization='plain'."  # error advice: how to allow calls in them
    clips = False  # if true, learners receive rewards clipped to [-1, 1]; scores stay unclipped

    def __init__(self, name: str, n: int, observation_space: Any, action_space: Any) -> None:
        self.name, self.n = name, n
        self.observation_space, self.action_space = observation_space, action_space
        self.observation = spec = observation_spec(observation_space)
        self.parts = spec if isinstance(spec, dict) else {"": spec}
        self._symbols = [(key, leaf) for key, leaf in self.parts.items() if leaf.sizes]
        self.flatten = flattener(observation_space)  # from an observation to its Spec's entries
        self.action = action_leaf(action_space, self.observation)
        self._dtype = self.action.own or None  # of the environments' actions; None: unchanged
        self._first_choices = np.cumsum((0, *self.action.sizes))[:-1]  # mask offsets per position
        self.calls: list[EnvironmentCall] = []  # calls made so far, in order

    @abstractmethod
    def reset(self) -> Tree:
        """Start the first episode of every environment. Return the observations [N, ...]."""

    def restart(self) -> Tree:
        """Start the next episode of every environment, abandoning running ones, or the first if
        episodes are not numbered. Return the observations [N, ...]."""
        return self.reset()

    def episodes(self) -> list[int]:
        """Return the numbers of the running episodes; empty if they are not numbered."""
        return []

    def skip(self, episodes: list[int]) -> None:
        """Mark all episodes up to these numbers as over, so that `restart` begins later ones.
        Environments missing from the list have had none."""
        return

    @abstractmethod
    def step(self, actions: Array) -> Step:
        """Step with actions [N, ...] from the action space.

        Raises EnvironmentFault if an environment raises or returns a wrong shape, NonFiniteError
        for NaN or infinity in an observation or reward. Both name the environment and the step of
        its episode."""

    @abstractmethod
    def state(self) -> tuple[JSONDict, Arrays]:
        """Return the state needed to resume exactly from here, without changing anything. Raises
        ResumeError if that is not possible."""

    @abstractmethod
    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        """Resume from the result of `state`, in new or used environments. Raises ResumeError if
        they cannot be restored."""

    def make_calls(self, calls: Sequence[Any]) -> None:
        """Make these calls (`EnvironmentCall`s or their JSON form) in every environment, between
        two steps. Environments are reset first if needed, since methods may require that."""
        for call in calls:
            self._call(made := EnvironmentCall(*call))
            self.calls.append(made)

    def _call(self, call: EnvironmentCall) -> None:
        raise sealed(call.name, self.name, self.unsealed)

    def attribute(self, name: str) -> list[object]:
        """Return the values of an attribute of the environments, or of their wrappers."""
        raise sealed(name, self.name, self.unsealed)

    def request_stop(self) -> None:
        """Announce that the run ends soon: avoid long waits for environments, if possible."""
        return

    def forget_stop(self) -> None:
        """Revoke `request_stop`, since the environments may be used again."""
        return

    def own(self, obs: Tree) -> Tree:
        """Convert observations [N, ...] from a checkpoint to the format of `step`."""
        return obs

    @abstractmethod
    def close(self) -> None:
        """Release the environments' resources."""

    def check(self, obs: Tree, when: Callable[[int], str], going: Array | None = None) -> None:
        """Raise an error for non-finite observations [N, ...], discrete values outside their space,
        and masks without a valid action for an environment that acts.

        when: describes the current step of an environment. going: which ones act, [N]; None: all.
        """
        for x in obs.values() if isinstance(obs, dict) else (obs,):
            if not _finite(x):
                i = int(bad_rows(x := to_numpy(x))[0])
                raise not_finite(self.name, "the observation", i, when(i), x[i])
        for key, leaf in self._symbols:
            x = obs[key] if isinstance(obs, dict) else obs
            if len(rows := outside(x, leaf)):
                i = int(rows[0])
                raise no_symbol(self.name, i, when(i), x[i], leaf)
        if self.action.masked:
            rows = self.stuck(obs)
            rows = rows if going is None else rows[going[rows]]
            if len(rows):
                raise no_choice(self.name, int(rows[0]), when(int(rows[0])))

    def check_last(self, i: int, obs: Tree, when: str, terminated: bool) -> None:
        """Check the last observation of environment i, as `check` does. Its mask counts only after
        truncation, where the observation provides the bootstrap value."""
        for x in leaves(obs):
            if not _finite(x):
                raise not_finite(self.name, "the last observation", i, when, x)
        for key, leaf in self._symbols:
            x = obs[key] if isinstance(obs, dict) else obs
            if len(outside(x[None], leaf)):
                raise no_symbol(self.name, i, when, x, leaf)
        if self.action.masked and not terminated and len(self.stuck({MASK: obs[MASK][None]})):
            raise no_choice(self.name, i, when)

    def stuck(self, obs: Tree) -> Array:
        """Return the indices of the rows of obs [N, ...] whose mask has a position without a valid
        action."""
        left = np.add.reduceat(obs[MASK] != 0, self._first_choices, axis=1)
        return np.flatnonzero(~left.astype(np.bool_).all(axis=1))


def episode_seed(seed: int, env: int, episode: int) -> int:
    """Return the seed of an environment's episode, of 31 bits, which every simulator accepts."""
    return int(np.random.SeedSequence((seed, env, episode)).generate_state(1)[0]) >> 1


def close(name: str, envs: Iterable[Any]) -> None:
    """Close each environment or vector. Exceptions are logged, and the others are still closed."""
    for env in envs:
        with attempt(f"close of {name} failed"):
            env.close()


@contextmanager
def closed_on_error(*closes: Callable[[], object]) -> Iterator[None]:
    """Call these functions, which close environments or stop their owners, if the block raises."""
    try:
        yield
    except BaseException:
        for each in closes:
            with attempt("close of an environment failed"):
                each()
        raise


def success_of(info: object) -> float | None:
    """Return 1 or 0 for an episode's success, from the info of its last step; None if that has no
    `is_success`."""
    value = info.get(SUCCESS) if isinstance(info, Mapping) else None
    return None if value is None else float(np.all(value))


def begun(data: JSONDict) -> list[int]:
    """Return the episode numbers in a vector's state, possibly from several processes; empty if
    they are not numbered."""
    return [k for part in data.get("parts", [data]) for k in part.get("episodes", [])]


def all_finite(x: Array) -> bool:
    """Return true if a contiguous float array has no NaN or infinity; any other number times 0 is
    0. On small arrays the dot product takes a third of the time of isfinite().all()."""
    flat = x.ravel()
    return not flat.dot(_zeros(flat.size))


@lru_cache(maxsize=64)
def _zeros(size: int) -> Array:
    return np.zeros(size, np.float32)


def storable(value: Tree, spec: Leaf) -> bool:
    """Return true if an observation can be stored in the dtype of its space. Floats are never
    truncated to integers, and integers must fit the range of the dtype."""
    x = np.asarray(value)
    return x.dtype.kind in ("biuf" if spec.dtype.startswith("f") else "biu") and fits(x, spec.dtype)


def _finite(x: Array) -> bool:
    if isinstance(x, np.ndarray):
        return x.dtype.kind != "f" or all_finite(x)
    return is_finite(x)


def bad_rows(x: Array) -> Array:
    """Return the indices of the rows of [N, ...] that contain NaN or infinity."""
    return np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))


def outside(x: Array, spec: Leaf) -> Array:
    """Return the indices of the rows of discrete values [N, ...] that lie outside their space.
    Backends would turn these into zeros, or fail."""
    sizes = np.array(spec.sizes) if spec.shape else spec.sizes[0]
    odd = (x < spec.start) | (x >= spec.start + sizes)
    return np.flatnonzero(odd.reshape(len(x), -1).any(axis=1)) if odd.any() else NONE


def not_finite(name: str, what: str, env: int, when: str, value: Array) -> NonFiniteError:
    return NonFiniteError(
        f"environment {env} of {name} returned {what} {np.asarray(value)} {when}.",
        "finite numbers in every observation and reward",
        "look for a division by zero or a diverging simulation in the environment, whose first bad "
        "step `tandem check` shows, or for actions that are not finite, of a custom network.",
    )


def no_choice(name: str, env: int, when: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"the action mask of environment {env} of {name} masks every choice {when}.",
        "at least one valid action for every choice",
        "allow a no-op action, or end the episode (terminated) where no action is valid.",
    )


_OR_PLAIN = "or wrap the environment: tandem.envs.plain.Plain(env)."
# Error text of an environment with the API of gym before 0.26 -> (Gymnasium's API, fix).
_OLD = {
    "to unpack (expected 5, got 4": (
        "(observation, reward, terminated, truncated, info) from step",
        "return these five from step",
    ),
    "reset() got an unexpected keyword argument": (
        "reset(self, *, seed=None, options=None)",
        "let reset take seed=None and options=None",
    ),
}


def raised(name: str, env: int | None, step: int | None, error: Exception) -> EnvironmentFault:
    if step == 0 and isinstance(error, ValueError) and "to unpack (expected 2" in str(error):
        return _observation_alone(name)  # raised by a Gymnasium wrapper
    expected = "an environment that steps and resets without exceptions"
    fix = "fix the environment; its own traceback is above this one."
    for text, (wanted, change) in _OLD.items():
        if text in str(error):
            expected, fix = f"Gymnasium's {wanted}", f"{change}; {_OR_PLAIN}"
    source = f"{name}'s own vector environment" if env is None else f"environment {env} of {name}"
    when = (
        ""
        if step is None
        else " while resetting"
        if step == 0
        else f" at step {step} of its episode"
    )
    return EnvironmentFault(
        f"{source} raised {type(error).__name__}{when}: {error}",
        expected,
        fix,
    )


def opened(name: str, came: Any) -> Any:
    """Return the result of `reset` if it is (observation, info). Raises EnvironmentFault for an
    observation alone."""
    is_pair = isinstance(came, tuple | list) and len(came) == 2
    if is_pair and not isinstance(came[1], np.ndarray | np.generic | float | int):
        return came
    raise _observation_alone(name)


def _observation_alone(name: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"reset of {name} returned only the observation, as gym did before 0.26.",
        "Gymnasium's (observation, info)",
        f"return obs, {{}} from reset; {_OR_PLAIN}",
    )


def wrong_observation(
    name: str, env: int, step: int, value: object, expected: Leaf, key: str | None
) -> EnvironmentFault:
    where = "" if key is None else f" under {key!r}"
    received = np.asarray(value)
    shown = f" {received}" if received.size <= 16 and received.shape == expected.shape else ""
    return EnvironmentFault(
        f"environment {env} of {name} returned an observation{where}{shown} of shape "
        f"{received.shape} and dtype {received.dtype} at step {step} of its episode.",
        f"shape {expected.shape} and dtype {expected.dtype}, as declared in its observation_space",
        "correct the environment's observation or its observation_space.",
    )


def no_symbol(name: str, env: int, when: str, value: Array, spec: Leaf) -> EnvironmentFault:
    last = tuple(spec.start + n - 1 for n in spec.sizes)
    return EnvironmentFault(
        f"environment {env} of {name} returned the observation {value} {when}.",
        f"whole numbers from {spec.start} to {last if spec.shape else last[0]}, as declared in "
        "its observation_space",
        "correct the environment's observation or its observation_space.",
    )


def wrong_reward(name: str, rewards: Sequence[Tree]) -> EnvironmentFault:
    env = next(
        (
            i
            for i, r in enumerate(rewards)
            if np.size(r) != 1 or not np.issubdtype(np.asarray(r).dtype, np.number)
        ),
        0,
    )
    # values that float() converts never get here
    one = "float(np.sum(reward))" if np.size(rewards[env]) > 1 else "0.0"
    return EnvironmentFault(
        f"environment {env} of {name} returned the reward {rewards[env]!r}.",
        "one number for each step",
        f"return one, such as {one}, from the environment's step.",
    )


def wrong_flag(name: str, what: str, flags: Sequence[Tree]) -> EnvironmentFault:
    env = next((i for i, flag in enumerate(flags) if np.ndim(flag)), 0)
    one = f"bool({what})" if np.size(flags[env]) == 1 else f"bool({what}.all()), or of any(),"
    return EnvironmentFault(
        f"environment {env} of {name} returned {what}={flags[env]!r}.",
        "true or false for each step",
        f"return {one} from the environment's step.",
    )


def other_number(saved: int, here: int) -> ResumeError:
    """Return the error for a saved state with a different number of environments."""
    return ResumeError(
        f"the saved state has {saved} environments, but this run has {here}.",
        "the run's original number of environments",
        f"make {saved} environments.",
    )
