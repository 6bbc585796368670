"""Every function of tandem.ops and tandem.math, and gradients, on one engine: ENGINE FILE.npz."""

import json
import sys
from collections.abc import Callable
from functools import cache, reduce
from typing import Any

import numpy as np

from tandem import ops
from tandem.math import (
    action_values,
    curiosity,
    distributions,
    masks,
    moments,
    optimization,
    policy_losses,
    products,
    returns,
    special,
    state_dependent,
    values,
)
from tandem.math import value_distributions as spread
from tandem.spaces import MASK, Leaf

_rng = np.random.default_rng(0)


def _normal(*shape: int, scale: float = 2.0) -> np.ndarray:
    return (scale * _rng.standard_normal(shape)).astype(np.float32)


INPUTS: dict[str, np.ndarray] = {
    "x": np.float32([*_normal(4, 6), [0.0, -0.0, 30.0, -30.0, 1.0, -1.0]]),
    "y": _normal(5, 6),
    "positive": np.abs(_normal(5, 6)) + np.float32(0.1),
    "odd": np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32),
    "index": np.array([0, 5, 2, 2, 1], np.int64),
    "bytes": np.arange(30, dtype=np.uint8).reshape(5, 6),
    "row": _normal(5),
    "other": _normal(5),
    "weight": np.array([1, 0, 0.5, 1, 2], np.float32),
    "unit": _normal(5, 3, scale=0.5),
    "noise": _normal(5, 3, scale=1.0),
    "choices": np.stack([_rng.integers(n, size=5) for n in (2, 4)], -1),
    # Trajectories of 7 steps of 3 environments.
    "reward": _normal(7, 3),
    "discount": np.where(_rng.random((7, 3)) < 0.2, 0, 0.9).astype(np.float32),
    "last": _rng.random((7, 3)) < 0.3,
    "value": _normal(7, 3),
    "q": _normal(7, 3),
    "ratio": np.exp(_normal(7, 3)),
    "traces": _rng.random((7, 3)).astype(np.float32),
    "bootstrap": _normal(3),
    "mixed": np.float32(
        [[0, 0.5, 1, 0], [1, -2, 0, 0], [1, 0, 1, 1], [0, 3, 0, 1], [1, 0.1, 1, 0]]
    ),
    "mask": np.tile(np.array([1, 0, 1, 1, 0, 1], np.int8), (5, 1)),
    "five": _normal(5, 5),
    "inside": np.tanh(_normal(5, 3)),
}

Call = Callable[..., Any]  # of the functions for its arrays, and the inputs by name


def on(function: Call, *given: Any, at: int | None = None, **named: Any) -> Call:
    """A call on inputs (by names), what calls give, and values; of its results, the one `at`."""

    def value(f: Any, i: Any, x: Any) -> Any:
        return i[x] if isinstance(x, str) else x(f, i) if callable(x) else x

    def call(f: Any, i: Any) -> Any:
        more = {n: value(f, i, x) for n, x in named.items()}
        found = function(*(value(f, i, x) for x in given), **more)
        return found if at is None else found[at]

    return call


def by(name: str, *given: Any, **named: Any) -> Call:
    """A call of one of the functions for arrays."""
    return lambda f, i: on(getattr(f, name), *given, **named)(f, i)


def softmax(given: Any) -> Call:
    return lambda f, i: f.exp(f.log_softmax(given(f, i) if callable(given) else i[given]))


def choices(n: int) -> Call:
    return lambda f, i: i["index"] % n


def first(name: str) -> Call:
    return lambda f, i: i[name][0]


def some(name: str, n: int) -> Call:
    """The first columns of an input."""
    return lambda f, i: i[name][:, :n]


OPS: dict[str, Call] = {
    **{n: by(n, "x") for n in ("exp", "cos", "tanh", "abs", "softplus", "sigmoid", "relu", "elu")},
    **{n: by(n, "x") for n in ("gelu", "silu", "log_softmax", "stop_gradient", "cast")},
    **{n: by(n, "x", -1) for n in ("sum", "mean", "argmax")},
    **{n: by(n, "positive") for n in ("log", "sqrt")},
    **{n: by(n, "x", "y") for n in ("minimum", "maximum")},
    **{f"{n} axis": by(n, "x", axis=0) for n in ("sum", "mean", "argmax")},
    **{f"{n} all": by(n, "x") for n in ("sum", "mean")},
    "where": lambda f, i: f.where(i["x"] > i["y"], i["x"], i["y"]),
    "where number": lambda f, i: f.where(i["x"] > 0, i["x"], 0.0),
    "clip": by("clip", "x", -1.0, 0.5),
    "clip arrays": lambda f, i: f.clip(i["x"], i["y"] - i["positive"], i["y"]),
    "concat": lambda f, i: f.concat([i["x"], i["y"]], -1),
    "stack": lambda f, i: f.stack([i["row"], i["other"]], -1),
    "reshape": by("reshape", "x", (-1, 3)),
    "swapaxes": by("swapaxes", "x", 0, 1),
    "scan": lambda f, i: f.scan(
        lambda h, rows: 0.5 * h + rows[0] * rows[1], i["row"][:3], (i["unit"], i["noise"])
    ),
    "take": by("take", "x", "index"),
    "one_hot": by("one_hot", "index", 6),
    "cast bytes": by("cast", "bytes"),
    "isfinite": by("isfinite", "odd"),
    "all": by("all", by("isfinite", "odd")),
    "sort": by("sort", "y"),
    "smallest": by("smallest", "y", 4),
    "smallest all": by("smallest", "x", 6),
    "constant": lambda f, i: i["x"] + f.constant(np.arange(6, dtype=np.float32), i["x"]),
}

ATOMS = spread.atoms(-3.0, 3.0, 7)
TRAJECTORY = ("reward", "discount", "last", "value", "bootstrap")
CHOICE, MASKED = distributions.Categorical(6), Leaf("discrete", (), "int64", (6,), masked=True)
PARTS = distributions.Categorical(2), distributions.Gaussian(1), distributions.Bernoulli(2)
DENSITIES: dict[distributions.Density, tuple[str, str]] = {  # inputs: actions, and noise
    CHOICE: ("index", "y"),
    distributions.MultiCategorical((2, 4)): ("choices", "y"),
    distributions.Gaussian(3): ("unit", "noise"),
    distributions.Spherical(5): ("five", "five"),
    distributions.Beta(3): ("inside", ""),  # its samples are drawn on the host
    distributions.Bernoulli(6): ("mask", ""),
    state_dependent.StateDependentGaussian(3): ("unit", ""),
    products.ProductDistribution(PARTS): ("mixed", ""),
}
# Their best actions are found on the host, too.
ON_HOST = (distributions.Bernoulli, products.ProductDistribution)
POLICIES: dict[distributions.Distribution, tuple[str, str]] = {
    **DENSITIES,
    distributions.TanhGaussian(3): ("", "noise"),
    distributions.DeterministicDistribution(6): ("", "x"),
    state_dependent.StateDependentTanh(3): ("", ""),
    state_dependent.StateDependentDeterministic(3): ("", ""),
}


def _solution(f: Any, i: dict[str, Any]) -> Any:
    """Of (M + 2) x = b, M = m m' of a vector m."""
    m, solve = i["row"], optimization.conjugate_gradient
    loop = lambda count, body, state: reduce(lambda x, _: body(x), range(count), state)  # noqa: E731
    return solve(lambda x: m * f.sum(m * x) + 2.0 * x, i["other"], 5, loop)


def _acting(name: str, d: Any) -> dict[str, Call]:
    """What a distribution makes of a network, which is the identity here."""
    of = lambda f, i: d.of(lambda y: y, i["y"])  # noqa: E731
    return {f"{name}.network_input": on(d.network_input, "y"), f"{name}.of": of}


def _of_policies() -> dict[str, Call]:
    calls: dict[str, Call] = {}
    for d, (_, noise) in POLICIES.items():
        name = type(d).__name__
        calls |= {f"{name}.part": on(d.part, "y"), **_acting(name, d)}
        if not isinstance(d, ON_HOST):
            calls |= {f"{name}.mode": on(d.mode, "y"), f"{name}.act mode": on(d.act, "y", None)}
        if noise:
            calls |= {f"{name}.sample": on(d.sample, "y", noise)}
            calls |= {f"{name}.act": on(d.act, "y", noise)}
    for p, (action, _) in DENSITIES.items():
        name = type(p).__name__
        calls |= {f"{name}.log_prob": on(p.log_prob, "y", action)}
        calls |= {f"{name}.entropy": on(p.entropy, "y"), f"{name}.kl": on(p.kl, "x", "y")}
    return calls


C51 = action_values.CategoricalValues(2, 3, -1.0, 1.0)
IMPLICIT = action_values.ImplicitValues(3, 4, 0.5)  # of x as [5, 2, 3]: two fractions
# of x [5, 6], with this many choices
VALUES = {action_values.ScalarValues(6): 6, C51: 2, action_values.QuantileValues(3, 2): 3}


def _of_values() -> dict[str, Call]:
    """By the best choice, and by probabilities of all."""
    calls: dict[str, Call] = {}
    fraction = by("sigmoid", some("positive", 2))
    for d, n in (VALUES | {IMPLICIT: 3}).items():
        name, values, policy = type(d).__name__, some("positive", n), softmax(some("y", n))
        out, after = [by("reshape", x, (5, 2, 3)) if d is IMPLICIT else x for x in ("x", "y")]
        learned = (out, choices(n), "row", "weight", after, values)
        calls |= {} if d is IMPLICIT else _acting(name, d)
        calls |= {
            f"{name}.part": on(d.part, out),
            f"{name}.spread": on(d.spread, out),
            f"{name}.loss": on(d.loss, *learned, fraction=fraction, at=0),
            f"{name}.loss error": on(d.loss, *learned, fraction=fraction, at=1),
            f"{name}.loss soft": on(d.loss, *learned, policy, fraction, at=0),
            f"{name}.of_action": on(d.of_action, out, choices(n)),
            f"{name}.of_best": on(d.of_best, out, values),
            f"{name}.under": on(d.under, after, policy),
            f"{name}.of_next": on(d.of_next, after, values),
            f"{name}.of_next soft": on(d.of_next, after, values, policy),
        }
    return calls


TANH, GSDE = distributions.TanhGaussian(3), state_dependent.StateDependentGaussian(3)
GSDE_TANH = state_dependent.StateDependentTanh(3)
GREEDY = values.epsilon_greedy_value
LEARNED, SOFT = ("x", "index", "row", "other", "y"), ("x", "index", "row", "weight", "y")
CLIPPED = ("row", "other", "weight", 0.2)
MATH: dict[str, Call] = {
    "categorical_projection": on(spread.categorical_projection, "x", softmax("y"), ATOMS),
    "cross_entropy": on(spread.cross_entropy, "x", softmax("y")),
    "fractions": on(spread.fractions, "x"),
    "quantile_huber": on(spread.quantile_huber, "x", by("sigmoid", "y"), "five", 0.5),
    "q_learning": on(values.q_learning, *LEARNED),
    "q_learning double": on(values.q_learning, *LEARNED, "x"),
    "q_learning soft": on(values.q_learning, *LEARNED, policy=softmax("x")),
    "epsilon_greedy_value": on(GREEDY, "x", "index", 0.3),
    "epsilon_greedy_value of a number": lambda f, i: GREEDY(i["x"], i["index"], i["weight"][0]),
    "epsilon_greedy_value masked": lambda f, i: GREEDY(
        i["x"], i["index"], i["weight"], f.cast(i["y"] > 0) + f.one_hot(i["index"], 6)
    ),
    **{f"munchausen {at}": on(values.munchausen, *SOFT, 0.9, 0.5, -1.0, at=at) for at in (0, 1)},
    "huber": on(values.huber, "row"),
    "prediction_error": on(curiosity.prediction_error, "x", "y"),
    "kept": on(curiosity.kept, by("sigmoid", "row"), 0.3, 0.5),
    "clipped_value_loss": on(values.clipped_value_loss, *CLIPPED),
    "clipped_value_loss huber": on(values.clipped_value_loss, *CLIPPED, 0.5),
    "clipped_surrogate": on(policy_losses.clipped_surrogate, by("exp", "row"), "other", 0.2),
    "kl_estimate": on(policy_losses.kl_estimate, "row"),
    "standardize": on(policy_losses.standardize, "row", "weight"),
    "accumulate": on(returns.accumulate, "reward", "traces"),
    "accumulate end": on(returns.accumulate, "reward", "traces", "bootstrap"),
    "multi_step": on(returns.multi_step, "reward", "discount", "last", "bootstrap"),
    "n_step": on(returns.n_step, "reward", "discount", "last", 3, at=0),
    "n_step after": on(returns.n_step, "reward", "discount", "last", 3, "reward", at=2),
    "generalized_advantage": on(returns.generalized_advantage, *TRAJECTORY, 0.9),
    "lambda_return": on(returns.lambda_return, *TRAJECTORY, 0.9),
    "lambda_return traces": on(returns.lambda_return, *TRAJECTORY, "traces"),
    "retrace": on(returns.retrace, *TRAJECTORY[:3], "q", "value", "bootstrap", "ratio", 0.9),
    **{f"vtrace {at}": on(returns.vtrace, *TRAJECTORY, "ratio", at=at) for at in (0, 1)},
    **{
        n: lambda f, i, n=n: getattr(special, n)(1.0 + i["positive"])
        for n in ("stirling_remainder", "digamma")
    },
    "log_beta": lambda f, i: special.log_beta(1.0 + i["positive"], 1.0 + f.exp(i["x"] / 10.0)),
    "conjugate_gradient": _solution,
    "on_sphere": on(optimization.on_sphere, "y"),
    "unit_columns": on(optimization.unit_columns, "y"),
    "CategoricalValues.mean": lambda f, i: C51.mean(C51.spread(i["x"])),
    "CategoricalValues.soft_target": lambda f, i: C51.soft_target(
        [i["x"], i["y"]],
        i["row"],
        i["weight"],
        0.3 * f.log_softmax(i["y"][:, :2]),
        f.exp(f.log_softmax(i["x"][:, :2])),
    ),
    "allowed": lambda f, i: i["x"] * masks.allowed({MASK: i["mask"]}),
    "allowed none": lambda f, i: i["x"] * masks.allowed({MASK: 0 * i["mask"]}),
    "masked": lambda f, i: masks.masked(i["x"], {MASK: i["mask"]}, MASKED),
    "evenly": lambda f, i: masks.evenly(i["x"], {MASK: i["mask"]}, MASKED),
    **_of_policies(),
    "Spherical.variance": on(distributions.Spherical(5).variance, "y"),
    "TanhGaussian.sample_log_prob action": on(TANH.sample_log_prob, "y", "noise", at=0),
    "TanhGaussian.sample_log_prob": on(TANH.sample_log_prob, "y", "noise", at=1),
    **{
        f"merged {n}": on(moments.merged, first("x"), first("positive"), 3.0, "y", at=at)
        for at, n in enumerate(("mean", "variance"))
    },
    **_of_values(),
    "ImplicitValues.network_input": lambda f, i: IMPLICIT.network_input({"a": i["x"]})["fractions"],
    "ImplicitValues.of": lambda f, i: IMPLICIT.of(lambda x: x["obs"], i["x"]),
    "total": lambda f, i: distributions.total([i["x"], i["y"], i["positive"]]),
    "TanhGaussian.log_std": on(TANH.log_std, "y"),
    "StateDependentTanh.log_std": on(GSDE_TANH.log_std, "y"),
    "StateDependentTanh.sample_log_prob": on(GSDE_TANH.sample_log_prob, "y", "noise", at=1),
    "StateDependentGaussian.log_std": on(GSDE.log_std, "y"),
    "StateDependentGaussian.gaussian": on(GSDE.gaussian, "y"),
    **{
        f"tanh_normal {n}": on(distributions.tanh_normal, "unit", some("y", 3), "noise", at=at)
        for at, n in enumerate(("action", "log_prob"))
    },
}

# What runs on the host, over NumPy arrays or numbers.
HOST = {"Moments.add", "Moments.state", "Moments.load_state", "iqm", "bootstrap_band"}
HOST |= {f"{kind.__name__}.{n}" for kind in ON_HOST for n in ("mode", "sample", "act")}
HOST |= {f"StateDependent{n}.drawn" for n in ("Gaussian", "Deterministic")}
HOST |= {f"StateDependent{n}.sample" for n in ("Gaussian", "Deterministic", "Tanh")}
HOST |= {"StateDependentGaussian.offset"}
HOST |= {"effective_sample_size", "smoothed", "rows_to_drop", "for_actions", "Beta.sample"}
HOST |= {"relative", "moved", "multiplied", "batch_sizes", "size_below", "gradient_noise"}
HOST |= {"Parameters.bounds", "atoms", "midpoints", "rectification", "forward_returns"}
HOST |= {"interquartile_mean", "mean_of_tasks", "median_of_tasks", "optimality_gap"}
HOST |= {"performance_profile", "probability_of_improvement", "stratified_bootstrap"}
HOST |= {"range_holds_median", "chance_of_clean_win"}
HOST |= {  # Categorical's
    f"{type(d).__name__}.{n}"
    for d in (*VALUES, IMPLICIT)
    for n in ("act", "entropy", "kl", "log_prob", "mode", "sample")
}

_AROUND = [-2.0, -1.0, 0.0, 1.0, 2.0]
_PAIRS = [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
_HALVES = [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]

# Where a function has a kink: the function of x, x, and its gradient there by the rule of
# tandem.ops, worked out by hand.
KINKS: dict[str, tuple[Callable[[Any, Any], Any], list[Any], list[Any]]] = {
    "clip": (lambda f, x: f.clip(x, -1.0, 1.0), _AROUND, [0, 1, 1, 1, 0]),
    "clip arrays": (lambda f, x: f.clip(x, 0 * x - 1, 0 * x + 1), _AROUND, [0, 1, 1, 1, 0]),
    "clip from 0": (lambda f, x: f.clip(x, 0.0, float("inf")), _AROUND, [0, 0, 1, 1, 1]),
    "clip to a number": (lambda f, x: f.clip(x, 1.0, 1.0), [0.0, 1.0, 2.0], [0, 1, 0]),
    "minimum": (lambda f, x: f.minimum(x[:, 0], x[:, 1]), _PAIRS, [_HALVES[0], [1, 0], [0, 1]]),
    "maximum": (lambda f, x: f.maximum(x[:, 0], x[:, 1]), _PAIRS, _HALVES),
    "abs": (lambda f, x: f.abs(x), [-1.0, 0.0, -0.0, 1.0], [-1, 0, 0, 1]),
    "relu": (lambda f, x: f.relu(x), [-1.0, 0.0, 1.0], [0, 0, 1]),
    "elu": (lambda f, x: f.elu(x), [0.0, 1.0], [1, 1]),
    "where": (lambda f, x: f.where(x > 0, x, 0.0), [-1.0, 0.0, 1.0], [0, 0, 1]),
    "huber": (lambda f, x: values.huber(x), _AROUND, [-1, -1, 0, 1, 1]),
    "huber of 2": (lambda f, x: values.huber(x, 2.0), [-3.0, -2.0, 0.0, 2.0], [-2, -2, 0, 2]),
    # Of values that were 0, for targets of 1: within the clip both losses are the same function of
    # x; at 1.5 they are equal, and only one of them has a slope.
    "clipped_value_loss": (
        lambda f, x: values.clipped_value_loss(x, 0 * x, 0 * x + 1, 0.5),
        [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0],
        [-4, -3, -2, -1, 0, 0.5, 2],
    ),
    # Of ratios x, for advantages of 1: within the clip both terms are the same function of x.
    "clipped_surrogate": (
        lambda f, x: policy_losses.clipped_surrogate(x, 0 * x + 1, 0.5),
        [0.25, 0.5, 1.0, 1.5, 2.0],
        [1, 1, 1, 1, 0],
    ),
}


def results(convert: Callable[[np.ndarray], Any]) -> dict[str, np.ndarray]:
    """What every function gives for the inputs, as NumPy."""
    inputs = {n: convert(x) for n, x in INPUTS.items()}
    f = ops.of(inputs["x"])
    return {n: np.asarray(call(f, inputs)) for n, call in (OPS | MATH).items()}


Tensors = dict[str, Any]
Function = Callable[[Tensors], Any]
Gradients = Callable[[dict[str, Function], Tensors], dict[str, Tensors]]


def gradients(convert: Callable[[np.ndarray], Any], engine: str) -> dict[str, np.ndarray]:
    """Gradients of sums, as NumPy: "function by input", and "function at its kinks"."""
    of_all: Gradients = {"jax": _by_jax, "tensorflow": _by_tensorflow}.get(engine, _by_torch)
    real = {n: convert(x) for n, x in INPUTS.items() if x.dtype == np.float32 and n != "odd"}
    rest = {n: convert(x) for n, x in INPUTS.items() if n not in real}
    at_kinks = {n: convert(np.array(x, np.float32)) for n, (_, x, _) in KINKS.items()}
    smooth: dict[str, Function] = {
        n: lambda i, call=call: call(ops.of(i["x"]), i | rest)
        for n, call in (OPS | MATH).items()
        if results_on_numpy()[n].dtype == np.float32
    }
    kinks: dict[str, Function] = {
        n: lambda i, n=n, call=call: call(ops.of(i[n]), i[n]) for n, (call, _, _) in KINKS.items()
    }
    found = {f"{n} by {x}": g for n, by in of_all(smooth, real).items() for x, g in by.items()}
    found |= {f"{n} at its kinks": by[n] for n, by in of_all(kinks, at_kinks).items()}
    return {n: np.asarray(g) for n, g in found.items()}


@cache
def results_on_numpy() -> dict[str, np.ndarray]:
    return results(lambda x: x)


def _by_torch(functions: dict[str, Function], inputs: Tensors) -> dict[str, Tensors]:
    import torch

    leaves = {n: x.detach().requires_grad_() for n, x in inputs.items()}
    found = {}
    for name, function in functions.items():
        total = function(leaves).sum()
        by: Any = [None] * len(leaves)
        if total.requires_grad:
            by = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        pairs = zip(leaves.items(), by, strict=True)
        found[name] = {n: torch.zeros_like(x) if g is None else g for (n, x), g in pairs}
    return found


def _by_jax(functions: dict[str, Function], inputs: Tensors) -> dict[str, Tensors]:
    import jax

    @jax.jit
    def compiled(inputs: Tensors) -> dict[str, Tensors]:
        gradient = lambda f: jax.grad(lambda i: f(i).sum())(inputs)  # noqa: E731
        return {n: gradient(f) for n, f in functions.items()}

    return compiled(inputs)


def _by_tensorflow(functions: dict[str, Function], inputs: Tensors) -> dict[str, Tensors]:
    import tensorflow as tf

    @tf.function(autograph=False)
    def compiled(inputs: Tensors) -> dict[str, Tensors]:
        found = {}
        for name, function in functions.items():
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                total = tf.reduce_sum(function(inputs))
            zeros = tf.UnconnectedGradients.ZERO
            found[name] = tape.gradient(total, inputs, unconnected_gradients=zeros)
        return found

    return compiled(inputs)


def main(engine: str, file: str) -> None:
    if engine == "torch":
        import torch

        convert: Any = torch.as_tensor
    else:
        import keras

        convert = keras.ops.convert_to_tensor
    of_all = {f"gradient of {n}": g for n, g in gradients(convert, engine).items()}
    np.savez(file, **results(convert), **of_all)
    print(json.dumps(type(ops.of(convert(INPUTS["x"]))).__name__))


if __name__ == "__main__":
    main(*sys.argv[1:])
