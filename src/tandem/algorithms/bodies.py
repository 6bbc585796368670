"""The default networks that stand between observations and the heads of an algorithm, as its
settings have them."""

from __future__ import annotations

from typing import Any, Literal

from tandem.errors import SettingError
from tandem.networks.defaults import Inputs, Role, WithAction, mlp, normed
from tandem.networks.plan import Dense, Plan
from tandem.networks.recurrent import entering
from tandem.networks.simba import simba
from tandem.settings import setting
from tandem.spaces import Leaf, Spec

Body = Literal["mlp", "simba"]
PLAIN = {"body": "mlp", "layer_norm": False}  # what these settings are where nobody asks


def choice() -> Any:
    """The setting for the kind of body."""
    return setting(
        "mlp",
        "default networks: dense layers, or SimBa's residual blocks, one of each width in hidden",
        "Lee et al. 2024",
    )


def layer_norm() -> Any:
    """The setting for layer norm of dense layers."""
    return setting(
        False, "layer norm before each activation of dense layers", "Hiraoka et al. 2022"
    )


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


def body(
    inputs: Inputs,
    hidden: tuple[int, ...],
    settings: Any,
    *,
    initializer: str = "uniform",
    gain: float = 1.0,
) -> Plan:
    """The default body for these inputs, as the settings have it. `initializer` and `gain` are of
    dense layers; SimBa's are orthogonal. SettingError for layer norm of SimBa's, which has its
    own."""
    normalize = settings.normalize_observations
    if settings.body == "mlp":
        return mlp(
            inputs,
            hidden,
            settings.activation,
            initializer=initializer,
            gain=gain,
            normalize=normalize,
            layer_norm=settings.layer_norm,
        )
    if settings.layer_norm:
        raise SettingError(
            "layer_norm=True with body='simba'.",
            "one of them: SimBa's blocks have layer norm already",
            "leave layer_norm out.",
        )
    return simba(inputs, hidden, settings.activation, normalize=normalize)


def refuse(name: str, settings: Any, expected: str) -> None:
    """SettingError where the settings ask for another body than that of plain dense layers, of an
    algorithm that has `expected` in its place."""
    if odd := [n for n, usual in PLAIN.items() if getattr(settings, n) != usual]:
        raise SettingError(
            f"{name} with {' and '.join(f'{n}={getattr(settings, n)!r}' for n in odd)}.",
            expected,
            f"give {' and '.join(f'{n}={PLAIN[n]!r}' for n in odd)}.",
        )


def widths(settings: Any) -> tuple[int, ...]:
    """Of critics' hidden layers."""
    return settings.critic_hidden or settings.hidden  # type: ignore[no-any-return]
