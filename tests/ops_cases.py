"""Every function of tandem.ops, and of tandem.math but for those of the host, on fixed inputs, and
their gradients: run as a script, on one engine's tensors.

    python tests/ops_cases.py ENGINE FILE.npz
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
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
    value_distributions,
    values,
)
from tandem.spaces import MASK, Leaf

_rng = np.random.default_rng(0)


def _normal(*shape: int, scale: float = 2.0) -> np.ndarray:
    return (scale * _rng.standard_normal(shape)).astype(np.float32)


INPUTS: dict[str, np.ndarray] = {
    "x": np.concatenate(
        [_normal(4, 6), np.array([[0.0, -0.0, 30.0, -30.0, 1.0, -1.0]], np.float32)]
    ),
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
    "mixed": np.array(
        [[0, 0.5, 1, 0], [1, -2, 0, 0], [1, 0, 1, 1], [0, 3, 0, 1], [1, 0.1, 1, 0]], np.float32
    ),
    "mask": np.tile(np.array([1, 0, 1, 1, 0, 1], np.int8), (5, 1)),
    "five": _normal(5, 5),
    "inside": np.tanh(_normal(5, 3)),
}

Call = Callable[..., Any]  # of the functions for its arrays, and the inputs by name

OPS: dict[str, Call] = {
    **{
        n: lambda f, i, n=n: getattr(f, n)(i["x"])
        for n in ("exp", "cos", "tanh", "abs", "softplus", "sigmoid", "relu", "elu")
    },
    **{
        n: lambda f, i, n=n: getattr(f, n)(i["x"])
        for n in ("gelu", "silu", "log_softmax", "stop_gradient", "cast")
    },
    **{n: lambda f, i, n=n: getattr(f, n)(i["x"], -1) for n in ("sum", "mean", "argmax")},
    **{n: lambda f, i, n=n: getattr(f, n)(i["positive"]) for n in ("log", "sqrt")},
    **{n: lambda f, i, n=n: getattr(f, n)(i["x"], i["y"]) for n in ("minimum", "maximum")},
    **{
        f"{n} axis": lambda f, i, n=n: getattr(f, n)(i["x"], axis=0)
        for n in ("sum", "mean", "argmax")
    },
    **{f"{n} all": lambda f, i, n=n: getattr(f, n)(i["x"]) for n in ("sum", "mean")},
    "where": lambda f, i: f.where(i["x"] > i["y"], i["x"], i["y"]),
    "where number": lambda f, i: f.where(i["x"] > 0, i["x"], 0.0),
    "clip": lambda f, i: f.clip(i["x"], -1.0, 0.5),
    "clip arrays": lambda f, i: f.clip(i["x"], i["y"] - i["positive"], i["y"]),
    "concat": lambda f, i: f.concat([i["x"], i["y"]], -1),
    "stack": lambda f, i: f.stack([i["row"], i["other"]], -1),
    "reshape": lambda f, i: f.reshape(i["x"], (-1, 3)),
    "swapaxes": lambda f, i: f.swapaxes(i["x"], 0, 1),
    "scan": lambda f, i: f.scan(
        lambda h, rows: 0.5 * h + rows[0] * rows[1], i["row"][:3], (i["unit"], i["noise"])
    ),
    "take": lambda f, i: f.take(i["x"], i["index"]),
    "one_hot": lambda f, i: f.one_hot(i["index"], 6),
    "cast bytes": lambda f, i: f.cast(i["bytes"]),
    "isfinite": lambda f, i: f.isfinite(i["odd"]),
    "all": lambda f, i: f.all(f.isfinite(i["odd"])),
    "sort": lambda f, i: f.sort(i["y"]),
    "smallest": lambda f, i: f.smallest(i["y"], 4),
    "smallest all": lambda f, i: f.smallest(i["x"], 6),
    "constant": lambda f, i: i["x"] + f.constant(np.arange(6, dtype=np.float32), i["x"]),
}

ATOMS = value_distributions.atoms(-3.0, 3.0, 7)
TRAJECTORY = ("reward", "discount", "last", "value", "bootstrap")
CHOICE, MASKED = distributions.Categorical(6), Leaf("discrete", (), "int64", (6,), masked=True)
DENSITIES: dict[distributions.Density, tuple[str, str]] = {  # inputs: actions, and noise
    CHOICE: ("index", "y"),
    distributions.MultiCategorical((2, 4)): ("choices", "y"),
    distributions.Gaussian(3): ("unit", "noise"),
    distributions.Spherical(5): ("five", "five"),
    distributions.Beta(3): ("inside", ""),  # its samples are drawn on the host
    distributions.Bernoulli(6): ("mask", ""),
    state_dependent.StateDependentGaussian(3): ("unit", ""),
    products.Product(
        (distributions.Categorical(2), distributions.Gaussian(1), distributions.Bernoulli(2))
    ): ("mixed", ""),
}
ON_HOST = (distributions.Bernoulli, products.Product)  # whose best actions are found there, too
POLICIES: dict[distributions.Distribution, tuple[str, str]] = {
    **DENSITIES,
    distributions.TanhGaussian(3): ("", "noise"),
    distributions.Deterministic(6): ("", "x"),
    state_dependent.StateDependentTanh(3): ("", ""),
    state_dependent.StateDependentDeterministic(3): ("", ""),
}


def _loop(count: int, body: Callable[[Any], Any], state: Any) -> Any:
    for _ in range(count):
        state = body(state)
    return state


def _solution(f: Any, i: dict[str, Any]) -> Any:
    """Of (M + 2) x = b, M = m m' of a vector m."""
    m = i["row"]
    return optimization.conjugate_gradient(
        lambda x: m * f.sum(m * x) + 2.0 * x, i["other"], 5, _loop
    )


def _acting(name: str, d: Any) -> dict[str, Call]:
    """What a distribution makes of a network, which is the identity here."""
    return {
        f"{name}.entering": lambda f, i: d.entering(i["y"]),
        f"{name}.of": lambda f, i: d.of(lambda y: y, i["y"]),
    }


def _of_policies() -> dict[str, Call]:
    calls: dict[str, Call] = {}
    for d, (_, noise) in POLICIES.items():
        name = type(d).__name__
        calls[f"{name}.part"] = lambda f, i, d=d: d.part(i["y"])
        calls |= _acting(name, d)
        if not isinstance(d, ON_HOST):
            calls[f"{name}.mode"] = lambda f, i, d=d: d.mode(i["y"])
            calls[f"{name}.act mode"] = lambda f, i, d=d: d.act(i["y"], None)
        if noise:
            calls[f"{name}.sample"] = lambda f, i, d=d, n=noise: d.sample(i["y"], i[n])
            calls[f"{name}.act"] = lambda f, i, d=d, n=noise: d.act(i["y"], i[n])
    for p, (action, _) in DENSITIES.items():
        name = type(p).__name__
        calls[f"{name}.log_prob"] = lambda f, i, d=p, a=action: d.log_prob(i["y"], i[a])
        calls[f"{name}.entropy"] = lambda f, i, d=p: d.entropy(i["y"])
        calls[f"{name}.kl"] = lambda f, i, d=p: d.kl(i["x"], i["y"])
    return calls


# By the names of the functions, each with the variant.
C51 = action_values.CategoricalValues(2, 3, -1.0, 1.0)
VALUES = {  # of x [5, 6], with so many choices
    action_values.ScalarValues(6): 6,
    C51: 2,
    action_values.QuantileValues(3, 2): 3,
}


def _of_values() -> dict[str, Call]:
    calls: dict[str, Call] = {}
    for d, n in VALUES.items():
        name = type(d).__name__
        calls[f"{name}.part"] = lambda f, i, d=d: d.part(i["x"])
        calls |= _acting(name, d)
        calls[f"{name}.spread"] = lambda f, i, d=d: d.spread(i["x"])
        for which, at in (("loss", 0), ("loss error", 1)):
            calls[f"{name}.{which}"] = lambda f, i, d=d, n=n, at=at: d.loss(
                i["x"],
                i["index"] % n,
                i["row"],
                i["weight"],
                i["y"],
                f.stop_gradient(i["positive"][:, :n]),
            )[at]
        calls[f"{name}.of_action"] = lambda f, i, d=d, n=n: d.of_action(i["x"], i["index"] % n)
        calls[f"{name}.of_best"] = lambda f, i, d=d, n=n: d.of_best(i["x"], i["positive"][:, :n])
        calls |= _of_next(name, d, n, lambda f, i: i["x"], lambda f, i: i["y"])
    return calls


def _of_next(name: str, d: Any, n: int, out: Call, after: Call) -> dict[str, Call]:
    """By the best choice, and by probabilities of all."""

    def policy(f: Any, i: Any) -> Any:
        return f.exp(f.log_softmax(i["y"][:, :n]))

    def soft(f: Any, i: Any) -> Any:
        told = out(f, i), i["index"] % n, i["row"], i["weight"], after(f, i)
        fraction = f.sigmoid(i["positive"][:, :2])
        return d.loss(*told, i["positive"][:, :n], policy(f, i), fraction)[0]

    return {
        f"{name}.under": lambda f, i: d.under(after(f, i), policy(f, i)),
        f"{name}.of_next": lambda f, i: d.of_next(after(f, i), i["positive"][:, :n]),
        f"{name}.of_next soft": lambda f, i: d.of_next(
            after(f, i), i["positive"][:, :n], policy(f, i)
        ),
        f"{name}.loss soft": soft,
    }


IMPLICIT = action_values.ImplicitValues(3, 4, 0.5)  # of x as [5, 2, 3]: two fractions


def _of_implicit() -> dict[str, Call]:
    def out(f: Any, i: Any) -> Any:
        return f.reshape(i["x"], (5, 2, 3))

    def after(f: Any, i: Any) -> Any:
        return f.reshape(i["y"], (5, 2, 3))

    d, name = IMPLICIT, "ImplicitValues"
    return {
        f"{name}.part": lambda f, i: d.part(out(f, i)),
        f"{name}.spread": lambda f, i: d.spread(out(f, i)),
        f"{name}.entering": lambda f, i: d.entering({"a": i["x"]})["fractions"],
        f"{name}.of": lambda f, i: d.of(lambda x: x["obs"], out(f, i)),
        f"{name}.of_action": lambda f, i: d.of_action(out(f, i), i["index"] % 3),
        f"{name}.of_best": lambda f, i: d.of_best(out(f, i), i["positive"][:, :3]),
        f"{name}.loss": lambda f, i: d.loss(
            out(f, i),
            i["index"] % 3,
            i["row"],
            i["weight"],
            after(f, i),
            i["positive"][:, :3],
            fraction=f.sigmoid(i["positive"][:, :2]),
        )[0],
        **_of_next(name, d, 3, out, after),
    }


MATH: dict[str, Call] = {
    "categorical_projection": lambda f, i: value_distributions.categorical_projection(
        i["x"], f.exp(f.log_softmax(i["y"])), ATOMS
    ),
    "cross_entropy": lambda f, i: value_distributions.cross_entropy(
        i["x"], f.exp(f.log_softmax(i["y"]))
    ),
    "fractions": lambda f, i: value_distributions.fractions(i["x"]),
    "quantile_huber": lambda f, i: value_distributions.quantile_huber(
        i["x"], f.sigmoid(i["y"]), i["five"], 0.5
    ),
    "q_learning": lambda f, i: values.q_learning(i["x"], i["index"], i["row"], i["other"], i["y"]),
    "q_learning double": lambda f, i: values.q_learning(
        i["x"], i["index"], i["row"], i["other"], i["y"], i["x"]
    ),
    "epsilon_greedy_value": lambda f, i: values.epsilon_greedy_value(i["x"], i["index"], 0.3),
    "epsilon_greedy_value of a number": lambda f, i: values.epsilon_greedy_value(
        i["x"], i["index"], i["weight"][0]
    ),
    "epsilon_greedy_value masked": lambda f, i: values.epsilon_greedy_value(
        i["x"], i["index"], i["weight"], f.cast(i["y"] > 0) + f.one_hot(i["index"], 6)
    ),
    "q_learning soft": lambda f, i: values.q_learning(
        i["x"], i["index"], i["row"], i["other"], i["y"], policy=f.exp(f.log_softmax(i["x"]))
    ),
    **{
        f"munchausen {at}": lambda f, i, at=at: values.munchausen(
            i["x"], i["index"], i["row"], i["weight"], i["y"], 0.9, 0.5, -1.0
        )[at]
        for at in (0, 1)
    },
    "huber": lambda f, i: values.huber(i["row"]),
    "prediction_error": lambda f, i: curiosity.prediction_error(i["x"], i["y"]),
    "kept": lambda f, i: curiosity.kept(f.sigmoid(i["row"]), 0.3, 0.5),
    "clipped_value_loss": lambda f, i: values.clipped_value_loss(
        i["row"], i["other"], i["weight"], 0.2
    ),
    "clipped_value_loss huber": lambda f, i: values.clipped_value_loss(
        i["row"], i["other"], i["weight"], 0.2, 0.5
    ),
    "clipped_surrogate": lambda f, i: policy_losses.clipped_surrogate(
        f.exp(i["row"]), i["other"], 0.2
    ),
    "kl_estimate": lambda f, i: policy_losses.kl_estimate(i["row"]),
    "standardize": lambda f, i: policy_losses.standardize(i["row"], i["weight"]),
    "accumulate": lambda f, i: returns.accumulate(i["reward"], i["traces"]),
    "accumulate end": lambda f, i: returns.accumulate(i["reward"], i["traces"], i["bootstrap"]),
    "multi_step": lambda f, i: returns.multi_step(
        i["reward"], i["discount"], i["last"], i["bootstrap"]
    ),
    "n_step": lambda f, i: returns.n_step(i["reward"], i["discount"], i["last"], 3)[0],
    "n_step after": lambda f, i: returns.n_step(
        i["reward"], i["discount"], i["last"], 3, i["reward"]
    )[2],
    "generalized_advantage": lambda f, i: returns.generalized_advantage(
        *(i[n] for n in TRAJECTORY), 0.9
    ),
    "lambda_return": lambda f, i: returns.lambda_return(*(i[n] for n in TRAJECTORY), 0.9),
    "lambda_return traces": lambda f, i: returns.lambda_return(
        *(i[n] for n in TRAJECTORY), i["traces"]
    ),
    "retrace": lambda f, i: returns.retrace(
        *(i[n] for n in ("reward", "discount", "last", "q", "value", "bootstrap", "ratio")), 0.9
    ),
    **{
        f"vtrace {part}": lambda f, i, part=part: returns.vtrace(
            *(i[n] for n in TRAJECTORY), i["ratio"]
        )[part]
        for part in (0, 1)
    },
    **{
        n: lambda f, i, n=n: getattr(special, n)(1.0 + i["positive"])
        for n in ("stirling_remainder", "digamma")
    },
    "log_beta": lambda f, i: special.log_beta(1.0 + i["positive"], 1.0 + f.exp(i["x"] / 10.0)),
    "conjugate_gradient": _solution,
    "on_sphere": lambda f, i: optimization.on_sphere(i["y"]),
    "unit_columns": lambda f, i: optimization.unit_columns(i["y"]),
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
    "Spherical.variance": lambda f, i: distributions.Spherical(5).variance(i["y"]),
    "TanhGaussian.sample_log_prob action": lambda f, i: distributions.TanhGaussian(
        3
    ).sample_log_prob(i["y"], i["noise"])[0],
    "TanhGaussian.sample_log_prob": lambda f, i: distributions.TanhGaussian(3).sample_log_prob(
        i["y"], i["noise"]
    )[1],
    "merged mean": lambda f, i: moments.merged(i["x"][0], i["positive"][0], 3.0, i["y"])[0],
    "merged variance": lambda f, i: moments.merged(i["x"][0], i["positive"][0], 3.0, i["y"])[1],
    **_of_values(),
    **_of_implicit(),
    "total": lambda f, i: distributions.total([i["x"], i["y"], i["positive"]]),
    "TanhGaussian.log_std": lambda f, i: distributions.TanhGaussian(3).log_std(i["y"]),
    "StateDependentTanh.log_std": lambda f, i: state_dependent.StateDependentTanh(3).log_std(
        i["y"]
    ),
    "StateDependentTanh.sample_log_prob": lambda f, i: state_dependent.StateDependentTanh(
        3
    ).sample_log_prob(i["y"], i["noise"])[1],
    "StateDependentGaussian.log_std": lambda f, i: state_dependent.StateDependentGaussian(
        3
    ).log_std(i["y"]),
    "StateDependentGaussian.gaussian": lambda f, i: state_dependent.StateDependentGaussian(
        3
    ).gaussian(i["y"]),
    "tanh_normal action": lambda f, i: distributions.tanh_normal(
        i["unit"], i["y"][:, :3], i["noise"]
    )[0],
    "tanh_normal log_prob": lambda f, i: distributions.tanh_normal(
        i["unit"], i["y"][:, :3], i["noise"]
    )[1],
}
# What runs on the host, over NumPy arrays or numbers.
HOST = {"Moments.add", "Moments.state", "Moments.load_state", "iqm", "bootstrap_band"}
HOST |= {f"{name}.{n}" for name in ("Bernoulli", "Product") for n in ("mode", "sample", "act")}
HOST |= {
    f"StateDependent{name}.{n}"
    for name in ("Gaussian", "Deterministic")
    for n in ("drawn", "sample")
}
HOST |= {"StateDependentGaussian.offset", "StateDependentTanh.sample"}
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
    """The gradients of the sums of what functions give, as NumPy: "function by input" for all
    inputs of every function of real numbers, and "function at its kinks"."""
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
        found[name] = {
            n: torch.zeros_like(x) if g is None else g
            for (n, x), g in zip(leaves.items(), by, strict=True)
        }
    return found


def _by_jax(functions: dict[str, Function], inputs: Tensors) -> dict[str, Tensors]:
    import jax

    @jax.jit
    def compiled(inputs: Tensors) -> dict[str, Tensors]:
        return {
            n: jax.grad(lambda i, f=f: f(i).sum())(inputs)  # type: ignore[misc]
            for n, f in functions.items()
        }

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
            found[name] = tape.gradient(
                total, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
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
