"""Settings that do nothing beside others: they are refused, not ignored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tandem.errors import SettingError


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
