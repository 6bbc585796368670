"""Outputs of action-value networks: a number for each choice, or a distribution."""

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
    """One of `n` choices by its value, from a network with `outputs` numbers."""

    @property
    def each(self) -> int:
        """Number of outputs per choice."""
        return 1

    @property
    def outputs(self) -> int:
        return self.n * self.each

    @abstractmethod
    def part(self, out: Array) -> Array:
        """Return the values [..., n] of a network's output [..., outputs]."""

    def network_input(self, obs: Tree, fraction: Array = None) -> Tree:
        """Return the network's input for observations [B, ...], with fractions [B, N] if the
        network takes them; by default, those used for acting."""
        return obs

    @abstractmethod
    def loss(
        self,
        out: Array,
        action: Array,
        reward: Array,
        discount: Array,
        target_out: Array,
        selector: Array,
        policy: Array = None,
        fraction: Array = None,
    ) -> tuple[Array, Array]:
        """Return the loss of Q-learning, and the error for priorities, both [...].

        Args:
            out: Output for the states, [..., outputs].
            action: Actions taken there, [...].
            reward: r, or the discounted sum of n rewards, [...].
            discount: gamma ** n, and 0 where the episode terminated, [...].
            target_out: Output of a target network for the next states, [..., outputs].
            selector: Its argmax is the next action, [..., n].
            policy: Probabilities of the next actions, instead of a selection, [..., n].
            fraction: Fractions of `out`, [..., N], if the network takes them.
        """

    def spread(self, out: Array) -> Array:
        """Return the output as [..., n, each]."""
        return ops.of(out).reshape(out, (*out.shape[:-1], self.n, self.each))

    def of_action(self, out: Array, action: Array) -> Array:
        """Return the output for an action [...]: [..., each]."""
        return self.under(out, ops.of(out).one_hot(action, self.n))

    def under(self, out: Array, policy: Array) -> Array:
        """Return the outputs averaged over choices with their probabilities [..., n]: [...,
        each]."""
        return ops.of(out).sum(self.spread(out) * policy[..., None], -2)

    def of_next(self, target_out: Array, selector: Array, policy: Array = None) -> Array:
        """Return the target network's outputs for the next actions, as in `loss`: [..., each]."""
        if policy is None:
            return self.of_best(target_out, selector)
        return self.under(target_out, policy)

    def of_best(self, out: Array, selector: Array) -> Array:
        """Return the output for the choice with the largest selector [..., n]."""
        return self.of_action(out, ops.of(selector).argmax(selector, -1))


@dataclass(frozen=True)
class ScalarValues(ActionValues):
    """Expected returns (Mnih et al. 2015): one number per choice. `loss` is the Huber loss
    of Q-learning."""

    def part(self, out: Array) -> Array:
        return out

    def loss(
        self,
        out: Array,
        action: Array,
        reward: Array,
        discount: Array,
        target_out: Array,
        selector: Array,
        policy: Array = None,
        fraction: Array = None,
    ) -> tuple[Array, Array]:
        error = q_learning(out, action, reward, discount, target_out, selector, policy)
        return huber(error), error


@dataclass(frozen=True)
class DistributionalValues(ActionValues):
    """A distribution of returns per choice, from `count` numbers each, ordered by choice."""

    count: int

    @property
    def each(self) -> int:
        return self.count

    def loss(
        self,
        out: Array,
        action: Array,
        reward: Array,
        discount: Array,
        target_out: Array,
        selector: Array,
        policy: Array = None,
        fraction: Array = None,
    ) -> tuple[Array, Array]:
        of_action, of_next = self.of_action(out, action), self.of_next(target_out, selector, policy)
        loss = self._td_loss(of_action, reward[..., None], discount[..., None], of_next, fraction)
        return loss, loss  # used as priority, as in Hessel et al. 2018, section 3

    @abstractmethod
    def _td_loss(
        self, out: Array, reward: Array, discount: Array, target_out: Array, fraction: Array
    ) -> Array:
        """Return the loss [...] of the output for a choice [..., count], from reward and discount
        [..., 1], the target network's output for the next choice [..., count], and `loss`'s
        fraction."""


@dataclass(frozen=True)
class CategoricalValues(DistributionalValues):
    """Distributions of returns, as probabilities of `count` atoms from `low` to `high` (Bellemare
    et al. 2017, arXiv:1707.06887): their logits, ordered by choice; cross-entropy with the
    projected target."""

    low: float
    high: float

    @property
    def support(self) -> Array:
        """The atoms, NumPy [count]."""
        return atoms(self.low, self.high, self.count)

    def part(self, out: Array) -> Array:
        return self.mean(self.spread(out))

    def mean(self, logits: Array) -> Array:
        """Return the mean [...] of the distribution with logits [..., count]."""
        xp = ops.of(logits)
        probability = xp.exp(xp.log_softmax(logits))
        return xp.sum(probability * xp.constant(self.support, logits), -1)

    def soft_target(
        self,
        target_outs: Sequence[Array],
        reward: Array,
        discount: Array,
        cost: Array,
        policy: Array = None,
    ) -> Array:
        """Return the target of critics of an entropy-regularized policy: the reward plus the
        discounted return of the next state minus `cost`, projected onto the atoms, from the critic
        with the smaller mean (Lee et al. 2025, arXiv:2502.15280, section 4.3, with Bellemare et al.
        2017, eq. 7).

        Args:
            target_outs: Output of each critic for the next states, [B, outputs].
            reward: [B].
            discount: [B].
            cost: Temperature times log-probability of each choice there, [B, n].
            policy: Probabilities of the choices, which weight their distributions, [B, n]; optional
                with one choice.

        Returns:
            Probabilities [B, count], without gradient.
        """
        xp = ops.of(reward)
        logits = self.spread(target_outs[0])
        least = self.mean(logits)  # [B, n]
        for other in map(self.spread, target_outs[1:]):
            mean = self.mean(other)
            logits = xp.where((mean < least)[..., None], other, logits)
            least = xp.minimum(mean, least)
        probability = xp.exp(xp.log_softmax(logits))
        if policy is not None:
            probability = probability * policy[..., None]
        soft = xp.constant(self.support, reward) - cost[..., None]
        place = reward[..., None, None] + discount[..., None, None] * soft
        flat = (-1, self.n * self.count)
        target = categorical_projection(
            xp.reshape(place, flat), xp.reshape(probability, flat), self.support
        )
        return xp.stop_gradient(target)

    def _td_loss(
        self, out: Array, reward: Array, discount: Array, target_out: Array, fraction: Array
    ) -> Array:
        xp, support = ops.of(out), self.support
        probability = xp.exp(xp.log_softmax(target_out))
        place = reward + discount * xp.constant(support, out)
        target = xp.stop_gradient(categorical_projection(place, probability, support))
        return cross_entropy(out, target)  # algorithm 1


@dataclass(frozen=True)
class RegressedValues(DistributionalValues):
    """Distributions of returns, as quantiles: quantile regression with Huber loss, linear beyond
    `kappa`."""

    kappa: float = 1.0

    def _td_loss(
        self, out: Array, reward: Array, discount: Array, target_out: Array, fraction: Array
    ) -> Array:
        target = ops.of(out).stop_gradient(reward + discount * target_out)
        at = fractions(out) if fraction is None else fraction
        return quantile_huber(out, at, target, self.kappa)


@dataclass(frozen=True)
class QuantileValues(RegressedValues):
    """Distributions of returns, as `count` quantiles (Dabney et al. 2018, arXiv:1710.10044,
    algorithm 1), ordered by choice."""

    def part(self, out: Array) -> Array:
        return ops.of(out).mean(self.spread(out), -1)


@dataclass(frozen=True)
class ImplicitValues(RegressedValues):
    """Distributions of returns, as quantiles at fractions that are inputs of the network (Dabney et
    al. 2018b, arXiv:1806.06923, eq. 3). For N fractions the output is [..., N, n]. The policy acts
    by the mean at the midpoints of `count` even parts of [0, 1]."""

    @property
    def each(self) -> int:
        return 1

    def part(self, out: Array) -> Array:
        return ops.of(out).mean(out, -2)

    def network_input(self, obs: Tree, fraction: Array = None) -> Tree:
        if fraction is None:  # [1, count], for all rows
            like = obs
            while isinstance(like, dict):
                like = next(iter(like.values()))
            fraction = ops.of(like).constant(midpoints(self.count)[None], like)
        return {"obs": obs, "fractions": fraction}

    def spread(self, out: Array) -> Array:
        return ops.of(out).swapaxes(out, -1, -2)
