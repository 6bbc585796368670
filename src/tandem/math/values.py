"""Value learning: temporal-difference errors and their losses."""

from __future__ import annotations

from tandem import ops
from tandem.errors import same_shapes
from tandem.types import Array


def q_learning(
    q: Array,
    action: Array,
    reward: Array,
    discount: Array,
    next_q: Array,
    selector: Array = None,
    policy: Array = None,
) -> Array:
    """Return temporal-difference errors of Q-learning (Watkins & Dayan 1992,
    doi:10.1007/BF00992698, eq. 1): r + gamma max_b Q(s', b) - Q(s, a).

    With `selector` they are those of double Q-learning (van Hasselt et al. 2016, arXiv:1509.06461,
    eq. 4): r + gamma Q(s', argmax_b selector(s', b)) - Q(s, a). With `policy` they are those of
    Expected Sarsa (van Seijen et al. 2009, doi:10.1109/ADPRL.2009.4927542, eq. 5): r + gamma sum_b
    policy(b | s') Q(s', b) - Q(s, a).

    Args:
        q: Q(s, .), [..., A].
        action: a, int [...].
        reward: r, or the discounted sum of n rewards, [...].
        discount: gamma (gamma ** n for n steps), and 0 where the episode terminated, [...].
        next_q: Q(s', .), usually from a target network, [..., A].
        selector: Values that select the next action, [..., A]; default `next_q`.
        policy: Probabilities of next actions, instead of a selection, [..., A].

    Returns:
        The errors, target minus value, [...]; no gradient flows into the target.

    Raises:
        SpaceError: if the shapes do not fit.
    """
    same_shapes(q.shape[:-1], action=action, reward=reward, discount=discount)
    same_shapes(q.shape, next_q=next_q)
    if selector is None:
        selector = next_q
    else:
        same_shapes(q.shape, selector=selector)
    xp = ops.of(q)
    if policy is None:
        next_value = xp.take(next_q, xp.argmax(selector, -1))
    else:
        same_shapes(q.shape, policy=policy)
        next_value = xp.sum(policy * next_q, -1)
    return xp.stop_gradient(reward + discount * next_value) - xp.take(q, action)


def epsilon_greedy_value(q: Array, best: Array, epsilon: Array, mask: Array = None) -> Array:
    """Return the expected value of the next action of an epsilon-greedy policy, as in Expected
    Sarsa (Sutton & Barto 2018, eq. 6.9): (1 - epsilon) Q(s, best) + epsilon times the mean of Q(s,
    b) over the valid actions b.

    Args:
        q: Q(s, .), [..., A].
        best: The greedy action, int [...].
        epsilon: Probability of a random action, a number or [...].
        mask: [..., A], 1 for valid and 0 for invalid actions; None: all are valid.

    Returns:
        The values, [...].

    Raises:
        SpaceError: if the shapes do not fit.
    """
    same_shapes(q.shape[:-1], best=best)
    xp = ops.of(q)
    if len(getattr(epsilon, "shape", ())):  # a scalar's shape in TensorFlow is truthy
        same_shapes(q.shape[:-1], epsilon=epsilon)
    if mask is None:
        mean = xp.mean(q, -1)
    else:
        same_shapes(q.shape, mask=mask)
        may = xp.cast(mask)
        mean = xp.sum(xp.where(may > 0, q, 0.0), -1) / xp.sum(may, -1)
    return (1.0 - epsilon) * xp.take(q, best) + epsilon * mean


def munchausen(
    q: Array,
    action: Array,
    reward: Array,
    discount: Array,
    next_q: Array,
    alpha: float,
    temperature: float,
    lowest: float,
) -> tuple[Array, Array]:
    """Return the reward and policy of Munchausen DQN (Vieillard et al. 2020, arXiv:2007.14430, eq.
    2, with its clipping): with pi = softmax(Q / temperature),

        r + alpha clip(temperature log pi(a | s), lowest, 0) + gamma temperature H(pi(. | s')),

    where H is the entropy. The target is that of Expected Sarsa with this reward and pi(. | s').

    Args:
        q: Q(s, .) of the target network, [..., A].
        action: a, int [...].
        reward: r, [...].
        discount: gamma, and 0 where the episode terminated, [...].
        next_q: Q(s', .) of the target network, [..., A].
        alpha: Weight of the log-policy, 0 to 1.
        temperature: Softmax temperature, in units of the values; above 0.
        lowest: Lower limit of temperature log pi, at most 0.

    Returns:
        (the reward [...], pi(. | s') [..., A]).

    Raises:
        SpaceError: if the shapes do not fit.
    """
    same_shapes(q.shape[:-1], action=action, reward=reward, discount=discount)
    same_shapes(q.shape, next_q=next_q)
    xp = ops.of(q)
    log_policy = xp.take(xp.log_softmax(q / temperature), action)
    bonus = alpha * xp.clip(temperature * log_policy, lowest, 0.0)
    next_log = xp.log_softmax(next_q / temperature)
    policy = xp.exp(next_log)
    entropy = -xp.sum(policy * next_log, -1)
    return reward + bonus + discount * temperature * entropy, policy


def huber(x: Array, delta: float = 1.0) -> Array:
    """Return the Huber loss (Huber 1964, doi:10.1214/aoms/1177703732): x ** 2 / 2 where
    |x| <= delta, delta (|x| - delta / 2) beyond.

    Args:
        x: Errors, [...].
        delta: Error beyond which the loss is linear, in units of x.

    Returns:
        The losses, [...].
    """
    clipped = ops.of(x).clip(x, -delta, delta)  # also the loss's gradient
    return clipped * (x - 0.5 * clipped)


def clipped_value_loss(
    value: Array, old_value: Array, target: Array, clip: float, delta: float = 0.0
) -> Array:
    """Return the larger of two losses: of `value`, and of `value` clipped to within `clip` of its
    old value (the released code of Schulman et al. 2017, arXiv:1707.06347; Engstrom et al. 2020,
    arXiv:2005.12729, section 3). A loss is the squared error; with `delta`, twice the Huber loss.

    Args:
        value: The network's current output, [...].
        old_value: Its output when the data was collected, [...].
        target: The returns, [...].
        clip: In units of the values; 0: not clipped.
        delta: Error beyond which the loss is linear; 0: none.

    Returns:
        The losses, [...].

    Raises:
        SpaceError: if the shapes do not fit.
    """
    same_shapes(value.shape, old_value=old_value, target=target)

    def loss(error: Array) -> Array:
        return 2.0 * huber(error, delta) if delta else error**2

    if not clip:
        return loss(value - target)
    xp = ops.of(value)
    moved = old_value + xp.clip(value - old_value, -clip, clip)
    return xp.maximum(loss(value - target), loss(moved - target))
