"""Settings that do nothing beside others: they are refused, not ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tandem.errors import SettingError


class Need(NamedTuple):
    """Settings that do nothing unless one of others is as it says: `beside`, each with what tells
    whether it is. give: what makes them count. none: values that ask for nothing."""

    names: tuple[str, ...]
    beside: dict[str, Callable[[Any], bool]]
    give: str
    none: tuple[Any, ...] = ()


# of algorithms; those that a class does not have count for nothing there
SETTINGS = (
    Need(
        ("rms_decay", "rms_epsilon"), {"optimizer": lambda x: x == "rmsprop"}, "optimizer='rmsprop'"
    ),
    Need(("adam_epsilon", "adam_beta1"), {"optimizer": lambda x: "adam" in x}, "optimizer='adam'"),
    Need(
        ("target_entropy", "initial_temperature"),
        {"temperature": lambda x: x == "auto"},
        "temperature='auto'",
    ),
    Need(("smoothing_clip",), {"smoothing": bool}, "smoothing=0.2"),
    Need(("average_tau",), {"kl": bool}, "kl=0.1"),
    Need(("embedding", "hyper"), {"mixer": bool}, "mixer=True"),
    Need(
        ("replay_ratio", "replay_size", "replay_starts", "evict"),
        {"replay": lambda x: x != "none"},
        "replay='uniform'",
    ),
    Need(("priority",), {"replay": lambda x: x == "prioritized"}, "replay='prioritized'"),
    Need(("sequence",), {"recurrent": bool}, "recurrent=64"),
    Need(("log_std",), {"policy": lambda x: x == "gaussian"}, "policy='gaussian'"),
)
OPTIONS = (  # of a run
    Need(("ahead",), {"workers": bool, "runners": bool}, "workers=2", (0,)),
    Need(("staleness",), {"learners": lambda x: x != 1}, "learners=2"),
    Need(("device_timeout",), {"devices": lambda x: x > 1}, "devices=2"),
    Need(("snapshot_every",), {"opponents": bool}, "opponents=1"),
    Need(
        ("worker_patience", "worker_restarts"),
        {"workers": bool, "runners": bool, "cluster": bool, "learners": lambda x: x != 1},
        "workers=2",
    ),
)


def idle(needs: Iterable[Need], settings: Any) -> Iterator[tuple[str, Need, dict[str, Any]]]:
    """The settings that do nothing beside the others: name, what it needs, and what is there."""
    for need in needs:
        beside = {n: getattr(settings, n) for n in need.beside if hasattr(settings, n)}
        if beside and not any(need.beside[n](x) for n, x in beside.items()):
            yield from ((name, need, beside) for name in need.names if hasattr(settings, name))


def refuse_given(needs: Iterable[Need], settings: Any, before: Any, given: Iterable[str]) -> None:
    """SettingError where one of the settings that a user has `given`, by name, does nothing beside
    the others. before: what they are without the user; one that says the same is nothing that is
    ignored, as in a file of all settings."""
    usual, given = type(settings)(), set(given)
    for name, need, beside in idle(needs, settings):
        own = getattr(settings, name)
        if name in given and own not in (*need.none, getattr(before, name), getattr(usual, name)):
            raise SettingError(
                f"{name}={own} with {' and '.join(f'{n}={x!r}' for n, x in beside.items())}.",
                f"it together with {need.give}, say: else it does nothing",
                f"give {need.give} too, or leave {name} out.",
            )


def changed(settings: Any, name: str) -> Any:
    """A setting's value, where that is not its default; else None."""
    own = getattr(settings, name)
    return None if own == getattr(type(settings)(), name) else own


def refuse(
    settings: Any, names: Iterable[str], beside: str, needed: str, give: str | None = None
) -> None:
    """SettingError where one of these settings is given, which does nothing `beside` what is there
    ("without prioritized"), only with what is `needed` ("prioritized=True"), for which to `give`
    that, or one of several."""
    for name in names:
        if (own := changed(settings, name)) is not None:
            shown = f"{own:g}" if isinstance(own, int | float) else str(own)
            raise SettingError(
                f"{name}={shown} {beside}.",
                f"it together with {needed}",
                f"give {give or needed} too, or leave {name} out.",
            )
