"""Environments × actor -> Trajectory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from tandem.collect.trajectories import EndedEpisode, TrajectoryBuilder
from tandem.envs.actions import to_environment
from tandem.envs.tensors import to_numpy
from tandem.envs.vector import Arrays, Environments, Step, begun
from tandem.errors import ResumeError, UnrepeatableError
from tandem.spaces import ActionMode
from tandem.types import Array, EpisodeResult, JSONDict, Trajectory, Tree, leaves, tree_map


class Actor(Protocol):
    """Whatever chooses actions for N environments at once, with arrays in and arrays out."""

    def act(self, obs: Tree, state: Tree, noise: Tree) -> tuple[Array, dict[str, Array], Tree]:
        """(action [N, ...], extra: name -> [N, ...], next recurrent state) for observations [N,
        ...]."""

    def initial_state(self, n: int) -> Tree:
        """The recurrent state [n, ...] at the beginning of episodes; `()` for none."""


class Collector:
    """Steps N environments with an actor's actions and returns what came of it as blocks.

    gamma: the discount of one step, in [0, 1].
    action_mode: how the actor's actions become the environment's, see `to_environment`;
      trajectories hold the actor's.

    After each `collect`: `episodes` are those that ended in the block, in the order of their ends;
    `env_steps` counts the valid rows so far; `seconds` is the time so far spent in "environment"
    and "acting".

    The recurrent state is the initial one again after every row that is `last` or not `valid`; a
    learner that unrolls over a trajectory from its `state` resets it at the same rows.
    """

    def __init__(
        self, environments: Environments, gamma: float, action_mode: ActionMode = "as_is"
    ) -> None:
        self.environments, self.gamma, self.n = environments, gamma, environments.n
        self.episodes: list[EndedEpisode] = []
        self.broken: list[
            int
        ] = []  # environments whose episodes were lost before the block, which is of one step then
        self.restarted = (
            ""  # why new episodes begin after `load_state`; "": the saved ones continue
        )
        self.version = 0  # updates made so far, which weights here have always seen
        self.lag: int | None = None
        self.env_steps = 0
        self.seconds = {"environment": 0.0, "acting": 0.0}
        self._to_environment = to_environment(environments.action, action_mode)
        self._obs: Tree = None  # to act on next
        self._again = (
            False  # whether episodes were played before those to begin, which are others then
        )
        self._state: Tree = None  # the actor's recurrent state
        self._state_leaves: list[Array] | None = (
            None  # as loaded, until an actor gives them their structure
        )
        self._scores = np.zeros(self.n)  # of the running episodes
        self._lengths = np.zeros(self.n, np.int64)
        self._cut: list[int] = []  # environments whose episodes broke off when one of them raised

    def collect(self, steps: int, actor: Actor, noise: Tree = None) -> Trajectory:
        """The next `steps` steps of every environment, in new arrays.

        noise: what the actor needs for the block, a tree of arrays [steps, N, ...]; None for
        deterministic actions. Where it raises, the next one begins with new episodes; those under
        way are `broken` then."""
        obs, state, initial = self._begin(actor)
        blocks, rows, final, begun = TrajectoryBuilder(steps, self.environments, obs), [], [], state
        acting, stepping, lost = 0.0, 0.0, list[int]()
        try:
            for t, drawn in enumerate(_each(noise, steps)):
                t0 = perf_counter()
                action, extra, state = actor.act(obs, state, drawn)
                t1 = perf_counter()
                row = blocks.put(t, obs, action, extra)
                t2 = perf_counter()
                one = self.environments.step(self._to_environment(row))
                stepping += perf_counter() - t2
                acting += t1 - t0
                obs = one.obs
                rows.append(one)
                final += [(t, i, last) for i, last in one.final]
                lost += one.lost
                state = reset_ended(state, initial, one)
        except BaseException:
            self._break_off()
            raise
        self._obs, self._state = obs, state
        self.seconds["environment"] += stepping
        self.seconds["acting"] += acting
        return self._finished(
            blocks.trajectory(rows, final, self.gamma)._replace(state=begun), rows, lost
        )

    def _break_off(self) -> None:
        """Some environments have stepped and others not: no row can tell, so all begin anew."""
        self._obs, self._again, self._cut = None, True, list(range(self.n))
        self._scores[:], self._lengths[:] = 0.0, 0

    def _finished(self, trajectory: Trajectory, rows: list[Step], lost: list[int]) -> Trajectory:
        """Counts a block, and returns it as learners see it. lost: environments whose episodes
        were lost in it."""
        self._count(trajectory, rows)
        self.broken, self._cut = self._cut + lost, []
        self._scores[lost], self._lengths[lost] = 0.0, 0
        if self.environments.clips:
            return trajectory._replace(reward=np.clip(trajectory.reward, -1, 1))
        return trajectory

    @property
    def begun_steps(self) -> int:
        """Environment steps that were collected or asked for."""
        return self.env_steps

    def state(self) -> tuple[JSONDict, Arrays]:
        """All that the next `collect` depends on beside its arguments. Changes nothing."""
        data: JSONDict = {"env_steps": self.env_steps, "seconds": dict(self.seconds)}
        envs = self.environments
        data["begun"] = self._obs is not None and not envs.gone and envs.resumable
        if not data["begun"]:
            return data | self.after(), {}
        data["environments"], inner = envs.state()
        recurrent = self._state_leaves if self._state_leaves is not None else leaves(self._state)
        arrays = {f"environments/{key}": x for key, x in inner.items()}
        arrays |= {f"obs/{j}": np.array(to_numpy(x)) for j, x in enumerate(leaves(self._obs))}
        arrays |= {f"state/{j}": np.array(x) for j, x in enumerate(recurrent)}
        return data, arrays | {"scores": self._scores.copy(), "lengths": self._lengths.copy()}

    def after(self) -> JSONDict:
        """The numbers of the episodes so far, for a run that continues in later ones; nothing
        before the first. And the calls that were made in the environments."""
        envs = self.environments
        begun = (self._again or self._obs is not None) and not envs.gone
        calls = {"calls": [*envs.calls]} if envs.calls else {}
        return calls | ({"after": envs.episodes()} if begun else {})

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        """Go on from what `state` gave: the next `collect` is, bit for bit, what it would have been
        there.

        Where the environments do not come out as they were, new episodes begin, and `restarted`
        says why."""
        self.restarted, name = "", self.environments.name
        self.env_steps, self.seconds, self.episodes = data["env_steps"], dict(data["seconds"]), []
        if not data["begun"]:
            if self.env_steps:
                self.restarted = f"The checkpoint does not hold the episodes of {name}."
            self._obs, self._again = None, "after" in data
            self.environments.skip(data.get("after", []))
            self.make_calls(data.get("calls", []))
            return
        inner = {
            key.removeprefix("environments/"): x
            for key, x in arrays.items()
            if key.startswith("environments/")
        }
        try:
            self.environments.load_state(data["environments"], inner)
        except UnrepeatableError as error:
            self.restarted = error.happened
            self.environments.skip(begun(data["environments"]))
            self._break_off()
            return
        seen, spec = _numbered(arrays, "obs"), self.environments.observation
        saved = dict(zip(spec, seen, strict=True)) if isinstance(spec, dict) else seen[0]
        self._obs = self.environments.own(saved)
        self._state, self._state_leaves = None, _numbered(arrays, "state")
        self._scores, self._lengths = arrays["scores"].copy(), arrays["lengths"].copy()

    def make_calls(self, calls: Sequence[Any]) -> None:
        """See `Environments.make_calls`; the next block is the first that they apply to."""
        if calls:
            self.environments.make_calls(calls)

    def attribute(self, name: str) -> list[Any]:
        """See `Environments.attribute`."""
        return self.environments.attribute(name)

    def request_stop(self) -> None:
        """The run is to end soon."""
        self.environments.request_stop()

    def close(self) -> None:
        """Frees what the environments hold."""
        self.environments.close()

    def _begin(self, actor: Actor) -> tuple[Tree, Tree, Tree]:
        """Observations and recurrent state to go on from, and the recurrent state of an episode's
        beginning."""
        initial = actor.initial_state(self.n)
        if self._obs is None:
            self._obs = self.environments.restart() if self._again else self.environments.reset()
            self._state = initial
        elif self._state_leaves is not None:
            if len(self._state_leaves) != len(leaves(initial)):
                raise ResumeError(
                    f"the saved recurrent state has {len(self._state_leaves)} arrays; the actor's "
                    f"has {len(leaves(initial))}.",
                    "the saved run's actor",
                    "resume with the same network.",
                )
            saved = iter(self._state_leaves)
            self._state, self._state_leaves = tree_map(lambda _: next(saved), initial), None
        return self._obs, self._state, initial

    def _count(self, trajectory: Trajectory, rows: list[Step]) -> None:
        """Steps, scores and lengths of the block, and the episodes that ended in it."""
        valid, last = trajectory.valid, trajectory.last
        reward = trajectory.reward * valid
        self.env_steps += int(np.count_nonzero(valid))
        self.episodes = []
        if not last.any():
            self._scores += reward.sum(axis=0, dtype=np.float64)
            self._lengths += valid.sum(axis=0)
            return
        # Stretches of one environment, between its ends: summed in one call, since a vector of
        # short episodes may see hundreds of ends in a block.
        steps, n = last.shape
        ends = np.flatnonzero(last.T)  # in env * steps + t
        begins = np.union1d(np.arange(n) * steps, ends + 1)
        begins = begins[begins < n * steps]
        scores = np.add.reduceat(reward.T.astype(np.float64).ravel(), begins)
        lengths = np.add.reduceat(valid.T.astype(np.int64).ravel(), begins)
        first = np.searchsorted(begins, np.arange(n) * steps)  # stretch of each environment
        scores[first] += self._scores
        lengths[first] += self._lengths
        of_end = np.searchsorted(begins, ends, "right") - 1
        env, t = np.divmod(ends, steps)
        order = np.lexsort((env, t))
        terminated = np.array([rows[k].terminated[i] for k, i in zip(t, env, strict=True)])
        columns = (x[order].tolist() for x in (t, env, scores[of_end], lengths[of_end], terminated))
        self.episodes = [
            EndedEpisode(t, EpisodeResult(i, score, length, over, rows[t].success.get(i)))
            for t, i, score, length, over in zip(*columns, strict=True)
        ]
        tail = np.append(first[1:], len(begins)) - 1  # the last stretch of each environment
        running = ~last[-1]
        self._scores = np.where(running, scores[tail], 0.0)
        self._lengths = np.where(running, lengths[tail], 0)


def _each(noise: Tree, steps: int) -> Iterable[Tree]:
    """The noise of each step."""
    if isinstance(noise, np.ndarray):
        return noise
    if noise is None:
        return [None] * steps
    if isinstance(noise, tuple) and not hasattr(noise, "_fields"):
        return zip(*(_each(part, steps) for part in noise), strict=True) if noise else [()] * steps
    return (tree_map(lambda x, t=t: x[t], noise) for t in range(steps))


def reset_ended(state: Tree, initial: Tree, one: Step) -> Tree:
    """The recurrent state, initial again where an episode ended or an environment reset itself."""
    # nothing to look for, in each step of a collection
    if isinstance(initial, tuple) and not initial:
        return state
    return reset_where(state, initial, one.terminated | one.truncated | ~one.valid)


def reset_where(state: Tree, initial: Tree, over: Array) -> Tree:
    """The recurrent state, initial again where `over` [N]."""
    if (isinstance(initial, tuple) and not initial) or not over.any():
        return state
    return tree_map(
        lambda s, s0: np.where(over.reshape(-1, *(1,) * (np.ndim(s) - 1)), s0, s), state, initial
    )


def _numbered(arrays: Arrays, name: str) -> list[Array]:
    """The arrays name/0, name/1, ... in order."""
    return [
        arrays[f"{name}/{j}"].copy()
        for j in range(sum(key.startswith(f"{name}/") for key in arrays))
    ]
