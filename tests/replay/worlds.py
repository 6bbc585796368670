"""Steps to fill rings with: written down, or of environments that end and reset at random."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem.spaces import Leaf
from tandem.types import Cuts, Trajectory, leaves, tree_map

ACTION = Leaf("discrete", (), "int64", (4,))
FORCE = Leaf("box", (3,), "float32")
NONE = np.zeros(0, np.int64)


def block(
    obs, after, reward=0.0, discount=0.99, last=False, valid=True, action=0, cuts=None, extra=None
) -> Trajectory:
    """Steps [T, N] with these observations; a number is that of each step."""
    shape = leaves(obs)[0].shape[:2]

    def filled(x: Any, dtype: str) -> Any:
        return np.broadcast_to(np.asarray(x, dtype), shape).copy()

    action = action if np.ndim(action) > 2 else filled(action, "int64")
    numbers = (filled(x, "float32") for x in (reward, discount))
    flags = (filled(x, "bool") for x in (last, valid))
    cuts = Cuts(NONE, NONE, tree_map(lambda x: x[:0], after)) if cuts is None else cuts
    return Trajectory(obs, action, *numbers, *flags, cuts, after, extra or {})


@dataclass
class Row:
    """One step as it truly was; observations are serial numbers."""

    obs: int
    action: int
    reward: np.float32
    discount: np.float32
    last: bool
    valid: bool
    next_obs: int
    cut: bool = False  # whether the environment went on from somewhere else than next_obs


class World:
    """Environments that end at random, reset at once or (`lazy`) later; numbered observations."""

    ends, terminates = 0.3, 0.5  # of steps; of the ends

    def __init__(self, seed: int, envs: int, spec=(), action=ACTION, lazy=(False,) * 9) -> None:
        self.rng, self.values = np.random.default_rng(seed), np.random.default_rng(seed + 1)
        self.lazy, self.spec, self.action_leaf, self.serial = lazy, spec, action, 0
        self.rows: list[list[Row]] = [[] for _ in range(envs)]
        self.resets = [False] * envs
        # the observations of the running episodes, and of all that there were
        self.episodes, self.all = [list[int]() for _ in range(envs)], list[list[int]]()
        for env in range(envs):
            self.begin(env)

    def begin(self, env: int) -> None:
        self.episodes[env] = []
        self.all.append(self.episodes[env])
        self.follow(env)

    def follow(self, env: int) -> int:
        """One more observation of the running episode."""
        self.serial += 1
        self.episodes[env].append(self.serial)
        return self.serial

    def said(self) -> tuple[int, Any, Any]:
        """Action, reward and discount of a step."""
        reward, gamma = self.values.normal(), self.values.choice([0.9, 0.99])
        return int(self.values.integers(4)), np.float32(reward), np.float32(gamma)

    def step(self, env: int) -> Row:
        obs = self.episodes[env][-1]
        if self.resets[env]:
            self.resets[env] = False
            self.begin(env)
            now = self.episodes[env][-1]
            return Row(obs, 0, np.float32(0), np.float32(0.9), False, False, now)
        following, chance = self.follow(env), self.rng.random()
        action, reward, discount = self.said()
        ended, lazy = chance < self.ends, self.lazy[env]
        if chance < self.ends * self.terminates:
            discount = np.float32(0)
        if ended and not lazy:
            self.begin(env)
        self.resets[env] = ended and lazy
        return Row(obs, action, reward, discount, ended, True, following, ended and not lazy)

    def obs(self, numbers: Any) -> Any:
        """Observations as arrays, told apart by their serial numbers."""
        numbers = np.asarray(numbers, np.int64)

        def array(leaf: Leaf) -> np.ndarray[Any, Any]:
            parts = np.arange(np.prod(leaf.shape)).reshape(leaf.shape)
            x = numbers.reshape(numbers.shape + (1,) * len(leaf.shape)) * 7 + parts
            return (x % 256 if leaf.dtype == "uint8" else x).astype(leaf.dtype)

        return tree_map(array, self.spec)

    def action(self, numbers: Any) -> np.ndarray[Any, Any]:
        x = np.asarray(numbers, np.int64)
        return np.stack([x, -x, x + 1], -1).astype("float32") if self.action_leaf == FORCE else x

    def trajectory(self, steps: int) -> Trajectory:
        envs = range(len(self.rows))
        new = [[self.step(env) for env in envs] for _ in range(steps)]
        for env in envs:
            self.rows[env] += [line[env] for line in new]
        # not in the order of time
        cuts = [(t, env) for env in envs for t in range(steps) if new[t][env].cut]

        def field(name: str) -> np.ndarray[Any, Any]:
            rows = [[getattr(row, name) for row in line] for line in new]
            return np.array(rows).reshape(steps, len(self.rows))

        at = np.array(cuts, np.int64).reshape(-1, 2)
        seen = self.obs([new[t][env].next_obs for t, env in cuts])
        return block(
            self.obs(field("obs")),
            self.obs([episode[-1] for episode in self.episodes]),
            *(field(name) for name in ("reward", "discount", "last", "valid")),
            action=self.action(field("action")),
            cuts=Cuts(at[:, 0], at[:, 1], seen),
        )
