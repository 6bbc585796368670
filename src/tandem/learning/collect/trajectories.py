"""Building, joining, splitting and packing of trajectories."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tandem.envs.tensors import stacked
from tandem.envs.vector import Environments, Step
from tandem.errors import NetworkError
from tandem.types import Array, Cuts, EpisodeResult, Trajectory, Tree, leaves, tree_map

ROWS = ("obs", "action", "reward", "discount", "last", "valid", "extra")  # [T, N, ...] each
PLAIN = ("action", "reward", "discount", "last", "valid")  # fields that are a single array


class TrajectoryBuilder:
    """Builder of one trajectory in new arrays, since JAX may still read the memory of the last one.

    obs: an observation [N, ...], for its shapes and dtypes. Tensors in it stay tensors and are
    stacked at the end."""

    def __init__(self, steps: int, environments: Environments, obs: Tree) -> None:
        self.steps, self.n, self.leaf = steps, environments.n, environments.action
        self.obs = tree_map(
            lambda x: np.empty((steps, *x.shape), x.dtype) if isinstance(x, np.ndarray) else [], obs
        )
        self.action = np.empty((steps, self.n, *self.leaf.shape), self.leaf.dtype)
        self.extra: dict[str, Array] = {}

    def put(self, t: int, obs: Tree, action: Array, extra: dict[str, Array]) -> Array:
        """Store row t and return its action in the stored dtype, the one to step with."""
        if t == 0:
            self._allocate_extra(action, extra)
        if isinstance(self.obs, dict):
            for key, block in self.obs.items():
                if isinstance(block, list):
                    block.append(obs[key])
                else:
                    block[t] = obs[key]
        elif isinstance(self.obs, list):
            self.obs.append(obs)
        else:
            self.obs[t] = obs
        self.action[t] = action
        for key, value in extra.items():
            self.extra[key][t] = value
        return self.action[t]

    def trajectory(
        self, rows: list[Step], final: list[tuple[int, int, Tree]], gamma: float
    ) -> Trajectory:
        """Return the trajectory, without recurrent state. rows: the environments' result of each
        step. final: (t, environment, last observation) of each episode that was cut or ended."""
        self.obs = tree_map(lambda x: stacked(x) if isinstance(x, list) else x, self.obs)
        terminated = np.array([row.terminated for row in rows], np.bool_)
        return Trajectory(
            obs=self.obs,
            action=self.action,
            reward=np.array([row.reward for row in rows], np.float32),
            discount=np.where(terminated, np.float32(0), np.float32(gamma)),
            last=terminated | np.array([row.truncated for row in rows], np.bool_),
            valid=np.array([row.valid for row in rows], np.bool_),
            cuts=self._cuts(final),
            bootstrap=rows[-1].obs,
            extra=self.extra
            | {name: np.stack([row.extra[name] for row in rows]) for name in rows[0].extra},
        )

    def _cuts(self, final: list[tuple[int, int, Tree]]) -> Cuts:
        t, env = (np.array([f[k] for f in final], np.int64) for k in (0, 1))
        if final:
            return Cuts(t, env, tree_map(lambda *xs: stacked(xs), *(f[2] for f in final)))
        return Cuts(t, env, tree_map(lambda x: x[:0, 0], self.obs))

    def _allocate_extra(self, action: Array, extra: dict[str, Array]) -> None:
        """Allocate arrays for the actor's extra outputs. Raises NetworkError if the actor did not
        return one row per environment."""
        for name, value, shape in (
            ("action", action, self.action.shape[1:]),
            *((k, v, (self.n,)) for k, v in extra.items()),
        ):
            if np.shape(value)[: len(shape)] != shape or (
                name == "action" and np.shape(value) != shape
            ):
                raise NetworkError(
                    f"the actor returned {name!r} of shape {np.shape(value)} for {self.n} "
                    "environments.",
                    f"shape {shape}"
                    + ("" if name == "action" else " or more axes after the first"),
                    "return one row for each environment from `act`.",
                )
        for key, value in extra.items():
            x = np.asarray(value)
            dtype = np.float32 if x.dtype == np.float64 else x.dtype
            self.extra[key] = np.empty((self.steps, *x.shape), dtype)


def map_rows(trajectory: Trajectory, f: Callable[[Array], Array]) -> dict[str, Tree]:
    """Apply `f` to all arrays with one row per step; return the results by field."""
    return {name: tree_map(f, getattr(trajectory, name)) for name in ROWS}


def pad(trajectory: Trajectory, missing: int) -> Trajectory:
    """Append `missing` invalid rows."""

    def longer(x: Array) -> Array:
        return np.concatenate([x, np.repeat(x[-1:], missing, 0)])

    full = trajectory._replace(**map_rows(trajectory, longer))
    full.valid[-missing:] = False
    full.discount[-missing:] = 0  # nothing follows them
    return full


# Joined and split


def join_environments(blocks: list[Trajectory], firsts: Iterable[int]) -> Trajectory:
    """Join trajectories [T, n_i, ...] of the same steps into one [T, sum of n_i, ...] in new
    arrays. `firsts` are the indices of their first environments."""
    if len(blocks) == 1:
        return tree_map(np.array, blocks[0])

    def columns(*xs: Array) -> Array:
        return np.concatenate(xs, 1)

    def rows(*xs: Array) -> Array:
        return np.concatenate(xs)

    t = rows(*(b.cuts.t for b in blocks))
    env = rows(*(b.cuts.env + first for b, first in zip(blocks, firsts, strict=True)))
    order = np.lexsort((env, t))
    return Trajectory(
        **{
            name: tree_map(columns, *(getattr(b, name) for b in blocks))
            for name in ROWS
            if name != "extra"
        },
        cuts=Cuts(
            t[order],
            env[order],
            tree_map(lambda *xs: rows(*xs)[order], *(b.cuts.obs for b in blocks)),
        ),
        bootstrap=tree_map(rows, *(b.bootstrap for b in blocks)),
        extra={name: columns(*(b.extra[name] for b in blocks)) for name in blocks[0].extra},
        state=tree_map(rows, *(b.state for b in blocks)),
    )


def split_environments(trajectory: Trajectory) -> list[Trajectory]:
    """Split a trajectory [T, N, ...] into N trajectories [T, 1, ...]."""
    cuts = trajectory.cuts

    def one(i: int) -> Trajectory:
        here = cuts.env == i
        return Trajectory(
            **map_rows(trajectory, lambda x: x[:, i : i + 1]),
            cuts=Cuts(
                cuts.t[here],
                np.zeros(int(here.sum()), np.int64),
                tree_map(lambda x: x[here], cuts.obs),
            ),
            bootstrap=tree_map(lambda x: x[i : i + 1], trajectory.bootstrap),
            state=tree_map(lambda x: x[i : i + 1], trajectory.state),
        )

    return [one(i) for i in range(trajectory.reward.shape[1])]


def split_steps(trajectory: Trajectory, steps: int) -> list[Trajectory]:
    """Split a trajectory [T, N, ...] into consecutive ones of `steps` steps. Episodes continue from
    one to the next."""
    total, cuts = len(trajectory.reward), trajectory.cuts

    def one(low: int) -> Trajectory:
        end = low + steps
        here = (cuts.t >= low) & (cuts.t < end)
        return Trajectory(
            **map_rows(trajectory, lambda x: x[low:end]),
            cuts=Cuts(cuts.t[here] - low, cuts.env[here], tree_map(lambda x: x[here], cuts.obs)),
            bootstrap=trajectory.bootstrap
            if end >= total
            else tree_map(lambda x: x[end], trajectory.obs),
            state=trajectory.state,
        )

    return [trajectory] if total == steps else [one(low) for low in range(0, total, steps)]


# Packed


class EndedEpisode(NamedTuple):
    """Episode that ended in a block, with the index of its last row."""

    t: int
    episode: EpisodeResult


def read_ended(episodes: Iterable[tuple[int, tuple[Any, ...]]]) -> list[EndedEpisode]:
    """Read ended episodes from JSON data."""
    return [EndedEpisode(t, EpisodeResult(*episode)) for t, episode in episodes]


class BlockInfo(NamedTuple):
    """Metadata that `unpack` needs in addition to the packed arrays."""

    steps: int
    cuts: int
    extra: tuple[str, ...]  # names of the actor's extra outputs
    recurrent: bool
    episodes: list[EndedEpisode]

    @classmethod
    def of(cls, block: Trajectory, episodes: list[EndedEpisode]) -> BlockInfo:
        recurrent = bool(leaves(block.state))
        return cls(len(block.reward), len(block.cuts.t), tuple(block.extra), recurrent, episodes)

    @classmethod
    def read(cls, data: Iterable[object]) -> BlockInfo:
        """Read a block's metadata from JSON data."""
        steps, cuts, extra, recurrent, episodes = data
        return cls(steps, cuts, tuple(extra), recurrent, read_ended(episodes))  # type: ignore[arg-type]


def pack(block: Trajectory) -> dict[str, Array]:
    """Return a trajectory's arrays by name. `unpack` is the inverse."""
    arrays: dict[str, Array] = {name: getattr(block, name) for name in PLAIN}
    arrays |= {f"extra/{name}": x for name, x in block.extra.items()}
    arrays |= {"cut_t": block.cuts.t, "cut_env": block.cuts.env}
    trees = {
        "obs": block.obs,
        "bootstrap": block.bootstrap,
        "cut": block.cuts.obs,
        "state": block.state,
    }
    return arrays | {
        f"{name}/{j}": x for name, tree in trees.items() for j, x in enumerate(leaves(tree))
    }


def unpack(arrays: Mapping[str, Array], info: BlockInfo, obs: Tree, state: Tree) -> Trajectory:
    """Return the trajectory as views of the arrays, which may be longer. obs, state: trees that
    provide the structure; their leaves are ignored."""

    def tree(like: Tree, name: str, end: int | None) -> Tree:
        numbers = itertools.count()
        return tree_map(lambda _: arrays[f"{name}/{next(numbers)}"][:end], like)

    return Trajectory(
        obs=tree(obs, "obs", info.steps),
        **{name: arrays[name][: info.steps] for name in PLAIN},
        cuts=Cuts(
            arrays["cut_t"][: info.cuts],
            arrays["cut_env"][: info.cuts],
            tree(obs, "cut", info.cuts),
        ),
        bootstrap=tree(obs, "bootstrap", None),
        extra={name: arrays[f"extra/{name}"][: info.steps] for name in info.extra},
        state=tree(state, "state", None) if info.recurrent else (),
    )
