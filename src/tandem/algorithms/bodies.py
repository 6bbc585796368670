"""The default feature extractors between observations and the heads of an algorithm, built from its
settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from tandem.errors import SettingError, note
from tandem.networks.defaults import Inputs, Role, WithAction, mlp, normed
from tandem.networks.plan import Dense, Plan
from tandem.networks.recurrent import entering
from tandem.networks.simba import simba
from tandem.networks.simbav2 import simbav2
from tandem.networks.weight_norm import weight_normed
from tandem.settings import by_name
from tandem.spaces import Leaf, Spec

if TYPE_CHECKING:
    from tandem.algorithms.base import Algorithm, Settings

Body = Literal["mlp", "simba", "simbav2"]
PLAIN: dict[str, Any] = {
    "body": "mlp",
    "layer_norm": False,
    "weight_norm": False,
}  # settings of feature extractors, with their defaults


def action_value(observation: Spec, action: Leaf, settings: Settings, outputs: int = 1) -> Role:
    """Return the role of a critic of observations and actions. If it is recurrent, the action
    enters after the recurrent layer, and one more hidden layer, as wide as the last one, receives
    both."""
    if units := settings.recurrent:
        hidden = widths(settings)
        before, wide = body(observation, hidden, settings), (hidden or (units,))[-1]
        layer = Dense(0, wide, settings.activation)
        layers = normed(layer, wide) if settings.layer_norm else (layer,)
        layers = weight_normed(layers) if settings.weight_norm else layers
        head = (*layers, Dense(wide, outputs))
        return role(observation, before, head, settings, "critic", action)
    both = WithAction(obs=observation, action=action)
    return Role(both, body(both, widths(settings), settings), (Dense(0, outputs),), "critic")


def role(
    observation: Spec,
    body: Plan,
    head: Plan,
    settings: Settings,
    part: str = "actor",
    action: Leaf | None = None,
    **more: Any,
) -> Role:
    """Return the role of a network of these observations, with a recurrent layer between feature
    extractor and head if enabled. `action` is an input of a recurrent critic; `more` are further
    fields of the role."""
    inputs, units = entering(observation, settings, action), settings.recurrent
    return Role(inputs, body, head, part, units=units, memory=settings.memory, **more)


def body(
    inputs: Inputs,
    hidden: tuple[int, ...],
    settings: Settings,
    *,
    initializer: str = "uniform",
    gain: float = 1.0,
) -> Plan:
    """Return the default feature extractor, built from the settings.

    Args:
        inputs: Spaces of the inputs, such as observations.
        hidden: Widths of the hidden layers, or of the residual blocks of SimBa and SimbaV2.
        settings: The algorithm's settings.
        initializer: Initializer of dense layers; SimBa's are orthogonal.
        gain: Gain of the initializer.

    Raises:
        SettingError: For layer norm or weight norm with SimBa or SimbaV2, whose blocks already have
            norms.
    """
    normalize = settings.normalize_observations
    if settings.body == "mlp":
        plan = mlp(
            inputs,
            hidden,
            settings.activation,
            initializer=initializer,
            gain=gain,
            normalize=normalize,
            layer_norm=settings.layer_norm,
        )
        return weight_normed(plan) if settings.weight_norm else plan
    for name, given in (
        ("layer_norm", settings.layer_norm),
        ("weight_norm", settings.weight_norm),
    ):
        if given:
            raise SettingError(
                f"{name}=True is not supported with body={settings.body!r}.",
                "one of them, since its blocks already have a norm",
                f"leave {name} out.",
            )
    kind = simba if settings.body == "simba" else simbav2
    return kind(inputs, hidden, settings.activation, normalize=normalize)


def refuse_ignored(
    kind: type[Algorithm], roles: dict[str, Role], given: tuple[Spec, Leaf, Settings]
) -> None:
    """Raise SettingError if a custom algorithm, which creates these `roles` from what is `given`
    (observation, action, settings), ignores a setting of feature extractors."""
    observation, action, settings = given
    if kind.__module__.startswith("tandem."):
        return
    for name, plain in PLAIN.items():
        asked, usual = by_name(settings)[name], replace(settings, **{name: plain})
        if asked != plain and roles == kind.roles(observation, action, usual):
            raise SettingError(
                f"{name}={asked!r} has no effect on the algorithm's own networks.",
                "default networks from tandem.extending.body, which has these settings; mlp does "
                "not",
                f"leave {name} out, or use body(inputs, settings.hidden, settings) in roles.",
            )


def note_ignored(
    kind: type[Algorithm],
    given: Iterable[str],
    network: object,
    spaces: tuple[Spec, Leaf],
    settings: Settings,
) -> None:
    """Print a note on `given` settings of the default networks that have no effect with a custom
    network. Settings that still affect some layer, such as the last hidden layer of a critic of
    actions, do have an effect."""

    def ours(settings: Settings) -> dict[str, Any]:
        heads = not isinstance(network, dict)
        roles = kind.roles(*spaces, settings).items()
        return {n: r if r.ours else heads and (r.head_on_body, r.units) for n, r in roles}

    usual, now, idle = by_name(type(settings)()), by_name(settings), list[str]()
    for name in {"hidden", "critic_hidden", "activation", *PLAIN} & set(given):
        plain = usual[name]
        with suppress(SettingError):  # the feature extractor may need the given width
            if plain != now[name] and ours(settings) == ours(replace(settings, **{name: plain})):
                idle.append(name)
    if idle:
        note(f"No effect with network=: {', '.join(sorted(idle))} (default networks only).")
    if (
        isinstance(network, dict)
        and "share" in given
        and any(role.agents for role in kind.roles(*spaces, settings).values())
    ):
        note("No effect with network=: share=False. Each network of the dict serves all agents.")


# settings that custom networks require, which override the zoo's, and the reasons
BESIDE_CUSTOM: dict[str, tuple[Any, str]] = {
    "normalize_observations": (False, "custom networks have no layer for these statistics"),
    "share": (True, "all agents share the custom network"),
}


def beside_custom(settings: Settings, given: Iterable[str], network: object) -> Settings:
    """Return the settings for a custom `network`. Settings that the user has not `given` are
    overridden where necessary, with a note."""
    for name, (value, why) in BESIDE_CUSTOM.items():
        fits = name == "share" and isinstance(network, dict)
        if name not in given and not fits and by_name(settings).get(name, value) != value:
            settings = replace(settings, **{name: value})
            note(f"{name} set to {value} instead of {not value}: {why}.")
    return settings


def headed(roles: dict[str, Role], change: Callable[[Plan], Plan]) -> dict[str, Role]:
    """Return the roles with changed heads, except roles that users cannot replace."""
    return {
        name: role if role.ours else replace(role, head=change(role.head))
        for name, role in roles.items()
    }


def widths(settings: Any) -> tuple[int, ...]:
    """Return the widths of the critics' hidden layers."""
    return settings.critic_hidden or settings.hidden
