"""Checks of action spaces. They raise a SpaceError for unsupported actions that suggests an
algorithm for them."""

from __future__ import annotations

from tandem.errors import SpaceError
from tandem.spaces import Leaf


def floats(name: str, action: Leaf) -> None:
    """Raise SpaceError for a Box of actions that is not a vector of floats."""
    # the log-probability of an action does not hold for the rounded action
    if action.kind == "box" and action.dtype != "float32":
        raise SpaceError(
            f"{name} cannot act in a Box of {action.dtype}.",
            "a float Box, or Discrete or MultiDiscrete actions if the algorithm supports them",
            "declare floats, and round them with gymnasium.wrappers.TransformAction.",
        )
    if action.kind == "box" and len(action.shape) != 1:  # one agent's are already flat
        raise SpaceError(
            f"{name} cannot act for a team with a Box of shape {action.shape}.",
            "a vector of one agent's actions",
            f"use {OF_TEAMS}",
        )


def drawable(name: str, action: Leaf) -> None:
    """Raise SpaceError for actions that no policy can sample: a Box that is not a vector of floats,
    also inside a Dict or Tuple."""
    for part in [part for _, part in action.parts] or [action]:
        floats(name, part)


def simple(name: str, action: Leaf) -> None:
    """Raise SpaceError as `floats` does, and for MultiBinary, Dict and Tuple actions."""
    if action.kind in ("multibinary", "dict"):
        raise SpaceError(
            f"{name} cannot act in {named(action)}.",
            "Discrete, MultiDiscrete or Box actions",
            f"use {other(action)}",
        )
    floats(name, action)


OF_TEAMS = "mappo, or maddpg where actions have bounds."
INSTEAD = {  # suggested algorithms by type of actions
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
    """Return the type of space, as Gymnasium names it."""
    return f"a {SPACES[action.kind]} action space"


def other(action: Leaf) -> str:
    """Return a phrase with algorithms that support these actions."""
    if action.kind == "box" and len(action.shape) != 1:
        return OF_TEAMS
    boxed = "ppo, impala or sac." if action.bounded else "ppo or impala."
    return INSTEAD.get(action.kind, boxed)


def discrete(name: str, action: Leaf) -> None:
    """Raise SpaceError for all but Discrete actions."""
    if action.kind != "discrete":
        fix = f"use {other(action)}"
        plain = action.bounded and action.dtype == "float32" and len(action.shape) == 1
        if plain and not action.far:
            fix = f"{fix[:-1]}, or gymnasium.wrappers.DiscretizeAction."
        raise SpaceError(f"{name} cannot act in {named(action)}.", "Discrete actions", fix)


def bounded_vector(name: str, action: Leaf, instead: str = "") -> None:
    """Raise SpaceError for actions that are not a vector with finite bounds. instead: a phrase that
    suggests a fix; "": suggest an algorithm."""
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
