"""Resets of networks during a run, which keep the replay buffer."""

from __future__ import annotations

import numpy as np

from tandem.backends.backend import Backend, Network
from tandem.errors import SettingError
from tandem.networks.plan import init


class Reset:
    """Reinitializes all weights, copies them to the targets, and resets optimizers and learned
    scalars to their initial values (Nikishin et al. 2022, arXiv:2205.07802, section 4). Raises
    SettingError for custom networks with unknown layers, which cannot be reinitialized."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        networks = {n: x for n, x in backend.networks.items() if isinstance(x, Network)}
        for name, network in networks.items():
            if network.plan is None:
                raise SettingError(
                    f"reset_every is not supported with a custom network ({name}) that has unknown "
                    "layers.",
                    "layers that can be reinitialized, as listed in docs/howto/networks.md",
                    "leave network out, or give reset_every=0.",
                )
        scalars = backend.networks.keys() - networks.keys()
        begin = ("optimizer/", *(f"network/{n}/" for n in scalars))
        self._first = {n: x for n, x in backend.state().items() if n.startswith(begin)}
        self._networks = networks

    def __call__(self, rng: np.random.Generator) -> None:
        self.backend.load_state(self.backend.state() | self._first)
        for name, network in self._networks.items():
            if name.removesuffix("_target") in self._networks and name.endswith("_target"):
                continue
            weights = init(network.plan, rng)  # type: ignore[arg-type]
            network.write(weights)
            if (target := self._networks.get(f"{name}_target")) is not None:
                target.write(weights)
