"""Value learning: temporal-difference errors and the losses on them."""

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
    """Temporal-difference errors of Q-learning (Watkins & Dayan 1992, doi:10.1007/BF00992698, eq.
    1): r + gamma max_b Q(s', b) - Q(s, a); with `selector` those of double Q-learning (van Hasselt
    et al. 2016, arXiv:1509.06461, eq. 4): r + gamma Q(s', argmax_b selector(s', b)) - Q(s, a); with
    `policy` those of Expected Sarsa (van Seijen et al. 2009, doi:10.1109/ADPRL.2009.4927542, eq.
    5): r + gamma sum_b policy(b | s') Q(s', b) - Q(s, a).

    q: [..., A], Q(s, .).
    action: int [...], a.
    reward: [...], r, or the discounted sum of n rewards.
    discount: [...], gamma (of n steps: gamma ** n), and 0 where the episode terminated.
    next_q: [..., A], Q(s', .), of a target network as a rule.
    selector: [..., A], the values that choose the next action; `next_q` itself without it.
    policy: [..., A], probabilities of next actions, in place of a choice.

    Returns the errors, target minus value, [...]; no gradient flows into the target. Raises
    SpaceError where the shapes do not fit.
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
    """The expected value of the next action of an epsilon-greedy policy, as expected SARSA has it
    (Sutton & Barto 2018, eq. 6.9): (1 - epsilon) Q(s, best) + epsilon times the mean of Q(s, b)
    over the actions b that may be taken.

    q: [..., A], Q(s, .).
    best: int [...], the greedy action.
    epsilon: the probability of a random action: one for all, or [...].
    mask: [..., A], 1 for an action that may be taken, 0 for one that may not; None: all may.

    Returns the values, [...]. Raises SpaceError where the shapes do not fit.
    """
    same_shapes(q.shape[:-1], best=best)
    xp = ops.of(q)
    if len(getattr(epsilon, "shape", ())):  # TensorFlow's shape of a number is not false
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
    """Reward and policy of Munchausen DQN (Vieillard et al. 2020, arXiv:2007.14430, eq. 2, with its
    clipping): with pi = softmax(Q / temperature),

        r + alpha clip(temperature log pi(a | s), lowest, 0) + gamma temperature H(pi(. | s')),

    H the entropy; the target is what Expected Sarsa makes of this reward and of pi(. | s').

    q: [..., A], Q(s, .), of the target network.
    action: int [...], a.
    reward, discount: [...], r and gamma, which is 0 where the episode terminated.
    next_q: [..., A], Q(s', .), of the target network.
    alpha: how much of the log-policy is added, 0 to 1.
    temperature: of the softmax, in the unit of the values; above 0.
    lowest: the least that temperature log pi counts as, at most 0.

    Returns (the reward [...], pi(. | s') [..., A]). Raises SpaceError where the shapes do not fit.
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
    """Huber's loss (Huber 1964, doi:10.1214/aoms/1177703732): x ** 2 / 2 where |x| <= delta, delta
    (|x| - delta / 2) beyond.

    x: [...], errors.
    delta: where the loss becomes linear, in the unit of x.

    Returns the losses, [...].
    """
    clipped = ops.of(x).clip(x, -delta, delta)  # the loss's gradient too
    return clipped * (x - 0.5 * clipped)


def clipped_value_loss(
    value: Array, old_value: Array, target: Array, clip: float, delta: float = 0.0
) -> Array:
    """The larger of the losses of `value`, and of `value` moved by no more than `clip` from what it
    was (the released code of Schulman et al. 2017, arXiv:1707.06347; Engstrom et al. 2020,
    arXiv:2005.12729, section 3). A loss is the squared error; with `delta`, twice Huber's loss.

    value: [...], what the network says now.
    old_value: [...], what it said when the data was collected.
    target: [...], the returns.
    clip: in the unit of the values; 0: not clipped.
    delta: errors beyond it count linearly; 0: none.

    Returns the losses, [...]. Raises SpaceError where the shapes do not fit.
    """
    same_shapes(value.shape, old_value=old_value, target=target)

    def loss(error: Array) -> Array:
        return 2.0 * huber(error, delta) if delta else error**2

    if not clip:
        return loss(value - target)
    xp = ops.of(value)
    moved = old_value + xp.clip(value - old_value, -clip, clip)
    return xp.maximum(loss(value - target), loss(moved - target))
