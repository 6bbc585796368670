"""The default networks of algorithms that replay single transitions."""

from __future__ import annotations

from typing import Any

from tandem.errors import SettingError
from tandem.networks.defaults import Inputs, Role, WithAction, mlp
from tandem.networks.plan import Dense, Plan
from tandem.networks.simba import simba
from tandem.spaces import Leaf, Spec


def action_value(observation: Spec, action: Leaf, settings: Any) -> Role:
    """A critic of observations and actions."""
    both = WithAction(obs=observation, action=action)
    return Role(both, body(both, widths(settings), settings), (Dense(0, 1),), "critic")


def body(inputs: Inputs, hidden: tuple[int, ...], settings: Any) -> Plan:
    """The default body for these inputs, as the settings have it. SettingError for layer norm and
    statistics of SimBa's, which has its own."""
    if settings.body == "mlp":
        return mlp(
            inputs,
            hidden,
            settings.activation,
            normalize=settings.normalize_observations,
            layer_norm=settings.layer_norm,
        )
    if settings.normalize_observations:
        raise SettingError(
            "normalize_observations=True with body='simba'.",
            "one of them: SimBa begins with running statistics of what it is fed",
            "leave normalize_observations out.",
        )
    if settings.layer_norm:
        raise SettingError(
            "layer_norm=True with body='simba'.",
            "one of them: SimBa's blocks have layer norm already",
            "leave layer_norm out.",
        )
    return simba(inputs, hidden, settings.activation)


def widths(settings: Any) -> tuple[int, ...]:
    """Of critics' hidden layers."""
    return settings.critic_hidden or settings.hidden  # type: ignore[no-any-return]
