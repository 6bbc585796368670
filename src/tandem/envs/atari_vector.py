"""ale_py's vector of games with same-step resets and exact resumption, as for plain
environments."""

from __future__ import annotations

import numpy as np

from tandem.envs import atari
from tandem.envs.checks import not_resumable, other_number, raising
from tandem.envs.stepped import ActionLog
from tandem.envs.vector import Arrays, Environments, Step, episode_seed
from tandem.types import Array, EnvKwargs, JSONDict, Tree

UNSEEDED = -1  # a game's random generators continue


class AtariVector(Environments):
    """N games of one Atari id in C++, reset in the same step.

    Seeding takes ale_py about 100 ms, the time of 180 steps, since it reloads the emulator. A game
    is therefore seeded only for the first episode that begins at least `EACH` steps after the last
    seeding; the k-th time with `episode_seed(seed, first + i, k)`. A resumed run replays all
    actions since then. Ended games are reset here, before ale_py's automatic reset in the next
    step. Seeds give other no-ops and repeated actions than in plain environments.
    """

    EACH = 4_000

    def __init__(
        self,
        name: str,
        n: int,
        seed: int = 0,
        kwargs: EnvKwargs | None = None,
        first: int = 0,
    ) -> None:
        self._envs, self._seed, self._first = atari.vector(name, n, kwargs), seed, first
        super().__init__(
            name, n, self._envs.single_observation_space, self._envs.single_action_space
        )
        self._valid = np.ones(n, np.bool_)
        self._seeds, self._seedings = [0] * n, [0] * n
        self._ends = [0] * n  # episodes ended since the last seeding
        self._log = ActionLog(n)  # actions since the last seeding
        self._obs: Tree = None

    def reset(self) -> Tree:
        self._seedings, self._log = [0] * self.n, ActionLog(self.n)
        self._obs = self._reset(
            np.ones(self.n, np.bool_), [self._seed_next(i) for i in range(self.n)]
        )
        return self._obs

    def step(self, actions: Array) -> Step:
        self._log.append(actions)
        obs, reward, terminated, truncated = self._play(actions)
        ended, final = terminated | truncated, []
        if ended.any():
            which: list[int] = np.flatnonzero(ended).tolist()
            first = self._reset(
                ended,
                [
                    self._seed_next(i) if self._log.length(i) >= self.EACH else UNSEEDED
                    for i in which
                ],
            )
            for i in which:
                final.append((i, obs[i].copy()))
                obs[i] = first[i]
                self._ends[i] += self._log.length(i) > 0
        self._obs = obs
        return Step(obs, reward, terminated, truncated, self._valid.copy(), final)

    def state(self) -> tuple[JSONDict, Arrays]:
        runs = [self._log.of(i) for i in range(self.n)]
        data = {
            "seeds": list(self._seeds),
            "seedings": list(self._seedings),
            "ends": list(self._ends),
            "lengths": [len(run) for run in runs],
        }
        return data, {"obs/0": self._obs.copy(), "actions": np.concatenate(runs)}

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        if len(data["lengths"]) != self.n:
            raise other_number(len(data["lengths"]), self.n)
        self._seeds, self._seedings, self._ends = (
            list(data[key]) for key in ("seeds", "seedings", "ends")
        )
        self._log = ActionLog.holding(np.split(arrays["actions"], np.cumsum(data["lengths"])[:-1]))
        self._obs, ends = self._again()
        same = (self._obs == arrays["obs/0"]).all(axis=(1, 2, 3)) & (ends == self._ends)
        if not same.all():
            raise not_resumable(
                self.name,
                int(np.argmin(same)),
                "it differs after its actions are replayed",
            )

    def close(self) -> None:
        self._envs.close()

    def _again(self) -> tuple[Array, Array]:
        """Replay all actions since the last seeding, so that all games arrive at their last
        observations together; games seeded later idle until then. Return the observations and the
        number of ended episodes of each game."""
        log, start, ends = self._log, np.array(self._log.start), np.zeros(self.n, np.int64)
        obs = self._reset(np.ones(self.n, np.bool_), self._seeds)
        for t in range(log.end):
            if t and (start == t).any():
                self._reset(start == t, [self._seeds[i] for i in np.flatnonzero(start == t)])
            obs, _, terminated, truncated = self._play(log.at(t))
            ended = (terminated | truncated) & (start <= t)
            if ended.any():
                first = self._reset(ended, [UNSEEDED] * int(ended.sum()))
                obs[ended] = first[ended]
                ends += ended
        late = start == log.end
        return (
            self._reset(late, [self._seeds[i] for i in np.flatnonzero(late)]) if late.any() else obs
        ), ends

    def _seed_next(self, i: int) -> int:
        """Return the next seed of game i, and start its log there."""
        self._seeds[i] = episode_seed(self._seed, self._first + i, self._seedings[i])
        self._seedings[i] += 1
        self._log.start[i], self._ends[i] = self._log.end, 0
        return self._seeds[i]

    def _reset(self, which: Array, seeds: list[int]) -> Array:
        """Reset these games (initially all), each with its seed. Return the observations of all."""
        with raising(self.name, step=0):
            return np.array(
                self._envs.reset(seed=np.array(seeds), options={"reset_mask": which})[0]
            )

    def _play(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        """Step all games. Return new observations, rewards, and the flags terminated and
        truncated."""
        with raising(self.name):
            obs, reward, terminated, truncated, _ = self._envs.step(np.ascontiguousarray(actions))
        return np.array(obs), reward.astype(np.float32), np.array(terminated), np.array(truncated)
