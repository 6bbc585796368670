"""Standalone exploration: policies over action values, and noise for continuous actions. May import
the lowest layer and `math`."""

from tandem.exploration.noise import (
    AnnealedGaussianProcess,
    GaussianWhiteNoiseProcess,
    OrnsteinUhlenbeckProcess,
    RandomProcess,
)
from tandem.exploration.policies import (
    AdaptiveEpsGreedyPolicy,
    BoltzmannGumbelQPolicy,
    BoltzmannQPolicy,
    EpsGreedyQPolicy,
    GreedyQPolicy,
    GumbelSoftmaxPolicy,
    MaxBoltzmannQPolicy,
    Policy,
    SoftmaxPolicy,
)

__all__ = [
    "AdaptiveEpsGreedyPolicy",
    "AnnealedGaussianProcess",
    "BoltzmannGumbelQPolicy",
    "BoltzmannQPolicy",
    "EpsGreedyQPolicy",
    "GaussianWhiteNoiseProcess",
    "GreedyQPolicy",
    "GumbelSoftmaxPolicy",
    "MaxBoltzmannQPolicy",
    "OrnsteinUhlenbeckProcess",
    "Policy",
    "RandomProcess",
    "SoftmaxPolicy",
]
