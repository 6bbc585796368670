"""Returns and advantages over trajectories of T steps of N environments, [T, N].

`generalized_advantage` and `lambda_return` run on the host, over NumPy arrays: once a rollout. The
others run over any engine's arrays, inside a loss: what is replayed is corrected by the policy as
it is now.

The arguments that these functions share:

reward: [T, N], r_t, what step t was rewarded with. Where step t cut its episode, the discounted
value of what followed it is part of it.
discount: [T, N], gamma of step t, and 0 where the step terminated its episode.
last: bool [T, N], whether the step ended its episode: nothing of a later step counts for it.
value: [T, N], V(s_t) of the state that step t started from.
bootstrap: [N], V(s_T) of the state after the last step.

All raise SpaceError where the shapes do not fit.
"""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.errors import same_shapes
from tandem.types import Array


def generalized_advantage(
    reward: Array, discount: Array, last: Array, value: Array, bootstrap: Array, lambda_: float
) -> Array:
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16): A_t =
    delta_t + gamma_t lambda A_{t+1} with delta_t = r_t + gamma_t V(s_{t+1}) - V(s_t).

    reward, discount, last, value, bootstrap: see the module; NumPy arrays.
    lambda_: from 0 (the error of one step) to 1 (the return minus the value).

    Returns A_t, [T, N].
    """
    same_shapes(reward.shape, discount=discount, last=last, value=value)
    same_shapes(reward.shape[1:], bootstrap=bootstrap)
    discount_t = np.where(last, np.float32(0), discount)
    next_value = np.concatenate([value[1:], bootstrap[None]])
    delta = reward + discount_t * next_value - value
    decay = discount_t * np.float32(lambda_)
    advantage = np.empty_like(delta)
    running = np.zeros_like(bootstrap)
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + decay[t] * running
        advantage[t] = running
    return advantage


def accumulate(x: Array, decay: Array) -> Array:
    """Discounted sums y_t = x_t + decay_t y_{t+1}, with nothing after the end, in log2(T) steps
    over whole arrays (Hillis & Steele 1986, doi:10.1145/7902.7903): quick to compile, and to run
    eagerly.

    x: [T, ...], the terms.
    decay: [T, ...], what each sum takes of the next.

    Returns y_t, [T, ...].
    """
    same_shapes(x.shape, decay=decay)
    xp, span = ops.of(x), 1
    while span < x.shape[0]:  # each y_t holds `span` terms so far, and decay_t their product
        x = xp.concat([x[:-span] + decay[:-span] * x[span:], x[-span:]], 0)
        decay = xp.concat([decay[:-span] * decay[span:], decay[-span:]], 0)
        span *= 2
    return x


def _shifted(x: Array, end: Array) -> Array:
    """x [T, N] one step earlier: x[1:], then `end` [N]."""
    return ops.of(x).concat([x[1:], end[None]], 0)


def multi_step(reward: Array, discount: Array, last: Array, bootstrap: Array) -> Array:
    """Discounted returns R_t = r_t + gamma_t R_{t+1} with R_T = V(s_T) (Mnih et al. 2016,
    arXiv:1602.01783, algorithms S2 and S3).

    reward, discount, last, bootstrap: see the module.

    Returns R_t, [T, N].
    """
    same_shapes(reward.shape, discount=discount, last=last)
    same_shapes(reward.shape[1:], bootstrap=bootstrap)
    xp = ops.of(reward)
    discount_t = xp.where(last, 0.0 * discount, discount)
    x = xp.concat([reward[:-1], (reward[-1] + discount_t[-1] * bootstrap)[None]], 0)
    return accumulate(x, discount_t)


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
    """V-trace (Espeholt et al. 2018, arXiv:1802.01561, eq. 1 and section 4.2).

    reward, discount, last, value, bootstrap: see the module.
    ratio: [T, N], pi(a_t | s_t) / mu(a_t | s_t) of the policy to be learned and the one that acted.
    rho: where ratios are cut in temporal differences.
    c: where ratios are cut in traces.

    Returns (targets v_t, advantages rho_t (r_t + gamma_t v_{t+1} - V(s_t))), both [T, N].
    """
    same_shapes(reward.shape, discount=discount, last=last, value=value, ratio=ratio)
    same_shapes(reward.shape[1:], bootstrap=bootstrap)
    xp = ops.of(reward)
    discount_t = xp.where(last, 0.0 * discount, discount)
    rho_t = xp.clip(ratio, 0.0, rho)
    delta = rho_t * (reward + discount_t * _shifted(value, bootstrap) - value)
    target = value + accumulate(delta, discount_t * xp.clip(ratio, 0.0, c))
    return target, rho_t * (reward + discount_t * _shifted(target, bootstrap) - value)


def retrace(
    reward: Array,
    discount: Array,
    last: Array,
    q: Array,
    value: Array,
    bootstrap: Array,
    ratio: Array,
    lambda_: float = 1.0,
) -> Array:
    """Retrace(lambda) targets of Q(s_t, a_t) (Munos et al. 2016, arXiv:1606.02647, eqs. 3 and 4),
    in the backward form of Wang et al. 2017 (arXiv:1611.01224, eq. 5): target_t = r_t + gamma_t
    (c_{t+1} (target_{t+1} - Q_{t+1}) + V_{t+1}) with c_t = lambda min(1, ratio_t).

    reward, discount, last, bootstrap: see the module.
    q: [T, N], Q(s_t, a_t) of the actions taken.
    value: [T, N], V(s_t) under the policy to be learned.
    ratio: [T, N], pi(a_t | s_t) / mu(a_t | s_t) of the policy to be learned and the one that acted.
    lambda_: from 0 (targets of one step) to 1.

    Returns target_t, [T, N].
    """
    same_shapes(reward.shape, discount=discount, last=last, q=q, value=value, ratio=ratio)
    same_shapes(reward.shape[1:], bootstrap=bootstrap)
    xp = ops.of(reward)
    discount_t, c = xp.where(last, 0.0 * discount, discount), lambda_ * xp.clip(ratio, 0.0, 1.0)
    following = _shifted(value - c * q, bootstrap)  # of the next step, all but its own target
    next_c = _shifted(c, 0.0 * bootstrap)
    return accumulate(reward + discount_t * following, discount_t * next_c)


def lambda_return(
    reward: Array,
    discount: Array,
    last: Array,
    value: Array,
    bootstrap: Array,
    lambda_: float | Array,
) -> Array:
    """Lambda-returns of states (Sutton & Barto 2018, section 12.8, eq. 12.18, the recursive form):
    G_t = r_t + gamma_t ((1 - lambda_t) V(s_{t+1}) + lambda_t G_{t+1}). With Q(s_t, a_t) in the
    place of V they are the returns of actions of eq. 12.19, with its expectation over actions those
    of eq. 12.20.

    reward, discount, last, value, bootstrap: see the module; NumPy arrays.
    lambda_: one for all, or [T, N]; 0 gives the return of one step, 1 the discounted return.

    Returns G_t, [T, N].
    """
    same_shapes(reward.shape, discount=discount, last=last, value=value)
    same_shapes(reward.shape[1:], bootstrap=bootstrap)
    discount_t = np.where(last, np.float32(0), discount)
    next_value = np.concatenate([value[1:], bootstrap[None]])
    mix = np.broadcast_to(np.asarray(lambda_, np.float32), reward.shape)
    target = np.empty_like(next_value)
    running = bootstrap
    for t in range(len(target) - 1, -1, -1):
        running = reward[t] + discount_t[t] * ((1 - mix[t]) * next_value[t] + mix[t] * running)
        target[t] = running
    return target
