"""Names, shapes and dtypes of the arrays of a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tandem.errors import SettingError, SpaceError
from tandem.replay import stacks
from tandem.replay.allocation import size_of
from tandem.spaces import Leaf, Spec
from tandem.types import AnyArray, Tree

ROW = {"reward": "float32", "discount": "float32", "last": "bool", "valid": "bool"}


class Layout:
    """The columns of a ring: arrays [slots, N, ...] for observations, actions, the entries of
    `ROW`, and extras, in this order.

    slots: the time steps of `capacity` transitions of N = `envs` environments, rounded up, plus the
    earlier time steps in the oldest stack of images, plus one for the observations after the newest
    row. An observation that is a stack of images has two columns (`stacks.stored`).

    Raises SettingError for a capacity or a number of environments below 1.
    """

    def __init__(
        self, capacity: int, envs: int, obs: Spec, action: Leaf, extra: Mapping[str, Leaf]
    ) -> None:
        if capacity < 1 or envs < 1:
            raise SettingError(
                f"a ring with {capacity} transitions of {envs} environments.",
                "at least one of each",
                f"try capacity={max(capacity, 1)}, envs={max(envs, 1)}.",
            )
        self._keys = list(obs) if isinstance(obs, dict) else None
        self.leaves: dict[str, Leaf] = (
            {f"obs/{key}": leaf for key, leaf in obs.items()}
            if isinstance(obs, dict)
            else {"obs": obs}
        )
        self.obs: dict[str, Leaf] = {}  # one per column with (a part of) observations
        for name, leaf in self.leaves.items():
            self.obs |= stacks.stored(name, leaf)
        # earlier time steps whose images are part of a row's observation
        self.history = max(
            (leaf.stack - 1 for leaf in self.leaves.values() if leaf.stack), default=0
        )
        self.slots = -(-capacity // envs) + 1 + self.history

        lead = (self.slots, envs)
        leaves = {**self.obs, "action": action}
        self.columns = {name: ((*lead, *leaf.shape), leaf.dtype) for name, leaf in leaves.items()}
        self.columns |= {name: (lead, dtype) for name, dtype in ROW.items()}
        for name, leaf in extra.items():
            self.columns[f"extra/{name}"] = ((*lead, *leaf.shape), leaf.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return size_of(self.columns.values())

    def files(self, folder: Path) -> list[Path]:
        """Return a file path for each column. Files are numbered, since observation names can
        contain characters that are invalid in file names."""
        return [folder / f"{i:02d}_{name.split('/')[0]}.npy" for i, name in enumerate(self.columns)]

    def split(self, obs: Tree) -> list[AnyArray]:
        """Return the arrays of an observation, in the order of `leaves`."""
        return [obs] if self._keys is None else [obs[key] for key in self._keys]

    def join(self, arrays: Sequence[AnyArray]) -> Tree:
        """Return the observation with these arrays: the inverse of `split`."""
        return arrays[0] if self._keys is None else dict(zip(self._keys, arrays, strict=True))

    def check_order(
        self,
        obs: Tree,
        arrays: Mapping[str, AnyArray],
        columns: Mapping[str, AnyArray],
        newest: int | None,
    ) -> None:
        """Raise EnvironmentFault for observations that are declared as stacks but are not.
        arrays: the arrays of the trajectory by name. columns: the columns of the ring. newest: the
        slot of its newest row, or None."""
        for x, (name, leaf) in zip(self.split(obs), self.leaves.items(), strict=True):
            if leaf.stack:
                previous = None if newest is None else columns[name][newest]
                stacks.check_order(x, arrays[f"age/{name}"], previous, name)

    def obs_columns(self, obs: Tree) -> list[AnyArray]:
        """Convert observations [..., *leaf.shape] to arrays for the columns `self.obs`; stacks of
        images are split."""
        arrays = zip(self.split(obs), self.leaves.items(), strict=True)
        return [column for x, (name, leaf) in arrays for column in stacks.apart(x, leaf, name)]


def check_column(name: str, x: AnyArray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise SpaceError, which shows `name`, if x has another shape or dtype."""
    if x.shape != shape or x.dtype != dtype:
        raise SpaceError(
            f"{name} has shape {x.shape} and dtype {x.dtype}.",
            f"shape {shape} and dtype {dtype}",
            "cast and reshape to the environment's spaces in the collector; cast float64 rewards "
            "and discounts to float32.",
        )
