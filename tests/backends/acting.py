"""Compiled actions on JAX, and arrays that updates reuse. Run by test_acting.py."""

import json
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
from keras import layers, ops

from tandem.backends.keras_jax import compiled_function, many, own

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)).astype(np.float32)


def network(*inner: Any, inputs: int = 4, outputs: int = 2) -> Any:
    net = keras.Sequential([keras.Input((inputs,)), *inner, layers.Dense(outputs)])
    for v in net.trainable_variables:
        v.assign(RNG.normal(size=v.shape).astype(np.float32))
    return net


def compare(function: Callable[..., Any], variables: list[Any], *xs: Any) -> None:
    action = compiled_function(function, variables)
    for _ in range(2):
        found, wanted = action(*xs), jax.tree.map(np.asarray, function(*xs))
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert isinstance(a, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def check_what_is_done_to_outputs_is_done() -> None:
    a, b = (network(layers.Dense(8, "relu")) for _ in range(2))
    each = [*a.variables, *b.variables]
    functions: list[Callable[[Any], Any]] = [
        lambda s: ops.argmax(a(s), -1),
        lambda s: a(s) + b(s) - 0.5,
        lambda s: (a(s), ops.softmax(b(s))),
        lambda s: {"mean": ops.tanh(a(s)) * 2.0, "std": ops.exp(ops.clip(b(s), -2.0, 1.0))},
        lambda s: a(s[:, ::-1]),
        lambda s: ops.concatenate([a(s), b(s)], -1)[:, 1:],
        lambda s: ops.where(s[:, :2] > 0, a(s), b(s)),
        lambda s: s,
        lambda s: a.weights[1],
        lambda s: ops.transpose(s),
        lambda s: ops.cast(s > 0, "int32"),
        lambda s: np.ones((len(s), 2), np.float32),
    ]
    for function in functions:
        compare(lambda s, f=function: jax.tree.map(ops.convert_to_tensor, f(s)), each, X)
    compare(lambda s: a(s["x"]) + s["y"], each, {"x": X, "y": X[:, :2]})


def check_effects_happen_at_each_call() -> None:
    called: list[str] = []

    def effect(s: Any) -> Any:
        jax.debug.callback(lambda: called.append("here"))
        return s + 1.0

    action = compiled_function(effect, [])
    action(X), action(X)
    jax.effects_barrier()
    assert called == ["here"] * 2


def check_networks_alike_are_not_confused() -> None:
    a, b = (network(layers.Dense(8, "relu")) for _ in range(2))
    actions = [compiled_function(lambda s, n=n: n(s), [*a.variables, *b.variables]) for n in (a, b)]
    for action, net in zip(actions, (a, b), strict=True):
        np.testing.assert_allclose(action(X), np.asarray(net(X)), rtol=1e-5, atol=1e-6)
    assert np.abs(actions[0](X) - actions[1](X)).max() > 0.1


def check_new_values_are_seen_at_once_and_outputs_are_the_callers_own() -> None:
    net = network(layers.Dense(8, "relu"))
    action = compiled_function(lambda s: net(s), net.variables)
    for change in (
        lambda: net.weights[0].assign(net.weights[0].value + 1.0),
        lambda: net.set_weights([2 * w for w in net.get_weights()]),
        lambda: net.weights[3].assign_sub(np.ones(2, np.float32)),
    ):
        before = action(X)
        change()
        after = action(X)
        np.testing.assert_allclose(after, np.asarray(net(X)), rtol=1e-5, atol=1e-5)
        assert np.abs(after - before).max() > 1e-3
    v, x = keras.Variable(np.ones((3, 2), np.float32)), np.ones((3, 2), np.float32)
    for function in (lambda s: v.value, lambda s: s, lambda s: s.T, lambda s: v.value.T):
        action = compiled_function(function, [v])
        action(x)[:] = 7.0  # the caller's own
        assert (action(x) == 1.0).all() and (x == 1.0).all()


def updated(variables: list[Any], shared: bool) -> Callable[[int], Any]:
    """A function that makes so many updates of the first variable, adding 1 each."""

    def guarded(b: Any, active: Any) -> Any:
        variables[0].assign(variables[0].value + b.reward)
        return variables[1].value[0], ops.where(active, 0, -1), active

    from tandem.types import Batch

    run = many(guarded, lambda keep: None, variables, True, shared)
    data = Batch(np.zeros((4, 1)), (), np.ones((4, 3), np.float32))
    return lambda k: run(data, {"n": np.zeros(k)}, np.arange(k), np.ones(k, np.bool_))


def check_arrays_that_others_hold_stay() -> None:
    a, b = (keras.Variable(np.full(3, x, np.float32)) for x in (1.0, 5.0))
    update = updated([a, b], shared=True)
    update(1)
    place, other = a.value.unsafe_buffer_pointer(), b.value
    update(2)
    assert a.numpy().tolist() == [4.0] * 3
    # in its old memory, and what does not move is not touched
    assert a.value.unsafe_buffer_pointer() == place and b.value is other
    held, view, asked = a.value, np.asarray(a.value), a.numpy()
    update(1)
    assert a.numpy().tolist() == [5.0] * 3
    assert [np.asarray(x).tolist() for x in (held, view, asked)] == [[4.0] * 3] * 3
    given = np.full(3, 9.0, np.float32)
    a.assign(given)
    update(1)
    assert given.tolist() == [9.0] * 3 and a.numpy().tolist() == [10.0] * 3
    b.assign(a.value)  # the same array
    update(1)
    assert (a.numpy().tolist(), b.numpy().tolist()) == ([11.0] * 3, [10.0] * 3)
    assert own([keras.Variable(np.ones(2)).value])[0].tolist() == [1.0, 1.0]


def check_a_view_of_weights_does_not_keep_updates_from_their_memory() -> None:
    a, b = (keras.Variable(np.full(3, x, np.float32)) for x in (1.0, 5.0))
    update, action = updated([a, b], shared=True), compiled_function(lambda s: s + a.value, [a, b])
    update(1)
    for k in range(3):
        place = a.value.unsafe_buffer_pointer()
        assert action(np.zeros(3, np.float32)).tolist() == [2.0 + k] * 3
        update(1)
        assert a.value.unsafe_buffer_pointer() == place


def main() -> None:
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print(json.dumps(name), flush=True)


if __name__ == "__main__":
    main()
