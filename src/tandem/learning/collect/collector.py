"""Collection of trajectories from environments and an actor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from tandem.envs.actions import to_environment
from tandem.envs.tensors import to_numpy
from tandem.envs.vector import Arrays, Environments, Step, begun
from tandem.errors import ResumeError, UnrepeatableError
from tandem.learning.collect.trajectories import EndedEpisode, TrajectoryBuilder
from tandem.spaces import ActionMode
from tandem.types import Array, EpisodeResult, JSONDict, Trajectory, Tree, leaves, tree_map


class Actor(Protocol):
    """Interface of objects that choose actions for N environments at once, with arrays as inputs
    and outputs."""

    def act(self, obs: Tree, state: Tree, noise: Tree) -> tuple[Array, dict[str, Array], Tree]:
        """Return (action [N, ...], extra: name -> [N, ...], next recurrent state) for observations
        [N, ...]."""

    def initial_state(self, n: int) -> Tree:
        """Return the recurrent state [n, ...] at the start of episodes; `()` for none."""


class Collector:
    """Collector that steps N environments with an actor and returns blocks of transitions.

    After each `collect`, `episodes` holds the episodes that ended in the block, in order;
    `env_steps` counts all valid rows so far; `seconds` holds the total time spent in "environment"
    and "acting".

    The recurrent state is reset after every row that is `last` or not `valid`. A learner that
    unrolls over a trajectory from its `state` resets at the same rows.

    Args:
        environments: Environments to step.
        gamma: Discount per step, in [0, 1].
        action_mode: Conversion from the actor's actions to the environment's, see
            `to_environment`. Trajectories store the actor's actions.
    """

    def __init__(
        self, environments: Environments, gamma: float, action_mode: ActionMode = "as_is"
    ) -> None:
        self.environments, self.gamma, self.n = environments, gamma, environments.n
        self.episodes: list[EndedEpisode] = []
        # environments whose episodes were lost before the block, which then has one step
        self.broken: list[int] = []
        # why new episodes begin after `load_state`; "": the saved ones continue
        self.restarted = ""
        self.version = 0  # updates made so far; weights here are always current
        self.lag: int | None = None
        self.env_steps = 0
        self.seconds = {"environment": 0.0, "acting": 0.0}
        self._to_environment = to_environment(environments.action, action_mode)
        self._obs: Tree = None  # the next observations to act on
        # episodes were played before, so new ones must differ from them
        self._again = False
        self._state: Tree = None  # the actor's recurrent state
        # leaves of a loaded state, until an actor provides their structure
        self._state_leaves: list[Array] | None = None
        self._scores = np.zeros(self.n)  # of the running episodes
        self._lengths = np.zeros(self.n, np.int64)
        self._cut: list[int] = []  # environments whose episodes were lost when one raised

    def collect(self, steps: int, actor: Actor, noise: Tree = None) -> Trajectory:
        """Return the next `steps` steps of every environment, in new arrays.

        noise: the actor's noise for the block, a tree of arrays [steps, N, ...]; None for
        deterministic actions. After an exception, the next call starts new episodes and lists the
        lost ones in `broken`."""
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
        """Restart all episodes: some environments have stepped and others not, which no row can
        represent."""
        self._obs, self._again, self._cut = None, True, list(range(self.n))
        self._scores[:], self._lengths[:] = 0.0, 0

    def _finished(self, trajectory: Trajectory, rows: list[Step], lost: list[int]) -> Trajectory:
        """Update the counters and return the block as learners receive it. lost: environments whose
        episodes were lost in it."""
        self._count(trajectory, rows)
        self.broken, self._cut = self._cut + lost, []
        self._scores[lost], self._lengths[lost] = 0.0, 0
        if self.environments.clips:
            return trajectory._replace(reward=np.clip(trajectory.reward, -1, 1))
        return trajectory

    @property
    def begun_steps(self) -> int:
        """Number of environment steps collected or requested."""
        return self.env_steps

    def state(self) -> tuple[JSONDict, Arrays]:
        """Return the state that the next `collect` depends on, without changing it."""
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
        """Return the episode numbers so far (none before the first episode), from which a resumed
        run continues, and the calls made on the environments."""
        envs = self.environments
        begun = (self._again or self._obs is not None) and not envs.gone
        calls = {"calls": [*envs.calls]} if envs.calls else {}
        return calls | ({"after": envs.episodes()} if begun else {})

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        """Resume from the result of `state`: the next `collect` is bit-for-bit identical.

        If the environments cannot be restored, new episodes begin, and `restarted` holds the
        reason."""
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
        """See `Environments.make_calls`. The calls take effect with the next block."""
        if calls:
            self.environments.make_calls(calls)

    def attribute(self, name: str) -> list[Any]:
        """See `Environments.attribute`."""
        return self.environments.attribute(name)

    def request_stop(self) -> None:
        """Request that the run end soon."""
        self.environments.request_stop()

    def close(self) -> None:
        """Release the environments' resources."""
        self.environments.close()

    def _begin(self, actor: Actor) -> tuple[Tree, Tree, Tree]:
        """Return the observations and recurrent state to continue from, and the initial recurrent
        state."""
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
        """Update steps, scores and lengths with the block, and set the episodes that ended in
        it."""
        valid, last = trajectory.valid, trajectory.last
        reward = trajectory.reward * valid
        self.env_steps += int(np.count_nonzero(valid))
        self.episodes = []
        if not last.any():
            self._scores += reward.sum(axis=0, dtype=np.float64)
            self._lengths += valid.sum(axis=0)
            return
        # Segments between episode ends are summed in one call, since a vector of short episodes may
        # have hundreds of ends per block.
        steps, n = last.shape
        ends = np.flatnonzero(last.T)  # as env * steps + t
        begins = np.union1d(np.arange(n) * steps, ends + 1)
        begins = begins[begins < n * steps]
        scores = np.add.reduceat(reward.T.astype(np.float64).ravel(), begins)
        lengths = np.add.reduceat(valid.T.astype(np.int64).ravel(), begins)
        first = np.searchsorted(begins, np.arange(n) * steps)  # first segment of each environment
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
        tail = np.append(first[1:], len(begins)) - 1  # last segment of each environment
        running = ~last[-1]
        self._scores = np.where(running, scores[tail], 0.0)
        self._lengths = np.where(running, lengths[tail], 0)


def _each(noise: Tree, steps: int) -> Iterable[Tree]:
    """Iterate over the noise of each step."""
    if isinstance(noise, np.ndarray):
        return noise
    if noise is None:
        return [None] * steps
    if isinstance(noise, tuple) and not hasattr(noise, "_fields"):
        return zip(*(_each(part, steps) for part in noise), strict=True) if noise else [()] * steps
    return (tree_map(lambda x, t=t: x[t], noise) for t in range(steps))


def reset_ended(state: Tree, initial: Tree, one: Step) -> Tree:
    """Reset the recurrent state where an episode ended or an environment reset itself."""
    # this runs on every step: return early if there is no state
    if isinstance(initial, tuple) and not initial:
        return state
    return reset_where(state, initial, one.terminated | one.truncated | ~one.valid)


def reset_where(state: Tree, initial: Tree, over: Array) -> Tree:
    """Reset the recurrent state where `over` [N] is true."""
    if (isinstance(initial, tuple) and not initial) or not over.any():
        return state
    return tree_map(
        lambda s, s0: np.where(over.reshape(-1, *(1,) * (np.ndim(s) - 1)), s0, s), state, initial
    )


def _numbered(arrays: Arrays, name: str) -> list[Array]:
    """Return the arrays name/0, name/1, ... in order."""
    return [
        arrays[f"{name}/{j}"].copy()
        for j in range(sum(key.startswith(f"{name}/") for key in arrays))
    ]
