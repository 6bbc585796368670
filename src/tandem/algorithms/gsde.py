"""Generalized state-dependent exploration (gSDE): its settings, and checks of what it does not
support."""

from __future__ import annotations

from typing import Any, Literal

from tandem.algorithms.action_spaces import named
from tandem.errors import SettingError, SpaceError
from tandem.settings import Needs, setting
from tandem.spaces import Leaf

PAPER = "Raffin et al. 2021"
Noise = Literal["gaussian", "gsde"]  # of continuous actions


def choice() -> Any:
    """Return the setting for the exploration noise of stochastic policies."""
    return setting(
        "gaussian",
        "exploration noise of continuous actions: gaussian (independent at each step) or gsde "
        "(state-dependent, resampled every sde_sample_freq steps)",
        PAPER,
    )


def sample_freq() -> Any:
    """Return the setting for the number of steps between resamplings of the random matrix."""
    return setting(
        -1,
        "with gsde: steps between resamplings of the random matrix; -1: once per collection phase",
        PAPER + ", section 5.3",
        minimum=1,
        special=-1,
        expected="at least 1, or -1: once in each collection",
        fix="try 4.",
        needs=Needs(action_noise="gsde"),
    )


def refuse(settings: Any, network: object) -> None:
    """Raise SettingError for custom actors, whose last layer is not accessible, and for noisy
    networks."""
    if isinstance(network, dict) and "actor" in network:
        raise SettingError(
            "action_noise='gsde' is not supported with a custom network for 'actor'.",
            "the default last layer, whose inputs determine the noise",
            "give network= as a function that returns a feature extractor, or "
            "action_noise='gaussian'.",
        )
    if settings.noisy != "no":
        raise SettingError(
            f"action_noise='gsde' is not supported with noisy={settings.noisy!r}.",
            "one of them, since both add noise to the last layer's weights",
            "give noisy='no' or action_noise='gaussian'.",
        )


def check(name: str, action: Leaf, policy: str = "gaussian") -> None:
    """Raise SpaceError for actions that are not a Box, and SettingError for Beta policies."""
    if action.kind != "box":
        raise SpaceError(
            f"{name} with action_noise='gsde' cannot act in {named(action)}.",
            "a Box of actions, to which noise can be added",
            "give action_noise='gaussian'.",
        )
    if policy != "gaussian":
        raise SettingError(
            f"action_noise='gsde' is not supported with policy={policy!r}.",
            "policy='gaussian'",
            "give policy='gaussian' or action_noise='gaussian'.",
        )
