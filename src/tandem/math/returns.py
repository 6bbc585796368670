"""Returns and advantages over trajectories [T, N]. `generalized_advantage` runs once a rollout, on
the host, over NumPy arrays; the others over any engine's, since what is replayed has to be
corrected by the policy of the day, inside the loss."""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.types import Array


def generalized_advantage(
    reward: Array, discount: Array, last: Array, value: Array, bootstrap: Array, trace: float
) -> Array:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

    reward, discount, value [T, N]; last bool [T, N], after which neither traces nor values reach
    over (a cut step's own bootstrap is in its reward already); bootstrap [N], the value after the
    last step; trace is lambda. Returns [T, N].
    """
    reach = np.where(last, np.float32(0), discount)
    following = np.concatenate([value[1:], bootstrap[None]])
    delta = reward + reach * following - value
    decay = reach * np.float32(trace)
    advantage = np.empty_like(delta)
    running = np.zeros_like(bootstrap)
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + decay[t] * running
        advantage[t] = running
    return advantage


def accumulate(x: Array, decay: Array) -> Array:
    """y_t = x_t + decay_t y_{t+1} along the first axis, with nothing after the end, in log2(T)
    steps over whole arrays (Hillis & Steele 1986, doi:10.1145/7902.7903): quick to compile, and to
    run eagerly. x, decay [T, ...]."""
    xp, reach = ops.of(x), 1
    while reach < x.shape[0]:  # each y_t holds `reach` terms so far, and decay_t their product
        x = xp.concat([x[:-reach] + decay[:-reach] * x[reach:], x[-reach:]], 0)
        decay = xp.concat([decay[:-reach] * decay[reach:], decay[-reach:]], 0)
        reach *= 2
    return x


def _shifted(x: Array, end: Array) -> Array:
    """x[1:], then `end`: what follows each step."""
    return ops.of(x).concat([x[1:], end[None]], 0)


def multi_step(reward: Array, discount: Array, last: Array, bootstrap: Array) -> Array:
    """R_t = r_t + gamma r_{t+1} + ... up to the end of the episode, or to `bootstrap` [N], the
    value of what follows the last step (Mnih et al. 2016, arXiv:1602.01783, algorithms S2 and S3).
    The other arguments are those of `generalized_advantage`. Returns [T, N]."""
    xp = ops.of(reward)
    reach = xp.where(last, 0.0 * discount, discount)
    x = xp.concat([reward[:-1], (reward[-1] + reach[-1] * bootstrap)[None]], 0)
    return accumulate(x, reach)


def vtrace(
    reward: Array,
    discount: Array,
    last: Array,
    value: Array,
    bootstrap: Array,
    ratio: Array,
    rho: float = 1.0,
    c: float = 1.0,
) -> tuple[Array, Array]:
    """V-trace targets v_s and advantages rho_s (r_s + gamma v_{s+1} - V_s) (Espeholt et al. 2018,
    arXiv:1802.01561, eq. 1 and section 4.2).

    ratio [T, N] is pi(a|s) / mu(a|s) of the policy to be learned and the one that acted; it is cut
    at rho in temporal differences and at c in traces. The other arguments and shapes are those of
    `generalized_advantage`: where a step is the last of its episode, a cut step's bootstrap is in
    its reward already. Returns two arrays [T, N].
    """
    xp = ops.of(reward)
    reach = xp.where(last, 0.0 * discount, discount)
    weight = xp.clip(ratio, 0.0, rho)
    delta = weight * (reward + reach * _shifted(value, bootstrap) - value)
    target = value + accumulate(delta, reach * xp.clip(ratio, 0.0, c))
    return target, weight * (reward + reach * _shifted(target, bootstrap) - value)


def retrace(
    reward: Array,
    discount: Array,
    last: Array,
    q: Array,
    value: Array,
    bootstrap: Array,
    ratio: Array,
    trace: float = 1.0,
) -> Array:
    """Retrace(lambda) targets of Q(s_t, a_t) (Munos et al. 2016, arXiv:1606.02647, eqs. 3 and 4),
    in the backward form of Wang et al. 2017 (arXiv:1611.01224, eq. 5): r_t + gamma (c_{t+1}
    (target_{t+1} - Q_{t+1}) + V_{t+1}).

    q [T, N] are the values of the actions taken, value [T, N] those of the states under the policy
    to be learned, ratio [T, N] pi(a|s) / mu(a|s), cut at 1 and multiplied by `trace`, lambda.
    reward, discount, last and bootstrap [N], the value of the state after the last step, as in
    `generalized_advantage`. Returns [T, N].
    """
    xp = ops.of(reward)
    reach, cut = xp.where(last, 0.0 * discount, discount), trace * xp.clip(ratio, 0.0, 1.0)
    after = _shifted(value - cut * q, bootstrap)  # of the next step: all but its own target
    return accumulate(reward + reach * after, reach * _shifted(cut, 0.0 * bootstrap))


def lambda_return(
    reward: Array,
    discount: Array,
    last: Array,
    value: Array,
    bootstrap: Array,
    trace: float | Array,
) -> Array:
    """Lambda-returns of states (Sutton & Barto 2018, section 12.8, eq. 12.18, the recursive form):
    G_t = r_{t+1} + gamma_{t+1} ((1 - lambda) V(s_{t+1}) + lambda G_{t+1}). With 1 the discounted
    return, with 0 that of one step.

    trace is lambda, one for all, or [T, N]: lambda_{t+1}, what follows step t is weighed by. The
    other arguments are those of `generalized_advantage`; with the value of the taken action in the
    place of V they are the returns of actions of eq. 12.19, with its expectation over actions those
    of eq. 12.20. Returns [T, N].
    """
    reach = np.where(last, np.float32(0), discount)
    following = np.concatenate([value[1:], bootstrap[None]])
    mix = np.broadcast_to(np.asarray(trace, np.float32), reward.shape)
    target = np.empty_like(following)
    running = bootstrap
    for t in range(len(target) - 1, -1, -1):
        running = reward[t] + reach[t] * ((1 - mix[t]) * following[t] + mix[t] * running)
        target[t] = running
    return target
