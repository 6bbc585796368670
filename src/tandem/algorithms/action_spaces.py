"""Which actions an algorithm takes: checks that refuse others with a SpaceError, and name an
algorithm that takes them."""

from __future__ import annotations

from tandem.errors import SpaceError
from tandem.spaces import Leaf


def floats(name: str, action: Leaf) -> None:
    """Refuses a Box of actions that is not a vector of floats."""
    # rounded, they would not be what their log-probabilities are of
    if action.kind == "box" and action.dtype != "float32":
        raise SpaceError(
            f"{name} cannot act in a Box of {action.dtype}.",
            "a float Box, or Discrete or MultiDiscrete actions if the algorithm supports them",
            "declare floats, and round them with gymnasium.wrappers.TransformAction.",
        )
    if action.kind == "box" and len(action.shape) != 1:  # an environment's own axes are one by now
        raise SpaceError(
            f"{name} cannot act for a team with a Box of shape {action.shape}.",
            "a vector of one agent's actions",
            f"use {OF_TEAMS}",
        )


def drawable(name: str, action: Leaf) -> None:
    """Refuses actions that no policy of ours draws: a Box that is not a vector of floats, also as a
    part of a Dict or Tuple."""
    for part in [part for _, part in action.parts] or [action]:
        floats(name, part)


def simple(name: str, action: Leaf) -> None:
    """Refuses MultiBinary actions, and Dicts and Tuples of actions, too."""
    if action.kind in ("multibinary", "dict"):
        raise SpaceError(
            f"{name} cannot act in {named(action)}.",
            "Discrete, MultiDiscrete or Box actions",
            f"use {other(action)}",
        )
    floats(name, action)


OF_TEAMS = "mappo, or maddpg where actions have bounds."
INSTEAD = {  # what acts in a kind of actions, where another algorithm does not
    "discrete": "ppo or dqn.",
    "multidiscrete": "ppo or impala.",
    "multibinary": "ppo, a2c or trpo.",
    "dict": "ppo, a2c or trpo.",
}


SPACES = {
    "box": "Box",
    "discrete": "Discrete",
    "multidiscrete": "MultiDiscrete",
    "multibinary": "MultiBinary",
    "dict": "Dict or Tuple",
}


def named(action: Leaf) -> str:
    """The kind of space, as Gymnasium calls it."""
    return f"a {SPACES[action.kind]} action space"


def other(action: Leaf) -> str:
    """Which algorithms act in these actions, in words."""
    if action.kind == "box" and len(action.shape) != 1:
        return OF_TEAMS
    boxed = "ppo, impala or sac." if action.bounded else "ppo or impala."
    return INSTEAD.get(action.kind, boxed)


def discrete(name: str, action: Leaf) -> None:
    """Refuses all but Discrete actions."""
    if action.kind != "discrete":
        fix = f"use {other(action)}"
        plain = action.bounded and action.dtype == "float32" and len(action.shape) == 1
        if plain and not action.far:
            fix = f"{fix[:-1]}, or gymnasium.wrappers.DiscretizeAction."
        raise SpaceError(f"{name} cannot act in {named(action)}.", "Discrete actions", fix)


def bounded_vector(name: str, action: Leaf, instead: str = "") -> None:
    """Refuses actions that are not a vector with finite bounds. instead: what is proposed for
    them, in words; "": an algorithm."""
    if action.kind != "box" or not action.bounded:
        what = named(action) if action.kind != "box" else "a Box of actions without bounds"
        fix = instead or f"use {other(action)}"
        if action.kind == "box":
            fix = f"{fix[:-1]}, or give the Box finite bounds."
        raise SpaceError(f"{name} cannot act in {what}.", "a bounded Box of actions", fix)
    floats(name, action)
    if action.far:
        raise SpaceError(
            f"{name} cannot stretch [-1, 1] to bounds from {min(action.low):g} to "
            f"{max(action.high):g}: float32 overflows.",
            "a Box with bounds around the useful actions",
            f"give the Box such bounds, for example -1 and 1, or {instead or 'use ppo.'}",
        )
