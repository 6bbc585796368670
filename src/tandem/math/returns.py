"""Returns and advantages over trajectories of T steps of N environments, [T, N].

They work on arrays of any backend, also inside a loss, so that replayed data can be corrected with
the current policy.

Arguments that these functions share:

- `reward`: [T, N], r_t of step t. If the step was truncated, it includes the discounted bootstrap
  value.
- `discount`: [T, N], gamma of step t, and 0 if the step terminated its episode.
- `last`: bool [T, N], whether the step ended its episode; later steps do not count for it.
- `value`: [T, N], V(s_t) of the state before step t.
- `bootstrap`: [N], V(s_T) of the state after the last step.

All functions raise SpaceError if the shapes do not fit.
"""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.errors import same_shapes
from tandem.types import Array


def generalized_advantage(
    reward: Array, discount: Array, last: Array, value: Array, bootstrap: Array, lambda_: float
) -> Array:
    """Return generalized advantage estimates (Schulman et al. 2016, arXiv:1506.02438, eq. 16): A_t
    = delta_t + gamma_t lambda A_{t+1} with delta_t = r_t + gamma_t V(s_{t+1}) - V(s_t).

    See the module for the shared arguments.

    Args:
        lambda_: From 0 (one-step error) to 1 (return minus value).

    Returns:
        A_t, [T, N].
    """
    discount_t = _discount_t(reward, discount, last, bootstrap, value=value)
    delta = reward + discount_t * _shifted(value, bootstrap) - value
    return accumulate(delta, discount_t * lambda_)


def accumulate(x: Array, decay: Array, end: Array = None) -> Array:
    """Return discounted sums y_t = x_t + decay_t y_{t+1}.

    On a backend's arrays this takes log2(T) steps over all rows (Hillis & Steele 1986,
    doi:10.1145/7902.7903), which compile and run quickly, also eagerly. On NumPy arrays it goes
    from the last row to the first.

    Args:
        x: The terms, [T, ...].
        decay: The weight of the next sum in each sum, [T, ...].
        end: y_T, [...]; default 0.

    Returns:
        y_t, [T, ...].
    """
    same_shapes(x.shape, decay=decay)
    if end is not None:
        same_shapes(x.shape[1:], end=end)
    if isinstance(x, np.ndarray):
        y = np.empty_like(x)
        following = np.zeros(x.shape[1:], x.dtype) if end is None else end
        for t in range(len(x) - 1, -1, -1):
            y[t] = following = x[t] + decay[t] * following
        return y
    xp, span = ops.of(x), 1
    if end is not None:
        x = xp.concat([x[:-1], (x[-1] + decay[-1] * end)[None]], 0)
    while span < x.shape[0]:  # each y_t holds `span` terms so far, and decay_t their product
        x = xp.concat([x[:-span] + decay[:-span] * x[span:], x[-span:]], 0)
        decay = xp.concat([decay[:-span] * decay[span:], decay[-span:]], 0)
        span *= 2
    return x


def _discount_t(
    reward: Array, discount: Array, last: Array, bootstrap: Array, **others: Array
) -> Array:
    """Return the discounts [T, N], 0 where a step ended its episode. `others` must have the same
    shape."""
    same_shapes(reward.shape, discount=discount, last=last, **others)
    same_shapes(reward.shape[1:], bootstrap=bootstrap)
    return ops.of(discount).where(last, 0.0 * discount, discount)


def _shifted(x: Array, end: Array) -> Array:
    """Shift x [T, N] one step earlier: x[1:], then `end` [N]."""
    return ops.of(x).concat([x[1:], end[None]], 0)


def multi_step(reward: Array, discount: Array, last: Array, bootstrap: Array) -> Array:
    """Return discounted returns R_t = r_t + gamma_t R_{t+1} with R_T = V(s_T) (Mnih et al. 2016,
    arXiv:1602.01783, algorithms S2 and S3).

    See the module for the arguments.

    Returns:
        R_t, [T, N].
    """
    return accumulate(reward, _discount_t(reward, discount, last, bootstrap), bootstrap)


def n_step(reward: Array, discount: Array, last: Array, n: int, *after: Array) -> tuple[Array, ...]:
    """Return n-step returns without their bootstrap value (Sutton & Barto 2018, section 7.1). They
    have fewer steps where an episode or the trajectory ends earlier, and are exact for these.

    See the module for the shared arguments.

    Args:
        n: Number of steps.
        after: Values of the state after every step, [T, N, ...] each.

    Returns:
        (sum over k < m of discount_t ... discount_(t+k-1) reward_(t+k), discount_t ...
            discount_(t+m-1), after_(t+m-1) of each `after`), [T, N, ...]; m is n, or less.
    """
    same_shapes(reward.shape, discount=discount, last=last)
    xp = ops.of(reward)

    def longer(one: Array, further: Array) -> Array:
        """Return `one` at the end of an episode or trajectory, else `further`."""
        ends = xp.reshape(last[:-1], (-1, *last.shape[1:], *(1,) * (len(one.shape) - 2)))
        return xp.concat([xp.where(ends, one[:-1], further), one[-1:]], 0)

    found = (reward, discount, *after)
    for _ in range(min(n, reward.shape[0]) - 1):
        total, product, *rest = (x[1:] for x in found)
        found = (
            longer(reward, reward[:-1] + discount[:-1] * total),
            longer(discount, discount[:-1] * product),
            *(longer(x, y) for x, y in zip(after, rest, strict=True)),
        )
    return found


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
    """Return V-trace targets and advantages (Espeholt et al. 2018, arXiv:1802.01561, eq. 1 and
    section 4.2).

    See the module for the shared arguments.

    Args:
        ratio: pi(a_t | s_t) / mu(a_t | s_t) of the learned and the acting policy, [T, N].
        rho: Upper limit of ratios in temporal differences.
        c: Upper limit of ratios in traces.

    Returns:
        (targets v_t, advantages rho_t (r_t + gamma_t v_{t+1} - V(s_t))), both [T, N].
    """
    discount_t = _discount_t(reward, discount, last, bootstrap, value=value, ratio=ratio)
    xp = ops.of(ratio)
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
    """Return Retrace(lambda) targets of Q(s_t, a_t) (Munos et al. 2016, arXiv:1606.02647, eqs. 3
    and 4), in the backward form of Wang et al. 2017 (arXiv:1611.01224, eq. 5): target_t = r_t +
    gamma_t (c_{t+1} (target_{t+1} - Q_{t+1}) + V_{t+1}) with c_t = lambda min(1, ratio_t).

    See the module for the shared arguments.

    Args:
        q: Q(s_t, a_t) of the actions taken, [T, N].
        value: V(s_t) under the learned policy, [T, N].
        ratio: pi(a_t | s_t) / mu(a_t | s_t) of the learned and the acting policy, [T, N].
        lambda_: From 0 (one-step targets) to 1.

    Returns:
        target_t, [T, N].
    """
    discount_t = _discount_t(reward, discount, last, bootstrap, q=q, value=value, ratio=ratio)
    c = lambda_ * ops.of(ratio).clip(ratio, 0.0, 1.0)
    following = _shifted(value - c * q, bootstrap)  # of the next step, without its own target
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
    """Return lambda-returns of states (Sutton & Barto 2018, section 12.8, eq. 12.18, in recursive
    form): G_t = r_t + gamma_t ((1 - lambda_t) V(s_{t+1}) + lambda_t G_{t+1}). With Q(s_t, a_t)
    instead of V they are the returns of actions in eq. 12.19, and with its expectation over actions
    those of eq. 12.20.

    See the module for the shared arguments.

    Args:
        lambda_: A number, or [T, N]; 0 gives the one-step return, 1 the discounted return.

    Returns:
        G_t, [T, N].
    """
    discount_t = _discount_t(reward, discount, last, bootstrap, value=value)
    if getattr(lambda_, "shape", ()):
        same_shapes(reward.shape, lambda_=lambda_)
    next_value = _shifted(value, bootstrap)
    x = reward + discount_t * (next_value - lambda_ * next_value)
    return accumulate(x, discount_t * lambda_, bootstrap)
