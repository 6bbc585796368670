"""Gymnasium spaces as plain descriptions (`Leaf`), and back from JSON: what networks, buffers and
checkpoints need to know."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import Any, Literal

import numpy as np

from tandem.errors import SpaceError
from tandem.types import Array, JSONDict, Tree

MASK = "action_mask"  # the entry of an observation that says which choices may be taken
Kind = Literal["box", "discrete", "multidiscrete", "multibinary"]
ActionMode = Literal["as_is", "clip", "unit"]  # from a policy's actions to an environment's


@dataclass(frozen=True)
class Leaf:
    """One array of a space.

    shape and dtype are those of a single element. `sizes` are the numbers of choices of a discrete
    (one) or multidiscrete (one for each position) space. `low` and `high` are the bounds of a box,
    flattened. `stack`: the first axis holds that many of an episode's newest pictures, the newest
    last, and zeros before its first; 0 where nothing is known of that kind. It is what an attribute
    `stack` of the Box says (`atari.declared` sets it). `own`: the dtype that an environment takes
    actions in, where that is another one than `dtype`; checkpoints from before there was this say
    nothing of it.
    """

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    sizes: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    start: int = 0  # the first value of a discrete space
    masked: bool = False  # of discrete actions: observations have a mask of the choices, under MASK
    stack: int = 0
    own: str = field(default="", compare=False)

    @property
    def image(self) -> bool:
        """Whether this is a picture: unsigned bytes with three axes."""
        return self.kind == "box" and self.dtype == "uint8" and len(self.shape) == 3

    @property
    def width(self) -> int:
        """How many numbers a network sees of it (one-hot for discrete kinds)."""
        return sum(self.sizes) if self.sizes else prod(self.shape)

    @property
    def bounded(self) -> bool:
        return self.kind == "box" and bool(
            np.isfinite(self.low).all() and np.isfinite(self.high).all()
        )

    @property
    def bounds(self) -> tuple[Array, Array]:
        """low and high of a box in its shape and dtype, none beyond what the space has: those of
        doubles, such as 0.3, may lie between two floats."""
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
        """Whether a box's bounds are so far apart, or so far out, that float32 has no middle or no
        distance of them."""
        low, high = self.bounds
        with np.errstate(over="ignore"):
            return not (np.isfinite(low + high).all() and np.isfinite(high - low).all())


Spec = Leaf | dict[str, Leaf]  # of an observation; actions are always one Leaf


def leaf(space: Any) -> Leaf:
    """The Leaf of a Box, Discrete, MultiDiscrete or MultiBinary space (gymnasium.spaces)."""
    name = type(space).__name__
    if 0 in (getattr(space, "shape", None) or ()):
        raise SpaceError(
            f"cannot use {space}, which holds no number.",
            "at least one number",
            "leave it out, or give it one.",
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
                "flatten it with a wrapper.",
            )
        return Leaf("multidiscrete", tuple(space.shape), "int64", tuple(int(n) for n in space.nvec))
    if name == "MultiBinary":
        return Leaf("multibinary", tuple(space.shape), "int8")
    raise SpaceError(
        f"cannot use the space {space}.",
        "Box, Discrete, MultiDiscrete or MultiBinary (and Dict of these for observations)",
        "convert it with a wrapper, for example gymnasium.wrappers.FlattenObservation.",
    )


def observation_spec(space: Any) -> Spec:
    """The Spec of an observation space: a Leaf, or a dict of them for a Dict space (one inside
    another is joined by '/')."""
    if type(space).__name__ != "Dict":
        return leaf(space)
    leaves_by_key: dict[str, Leaf] = {}
    for key, inner in space.spaces.items():
        spec = observation_spec(inner)
        leaves_by_key.update(
            {f"{key}/{k}": s for k, s in spec.items()}
            if isinstance(spec, dict)
            else {str(key): spec}
        )
    if not leaves_by_key:
        raise SpaceError(
            "cannot use a Dict without entries.",
            "at least one entry",
            "leave it out, or give it one.",
        )
    return leaves_by_key


def action_leaf(space: Any, observation: Spec) -> Leaf:
    """The Leaf of an action space; `masked` where its actions are discrete and observations have an
    entry for their mask.

    Raises SpaceError for a mask of another size than there are choices."""
    action = leaf(space)
    if (own := str(getattr(space, "dtype", None) or action.dtype)) != action.dtype:
        action = replace(action, own=own)
    if not (action.sizes and isinstance(observation, dict) and MASK in observation):
        return action
    mask = observation[MASK]
    if mask.sizes or mask.shape != (action.width,):
        raise SpaceError(
            f"observations have an entry {MASK!r} of shape {mask.shape} ({mask.kind}); {space} "
            f"has {action.width} choices.",
            f"a MultiBinary({action.width}), or a Box of 0 and 1 of shape ({action.width},)",
            "give one number for each choice, those of all positions side by side; or give the "
            "entry another name.",
        )
    return replace(action, masked=True)


def outline(space: Any) -> Any:
    """What a Spec does not know of its observation space, as JSON data: the dtype, or those of a
    Dict's entries by their keys."""
    if type(space).__name__ == "Dict":
        return {str(key): outline(inner) for key, inner in space.spaces.items()}
    return str(space.dtype)


def gymnasium_space(spec: Spec, outlined: Any = None) -> Any:
    """The observation space (gymnasium.spaces) that a Spec, and its `outline`, is of. Without the
    latter a Dict has no Dicts within, and floats have 32 bits."""
    from gymnasium import spaces

    if outlined is None:
        outlined = (
            {key: s.dtype for key, s in spec.items()} if isinstance(spec, dict) else spec.dtype
        )

    def made(part: Any, path: tuple[str, ...]) -> Any:
        if isinstance(part, dict):
            return spaces.Dict({key: made(inner, (*path, key)) for key, inner in part.items()})
        one = spec["/".join(path)] if isinstance(spec, dict) else spec
        if one.kind == "discrete":
            return spaces.Discrete(one.sizes[0], start=one.start)
        if one.kind == "multidiscrete":
            return spaces.MultiDiscrete(one.sizes)
        if one.kind == "multibinary":
            return spaces.MultiBinary(one.shape)
        dtype = np.dtype(part)
        bounds: list[Any] = [list(one.low), list(one.high)]
        if dtype.kind in "iu":  # a Leaf's bounds are floats, which round beyond the widest integers
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            bounds = [[min(max(int(b), least), most) for b in each] for each in bounds]
        low, high = (np.array(bound, dtype).reshape(one.shape) for bound in bounds)
        box: Any = spaces.Box(low, high, one.shape, dtype.type)
        if one.stack:
            box.stack = one.stack
        return box

    return made(outlined, ())


def form(spec: Spec) -> Any:
    """Kind, dtype and size of each part: what an agent's observations and actions must share with
    those that it was trained on. Bounds may differ."""
    if isinstance(spec, dict):
        return {key: form(leaf) for key, leaf in spec.items()}
    return (spec.kind, spec.dtype, spec.sizes or spec.shape)


def refuse_others(name: str, own: tuple[Spec, Spec], here: tuple[Spec, Spec]) -> None:
    """SpaceError where the (observations, actions) of an environment called `name` are of another
    form than an agent's `own`."""
    for what, mine, theirs in zip(("observations", "actions"), own, here, strict=True):
        if form(mine) != form(theirs):
            raise SpaceError(
                f"{name} has {what} of the form {form(theirs)}.",
                f"{form(mine)}, as the agent was trained with",
                "use an environment like the one it was trained in, with the same wrappers.",
            )


def seen(observation: Spec, action: Leaf) -> Spec:
    """What default networks see of an observation: all but the mask of the actions."""
    if action.masked and isinstance(observation, dict):
        return {k: s for k, s in observation.items() if k != MASK}
    return observation


def flatten_observation(space: Any, obs: Tree) -> Any:
    """An observation of `space` as its Spec has it: Dicts inside Dicts become one dict with joined
    names."""
    if type(space).__name__ != "Dict":
        return obs
    flat: dict[str, Any] = {}
    for key, inner in space.spaces.items():
        value = flatten_observation(inner, obs[key])
        flat.update(
            {f"{key}/{k}": v for k, v in value.items()}
            if isinstance(value, dict)
            else {str(key): value}
        )
    return flat


def to_json(spec: Spec) -> Any:
    """A Spec as JSON data."""
    if isinstance(spec, dict):
        return {"dict": {k: asdict(s) for k, s in spec.items()}}
    return asdict(spec)


def from_json(data: Any) -> Spec:
    """The Spec that `to_json` wrote."""
    if "dict" in data:
        return {k: _leaf_from_json(d) for k, d in data["dict"].items()}
    return _leaf_from_json(data)


def _leaf_from_json(data: JSONDict) -> Leaf:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return Leaf(**fields)
