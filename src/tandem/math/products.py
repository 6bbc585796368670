"""The distribution for an action space, and products of several distributions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tandem import ops
from tandem.math.distributions import (
    Bernoulli,
    Categorical,
    Density,
    Gaussian,
    MultiCategorical,
    total,
)
from tandem.spaces import Leaf
from tandem.types import Array, Tree


@dataclass(frozen=True)
class ProductDistribution(Density):
    """Product of independent distributions, for a Dict or Tuple of actions, as vectors of floats.
    The output contains the numbers of each in order, with only the means of normal distributions;
    all their log standard deviations follow at the end."""

    parts: tuple[Density, ...]

    action_mode = "clip"

    @property
    def width(self) -> int:
        return sum(d.width for d in self.parts)

    @property
    def normal(self) -> int:
        """Number of log standard deviations."""
        return sum(d.size for d in self.parts if isinstance(d, Gaussian))

    def _outputs(self, out: Array) -> list[tuple[Density, Array]]:
        """Return each distribution with its part of the output."""
        outputs, at, deviation = list[tuple[Density, Array]](), 0, self.width - self.normal
        for d in self.parts:
            if not isinstance(d, Gaussian):
                outputs.append((d, out[..., at : at + d.width]))
                at += d.width
                continue
            mean, log_std = out[..., at : at + d.size], out[..., deviation : deviation + d.size]
            outputs.append((d, ops.of(out).concat([mean, log_std], -1)))
            at, deviation = at + d.size, deviation + d.size
        return outputs

    def _actions(self, action: Array) -> list[Array]:
        """Return the part of each distribution in actions [..., D]."""
        xp, parts, at = ops.of(action), list[Array](), 0
        for d in self.parts:
            size = _size(d)
            part = action[..., at : at + size]
            if isinstance(d, Categorical):
                part = part[..., 0]
            parts.append(
                xp.integer(part) if isinstance(d, (Categorical, MultiCategorical)) else part
            )
            at += size
        return parts

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tree:
        return tuple(d.noise(rng, shape) for d in self.parts)

    def sample(self, out: Array, noise: Tree) -> Array:
        pairs = zip(self._outputs(out), noise, strict=True)
        return _side_by_side(d.sample(own, drawn) for (d, own), drawn in pairs)

    def mode(self, out: Array) -> Array:
        return _side_by_side(d.mode(own) for d, own in self._outputs(out))

    def log_prob(self, out: Array, action: Array) -> Array:
        pairs = zip(self._outputs(out), self._actions(action), strict=True)
        return total(d.log_prob(own, taken) for (d, own), taken in pairs)

    def entropy(self, out: Array) -> Array:
        return total(d.entropy(own) for d, own in self._outputs(out))

    def kl(self, old: Array, out: Array) -> Array:
        pairs = zip(self._outputs(old), self._outputs(out), strict=True)
        return total(d.kl(before, after) for (d, before), (_, after) in pairs)


def _size(d: Density) -> int:
    """Return the number of components of an action."""
    if isinstance(d, Categorical):
        return 1
    if isinstance(d, MultiCategorical):
        return len(d.sizes)
    return d.size if isinstance(d, Gaussian) else d.width


def _side_by_side(actions: Iterable[Array]) -> Array:
    """Concatenate actions, [N] or [N, D] each, as vectors of floats."""
    flat = [a.reshape(len(a), -1).astype(np.float32) for a in actions]
    return ops.of(flat[0]).concat(flat, -1)


def for_actions(action: Leaf) -> Density:
    """Return the distribution for an action space: Categorical, MultiCategorical, Bernoulli,
    Gaussian, or a ProductDistribution of these."""
    if action.parts:
        return ProductDistribution(tuple(for_actions(part) for _, part in action.parts))
    if action.kind == "multibinary":
        return Bernoulli(action.width)
    if action.kind == "discrete":
        return Categorical(action.sizes[0])
    if action.kind == "multidiscrete":
        return MultiCategorical(action.sizes)
    return Gaussian(action.width)
