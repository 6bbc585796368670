"""Reading, writing and copying lists of a user's variables: torch tensors, or variables of
Keras."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tandem.backends import running
from tandem.errors import SettingError
from tandem.types import Array, Tree, Variable

# compiled copies of TensorFlow's, by the variables they are of, which they hold
_copies: dict[tuple[int, ...], Callable[..., object]] = {}
_functions: dict[str, Callable[..., list[Array]]] = {}  # compiled by JAX


def assign_param(target: Tree, source: Tree, tau: float = 1.0) -> None:
    """target <- tau source + (1 - tau) target, variable by variable, for lists (of lists) of torch
    tensors or Keras variables: a copy by default, a step of Polyak averaging with tau below 1. The
    source may be NumPy arrays, such as `restore_param` gives.
    Integer ones, the seeds of dropout, are left alone.

    Raises SettingError where the lists do not match.
    """
    targets, sources = flat(target), flat(source)
    if any(isinstance(x, np.ndarray) for x in targets):
        raise SettingError(
            "assign_param received arrays as its target.",
            "variables; their new values may be arrays, as from restore_param",
            "give net.parameters() (PyTorch) or net.weights (Keras) first, then the arrays.",
        )
    if strangers := [x for x in targets + sources if not hasattr(x, "shape")]:
        raise SettingError(
            f"assign_param received a {type(strangers[0]).__name__}.",
            "variables, in lists or lists of lists",
            "give net.parameters() (PyTorch) or net.weights (Keras).",
        )
    shapes = [[tuple(x.shape) for x in xs] for xs in (targets, sources)]
    if shapes[0] != shapes[1]:
        raise SettingError(
            f"variables of shapes {shapes[0]} cannot take values of shapes {shapes[1]}.",
            "lists of variables of the same shapes in the same order",
            "give the variables of two networks of the same architecture.",
        )
    if not targets:
        return
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(targets[0], torch.Tensor):
        with torch.no_grad():
            sources = [
                torch.as_tensor(s, dtype=t.dtype, device=t.device)
                if isinstance(s, np.ndarray)
                else s
                for t, s in zip(targets, sources, strict=True)
            ]
            if tau == 1.0:
                torch._foreach_copy_(targets, sources)
            else:
                torch._foreach_lerp_(targets, sources, tau)
        return
    pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if "float" in str(t.dtype)]
    if any(isinstance(s, np.ndarray) for _, s in pairs):
        for t, s in pairs:
            t.assign(s if tau == 1.0 else t + tau * (s - t))
    elif running() == "tensorflow":
        _tensorflow(pairs, tau)
    else:
        _jax(pairs, tau)


def read(variables: Iterable[Variable]) -> list[Array]:
    """Their values, as NumPy arrays of their own."""
    return [np.array(host(v), copy=True) for v in variables]


def write(variables: Iterable[Variable], values: Iterable[Array]) -> None:
    """Gives them these values."""
    torch = sys.modules.get("torch")
    for v, x in zip(variables, values, strict=True):
        if torch is not None and isinstance(v, torch.Tensor):
            with torch.no_grad():
                v.copy_(torch.as_tensor(x, device=v.device))
        else:
            v.assign(x)


def flat(variables: Tree) -> list[Variable]:
    """The variables in lists of lists, and in generators, in order."""
    if isinstance(variables, (list, tuple, Iterator)):
        return [x for part in variables for x in flat(part)]
    return [variables]


def host(v: Variable) -> Array:
    """Its value as a NumPy array, which may be its own memory."""
    x: Array = getattr(v, "_value", v)  # of Keras's: one of several devices has no array of its own
    if hasattr(x, "detach"):
        return x.detach().cpu().numpy()
    return x.numpy() if hasattr(x, "numpy") else np.asarray(x)


def _tensorflow(pairs: list[tuple[Variable, Variable]], tau: float) -> None:
    import tensorflow as tf  # which these variables are of

    key = tuple(id(v) for pair in pairs for v in pair)
    if key not in _copies:

        def mixed(share: Array | None) -> None:
            for t, s in pairs:
                t.assign(s + 0.0 if share is None else t + share * (s - t))

        _copies[key] = tf.function(mixed, autograph=False)
    _copies[key](None if tau == 1.0 else tf.constant(tau, tf.float32))


def _jax(pairs: list[tuple[Variable, Variable]], tau: float) -> None:
    import jax  # which these variables are of

    if "jax" not in _functions:
        _functions["jax"] = jax.jit(
            lambda ts, ss, share: [t + share * (s - t) for t, s in zip(ts, ss, strict=True)]
        )
        _functions["copy"] = jax.jit(lambda ss: [jax.numpy.copy(s) for s in ss])
    sources = [s.value for _, s in pairs]
    new = (
        _functions["copy"](sources)
        if tau == 1.0
        else _functions["jax"]([t.value for t, _ in pairs], sources, tau)
    )
    for (t, _), x in zip(pairs, new, strict=True):
        if isinstance(x, jax.core.Tracer) or x.dtype != t.dtype:
            t.assign(x)
        else:  # what `assign` comes to, after looking at what is known here
            t._direct_assign(x)
