"""The default networks of algorithms that replay single transitions."""

from __future__ import annotations

from typing import Any

from tandem.errors import SettingError
from tandem.networks.defaults import Inputs, Role, WithAction, mlp, normed
from tandem.networks.plan import Dense, Plan
from tandem.networks.recurrent import entering
from tandem.networks.simba import simba
from tandem.spaces import Leaf, Spec


def action_value(observation: Spec, action: Leaf, settings: Any) -> Role:
    """A critic of observations and actions. With a memory the action enters behind it, and one
    more hidden layer, as wide as the last, sees both."""
    if units := settings.recurrent:
        hidden = widths(settings)
        before, wide = body(observation, hidden, settings), (hidden or (units,))[-1]
        layer = Dense(0, wide, settings.activation)
        layers = normed(layer, wide) if settings.layer_norm else (layer,)
        return role(observation, before, (*layers, Dense(wide, 1)), settings, "critic", action)
    both = WithAction(obs=observation, action=action)
    return Role(both, body(both, widths(settings), settings), (Dense(0, 1),), "critic")


def role(
    observation: Spec,
    body: Plan,
    head: Plan,
    settings: Any,
    part: str = "actor",
    action: Leaf | None = None,
) -> Role:
    """A network of these observations, with a memory between body and head if the settings say so;
    `action` is what one with a memory judges."""
    inputs, units = entering(observation, settings, action), settings.recurrent
    return Role(inputs, body, head, part, units=units, memory=settings.memory)


def body(inputs: Inputs, hidden: tuple[int, ...], settings: Any) -> Plan:
    """The default body for these inputs, as the settings have it. SettingError for layer norm of
    SimBa's, which has its own."""
    if settings.body == "mlp":
        return mlp(inputs, hidden, settings.activation, layer_norm=settings.layer_norm)
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
