"""Actors: an algorithm's `act` with framework-free networks if possible, or random actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tandem.algorithms.base import Algorithm, Forward, Settings
from tandem.backends.backend import Backend, Network
from tandem.math.masks import evenly
from tandem.networks.plan import Twin, Weights
from tandem.spaces import Leaf
from tandem.types import Array, Tree


class PolicyActor:
    """Actor that calls an algorithm's `act` with its settings and one forward function per
    network."""

    def __init__(
        self,
        algorithm: type[Algorithm],
        settings: Settings,
        action: Leaf,
        networks: dict[str, Forward],
    ) -> None:
        self.action, self.networks = action, networks
        # see `Actor`; noise=None gives deterministic actions
        self.act = partial(algorithm.act, settings, action, networks)
        self.initial_state = partial(algorithm.initial_state, settings, action)


class RandomActor:
    """Actor whose actions are sampled uniformly in advance: the noise is the action. With action
    masks, the noise is one number per choice, and the valid choice with the largest number is
    taken. The recurrent state of the subsequent policy stays initial: `initial_state(n)`."""

    def __init__(self, action: Leaf, initial_state: Callable[[int], Tree] = lambda n: ()) -> None:
        self.action, self.initial_state = action, initial_state

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample actions [*shape, ...]: uniform choices, or uniform values in [-1, 1]."""
        if self.action.masked:
            return rng.random((*shape, self.action.width), dtype=np.float32)
        if self.action.sizes:
            return rng.integers(
                self.action.sizes if self.action.shape else self.action.sizes[0],
                size=(*shape, *self.action.shape),
            )
        return rng.uniform(-1, 1, (*shape, *self.action.shape)).astype(np.float32)

    def act(self, obs: Tree, state: Tree, noise: Tree) -> tuple[Array, dict[str, Array], Tree]:
        return (evenly(noise, obs, self.action) if self.action.masked else noise), {}, state


class Portable:
    """A framework's forward function that can be sent to another process. There `make()` recreates
    the network, which starts the framework, and `load` sets the weights."""

    def __init__(self, network: Network, make: Callable[[], Network]) -> None:
        self._network, self._make = network, make

    def __reduce__(self) -> tuple[object, ...]:
        return _remake, (self._make,)

    def __call__(self, x: Tree) -> Array:
        return self._network.predict(x)

    @property
    def weights(self) -> Weights:
        """Current weights."""
        return self._network.read()

    def load(self, weights: Weights) -> None:
        self._network.write(weights)


def _remake(make: Callable[[], Network]) -> Portable:
    return Portable(make(), make)


def forwards(
    backend: Backend,
    roles: tuple[str, ...],
    make: Callable[[str], Network] | None = None,
    on_device: bool = False,
) -> dict[str, Forward]:
    """Return one forward function per role: a NumPy twin if all layers are known, otherwise the
    framework's own. Convolutional networks use the framework, since a rollout of images takes three
    times as long in NumPy. make: recreates the network of a role in another process, so that a
    framework's function can be sent there. on_device: observations are tensors, which only the
    framework accepts."""
    forwards_by_role: dict[str, Forward] = {}
    for role in roles:
        network = backend.networks[role]
        if network.plan is not None and not network.convolves and not on_device:
            forwards_by_role[role] = Twin(network.plan, network.read())
        else:
            forwards_by_role[role] = (
                network.predict if make is None else Portable(network, partial(make, role))
            )
    return forwards_by_role


def fixed(network: Network, weights: Weights) -> Forward:
    """Return a network's forward function with fixed weights, independent of later updates."""
    return network.frozen(weights) if network.plan is None else Twin(network.plan, weights)


def redraw(
    backend: Backend, networks: dict[str, Forward], kind: str, rng: np.random.Generator
) -> None:
    """Sample new noise for networks with noisy layers. `publish` copies it to the actor."""
    for role in networks:
        network = backend.networks[role]
        network.place({n: x[0] for n, x in network.draw(kind, rng, 1).items()})


def publish(backend: Backend, networks: dict[str, Forward]) -> None:
    """Copy the current weights to the framework-free networks. The others share theirs already."""
    for role, network in networks.items():
        if isinstance(network, Twin):
            backend.networks[role].copy_to(network.weights)
