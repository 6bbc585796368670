"""Returns and advantages over trajectories [T, N]. These run once a rollout, on the host, over NumPy arrays."""

from __future__ import annotations

import numpy as np

from tandem.types import Array


def generalized_advantage(reward: Array, discount: Array, last: Array, value: Array, bootstrap: Array, trace: float) -> Array:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

    reward, discount, value [T, N]; last bool [T, N], after which neither traces nor values reach over (a cut step's
    own bootstrap is in its reward already); bootstrap [N], the value after the last step; trace is lambda. Returns [T, N].
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


def vtrace(
    reward: Array, discount: Array, last: Array, value: Array, bootstrap: Array, ratio: Array, rho: float = 1.0, c: float = 1.0
) -> tuple[Array, Array]:
    """V-trace targets v_s and advantages rho_s (r_s + gamma v_{s+1} - V_s) (Espeholt et al. 2018, arXiv:1802.01561, eq. 1 and
    section 4.2).

    ratio [T, N] is pi(a|s) / mu(a|s) of the policy to be learned and the one that acted; it is cut at rho in temporal
    differences and at c in traces. The other arguments and shapes are those of `generalized_advantage`: where a step is the
    last of its episode, a cut step's bootstrap is in its reward already. Returns two arrays [T, N].
    """
    reach = np.where(last, np.float32(0), discount)
    weight, trace = np.minimum(ratio, np.float32(rho)), reach * np.minimum(ratio, np.float32(c))
    following = np.concatenate([value[1:], bootstrap[None]])
    delta = weight * (reward + reach * following - value)
    gap = np.empty_like(delta)  # v_s - V_s
    running = np.zeros_like(bootstrap)
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + trace[t] * running
        gap[t] = running
    target = value + gap
    after = np.concatenate([target[1:], bootstrap[None]])
    return target, weight * (reward + reach * after - value)


def retrace(
    reward: Array, discount: Array, last: Array, q: Array, value: Array, bootstrap: Array, ratio: Array, trace: float = 1.0
) -> Array:
    """Retrace(lambda) targets of Q(s_t, a_t) (Munos et al. 2016, arXiv:1606.02647, eqs. 3 and 4), in the backward form of
    Wang et al. 2017 (arXiv:1611.01224, eq. 5): r_t + gamma (c_{t+1} (target_{t+1} - Q_{t+1}) + V_{t+1}).

    q [T, N] are the values of the actions taken, value [T, N] those of the states under the policy to be learned, ratio [T, N]
    pi(a|s) / mu(a|s), cut at 1 and multiplied by `trace`, lambda. reward, discount, last and bootstrap [N], the value of the
    state after the last step, as in `generalized_advantage`. Returns [T, N].
    """
    reach = np.where(last, np.float32(0), discount)
    cut = np.float32(trace) * np.minimum(ratio, np.float32(1))
    target = np.empty_like(q)
    after = bootstrap
    for t in range(len(q) - 1, -1, -1):
        target[t] = reward[t] + reach[t] * after
        after = cut[t] * (target[t] - q[t]) + value[t]
    return target


def lambda_return(reward: Array, discount: Array, last: Array, value: Array, bootstrap: Array, trace: float | Array) -> Array:
    """Lambda-returns of states (Sutton & Barto 2018, section 12.8, eq. 12.18, the recursive form): G_t = r_{t+1} + gamma_{t+1}
    ((1 - lambda) V(s_{t+1}) + lambda G_{t+1}). With 1 the discounted return, with 0 that of one step.

    trace is lambda, one for all, or [T, N]: lambda_{t+1}, what follows step t is weighed by. The other arguments are those of
    `generalized_advantage`; with the value of the taken action in the place of V they are the returns of actions of eq. 12.19,
    with its expectation over actions those of eq. 12.20. Returns [T, N].
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
