"""Several devices per update: checks of even division, and a note on small networks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tandem.errors import SettingError

# Number of weights of all networks. On two devices of a CPU, updates of 4,600 weights took seven
# times as long, those of 67,000 slightly longer (docs/advanced/devices.md). For larger networks it
# depends on the devices.
SMALL = 100_000


def check_even(
    batch: int, devices: int, setting: str, fits: Iterable[int], now: int, **instead: int
) -> None:
    """Raise SettingError if a batch of `batch` rows or sequences does not divide evenly among the
    devices. fits: values of the `setting`, currently `now`, that would divide it. instead: other
    settings that could change, see `fits.fitted`."""
    if batch % devices == 0:
        return
    fewer = max(n for n in range(1, devices) if batch % n == 0)
    near = min(fits, key=lambda value: abs(value - now), default=None)
    other = "" if near is None else f"{setting}={near}, or "
    raise SettingError(
        f"devices={devices} does not divide the {batch} rows or sequences of an update.",
        "the same number for each device",
        f"use {other}devices={fewer}.",
        **({} if near is None else {setting: near}),
        **instead,
    )


def multiples(of: int, near: int) -> tuple[int, int]:
    """Return the two consecutive positive multiples of `of` around `near`."""
    least = max(of, near // of * of)
    return least, least + of


def purpose(backend: Any) -> str:
    """Return a note on the purpose of several devices if the networks are too small, else ""."""
    if backend.devices == 1:
        return ""
    networks = backend.networks.values()
    weights = sum(x.size for network in networks for x in network.read().values())
    if weights >= SMALL:
        return ""
    return (
        f"devices={backend.devices}: networks of {weights:,} weights are quicker on one; several "
        "are for large networks and batches (docs/advanced/devices.md)"
    )
