"""Common interface of all vector environments, as used by the collector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tandem.envs.calls import EnvironmentCall, sealed
from tandem.envs.checks import check_finite, is_finite, no_choice, no_symbol, outside
from tandem.errors import attempt
from tandem.spaces import MASK, Leaf, Spec, action_leaf, flattener, observation_spec
from tandem.types import Array, JSONDict, Tree, tree_map

Arrays = dict[str, Array]
SUCCESS = "is_success"  # info key of Gymnasium-Robotics and Stable-Baselines3


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

    def check(
        self,
        obs: Tree,
        when: Callable[[int], str],
        going: Array | None = None,
        what: str = "the observation",
        first: int = 0,
    ) -> None:
        """Raise an error for non-finite observations [N, ...], discrete values outside their space,
        and masks without a valid action for an environment that acts.

        when: describes the current step of an environment. going: which ones act, [N]; None: all.
        what: name of the observations in errors. first: number of the environment in row 0.
        """
        for x in obs.values() if isinstance(obs, dict) else (obs,):
            if not is_finite(x):
                check_finite(self.name, what, x, when, first)
        for key, leaf in self._symbols:
            x = obs[key] if isinstance(obs, dict) else obs
            if len(rows := outside(x, leaf)):
                i = int(rows[0])
                raise no_symbol(self.name, first + i, when(first + i), x[i], leaf)
        if self.action.masked:
            rows = self.stuck(obs)
            rows = rows if going is None else rows[going[rows]]
            if len(rows):
                i = first + int(rows[0])
                raise no_choice(self.name, i, when(i))

    def check_last(self, i: int, obs: Tree, when: str, terminated: bool) -> None:
        """Check the last observation of environment i, as `check` does. Its mask counts only after
        truncation, where the observation provides the bootstrap value."""
        row, going = tree_map(lambda x: x[None], obs), np.array([not terminated])
        self.check(row, lambda _: when, going, "the last observation", i)

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
