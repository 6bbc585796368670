"""Descriptions of Gymnasium spaces (`Leaf`) for networks, buffers and checkpoints, and their
conversion to and from JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from math import prod
from operator import getitem
from typing import TYPE_CHECKING, Literal

import numpy as np

from tandem.errors import SpaceError, note
from tandem.types import Array, JSONDict, Tree

if TYPE_CHECKING:
    from gymnasium import Space

MASK = "action_mask"  # the entry of an observation that marks the valid actions
Kind = Literal["box", "discrete", "multidiscrete", "multibinary", "dict"]
Path = tuple[str | int, ...]  # the keys of an entry in nested Dicts; indices for Tuples
ActionMode = Literal["as_is", "clip", "unit"]  # conversion of policy actions for the environment


@dataclass(frozen=True)
class Leaf:
    """One array of a space.

    `shape` and `dtype` are those of a single element. `sizes` are the numbers of choices of a
    discrete (one) or multidiscrete (one per position) space. `low` and `high` are the bounds of a
    box, flattened. `stack`: number of an episode's latest images on the first axis, the newest
    last, with zeros before its first; 0 if unknown. It is read from the Box attribute `stack` (set
    by `atari.declared`). `own`: the dtype of the environment's actions if it differs from `dtype`;
    absent in older checkpoints. `own_shape`: the shape of the environment's actions if the policy's
    are vectors. `parts`: the entries of a Dict or Tuple of actions (kind "dict"), which the policy
    outputs as one vector of floats, in this order.
    """

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    sizes: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    start: int = 0  # the first value of a discrete space
    masked: bool = False  # discrete actions: observations have a mask of valid actions, under MASK
    stack: int = 0
    own: str = field(default="", compare=False)
    own_shape: tuple[int, ...] | None = None
    parts: tuple[tuple[Path, Leaf], ...] = ()

    @property
    def image(self) -> bool:
        """True for an image: unsigned bytes with three axes."""
        return self.kind == "box" and self.dtype == "uint8" and len(self.shape) == 3

    @property
    def width(self) -> int:
        """Number of network inputs (one-hot for discrete kinds)."""
        return sum(self.sizes) if self.sizes else prod(self.shape)

    @property
    def bounded(self) -> bool:
        return self.kind == "box" and bool(
            np.isfinite(self.low).all() and np.isfinite(self.high).all()
        )

    @property
    def bounds(self) -> tuple[Array, Array]:
        """low and high of a box in its shape and dtype, rounded inwards: float64 bounds such as 0.3
        may not be representable."""
        limits = []
        for bound, inwards in ((self.low, np.inf), (self.high, -np.inf)):
            exact = np.array(bound, np.float64)
            with np.errstate(over="ignore"):
                x = exact.astype(self.dtype)
            if x.dtype.kind == "f":
                beyond = x < exact if inwards > 0 else x > exact
                x = np.where(beyond, np.nextafter(x, np.asarray(inwards, x.dtype)), x)
            limits.append(x.reshape(self.shape))
        return limits[0], limits[1]

    @property
    def far(self) -> bool:
        """True if a box's bounds are so far apart, or so large, that their midpoint or distance
        overflows float32."""
        low, high = self.bounds
        with np.errstate(over="ignore"):
            return not (np.isfinite(low + high).all() and np.isfinite(high - low).all())


Spec = Leaf | dict[str, Leaf]  # an observation's; actions are always a single Leaf
Outline = str | list["Outline"] | dict[str, "Outline"]  # see `outline`


KNOWN = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple", "Text")


def kind_of(space: Space) -> str:
    """Return which of `KNOWN` a space is (from gymnasium.spaces or gym, or a subclass), else the
    name of its class."""
    names = [base.__name__ for base in type(space).__mro__]
    return next((name for name in names if name in KNOWN), names[0])


def leaf(space: Space) -> Leaf:
    """Return the Leaf of a Box, Discrete, MultiDiscrete or MultiBinary space (gymnasium.spaces)."""
    if isinstance(space, type):
        raise SpaceError(
            f"a space is the class {space.__name__}, not an instance of it.",
            "an instance, such as gymnasium.spaces.Discrete(4)",
            f"call it: {space.__name__}(...).",
        )
    name = kind_of(space)
    if 0 in (getattr(space, "shape", None) or ()):
        raise SpaceError(
            f"cannot use {space}, which holds no numbers.",
            "at least one number",
            "give it a shape without 0; in a Dict, leave the entry out.",
        )
    if name == "Box":
        low, high = (tuple(float(v) for v in np.ravel(b)) for b in (space.low, space.high))
        dtype = "float32" if np.issubdtype(space.dtype, np.floating) else str(space.dtype)
        return Leaf(
            "box", tuple(space.shape), dtype, (), low, high, stack=getattr(space, "stack", 0)
        )
    if name == "Discrete":
        return Leaf("discrete", (), "int64", (int(space.n),), start=int(space.start))
    if name == "MultiDiscrete":
        if np.ndim(space.nvec) != 1 or np.any(space.start):
            raise SpaceError(
                f"cannot use {space}.",
                "a MultiDiscrete space with one axis that starts at 0",
                "convert it to MultiDiscrete(nvec.ravel()), counted from 0, with "
                "gymnasium.wrappers.TransformObservation or TransformAction.",
            )
        return Leaf("multidiscrete", tuple(space.shape), "int64", tuple(int(n) for n in space.nvec))
    if name == "MultiBinary":
        return Leaf("multibinary", tuple(space.shape), "int8")
    raise SpaceError(
        f"cannot use the space {space}.",
        "Box, Discrete, MultiDiscrete or MultiBinary",
        "convert it to one of these with gymnasium.wrappers.TransformObservation or "
        "TransformAction.",
    )


def parts_of(space: Space) -> list[tuple[str | int, Space]] | None:
    """Return the (key, space) pairs of a Dict space, or of a Tuple space with indices as keys; None
    for any other space."""
    kind = kind_of(space)
    if kind == "Dict":
        return list(space.spaces.items())
    return list(enumerate(space.spaces)) if kind == "Tuple" else None


def _observed(space: Space) -> list[tuple[str | int, Space]] | None:
    """Return the `parts_of` an observation space, without text entries of a Dict, which networks
    cannot read."""
    entries = parts_of(space)
    if entries is None or kind_of(space) == "Tuple":
        return entries
    return [(key, inner) for key, inner in entries if not _is_text(inner)]


def in_space(space: Space, x: Tree, made: Callable[[Space, Array], Array]) -> Tree:
    """Return an observation in the containers of its space, with `made(inner space, array)` applied
    to each array."""
    if (entries := _observed(space)) is None:
        return made(space, x)
    parts = {key: in_space(inner, x[key], made) for key, inner in entries}
    return parts if kind_of(space) == "Dict" else tuple(parts.values())


def fits(x: Array, dtype: str) -> bool:
    """True if the values are exact in this dtype; floats may be rounded to other floats."""
    if np.can_cast(x.dtype, dtype) or np.dtype(dtype).kind == "f":
        return True
    with np.errstate(invalid="ignore"):
        return bool((x.astype(dtype) == x).all())


def observation_spec(space: Space) -> Spec:
    """Return the Spec of an observation space: a Leaf, or a dict of them for a Dict or Tuple space.
    Nested names are joined by '/'; entries of a Tuple are named by index. Text in a Dict, such as
    MiniGrid's missions, is left out with a note."""
    if (entries := _observed(space)) is None:
        if _is_text(space):
            raise _text(space)
        return leaf(space)
    if len(every := parts_of(space) or []) > len(entries):
        texts = [repr(str(key)) for key, _ in every if key not in dict(entries)]
        if not entries:
            raise _text(space)
        note(f"Observations have text under {', '.join(texts)}, which the agent does not see.")
    leaves_by_key: dict[str, Leaf] = {}
    for key, inner in entries:
        if _is_text(inner):
            raise _text(inner, str(key), [k for k, s in entries if s is not inner])
        spec = observation_spec(inner)
        named = (
            {f"{key}/{k}": s for k, s in spec.items()}
            if isinstance(spec, dict)
            else {str(key): spec}
        )
        if twice := sorted(named.keys() & leaves_by_key.keys()):
            raise SpaceError(
                f"two entries of the observation space are called {twice[0]!r}: names of Dicts "
                "within Dicts are joined by '/'.",
                "distinct names",
                f"rename one of them, for example to {twice[0].replace('/', '_')!r}.",
            )
        leaves_by_key |= named
    if not leaves_by_key:
        raise empty("observations", space)
    return leaves_by_key


def empty(what: str, space: Space) -> SpaceError:
    return SpaceError(
        f"cannot use a {kind_of(space)} without entries for {what}.",
        "at least one entry",
        "add one (gymnasium.spaces.Discrete(1) has no information); in a Dict, leave it out.",
    )


def _is_text(space: Space) -> bool:
    """True if a space contains text: Gymnasium's Text, or a library's own space such as MiniGrid's
    missions."""
    if (kind := kind_of(space)) in KNOWN:
        return kind == "Text"
    try:
        return isinstance(space.sample(), str)
    except Exception:  # a third-party space may raise anything
        return False


def _text(space: Space, key: str = "", others: list[str | int] | None = None) -> SpaceError:
    fix = (
        "convert it to numbers: gymnasium.wrappers.TransformObservation(env, function, space), "
        "with a Box or MultiDiscrete for space."
    )
    if others:
        fix = f"leave it out: gymnasium.wrappers.FilterObservation(env, {others!r})."
    where = f"the entry {key!r} of the observation is" if key else "observations are"
    return SpaceError(f"{where} text ({space}).", "numbers, as networks require", fix)


def action_leaf(space: Space, observation: Spec) -> Leaf:
    """Return the Leaf of an action space. It is `masked` if the actions are discrete and
    observations have an entry for their mask.

    Raises SpaceError if the size of the mask is not the number of choices.
    """
    if parts_of(space) is not None:
        raise SpaceError(
            f"cannot use the action space {space}.",
            "one Discrete, MultiDiscrete, MultiBinary or Box",
            "write a gymnasium.ActionWrapper whose action_space is one of these and whose action() "
            "returns the environment's action.",
        )
    action, inner = leaf(space), getattr(space, "inner", None)
    if inner is not None and parts_of(inner) is not None:
        return replace(action, kind="dict", parts=space.parts)
    if inner is not None:
        action = replace(action, own_shape=tuple(inner.shape))
    if (own := str(getattr(space, "dtype", None) or action.dtype)) != action.dtype:
        action = replace(action, own=own)
    if not (action.sizes and isinstance(observation, dict) and MASK in observation):
        return action
    mask = observation[MASK]
    if mask.sizes or mask.shape != (action.width,):
        raise SpaceError(
            f"observations have an entry {MASK!r} of shape {mask.shape} ({mask.kind}), but "
            f"{space} has {action.width} choices.",
            f"a MultiBinary({action.width}), or a Box of 0 and 1 of shape ({action.width},)",
            "give one number for each choice, concatenated over all positions; or rename the "
            "entry.",
        )
    return replace(action, masked=True)


def described(observation: Spec, action: Leaf) -> str:
    """Return text such as "observation (4,) float32; action discrete 2, without masks"."""
    parts = observation if isinstance(observation, dict) else {"observation": observation}
    shown = ", ".join(f"{name} {part.shape} {part.dtype}" for name, part in parts.items())
    sizes = ", ".join(map(str, action.sizes)) or action.shape
    masks = f"masked by {MASK}" if action.masked else "without masks"
    return f"{shown}; action {action.kind} {sizes}, {masks}"


def outline(space: Space) -> Outline:
    """Return the part of an observation space that its Spec lacks, as JSON data: the dtype, or a
    list of dtypes for a Tuple and a dict of them for a Dict."""
    if (entries := _observed(space)) is None:
        return str(space.dtype)
    if kind_of(space) == "Tuple":
        return [outline(inner) for _, inner in entries]
    return {str(key): outline(inner) for key, inner in entries}


def gymnasium_space(spec: Spec, outlined: Outline | None = None) -> Space:
    """Return the observation space (gymnasium.spaces) of a Spec and its `outline`. Without the
    outline, Dicts are not nested and floats have 32 bits."""
    from gymnasium import spaces  # here: most programs that import this file do not need it

    if outlined is None:
        outlined = (
            {key: s.dtype for key, s in spec.items()} if isinstance(spec, dict) else spec.dtype
        )

    def made(part: Outline, path: tuple[str, ...]) -> Space:
        if isinstance(part, dict):
            return spaces.Dict({key: made(inner, (*path, key)) for key, inner in part.items()})
        if isinstance(part, list):
            return spaces.Tuple([made(inner, (*path, str(i))) for i, inner in enumerate(part)])
        one = spec["/".join(path)] if isinstance(spec, dict) else spec
        if one.kind == "discrete":
            return spaces.Discrete(one.sizes[0], start=one.start)
        if one.kind == "multidiscrete":
            return spaces.MultiDiscrete(one.sizes)
        if one.kind == "multibinary":
            return spaces.MultiBinary(one.shape)
        dtype = np.dtype(part)
        bounds: list[list[float]] = [list(one.low), list(one.high)]
        if dtype.kind in "iu":  # a Leaf's bounds are floats, which exceed the widest integers
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            bounds = [[min(max(int(b), least), most) for b in each] for each in bounds]
        low, high = (np.array(bound, dtype).reshape(one.shape) for bound in bounds)
        box = spaces.Box(low, high, one.shape, dtype.type)
        if one.stack:
            box.stack = one.stack
        return box

    return made(outlined, ())


def form(spec: Spec) -> object:
    """Return the kind, dtype and size of each part, in which an agent's observations and actions
    must match those of its training. Bounds may differ; a multibinary part counts as a box."""
    if isinstance(spec, dict):
        return {key: form(leaf) for key, leaf in spec.items()}
    if spec.parts:
        return {"/".join(map(str, path)): form(part) for path, part in spec.parts}
    kind = "box" if spec.kind == "multibinary" else spec.kind
    return (kind, spec.dtype, spec.sizes or spec.shape)


def refuse_others(name: str, own: tuple[Spec, Spec], here: tuple[Spec, Spec]) -> None:
    """Raise SpaceError if the (observations, actions) of the environment called `name` differ in
    `form` from the agent's `own`."""
    for what, mine, theirs in zip(("observations", "actions"), own, here, strict=True):
        if form(mine) != form(theirs):
            raise SpaceError(
                f"{name} has {what} of the form {form(theirs)}.",
                f"{form(mine)}, as in training",
                "use an environment like the one it was trained in, with the same wrappers.",
            )


def seen(observation: Spec, action: Leaf) -> Spec:
    """Return the part of an observation that default networks receive: everything except the action
    mask."""
    if action.masked and isinstance(observation, dict):
        return {k: s for k, s in observation.items() if k != MASK}
    return observation


def flattener(space: Space) -> Callable[[Tree], Tree]:
    """Return the function from an observation of `space` to the form of its Spec: nested Dicts and
    Tuples become one dict with joined names."""
    if parts_of(space) is None:
        return lambda obs: obs
    paths = {"/".join(map(str, path)): path for path in _paths(space)}
    return lambda obs: {name: reduce(getitem, path, obs) for name, path in paths.items()}


def _paths(space: Space) -> Iterator[Path]:
    """Yield the keys of each array of an observation."""
    if (entries := _observed(space)) is None:
        yield ()
    for key, inner in entries or ():
        yield from ((key, *rest) for rest in _paths(inner))


def to_json(spec: Spec) -> JSONDict:
    """Return a Spec as JSON data."""
    if isinstance(spec, dict):
        return {"dict": {k: asdict(s) for k, s in spec.items()}}
    return asdict(spec)


def from_json(data: JSONDict) -> Spec:
    """Return the Spec that `to_json` wrote."""
    if "dict" in data:
        return {k: _leaf_from_json(d) for k, d in data["dict"].items()}
    return _leaf_from_json(data)


def _leaf_from_json(data: JSONDict) -> Leaf:
    fields: JSONDict = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    parts = tuple((tuple(path), _leaf_from_json(part)) for path, part in fields.pop("parts", ()))
    return Leaf(**fields, parts=parts)
