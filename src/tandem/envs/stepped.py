"""Plain environments stepped one after another in this process, with resets in the same step and
one seed per episode.

Gymnasium's SyncVectorEnv can do this too (autoreset disabled, reset by mask), at 77% of this loop's
speed on CartPole × 8.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tandem.envs import checks
from tandem.envs.calls import EnvironmentCall, find
from tandem.envs.checks import not_resumable, raised, raising
from tandem.envs.opening import reset
from tandem.envs.vector import Arrays, Environments, Step, close, episode_seed, success_of
from tandem.errors import ResumeError, SpaceError, TandemError
from tandem.spaces import Leaf, leaf
from tandem.types import Array, JSONDict, Tree, leaves, tree_map


class Stepped(Environments):
    """Vector of plain environments.

    Args:
        name: Name of the environment, for messages.
        envs: N Gymnasium environments with the same spaces. If an episode depends on more than its
            seed and actions, the environment's attribute `resume_options` (JSON data) holds the
            options with which `reset` repeats it.
        seed: Seed of the run. Episode k of environment i is reset with
            `episode_seed(seed, first + i, k)`.
        next_seed: Alternative to that rule; called with (i, k) when environment i begins its
            episode k.
        first: Number of the first environment.
    """

    def __init__(
        self,
        name: str,
        envs: Sequence[Any],
        seed: int = 0,
        next_seed: Callable[[int, int], int] | None = None,
        first: int = 0,
    ) -> None:
        super().__init__(name, len(envs), envs[0].observation_space, envs[0].action_space)
        for i, env in enumerate(envs):
            if (
                env.observation_space != self.observation_space
                or env.action_space != self.action_space
            ):
                raise SpaceError(
                    f"environment {i} of {name} has the spaces {env.observation_space} and "
                    f"{env.action_space}.",
                    f"those of environment 0: {self.observation_space} and {self.action_space}",
                    "give every copy of the environment the same spaces.",
                )
        rewards = getattr(envs[0].unwrapped, "rewards_space", None)  # for several agents
        self.extra = {} if rewards is None else {"rewards": leaf(rewards)}
        self._envs, self.around = list(envs), envs[0]
        self._steps = [env.step for env in envs]
        self._own_seeds, self._at_start = next_seed is None, False
        self._next_seed = next_seed or (
            lambda env, episode: episode_seed(seed, first + env, episode)
        )
        self._valid = np.ones(self.n, np.bool_)
        self._seeds = [0] * self.n  # of the running episodes
        self._episodes = [-1] * self.n
        self._log = ActionLog(self.n)
        self._paid = [0.0] * self.n  # reward sums of the running episodes
        # step of each running episode at which its latest calls were made
        self._called: list[list[int]] = [[] for _ in range(self.n)]
        self._obs: Tree = None

    @property
    def first(self) -> Any:
        """First environment of the vector."""
        return self._envs[0]

    def reset(self) -> Tree:
        if self._at_start:
            return tree_map(np.array, self._obs)
        self._episodes = [-1] * self.n
        obs = self.restart()
        self._at_start = self._own_seeds
        return obs

    def episodes(self) -> list[int]:
        return list(self._episodes)

    def skip(self, episodes: list[int]) -> None:
        self._episodes, self._at_start = (episodes + [-1] * self.n)[: self.n], False

    def restart(self) -> Tree:
        self._log, self._paid, obs = ActionLog(self.n), [0.0] * self.n, self._empty()
        self._at_start = False
        for i in range(self.n):
            with raising(self.name, i, 0):
                self._put(obs, i, self._begin(i))
        self.check(obs, self._when)
        self._obs = obs
        return obs

    def step(self, actions: Array) -> Step:
        actions = np.array(actions, self._dtype)  # a copy: environments may modify it
        log, obs, i, self._at_start = self._log, self._empty(), 0, False
        rewards, terminated, truncated = [0.0] * self.n, [False] * self.n, [False] * self.n
        extra = {name: np.empty((self.n, *x.shape), x.dtype) for name, x in self.extra.items()}
        final: list[tuple[int, Tree]] = []
        ended: dict[int, int] = {}  # lengths of the ended episodes
        success: dict[int, float | None] = {}
        log.append(actions)
        try:
            for i, (step, action) in enumerate(zip(self._steps, actions, strict=True)):
                seen, rewards[i], terminated[i], truncated[i], info = step(action)
                for name, rows in extra.items():
                    rows[i] = self._entry(i, info, name)
                if terminated[i] or truncated[i]:
                    # a reset may overwrite the step's results
                    rewards[i] = copy.copy(rewards[i])
                    terminated[i], truncated[i] = copy.copy(terminated[i]), copy.copy(truncated[i])
                    final.append((i, self._last(i, seen, terminated[i])))
                    ended[i], success[i] = log.length(i), success_of(info)
                    log.start[i] = log.end
                    seen = self._begin(i)
                self._put(obs, i, seen)
        except TandemError:
            raise
        except Exception as error:
            for what, flags in (("terminated", terminated), ("truncated", truncated)):
                if np.size(flags[i]) > 1:  # an array's truth value is ambiguous
                    raise checks.wrong_flag(self.name, what, flags) from None
            raise raised(self.name, i, log.length(i), error) from error
        reward = self._rewards(rewards)
        if not checks.all_finite(reward):
            if any(r is None for r in rewards):  # NumPy converts None to nan
                raise checks.wrong_reward(self.name, rewards)
            checks.check_finite(
                self.name, "the reward", reward, lambda i: self._when(i, ended.get(i))
            )
        paid = self._paid
        for i, r in enumerate(reward.tolist()):  # faster than small arrays
            paid[i] += r
        for i in ended:
            paid[i] = 0.0
        self.check(obs, self._when)
        self._obs = obs
        return Step(
            obs,
            reward,
            self._flags("terminated", terminated),
            self._flags("truncated", truncated),
            self._valid.copy(),
            final,
            extra,
            success=success,
        )

    def make_calls(self, calls: Sequence[Any]) -> None:
        if self._obs is None:
            for env in self._envs:
                reset(env, seed=0)
        self._at_start = False
        super().make_calls(calls)

    def _call(self, call: EnvironmentCall) -> None:
        for i, env in enumerate(self._envs):
            call.on(env, f"environment {i} of {self.name}")
            self._called[i].append(self._log.length(i))

    def attribute(self, name: str) -> list[object]:
        return [getattr(find(env, name, self.name), name) for env in self._envs]

    def state(self) -> tuple[JSONDict, Arrays]:
        runs = [self._log.of(i) for i in range(self.n)]
        data: JSONDict = {
            "seeds": list(self._seeds),
            "episodes": list(self._episodes),
            "lengths": [len(run) for run in runs],
        }
        if self._dtype is not None:
            data["dtype"] = self._dtype
        if any(options := [getattr(env.unwrapped, "resume_options", None) for env in self._envs]):
            data["options"] = options
        if self.calls:
            data |= {"calls": [*self.calls], "called": [[*steps] for steps in self._called]}
        arrays = {f"obs/{j}": x.copy() for j, x in enumerate(leaves(self._obs))}
        return data, arrays | {"actions": np.concatenate(runs), "paid": np.array(self._paid)}

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        # for example from a native vector of another package version, which is not available here
        if "lengths" not in data:
            raise ResumeError(
                f"the saved state is not from plain environments of {self.name}.",
                "the run's original mode and package versions",
                "use that mode (vectorization), install those versions, or start a new run.",
            )
        if len(data["lengths"]) != self.n:
            raise checks.other_number(len(data["lengths"]), self.n)
        self._seeds, self._episodes = list(data["seeds"]), list(data["episodes"])
        self._at_start = False
        # older runs did not use the action space's dtype; they continue with theirs
        if self._dtype is not None:
            self._dtype = data.get("dtype", self.action.dtype)
        runs = np.split(arrays["actions"], np.cumsum(data["lengths"])[:-1])
        self.calls = [EnvironmentCall(*call) for call in data.get("calls", [])]
        self._called = data.get("called", [[] for _ in range(self.n)])
        obs, paid, failed = self._empty(), list[float](), list[ResumeError]()
        for i, (run, options) in enumerate(
            zip(runs, data.get("options", [None] * self.n), strict=True)
        ):
            more = {} if options is None else {"options": options}
            try:
                paid.append(self._replay(obs, i, run, more))
            except ResumeError as error:  # the others also restart, after their calls
                failed.append(error)
        if failed:
            raise failed[0]
        for j, x in enumerate(leaves(obs)):
            if x.tobytes() != (saved := arrays[f"obs/{j}"]).tobytes():
                same = [a.tobytes() == b.tobytes() for a, b in zip(x, saved, strict=True)]
                raise not_resumable(
                    self.name, same.index(False), f"its observation (array {j}) differs"
                )
        # state that persists across episodes may affect only rewards, as in Gymnasium's
        # NormalizeReward; older runs did not save reward sums
        if differing := np.flatnonzero(arrays.get("paid", paid) != np.array(paid)).tolist():
            raise not_resumable(self.name, differing[0], "its rewards differ")
        self._log, self._paid, self._obs = ActionLog.holding(runs), paid, obs

    def close(self) -> None:
        close(self.name, self._envs)

    def _begin(self, i: int) -> Tree:
        """Start the next episode of environment i and return its first observation."""
        self._episodes[i] += 1
        self._called[i].clear()
        self._seeds[i] = self._next_seed(i, self._episodes[i])
        seen, _ = reset(self._envs[i], seed=self._seeds[i])
        return seen

    def _replay(self, obs: Tree, i: int, actions: Array, more: JSONDict) -> float:
        """Replay the running episode of environment i up to its last observation, with all calls
        at their steps. Return the sum of its rewards."""
        paid, calls = 0.0, self._calls_by_step(i)
        try:
            if -1 in calls:
                reset(self._envs[i], seed=0)
                self._repeat(i, calls, -1)
            seen, _ = reset(self._envs[i], seed=self._seeds[i], **more)
            self._repeat(i, calls, 0)
            for t, action in enumerate(actions):
                seen, reward, terminated, truncated, _ = self._steps[i](np.array(action)[()])
                paid += float(self._rewards([reward])[0])
                if terminated or truncated:
                    raise not_resumable(
                        self.name,
                        i,
                        f"its episode now ends after {t + 1} steps, not after {len(actions)} or "
                        "more",
                    )
                self._repeat(i, calls, t + 1)
            self._put(obs, i, seen)
        except ResumeError:
            raise
        except Exception as error:
            told = str(error).partition("\n")[0]
            raise not_resumable(
                self.name, i, f"it raised {type(error).__name__}: {told}"
            ) from error
        finally:
            for step in list(calls):
                self._repeat(i, calls, step)
        return paid

    def _calls_by_step(self, i: int) -> dict[int, list[EnvironmentCall]]:
        """Return the calls in environment i by step of its running episode; -1: before it."""
        before = len(self.calls) - len(self._called[i])
        found: dict[int, list[EnvironmentCall]] = {}
        for step, call in zip([-1] * before + self._called[i], self.calls, strict=True):
            found.setdefault(step, []).append(call)
        return found

    def _repeat(self, i: int, calls: dict[int, list[EnvironmentCall]], step: int) -> None:
        for call in calls.pop(step, ()):
            call.on(self._envs[i], f"environment {i} of {self.name}")

    def _empty(self) -> Tree:
        spec = self.observation
        if isinstance(spec, dict):
            return {key: np.empty((self.n, *s.shape), s.dtype) for key, s in spec.items()}
        return np.empty((self.n, *spec.shape), spec.dtype)

    def _put(self, obs: Tree, i: int, seen: Tree) -> None:
        """Write the observation of environment i into row i of `obs`."""
        spec = self.observation
        if isinstance(spec, dict):
            seen = self.flatten(seen)
            for key, s in spec.items():
                self._put_leaf(obs[key], i, seen[key], s, key)
        else:
            self._put_leaf(obs, i, seen, spec, None)

    def _put_leaf(self, out: Array, i: int, value: Tree, spec: Leaf, key: str | None) -> None:
        # in each pair, the first test is fast, the second exact
        if (getattr(value, "shape", None) != spec.shape and np.shape(value) != spec.shape) or (
            getattr(value, "dtype", None) is not out.dtype and not checks.storable(value, spec)
        ):
            raise checks.unlike_space(self.name, i, value, spec, key, self._when(i))
        out[i] = value

    def _last(self, i: int, seen: Tree, terminated: bool) -> Tree:
        """Check the true last observation of an episode and return it as a new array."""

        def one(spec: Leaf, value: Tree, key: str | None) -> Array:
            if np.shape(value) != spec.shape or not checks.storable(value, spec):
                raise checks.unlike_space(self.name, i, value, spec, key, self._when(i))
            return np.array(value, spec.dtype)

        spec = self.observation
        if isinstance(spec, dict):
            flat = self.flatten(seen)
            obs = {key: one(s, flat[key], key) for key, s in spec.items()}
        else:
            obs = one(spec, seen, None)
        self.check_last(i, obs, self._when(i), terminated)
        return obs

    def _entry(self, i: int, info: Any, name: str) -> Array:
        """Return the checked info entry of environment i for a column of `extra`."""
        value, spec = info.get(key := name.removeprefix("info/")), self.extra[name]
        if np.shape(value) != spec.shape or not checks.storable(value, spec):
            raise checks.returned(
                self.name,
                i,
                f"info[{key!r}] = {value!r:.60} {self._when(i)}",
                f"{spec.dtype} of shape {spec.shape}, as it is stored with each step",
                f"return info[{key!r}] in that type and shape, such as a float, from every step.",
            )
        return value

    def _when(self, i: int, step: int | None = None) -> str:
        return f"at step {self._log.length(i) if step is None else step} of its episode"

    def _rewards(self, rewards: list[float]) -> Array:
        reward = checks.numbers(rewards)
        if reward is None:
            with suppress(TypeError, ValueError):  # some may be arrays of one number
                reward = checks.numbers([np.asarray(each).item() for each in rewards])
        if reward is None:
            raise checks.wrong_reward(self.name, rewards)
        return reward

    def _flags(self, what: str, values: list[bool]) -> Array:
        try:
            flags: Array = np.array(values, np.bool_)
        except ValueError:
            raise checks.wrong_flag(self.name, what, values) from None
        if flags.shape != (self.n,):
            raise checks.wrong_flag(self.name, what, values)
        return flags


class ActionLog:
    """Log of the actions since the start of the oldest running episode: a growing array [steps, N,
    ...]."""

    def __init__(self, n: int) -> None:
        # first row of each environment's running episode; one past the last row
        self.start = [0] * n
        self.end = 0
        self._data: Array = np.empty((0, n))

    @classmethod
    def holding(cls, runs: list[Array]) -> ActionLog:
        """Create a log of running episodes from the actions [length, ...] of each."""
        log = cls(len(runs))
        log.end = max(map(len, runs))
        log.start = [log.end - len(run) for run in runs]
        log._data = np.zeros((log.end, len(runs), *runs[0].shape[1:]), runs[0].dtype)
        for i, run in enumerate(runs):
            log._data[log.start[i] :, i] = run
        return log

    def append(self, actions: Array) -> None:
        if self.end == len(self._data):
            self._make_room(actions)
        self._data[self.end] = actions
        self.end += 1

    def length(self, i: int) -> int:
        """Return the number of steps in the running episode of environment i."""
        return self.end - self.start[i]

    def of(self, i: int) -> Array:
        return self._data[self.start[i] : self.end, i].copy()

    def at(self, t: int) -> Array:
        """Return the actions [N, ...] of row t. In a log made by `holding`, they are zeros for
        episodes that began later."""
        return self._data[t]

    def _make_room(self, actions: Array) -> None:
        """Drop the rows before all running episodes, and at least double the remaining space."""
        drop = min(self.start)
        rows = self._data[drop : self.end]
        self._data = np.zeros((max(256, 2 * len(rows)), *actions.shape), actions.dtype)
        if len(rows):
            self._data[: len(rows)] = rows
        self.start, self.end = [s - drop for s in self.start], self.end - drop
