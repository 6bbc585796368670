"""Networks of quantile functions: implicit quantile networks (Dabney et al. 2018b,
arXiv:1806.06923).

Inputs are observations and fractions: {"obs": [B, ...], "fractions": [B, N]}, or [1, N], the same
for all rows. Outputs are [B, N, choices]: for each choice, the quantiles of its returns at these
fractions.
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
    """Inputs of such a network: "obs" and any number of "fractions". A separate type, since an
    observation may have entries with these names."""

    @classmethod
    def of(cls, observation: Tree) -> WithFractions:
        fractions = Leaf("box", (1,), "float32", (), (0.0,), (1.0,))
        return cls(obs=observation, fractions=fractions)


@dataclass(frozen=True)
class Cosines(Layer):
    """Cosine features of fractions tau [..., N]: cos(pi i tau) for i = 0 ... count - 1, [..., N,
    count] (eq. 4)."""

    count: int

    @property
    def outputs(self) -> int:
        return self.count

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        return xp.cos(x[..., None] * xp.constant(np.arange(self.count, dtype=np.float32) * pi, x))


@dataclass(frozen=True)
class Product(Branches):
    """The product of features of "obs" [B, F] and of "fractions" [B or 1, N, F]: [B, N, F] (section
    3.1)."""

    @property
    def outputs(self) -> int:
        return width(self.plans["fractions"])

    def joined(self, parts: list[Array]) -> Array:
        features, embedding = parts
        return features[:, None, :] * embedding


def quantile_network(body: Plan, features: int, cosines: int, head: Plan) -> Plan:
    """Return the plan head(body(obs) * relu(linear(cosines of fractions))), where both the feature
    extractor and the head have this number of features."""
    embedding = (Cosines(cosines), Dense(cosines, features, "relu"))
    return (Product({"obs": body, "fractions": embedding}), *head)
