"""Outputs of networks of action values: a number for each choice, or a distribution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tandem import ops
from tandem.math.distributions import Categorical
from tandem.math.value_distributions import (
    atoms,
    categorical_projection,
    cross_entropy,
    fractions,
    midpoints,
    quantile_huber,
)
from tandem.math.values import huber, q_learning
from tandem.types import Array, Tree


@dataclass(frozen=True)
class ActionValues(Categorical):
    """One of `n` choices by its value, which a network of `outputs` numbers gives."""

    @property
    def each(self) -> int:
        """How many numbers there are for a choice."""
        return 1

    @property
    def outputs(self) -> int:
        return self.n * self.each

    @property
    def pairs(self) -> int:
        """How many pairs of numbers the loss of a row compares."""
        return 0

    @abstractmethod
    def part(self, out: Array) -> Array:
        """The values [..., n] that a network's output [..., outputs] means."""

    def entering(self, obs: Tree, fraction: Array = None) -> Tree:
        """The network's input for observations [B, ...]; with fractions [B, N] where it takes
        such: without them, those that it acts by."""
        return obs

    @abstractmethod
    def loss(
        self,
        out: Array,
        action: Array,
        reward: Array,
        discount: Array,
        after: Array,
        selector: Array,
        policy: Array = None,
        fraction: Array = None,
    ) -> tuple[Array, Array]:
        """The loss of Q-learning, and the error that priorities go by, both [...].

        out: [..., outputs], of the states. action: [...], taken there. reward, discount: [...].
        after: [..., outputs], of the states that follow, by a target network. selector: [..., n],
        whose largest is the choice there. policy: [..., n], probabilities of the choices there, in
        place of one. fraction: [..., N], those that `out` is of, where a network takes such.
        """

    def spread(self, out: Array) -> Array:
        """The output as [..., n, each]."""
        return ops.of(out).reshape(out, (*out.shape[:-1], self.n, self.each))

    def of_action(self, out: Array, action: Array) -> Array:
        """The output for an action [...]: [..., each]."""
        return self.under(out, ops.of(out).one_hot(action, self.n))

    def under(self, out: Array, policy: Array) -> Array:
        """The outputs for the choices, averaged by their probabilities [..., n]: [..., each]."""
        return ops.of(out).sum(self.spread(out) * policy[..., None], -2)

    def of_next(self, after: Array, selector: Array, policy: Array = None) -> Array:
        """The outputs for the states that follow, as `loss` has them: [..., each]."""
        if policy is None:
            return self.of_best(after, selector)
        return self.under(after, policy)

    def of_best(self, out: Array, selector: Array) -> Array:
        """The same of the choice whose selector [..., n] is the largest."""
        return self.of_action(out, ops.of(selector).argmax(selector, -1))


@dataclass(frozen=True)
class ScalarValues(ActionValues):
    """Expected returns (Mnih et al. 2015): one number for each choice; Huber's loss."""

    def part(self, out: Array) -> Array:
        return out

    def loss(
        self,
        out: Array,
        action: Array,
        reward: Array,
        discount: Array,
        after: Array,
        selector: Array,
        policy: Array = None,
        fraction: Array = None,
    ) -> tuple[Array, Array]:
        error = q_learning(out, action, reward, discount, after, selector, policy)
        return huber(error), error


@dataclass(frozen=True)
class DistributedValues(ActionValues):
    """A distribution of returns for each choice, by `count` numbers, choice after choice."""

    count: int

    @property
    def each(self) -> int:
        return self.count

    @property
    def pairs(self) -> int:
        return self.count**2

    def loss(
        self,
        out: Array,
        action: Array,
        reward: Array,
        discount: Array,
        after: Array,
        selector: Array,
        policy: Array = None,
        fraction: Array = None,
    ) -> tuple[Array, Array]:
        now, then = self.of_action(out, action), self.of_next(after, selector, policy)
        loss = self._distance(now, reward[..., None], discount[..., None], then, fraction)
        return loss, loss  # priorities by it, as Hessel et al. 2018, section 3

    @abstractmethod
    def _distance(
        self, now: Array, reward: Array, discount: Array, then: Array, fraction: Array
    ) -> Array:
        """The loss [...] of what is said now of a choice [..., count], from reward and discount
        [..., 1], what is said of the next one [..., count], and `loss`'s fraction."""


@dataclass(frozen=True)
class CategoricalValues(DistributedValues):
    """Returns as probabilities of `count` atoms from `low` to `high` (Bellemare et al. 2017,
    arXiv:1707.06887): their logits, choice after choice; cross-entropy with the projected
    target."""

    low: float
    high: float

    @property
    def support(self) -> Array:
        """The atoms, NumPy's [count]."""
        return atoms(self.low, self.high, self.count)

    def part(self, out: Array) -> Array:
        return self.mean(self.spread(out))

    def mean(self, logits: Array) -> Array:
        """The mean [...] of the distribution that logits [..., count] are of."""
        xp = ops.of(logits)
        probability = xp.exp(xp.log_softmax(logits))
        return xp.sum(probability * xp.constant(self.support, logits), -1)

    def soft_target(
        self,
        later: Sequence[Array],
        reward: Array,
        discount: Array,
        cost: Array,
        policy: Array = None,
    ) -> Array:
        """The target of critics of an entropy-regularized policy: reward and the discounted return
        of the next state less the temperature's log-probability of the action there, projected on
        the atoms; that of the critic with the smaller mean (Lee et al. 2025, arXiv:2502.15280,
        section 4.3, with Bellemare et al. 2017, eq. 7). No gradient flows through it.

        later: of each critic [B, outputs], of the next states. reward, discount: [B].
        cost: [B, n], temperature times log-probability of each choice there.
        policy: [B, n], the choices' probabilities, by which their distributions are mixed; where
        there is one choice it may be left out.

        Returns probabilities [B, count].
        """
        xp = ops.of(reward)
        logits = self.spread(later[0])
        least = self.mean(logits)  # [B, n]
        for other in map(self.spread, later[1:]):
            mean = self.mean(other)
            logits = xp.where((mean < least)[..., None], other, logits)
            least = xp.minimum(mean, least)
        probability = xp.exp(xp.log_softmax(logits))
        if policy is not None:
            probability = probability * policy[..., None]
        after = xp.constant(self.support, reward) - cost[..., None]
        place = reward[..., None, None] + discount[..., None, None] * after
        flat = (-1, self.n * self.count)
        target = categorical_projection(
            xp.reshape(place, flat), xp.reshape(probability, flat), self.support
        )
        return xp.stop_gradient(target)

    def _distance(
        self, now: Array, reward: Array, discount: Array, then: Array, fraction: Array
    ) -> Array:
        xp, support = ops.of(now), self.support
        probability = xp.exp(xp.log_softmax(then))
        place = reward + discount * xp.constant(support, now)
        target = xp.stop_gradient(categorical_projection(place, probability, support))
        return cross_entropy(now, target)  # algorithm 1


@dataclass(frozen=True)
class RegressedValues(DistributedValues):
    """Returns as quantiles: quantile regression with Huber's loss, linear beyond `kappa`."""

    kappa: float = 1.0

    def _distance(
        self, now: Array, reward: Array, discount: Array, then: Array, fraction: Array
    ) -> Array:
        target = ops.of(now).stop_gradient(reward + discount * then)
        at = fractions(now) if fraction is None else fraction
        return quantile_huber(now, at, target, self.kappa)


@dataclass(frozen=True)
class QuantileValues(RegressedValues):
    """Returns as `count` quantiles (Dabney et al. 2018, arXiv:1710.10044, algorithm 1), choice
    after choice."""

    def part(self, out: Array) -> Array:
        return ops.of(out).mean(self.spread(out), -1)


@dataclass(frozen=True)
class ImplicitValues(RegressedValues):
    """Returns as quantiles at whatever fractions enter the network (Dabney et al. 2018b,
    arXiv:1806.06923, eq. 3): of N fractions its output is [..., N, n]. What it acts by is their
    mean at the midpoints of `count` even parts of [0, 1]."""

    @property
    def each(self) -> int:
        return 1

    @property
    def pairs(self) -> int:
        return 0  # as many as fractions are drawn: few

    def part(self, out: Array) -> Array:
        return ops.of(out).mean(out, -2)

    def entering(self, obs: Tree, fraction: Array = None) -> Tree:
        if fraction is None:  # [1, count], of all rows
            like = obs
            while isinstance(like, dict):
                like = next(iter(like.values()))
            fraction = ops.of(like).constant(midpoints(self.count)[None], like)
        return {"obs": obs, "fractions": fraction}

    def spread(self, out: Array) -> Array:
        return ops.of(out).swapaxes(out, -1, -2)
