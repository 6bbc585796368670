"""A vector of environments as the collector sees it: what every way of stepping N environments at
once has in common."""

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
SUCCESS = "is_success"  # in the info of Gymnasium-Robotics and Stable-Baselines3
NONE = np.empty(0, np.int64)


class Step(NamedTuple):
    """One step of N environments. Every array is new: the caller may keep it."""

    obs: Tree  # [N, ...]  what to act on next
    reward: Array  # float32 [N]
    terminated: Array  # bool [N]
    truncated: Array  # bool [N]
    valid: Array  # bool [N]  false for an environment that only reset itself in this step
    final: list[
        tuple[int, Tree]
    ] = []  # (environment, true last observation) where `obs` is already of the next episode
    extra: dict[
        str, Array
    ] = {}  # [N, ...]  what else came of it, by the names in `Environments.extra`
    lost: list[
        int
    ] = []  # environments that were lost in this step, and have begun anew; not `valid`
    success: dict[int, float | None] = {}  # of episodes that ended: 1 or 0, where `info` says it


class Environments(ABC):
    """N environments with one observation space and one action space, which reset themselves.

    After a step in which environment i ended, either `obs[i]` opens its next episode and `final`
    holds the observation that ended the last one (reset in the same step), or `obs[i]` is that last
    observation, and the next step, whatever the action, only resets (`valid[i]` is false there).
    """

    n: int
    name: str
    observation_space: Any  # of one environment, as Gymnasium has it
    action_space: Any
    observation: Spec
    parts: dict[str, Leaf]  # of an observation, by name; "" where it is one array
    action: Leaf
    gone = False  # for good, with their episodes: there is no state of them any more
    resumable = True  # whether there is a state of them; else a resumed run begins new episodes
    # what each step brings beside: "rewards", of each agent of a team
    extra: Mapping[str, Leaf] = MappingProxyType({})
    around: Any | None = (
        None  # one of the environments, or their vector, with the wrappers around it
    )
    unsealed = "give vectorization='plain'."  # what allows calls in them
    clips = False  # whether learners see rewards clipped to [-1, 1]; scores are of whole ones

    def __init__(self, name: str, n: int, observation_space: Any, action_space: Any) -> None:
        self.name, self.n = name, n
        self.observation_space, self.action_space = observation_space, action_space
        self.observation = spec = observation_spec(observation_space)
        self.parts = spec if isinstance(spec, dict) else {"": spec}
        self._symbols = [(key, leaf) for key, leaf in self.parts.items() if leaf.sizes]
        self.flatten = flattener(observation_space)  # from what one shows to what its Spec has
        self.action = action_leaf(action_space, self.observation)
        self._dtype = self.action.own or None  # of actions as environments get them; None: as given
        self._first_choices = np.cumsum((0, *self.action.sizes))[:-1]  # of each position, in a mask
        self.calls: list[EnvironmentCall] = []  # that were made in them, in order

    @abstractmethod
    def reset(self) -> Tree:
        """Begin: every environment starts its first episode. The observations, [N, ...]."""

    def restart(self) -> Tree:
        """Every environment starts its next episode, whatever has become of the one under way; its
        first, where episodes are not numbered. The observations, [N, ...]."""
        return self.reset()

    def episodes(self) -> list[int]:
        """The numbers of the episodes under way, where they are numbered, else none."""
        return []

    def skip(self, episodes: list[int]) -> None:
        """The episodes up to these are over: `restart` begins later ones. Of environments that are
        in no such list, none is."""
        return

    @abstractmethod
    def step(self, actions: Array) -> Step:
        """Take actions [N, ...] that lie in the action space.

        Raises EnvironmentFault for an exception or a wrong shape from an environment,
        NonFiniteError for NaN or infinity in an observation or reward; both name the environment
        and the step of its episode."""

    @abstractmethod
    def state(self) -> tuple[JSONDict, Arrays]:
        """All that is needed to go on exactly from here. Changes nothing. Raises ResumeError where
        that cannot be had."""

    @abstractmethod
    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        """Go on from what `state` gave, in environments just made or in use. Raises ResumeError if
        they do not get there."""

    def make_calls(self, calls: Sequence[Any]) -> None:
        """Makes these calls, `EnvironmentCall`s or what JSON has of them, in every environment,
        between two steps. Environments that have not been reset are reset first, as methods may
        need that."""
        for call in calls:
            self._call(made := EnvironmentCall(*call))
            self.calls.append(made)

    def _call(self, call: EnvironmentCall) -> None:
        raise sealed(call.name, self.name, self.unsealed)

    def attribute(self, name: str) -> list[object]:
        """The values of an attribute in the environments, or in the wrappers around them."""
        raise sealed(name, self.name, self.unsealed)

    def request_stop(self) -> None:
        """The run is to end soon: nobody waits long for an environment from now on, where that can
        be helped."""
        return

    def forget_stop(self) -> None:
        """Takes `request_stop` back: somebody may go on with them after all."""
        return

    def own(self, obs: Tree) -> Tree:
        """Observations [N, ...] from a checkpoint as `step` gives them."""
        return obs

    @abstractmethod
    def close(self) -> None:
        """Free what the environments hold."""

    def check(self, obs: Tree, when: Callable[[int], str], going: Array | None = None) -> None:
        """Raises for observations [N, ...] that are not finite, symbols outside of their space, and
        masks that leave no choice to an environment that acts.

        when: says at what moment an environment is. going: which ones act, [N]; None: all."""
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
        """As `check`, of the last observation of environment i, whose mask counts if it was only
        truncated: then it is valued."""
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
        """The numbers of the rows of obs [N, ...] whose mask leaves no choice at some position."""
        left = np.add.reduceat(obs[MASK] != 0, self._first_choices, axis=1)
        return np.flatnonzero(~left.astype(np.bool_).all(axis=1))


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed (31 bits, which every simulator takes) of one environment's episode."""
    return int(np.random.SeedSequence((seed, env, episode)).generate_state(1)[0]) >> 1


def close(name: str, envs: Iterable[Any]) -> None:
    """Close each environment or vector; one that raises is noted, and the others are closed."""
    for env in envs:
        with attempt(f"close of {name} failed"):
            env.close()


@contextmanager
def closed_on_error(*closes: Callable[[], object]) -> Iterator[None]:
    """Call these functions, which close environments or end who has them, if the block raises."""
    try:
        yield
    except BaseException:
        for each in closes:
            with attempt("close of an environment failed"):
                each()
        raise


def success_of(info: object) -> float | None:
    """Whether an episode was a success, 1 or 0, by the info of its last step; None if that has no
    `is_success`."""
    value = info.get(SUCCESS) if isinstance(info, Mapping) else None
    return None if value is None else float(np.all(value))


def begun(data: JSONDict) -> list[int]:
    """The episodes of a vector's state, which may be of one in several processes; none where they
    are not numbered."""
    return [k for part in data.get("parts", [data]) for k in part.get("episodes", [])]


def all_finite(x: Array) -> bool:
    """Whether a contiguous float array has neither NaN nor infinity: times 0, everything else is 0.
    A dot product takes a third of the time of isfinite().all() on small arrays."""
    flat = x.ravel()
    return not flat.dot(_zeros(flat.size))


@lru_cache(maxsize=64)
def _zeros(size: int) -> Array:
    return np.zeros(size, np.float32)


def storable(value: Tree, spec: Leaf) -> bool:
    """Whether an observation can be stored in the dtype of its space. Floats are never cut to
    whole numbers, and whole numbers have to lie in the range of the dtype."""
    x = np.asarray(value)
    return x.dtype.kind in ("biuf" if spec.dtype.startswith("f") else "biu") and fits(x, spec.dtype)


def _finite(x: Array) -> bool:
    if isinstance(x, np.ndarray):
        return x.dtype.kind != "f" or all_finite(x)
    return is_finite(x)


def bad_rows(x: Array) -> Array:
    """The numbers of the rows of [N, ...] that hold NaN or infinity."""
    return np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))


def outside(x: Array, spec: Leaf) -> Array:
    """The numbers of the rows of symbols [N, ...] that are none of their space: engines make zeros
    of these, or break off."""
    sizes = np.array(spec.sizes) if spec.shape else spec.sizes[0]
    odd = (x < spec.start) | (x >= spec.start + sizes)
    return np.flatnonzero(odd.reshape(len(x), -1).any(axis=1)) if odd.any() else NONE


def not_finite(name: str, what: str, env: int, when: str, value: Array) -> NonFiniteError:
    return NonFiniteError(
        f"environment {env} of {name} returned {what} {np.asarray(value)} {when}.",
        "finite numbers in every observation and reward",
        "look for a division by zero or a diverging simulation in the environment; `tandem check` "
        "shows the first bad step.",
    )


def no_choice(name: str, env: int, when: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"the action mask of environment {env} of {name} masks every choice {when}.",
        "at least one valid action for every choice",
        "allow a no-op action, or end the episode (terminated) where no action is valid.",
    )


_OR_PLAIN = "or wrap the environment: tandem.envs.plain.Plain(env)."
# What an environment as gym before 0.26 had it raises, what Gymnasium expects, and the correction.
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
        return _observation_alone(name)  # as a wrapper of Gymnasium's found it
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
    """The result of `reset`: (observation, info). EnvironmentFault for an observation alone."""
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
    # what float() makes a number of never comes here
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
    """That a saved state is of another number of environments."""
    return ResumeError(
        f"the saved state has {saved} environments, but this run has {here}.",
        "the run's original number of environments",
        f"make {saved} environments.",
    )
