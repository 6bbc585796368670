"""Functions to read, write and copy lists of a user's variables: torch tensors or Keras
variables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tandem.backends import running
from tandem.errors import SettingError
from tandem.types import Array, Tree, Variable

# compiled TensorFlow copy functions by the variables that they hold
_copies: dict[tuple[int, ...], Callable[..., object]] = {}
_functions: dict[str, Callable[..., list[Array]]] = {}  # compiled by JAX


def assign_param(target: Tree, source: Tree, tau: float = 1.0) -> None:
    """Update target <- tau source + (1 - tau) target for each variable in (nested) lists of torch
    tensors or Keras variables: a copy by default, Polyak averaging with tau below 1. The source may
    be NumPy arrays, such as those from `restore_param`. Integer variables (dropout seeds) are not
    changed.

    Raises SettingError if the lists do not match.
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
    """Return copies of the variables' values as NumPy arrays."""
    return [np.array(host(v), copy=True) for v in variables]


def write(variables: Iterable[Variable], values: Iterable[Array]) -> None:
    """Set the variables to these values."""
    torch = sys.modules.get("torch")
    for v, x in zip(variables, values, strict=True):
        if torch is not None and isinstance(v, torch.Tensor):
            with torch.no_grad():
                v.copy_(torch.as_tensor(x, device=v.device))
        else:
            v.assign(x)


def flat(variables: Tree) -> list[Variable]:
    """Return the variables in nested lists and generators, in order."""
    if isinstance(variables, (list, tuple, Iterator)):
        return [x for part in variables for x in flat(part)]
    return [variables]


def host(v: Variable) -> Array:
    """Return the variable's value as a NumPy array, which may share its memory."""
    x: Array = getattr(v, "_value", v)  # of a Keras variable; a distributed one has no single array
    if hasattr(x, "detach"):
        return x.detach().cpu().numpy()
    return x.numpy() if hasattr(x, "numpy") else np.asarray(x)


def _tensorflow(pairs: list[tuple[Variable, Variable]], tau: float) -> None:
    import tensorflow as tf  # the framework of these variables

    key = tuple(id(v) for pair in pairs for v in pair)
    if key not in _copies:

        def mixed(share: Array | None) -> None:
            for t, s in pairs:
                t.assign(s + 0.0 if share is None else t + share * (s - t))

        _copies[key] = tf.function(mixed, autograph=False)
    _copies[key](None if tau == 1.0 else tf.constant(tau, tf.float32))


def _jax(pairs: list[tuple[Variable, Variable]], tau: float) -> None:
    import jax  # the framework of these variables

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
        else:  # the core of `assign`, without checks that are unnecessary here
            t._direct_assign(x)
