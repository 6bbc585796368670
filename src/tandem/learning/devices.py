"""Several devices for each update: what has to divide evenly, and what they are for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tandem.errors import SettingError

# Weights of all networks. 4,600 took seven times as long on two devices of a processor, 67,000
# somewhat longer (docs/advanced/devices.md); what is larger depends on the devices.
SMALL = 100_000


def check_even(
    batch: int, devices: int, setting: str, fits: Iterable[int], now: int, **instead: int
) -> None:
    """SettingError where a batch of so many rows, or sequences, does not divide among the devices.
    fits: values of the `setting`, which is `now`, with which it would; none where none does.
    instead: what else may change, see `fits.fitted`."""
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
    """The multiples of a number on both sides of another, above 0."""
    least = max(of, near // of * of)
    return least, least + of


def purpose(backend: Any) -> str:
    """The purpose of several devices, in a line, where the networks are too small for them."""
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
