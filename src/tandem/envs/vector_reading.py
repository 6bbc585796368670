"""Reading and checking of a vector environment's results: observations with masks, last
observations, rewards and flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tandem.envs.checks import check_finite, raising, returned, storable, unlike_space
from tandem.envs.ids import import_gymnasium
from tandem.envs.tensors import bits_of, dtype_of, kept, to_numpy
from tandem.envs.vector import SUCCESS, Environments
from tandem.errors import EnvironmentFault
from tandem.spaces import MASK
from tandem.types import Array, Info, Tree

FINAL = ("final_obs", "final_observation")  # info keys in Gymnasium since 1.0, and before
FINAL_INFO = "final_info"


def masked_space(inner: Any, width: int) -> tuple[Any, bool]:
    """Add an entry for the info's mask to an environment's observation space. Also return whether
    the original observation, if it is not a Dict, becomes the entry `obs`."""
    spaces = import_gymnasium().spaces
    wraps = not isinstance(inner, spaces.Dict)
    entries = {"obs": inner} if wraps else inner.spaces
    return spaces.Dict({**entries, MASK: spaces.MultiBinary(width)}), wraps


def may_have_masks(shown: Any, actions: Any) -> bool:
    """Return true if an environment's actions are discrete and its observations contain no mask, so
    that its info or a method may provide one."""
    spaces = import_gymnasium().spaces
    if not isinstance(actions, (spaces.Discrete, spaces.MultiDiscrete)):
        return False
    return not (isinstance(shown, spaces.Dict) and MASK in shown.spaces)


class Reader:
    """Reader of a vector environment's results. Every returned array is new, has the dtype of its
    space, and is in C order (a transposed array could change the last bit of a matrix product).

    of: the environments, for their name, number and spaces. masks: true if they have action masks.
    wraps: true if observations then become the entry `obs`. method: returns the masks if the info
    does not contain them.
    """

    def __init__(
        self,
        of: Environments,
        masks: bool,
        wraps: bool,
        method: Callable[[Array], Any] | None = None,
    ) -> None:
        self.of, self.name, self.n, self.masks = of, of.name, of.n, masks
        self._method = method
        self._plain, self._specs = not isinstance(of.observation, dict), of.parts
        self._wraps = masks and wraps
        self._shapes = {key: (self.n, *leaf.shape) for key, leaf in self._specs.items()}
        self._shape, self._everywhere = (self.n,), np.ones(self.n, np.bool_)
        self._fitting: set[tuple[str, np.dtype[Any]]] = set()  # dtypes whose values always fit
        self.stays: set[str] = set()  # observation parts that stay tensors on their device
        self.steps = 0  # since the first reset

    def observations(self, seen: Tree, info: Info, going: Array) -> Tree:
        """Read observations [N, ...]. going: environments that act on them and need a mask."""
        obs = self._stored(seen, self._mask(info, going) if self.masks else None)
        self.of.check(obs, self.when, going)
        return obs

    def last(self, i: int, info: Info, terminated: bool) -> Tree:
        """Read the last observation of environment i, which was reset in the same step."""
        held = next((info[name] for name in FINAL if name in info), None)
        seen = None if held is None else _of_one(held, i)
        if seen is None:
            raise returned(
                self.name,
                None,
                f"no last observation of environment {i}, whose episode ended {self.when()}: its "
                f"info has {', '.join(map(str, info)) or 'no entry'}",
                f"info[{FINAL[0]!r}], as autoreset mode SAME_STEP requires",
                "put the last observations there, or set the actual mode: "
                "envs.metadata['autoreset_mode'] = gymnasium.vector.AutoresetMode.NEXT_STEP.",
            )
        mask = None
        if self.masks:
            inner = info.get(FINAL_INFO)
            row = None
            if isinstance(inner, dict) and inner.get(f"_{MASK}", self._everywhere)[i]:
                row = inner[MASK][i] if MASK in inner else None
            mask = self._row_of_mask(i, row, terminated)
        obs = self._stored(seen, mask, i)
        self.of.check_last(i, obs, self.when(), terminated)
        return obs

    def successes(self, info: Info, ended: Array) -> dict[int, float | None]:
        """Read the success of the episodes that `ended`, if `info` reports it."""
        held = info.get(FINAL_INFO, info)
        if not isinstance(held, dict) or SUCCESS not in held:
            return {}
        there = to_numpy(held.get(f"_{SUCCESS}", self._everywhere)) & ended
        said = to_numpy(held[SUCCESS])
        return {i: float(np.all(said[i])) for i in np.flatnonzero(there).tolist()}

    def numbers(self, what: str, value: Array, dtype: type[np.generic]) -> Array:
        """Read rewards, or flags of ended episodes: [N]."""
        try:
            x = np.array(value if isinstance(value, np.ndarray) else to_numpy(value), dtype)
        except (TypeError, ValueError):
            x = np.empty(0)
        if x.shape != self._shape:
            raise returned(
                self.name,
                None,
                f"{what} of shape {np.shape(value)} and type {type(value).__name__}",
                f"one number per environment: an array of shape {self._shape}",
                f"return {what} as an array of this shape from step.",
            )
        check_finite(self.name, what, x, self.when)
        return x

    def _stored(self, seen: Tree, mask: Array | None, i: int | None = None) -> Tree:
        """Convert observations with their masks, of all environments or the last one of environment
        i, to arrays that may be kept."""
        if self._plain:
            return self._array("", seen, i)
        if mask is not None:
            seen = ({"obs": seen} if self._wraps else dict(seen)) | {MASK: mask}
        flat = self.of.flatten(seen)
        return {key: self._array(key, flat[key], i) for key in self._specs}

    def _array(self, key: str, value: Array, i: int | None) -> Array:
        leaf, n = self._specs[key], self.n if i is None else 0
        shape = self._shapes[key] if n else leaf.shape
        if key in self.stays and not isinstance(value, np.ndarray):
            return self._tensor(key, value, shape, n)
        given = value if isinstance(value, np.ndarray) else to_numpy(value)
        if given.shape != shape or (key, given.dtype) not in self._fitting:
            if given.shape != shape or not storable(given, leaf):
                which = "" if n else f"as the last one of environment {i}"
                raise unlike_space(self.name, None, given, leaf, key, which, n)
            if np.can_cast(given.dtype, leaf.dtype) or leaf.dtype.startswith("f"):
                self._fitting.add((key, given.dtype))
        return np.array(given, leaf.dtype, order="C")

    def _tensor(self, key: str, value: Array, shape: tuple[int, ...], n: int) -> Array:
        leaf = self._specs[key]
        dtype = dtype_of(value)
        if tuple(value.shape) != shape or not np.can_cast(dtype, leaf.dtype, "same_kind"):
            raise unlike_space(self.name, None, value, leaf, key, "", n)
        stored = kept(value, leaf.dtype)
        narrower = dtype.kind != "f" and not np.can_cast(dtype, leaf.dtype)
        if narrower and not leaf.dtype.startswith("f") and not bool((stored == value).all()):
            raise unlike_space(self.name, None, value, leaf, key, "", n)
        return stored

    def stay(self) -> None:
        """Keep Box observations that are tensors on their device from now on."""
        self.stays = {k for k, leaf in self._specs.items() if leaf.kind == "box" and k != MASK}

    def _mask(self, info: Info, going: Array) -> Array:
        """Read masks [N, choices] of 0 and 1; all ones if no environment acts any more."""
        given = info.get(MASK)
        if given is None and not going.any():
            return np.ones(self._shapes[MASK], np.int8)
        if given is None and self._method is not None:
            with raising(self.name):
                came = self._method(going)
            rows = [row if acts else None for row, acts in zip(came, going, strict=True)]
            return np.stack([self._row_of_mask(i, x, not going[i]) for i, x in enumerate(rows)])
        if given is None:
            raise self._no_mask(int(np.flatnonzero(going)[0]))
        there = info.get(f"_{MASK}", self._everywhere)
        # Gymnasium's vectors store masks in parts (tuples) in an object array
        in_parts = isinstance(given, np.ndarray) and given.dtype.hasobject
        if to_numpy(there).all() and not in_parts:
            bits: Array = (to_numpy(given) != 0).astype(np.int8)
            return bits.reshape(len(bits), -1) if bits.ndim > 2 else bits
        rows = [given[i] if there[i] else None for i in range(self.n)]
        return np.stack([self._row_of_mask(i, x, not going[i]) for i, x in enumerate(rows)])

    def _row_of_mask(self, i: int, row: Array | None, over: bool) -> Array:
        if row is None:
            if not over:
                raise self._no_mask(i)
            return np.ones(self._shapes[MASK][1:], np.int8)
        return bits_of(row)

    def _no_mask(self, i: int) -> EnvironmentFault:
        return returned(
            self.name,
            None,
            f"no action mask for environment {i} {self.when()}, but did after its first reset",
            f"info[{MASK!r}] after every reset and step; for an episode truncated and reset in "
            f"the same step also info[{FINAL_INFO!r}][{MASK!r}], for the value of its last "
            "observation",
            "return the mask there, or as an entry of a Dict observation.",
        )

    def when(self, i: int | None = None) -> str:
        """Describe the current step, which is the same for every environment."""
        return f"at step {self.steps} since the first reset"


def _of_one(held: Tree, i: int) -> Tree:
    """Return row i of an info entry of all environments: an array, possibly of objects, or dicts
    and tuples of these."""
    if isinstance(held, dict):
        return {key: _of_one(value, i) for key, value in held.items()}
    if isinstance(held, tuple):
        return tuple(_of_one(value, i) for value in held)
    return held[i]
