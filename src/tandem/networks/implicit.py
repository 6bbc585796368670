"""Networks of quantile functions: implicit quantile networks (Dabney et al. 2018b,
arXiv:1806.06923).

Such a network is called with observations beside fractions: {"obs": [B, ...], "fractions": [B, N]},
or [1, N], the same for all rows. It puts out [B, N, choices]: of each choice, the quantiles of its
returns at these fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import numpy as np

from tandem import ops
from tandem.networks.plan import Branches, Dense, Layer, Plan, Weights, width
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Tree


class WithFractions(dict[str, Spec]):
    """The inputs of such a network: "obs" and "fractions", of which there may be any number. A type
    of its own, since an observation may have such entries too."""

    @classmethod
    def of(cls, observation: Tree) -> WithFractions:
        fractions = Leaf("box", (1,), "float32", (), (0.0,), (1.0,))
        return cls(obs=observation, fractions=fractions)


@dataclass(frozen=True)
class Cosines(Layer):
    """Of fractions tau [..., N], cos(pi i tau) for i = 0 ... count - 1: [..., N, count] (eq. 4)."""

    count: int

    @property
    def outputs(self) -> int:
        return self.count

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        return xp.cos(x[..., None] * xp.constant(np.arange(self.count, dtype=np.float32) * pi, x))


@dataclass(frozen=True)
class Product(Branches):
    """Features of "obs" [B, F] times those of "fractions" [B or 1, N, F]: [B, N, F] (section
    3.1)."""

    @property
    def outputs(self) -> int:
        return width(self.plans["fractions"])

    def joined(self, parts: list[Array]) -> Array:
        features, embedding = parts
        return features[:, None, :] * embedding


def quantile_network(body: Plan, features: int, cosines: int, head: Plan) -> Plan:
    """The plan of such a network: head(body(obs) * relu(linear(cosines of fractions))), for a body
    of so many features and a head that takes as many."""
    embedding = (Cosines(cosines), Dense(cosines, features, "relu"))
    return (Product({"obs": body, "fractions": embedding}), *head)
