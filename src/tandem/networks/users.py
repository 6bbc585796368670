"""What users give as `network=`: functions that make bodies or whole networks, and modules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tandem.errors import NetworkError, misfit


def body_of(
    network: Callable[[Any], Any], space: Any, part: str, units: int = 0
) -> Callable[[], Any]:
    """A maker of bodies, by a user's function of the observation space, for a role's `part`;
    `units` of a memory are to stand on it."""

    def make() -> Any:
        module = called(network, space)
        if not isinstance(module, tuple):
            return module
        if len(module) != 2:
            raise NetworkError(
                f"network= gave a tuple of {len(module)}.",
                "a body, or the pair (actor body, critic body)",
                "return a body, or two of them in a tuple.",
            )
        if part == "both" and units:
            raise NetworkError(
                f"network= gave a pair of bodies; recurrent={units} puts one memory on them.",
                "one body, whose memory policy and values see",
                "return one body, or give recurrent=0.",
            )
        return module if part == "both" else module[part == "critic"]

    return make


def whole_of(network: Any, space: Any) -> Callable[[], Any]:
    """A maker of fresh copies: calls a plain function, copies a module (so that a target is not the
    network itself)."""
    first = [] if is_function(network) else [network]

    def make() -> Any:
        if is_function(network):
            return called(network, space)
        if first:
            return first.pop()
        try:
            return copy.deepcopy(network)
        except Exception as error:  # Keras's of a class that it does not know, or the module's own
            kind = type(network).__name__
            raise NetworkError(
                f"network= has a {kind}, of which no copy can be made: {str(error)[:160]}",
                "a network that copy.deepcopy copies, since targets are copies of it",
                f"give a function that makes it, as in lambda space: {kind}().",
            ) from error

    return make


def called(function: Callable[[Any], Any], space: Any) -> Any:
    """What a user's function makes for an observation space. NetworkError where it does not take
    one."""
    if why := misfit(function, space):
        raise NetworkError(
            f"network= cannot be called with the observation space: {why}.",
            "a function of the observation space that returns a body, or for one role a whole "
            "network",
            "write network=lambda space: my_body(space); it may leave the space unused.",
        )
    return function(space)


def is_function(network: Any) -> bool:
    """Whether this makes networks, and is none itself."""
    module = hasattr(network, "parameters") or hasattr(network, "trainable_variables")
    return callable(network) and (isinstance(network, type) or not module)
