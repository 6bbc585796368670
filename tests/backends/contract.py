"""What every backend promises. As a script: FRAMEWORK [compile] [graphs] [few]."""

import json
import sys
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem import ops
from tandem.backends.backend import RECORDER
from tandem.backends.broadcast_check import square_arrays
from tandem.errors import NetworkError, SettingError
from tandem.networks.plan import Twin
from tandem.settings import Schedule
from tandem.spaces import Leaf
from tandem.testing import fakes
from tandem.types import Batch, Update, tree_map

FRAMEWORK, COMPILE = sys.argv[1], bool({"compile", "graphs"} & {*sys.argv[2:]})
SMALL: dict[str, Any] = {"hidden": (8,), "learning_rate": Schedule(3e-2)}
ROWS = 16


def build(name: str, action: Any, network: Any = None, **settings: Any) -> tuple[Any, Any]:
    settings = {"network": network, "compile": COMPILE, **SMALL, **settings}
    algorithm, backend = fakes.build(name, FRAMEWORK, action, **settings)
    if COMPILE:
        backend.compiling = "as before"  # with dropout, say, it is not compiled
    return algorithm, backend


def batches(algorithm: Any, action: Any, updates: int, seed: int = 0, **settings: Any) -> Batch:
    made = fakes.batches(algorithm, fakes.VECTOR, action, updates, ROWS, seed)
    return made._replace(
        settings=made.settings | {n: np.full(updates, x, np.float32) for n, x in settings.items()}
    )


def begun(name: str, action: Any, updates: int, network: Any = None, **settings: Any) -> Any:
    """(algorithm, backend, the compiled update, the first state, data of the updates)."""
    algorithm, backend = build(name, action, network, **settings)
    run, first = backend.compile(algorithm.update), backend.state()
    return algorithm, backend, run, first, batches(algorithm, action, updates)


def poisoned(x: np.ndarray, k: int, value: float = np.nan) -> np.ndarray:
    return np.where(np.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1)) == k, np.float32(value), x)


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    """Two states, bit for bit."""
    assert sorted(a) == sorted(b)
    differ = [n for n in a if not np.array_equal(a[n], b[n])]
    assert not differ, f"{differ} differ"


def at(batch: Batch, k: Any) -> Batch:
    """An update, or several, of a call."""
    return tree_map(lambda x: x[k : k + 1] if isinstance(k, int) else x[k], batch)


def rows_of(batch: Batch) -> Batch:
    """All its rows, one behind the other, for a call with indices."""
    flat = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), batch._replace(settings={}))
    return flat._replace(settings=batch.settings)


def moved(a: dict[str, Any], b: dict[str, Any], part: str) -> bool:
    names = [n for n in a if n.startswith(part)]
    assert names, (part, list(a))
    return any(not np.array_equal(a[n], b[n]) for n in names)


# --- users' networks ------------------------------------------------------------------------------


def layers(*wanted: Any) -> Any:
    """A user's chain in the framework's own words; numbers are Dense layers."""
    kinds: dict[str, Any]
    if FRAMEWORK == "torch":
        from torch import nn

        made, width = [], 4
        kinds = {"norm": lambda: nn.BatchNorm1d(width), "layer": lambda: nn.LayerNorm(width)}
        kinds |= {"drop": lambda: nn.Dropout(0.4), "relu": nn.ReLU, "tanh": nn.Tanh}
        kinds |= {"own": type("Own", (nn.Identity,), {}), "flat": lambda: nn.Unflatten(1, (4, 1))}
        for x in wanted:
            made.append(nn.Linear(width, x) if isinstance(x, int) else kinds[x]())
            width = x if isinstance(x, int) else width
        return nn.Sequential(*made)
    import keras
    from keras.layers import Activation, BatchNormalization, Dense, Dropout, LayerNormalization

    kinds = {"norm": BatchNormalization, "layer": lambda: LayerNormalization(epsilon=1e-5)}
    kinds |= {"drop": lambda: Dropout(0.4), "relu": keras.layers.ReLU}
    kinds |= {"tanh": lambda: Activation("tanh"), "own": type("Own", (keras.layers.Identity,), {})}
    kinds |= {"flat": lambda: keras.layers.Reshape((4, 1))}
    return keras.Sequential([Dense(x) if isinstance(x, int) else kinds[x]() for x in wanted])


def chained(*parts: Any, width: int = 4) -> Any:
    if FRAMEWORK == "torch":
        from torch import nn

        return nn.Sequential(*parts)
    import keras

    return keras.Sequential([keras.Input((width,)), *parts])


def dense(inputs: int, units: int) -> Any:
    if FRAMEWORK == "torch":
        from torch import nn

        return nn.Linear(inputs, units)
    import keras

    return keras.layers.Dense(units)


def stateful_forward(space: Any) -> Any:
    return layers(8, "norm", "relu", "drop")


def planned(space: Any) -> Any:
    return layers(8, "layer", "relu")


def unknown(space: Any) -> Any:
    return layers(8, "norm", "relu", "drop", "own")


# --- updates that take no effect ------------------------------------------------------------------


def check_a_stop_leaves_the_weights_of_the_updates_before() -> None:
    # with statistics and generators, which a forward pass moves
    _, backend, run, first, data = begun("ppo", fakes.DISCRETE, 6, stateful_forward, max_kl=0.5)
    far = data._replace(extra=data.extra | {"log_prob": poisoned(data.extra["log_prob"], 3, -4)})
    out = run(far)
    assert (out.applied, out.stopped, out.fault) == (3, True, ""), out
    kl = out.metrics["kl"]
    assert kl.shape == (4,) and kl[3] > 0.5 > kl[:3].max()
    stopped = backend.state()
    assert moved(first, stopped, "network/actor")
    backend.load_state(first)
    other = far._replace(extra=far.extra | {"return": poisoned(far.extra["return"], 4, 1e3)})
    run(other)
    same(stopped, backend.state())  # what comes after a stop has no part
    backend.load_state(first)
    assert run(fakes.first(data, 3)).applied == 3
    same(stopped, backend.state())  # nor has the update that asked for it
    assert run(fakes.first(data, 3)).applied == 3  # and the next call continues


def check_nan_is_named_and_leaves_weights_statistics_generators_and_noise_alone() -> None:
    poison: dict[str, Any] = {
        "dqn": lambda b: b._replace(reward=poisoned(b.reward, 2)),
        # only the actor's loss sees it
        "sac": lambda b: b._replace(noise=(b.noise[0], poisoned(b.noise[1], 2))),
    }
    if FRAMEWORK == "torch":
        poison["ppo"] = lambda b: b._replace(
            extra=b.extra | {"advantage": poisoned(b.extra["advantage"], 2)}
        )
    faults = {"dqn": "q", "ppo": "ppo", "sac": "actor"}
    for name, spoil in poison.items():
        action = fakes.BOX if name == "sac" else fakes.DISCRETE
        given = {"network": stateful_forward, "noisy": "independent"} if name == "dqn" else {}
        _, backend, run, first, data = begun(name, action, 4, **given)
        out = run(spoil(data))
        assert (out.applied, out.stopped, out.fault) == (2, False, faults[name]), (name, out)
        assert all(np.isfinite(x).all() and len(x) == 2 for x in out.metrics.values()), out
        after = backend.state()
        backend.load_state(first)
        assert run(fakes.first(data, 2)).fault == ""
        same(after, backend.state())
        out = run(at(spoil(data), slice(2, 4)))  # a call whose first update is refused
        assert (out.applied, out.fault) == (0, faults[name])
        same(after, backend.state())


def check_nan_that_a_bound_may_hide_is_named() -> None:
    _, _, run, _, data = begun("dqn", fakes.DISCRETE, 3, values="categorical", atoms=5)
    reward = data.reward.copy()
    reward[1, 2] = np.nan
    out = run(data._replace(reward=reward))
    assert (out.applied, out.fault) == (1, "q"), out


def check_updates_whose_rows_weigh_nothing_change_nothing() -> None:
    kinds: dict[str, dict[str, Any]] = {"ppo": {}, "trpo": {}, "pqn": {}, "impala": {"rollout": 7}}
    kinds["dqn"] = {"recurrent": 8, "sequence": 4, "prioritized": True}
    for name, settings in kinds.items() if FRAMEWORK == "torch" else [("ppo", {})]:
        _, backend, run, first, data = begun(name, fakes.DISCRETE, 3, **settings)
        if isinstance(data.weight, tuple):
            data = data._replace(weight=np.ones(data.reward.shape, np.float32))
        weight, others = data.weight.copy(), np.array([0, 2])
        weight[1] = 0.0
        out = run(data._replace(weight=weight))
        after = backend.state()
        assert (out.applied, out.stopped, out.fault) == (2, False, ""), (name, out)
        if name == "dqn":
            assert not out.priority[1].any() and (out.priority[others] > 0).all()
        backend.load_state(first)
        alone = run(at(data, others))
        same(after, backend.state())
        same(out.metrics, alone.metrics)
        if name in ("ppo", "pqn"):
            flat = rows_of(data._replace(weight=weight))
            backend.load_state(first)
            assert run(flat, np.arange(3 * ROWS, dtype=np.int32).reshape(3, ROWS)).applied == 2
            same(after, backend.state())
        assert run(data._replace(weight=0.0 * weight)) == ({}, (), 0, False, "")
        same(after, backend.state())


def check_optimizers_of_users_let_no_number_decay() -> None:
    """A number such as the logarithm of a temperature is no weight: decay would pull it to 0."""
    if FRAMEWORK in ("torch", "keras-torch"):
        import torch

        own: Any = [torch.optim.AdamW([torch.zeros(1)], lr=0.1, weight_decay=5.0)]
        own.append(torch.optim.SGD([torch.zeros(1)], lr=0.1, weight_decay=5.0))
    else:
        import keras

        own = [keras.optimizers.AdamW(0.1, weight_decay=5.0)]
        own.append(keras.optimizers.Muon(0.1, weight_decay=5.0, adam_weight_decay=5.0))
    algorithm, backend = build("dqn", fakes.DISCRETE)
    pairs = []
    for i, given in enumerate(own):
        backend.given_optimizer = given
        number = backend.scalar(f"number{i}", 2.0)
        pairs.append((number, backend.optimizer(f"number{i}", [number])))

    def update(b: Batch) -> Update:
        for number, optimizer in pairs:
            loss = lambda b, number=number: (0.0 * number() * b.reward, {})  # noqa: E731
            value = backend.minimize(optimizer, loss, b, b.settings["learning_rate"])[0]
        return Update({"loss": value})

    assert backend.compile(update)(batches(algorithm, fakes.DISCRETE, 2)).applied == 2
    assert [number.read()["value"] for number, _ in pairs] == [2.0, 2.0]


# --- one call -------------------------------------------------------------------------------------


def check_few_lengths_are_compiled_and_a_padded_call_is_the_same_call() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE)
    traced = 0

    def update(b: Batch) -> Update:
        nonlocal traced
        traced += 1
        return algorithm.update(b)

    run, data = backend.compile(update), batches(algorithm, fakes.DISCRETE, 16, tau=0.1)
    found = {}
    for updates in (3, 5, 7, 6, 2, 8, 5, 13, 9, 16, 3):
        out = run(fakes.first(data, updates))
        assert out.applied == updates == len(out.metrics["loss"])
        found[updates] = traced
    # TensorFlow traces once more, for the shapes that come out
    per_length = {"jax": 1, "tensorflow": 2}.get(FRAMEWORK)
    assert per_length is None or traced <= 4 * per_length, found
    first = backend.state()
    run(fakes.first(data, 7))  # filled up to 8
    after = backend.state()
    backend.load_state(first)
    for part in (slice(0, 4), slice(4, 7)):
        run(at(data, part))
    same(after, backend.state())


def check_rows_by_index_are_the_rows_themselves_and_noise_travels_beside() -> None:
    algorithm, backend, run, first, data = begun("ppo", fakes.DISCRETE, 4, noisy="independent")
    flat = rows_of(data)
    order = np.random.default_rng(0).permutation(4 * ROWS).reshape(4, ROWS).astype(np.int32)
    out = run(flat, order)
    after = backend.state()
    backend.load_state(first)
    chosen = tree_map(lambda x: x[order], flat._replace(settings={}))
    again = run(chosen._replace(settings=data.settings))
    same(after, backend.state())
    same(out.metrics, again.metrics)
    kept = {n: x for n, x in data.settings.items() if not n.startswith("noise/")}
    before = algorithm.actor.read_noise()
    run(flat._replace(settings=kept), order)
    same(before, algorithm.actor.read_noise())  # where none travels, it stays
    assert moved(after, backend.state(), "network/actor")


def check_a_loss_of_the_wrong_shape_is_refused() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE)
    data = batches(algorithm, fakes.DISCRETE, 1)
    losses = {
        "[B, A]": lambda b: (algorithm.q(b.obs), {}),
        "[A]": lambda b: (algorithm.q(b.obs)[0], {}),
    }
    for name, loss in losses.items():

        def update(b, f=loss):
            value = backend.minimize(algorithm.optimizer, f, b, b.settings["learning_rate"])[0]
            return Update({"x": value})

        with pytest.raises(Exception, match="one number each"):
            backend.compile(update)(data)
            raise AssertionError(name)


# --- updates of which a part is left out ----------------------------------------------------------


def check_what_is_not_due_is_left_out() -> None:
    algorithm, backend, run, first, _ = begun("td3", fakes.BOX, 4)
    data = batches(algorithm, fakes.BOX, 4, tau=0.5)  # its policy is due in every second update
    out = run(data)
    assert np.isnan(out.metrics["actor_loss"]).tolist() == [True, False, True, False]
    assert np.isfinite(out.metrics["critic_loss"]).all()
    together = backend.state()
    backend.load_state(first)
    parts = ["network/actor/", "network/actor_target", "network/q1_target", "optimizer/actor"]
    parts += ["network/q1/", "optimizer/critic"]
    for k in range(4):
        before = backend.state()
        run(at(data, k))
        found = [moved(before, backend.state(), p) for p in parts]
        assert found == [k % 2 == 1] * 4 + [True] * 2, (k, found)
    for n, x in backend.state().items():
        np.testing.assert_allclose(x, together[n], rtol=1e-5, atol=1e-7, err_msg=n)


def check_a_fault_in_what_is_due_is_named() -> None:
    algorithm, backend = build("td3", fakes.BOX)

    def infinite(b):
        return algorithm.actor_loss(b)[0] + b.settings["policy"] * np.float32(np.inf), {}

    def update(b: Batch) -> Update:
        step = lambda: backend.minimize(  # noqa: E731
            algorithm.actor_optimizer, infinite, b, b.settings["tau"]
        )
        return Update(backend.cond(b.settings["policy"], lambda: {"x": step()[0]}, ("x",)))

    run, data, before = backend.compile(update), batches(algorithm, fakes.BOX, 4), backend.state()
    out = run(data)
    assert (out.applied, out.fault) == (1, "actor"), out
    same(before, backend.state())


# --- targets, optimizers --------------------------------------------------------------------------


def check_a_seldom_target_moves_by_tau_with_kept_updates_alone() -> None:
    """In one call as one by one; never with an update that is refused, nor with those after."""
    image = Leaf("box", (8, 8, 2), "uint8")
    noisy: dict[str, Any] = {"noisy": "independent", "prioritized": True}
    for jit, network, seen, more in (
        (True, stateful_forward, fakes.VECTOR, {}),
        (False, None, fakes.VECTOR, noisy),
        # on a processor JAX and TensorFlow make updates of convolutions one by one
        (True, None, image, {"optimizer": "sgd", "prioritized": True}),
    ):
        algorithm, backend = build("dqn", fakes.DISCRETE, network, observation=seen, **more)
        run = backend.compile(algorithm.update, jit)
        first = backend.state()
        data = fakes.batches(algorithm, seen, fakes.DISCRETE, 5, ROWS)
        data = data._replace(settings=data.settings | {"tau": np.float32([1, 0.25, 0, 1, 1])})
        spoilt = data._replace(reward=poisoned(data.reward, 3))
        out = run(spoilt)
        assert (out.applied, out.fault, len(out.metrics["loss"])) == (3, "q", 3)
        assert not more or out.priority.shape == (3, ROWS)
        after = backend.state()
        backend.load_state(first)
        for k in range(3):
            was = algorithm.target.mean()
            run(at(data, k))
            now, net = algorithm.target.mean(), algorithm.q.mean()
            if k == 2:
                same(was, now)
                continue
            tau = (1.0, 0.25)[k]
            floats = [n for n, w in was.items() if w.dtype.kind == "f"]
            mix = {n: (1 - tau) * was[n] + tau * net[n] for n in floats}
            mixed = [n for n in floats if np.allclose(now[n], mix[n], rtol=1e-5, atol=1e-7)]
            copied = sorted({*floats} - {*mixed})
            assert len(copied) == (2 if network and k else 0) and mixed, copied
            same({n: net[n] for n in copied}, {n: now[n] for n in copied})
        for n, x in backend.state().items():
            np.testing.assert_allclose(x, after[n], rtol=1e-5, atol=1e-6, err_msg=n)
        before = backend.state()
        assert run(at(spoilt, 3)).applied == 0
        same(before, backend.state())


def check_optimizers_are_the_papers() -> None:
    """Adam: Kingma & Ba 2015, algorithm 1, with gradients clipped by their norm; with decay:
    Loshchilov & Hutter 2019, algorithm 2; RAdam: Liu et al. 2020, algorithm 2, steps of momentum
    until rho is above 5, then rectified ones; RMSprop: Mnih et al. 2016, supplement, its mean
    square begins at 1. An epsilon shows where it is added."""
    _, backend = build("dqn", fakes.DISCRETE)
    kinds: dict[str, dict[str, float]] = {"adam": {}, "adam decay": {"weight_decay": 0.2}}
    kinds |= {"radam": {}, "rmsprop": {"decay": 0.8}}
    numbers = {n: backend.scalar(f"number {i}", 0.5) for i, n in enumerate(kinds)}
    optimizers = {
        n: backend.optimizer(n, [numbers[n]], n.split()[0], epsilon=0.1, **more)
        for n, more in kinds.items()
    }

    def update(b: Batch) -> Update:
        found = {}
        for name, number in numbers.items():
            loss = lambda b, number=number: ((number() - b.reward) ** 2, {})  # noqa: E731
            clip = b.settings["clip"] if "adam" in name[:4] else None
            rate = b.settings["rate"]
            found[name] = backend.minimize(optimizers[name], loss, b, rate, clip)[0]
        return Update(found)

    reward = np.random.default_rng(0).normal(3, 1, (12, 5)).astype(np.float32)
    rate, clip = np.linspace(0.01, 0.3, 12, dtype=np.float32), np.full(12, 9, np.float32)
    clip[3], settings = 0.5, {"rate": rate, "clip": clip}
    out = backend.compile(update)(Batch(reward, reward, reward, settings=settings))
    limit, adapted = 2 / 0.001 - 1, 0
    for name, number in numbers.items():
        x, m, v, losses = 0.5, 0.0, 1.0 if name == "rmsprop" else 0.0, []
        for i in range(12):
            losses.append(np.mean((x - reward[i]) ** 2))
            t, g = i + 1, np.mean(2 * (x - reward[i]))
            if name == "rmsprop":
                v = 0.8 * v + 0.2 * g * g
                x -= rate[i] * g / np.sqrt(v + 0.1)
                continue
            g *= min(1, clip[i] / abs(g)) if name != "radam" else 1
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            step, rho = m / (1 - 0.9**t), limit - 2 * t * 0.999**t / (1 - 0.999**t)
            if name == "radam" and rho > 5:
                r = np.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
                step, adapted = r * step / (np.sqrt(v / (1 - 0.999**t)) + 0.1), adapted + 1
            elif name != "radam":
                step /= np.sqrt(v / (1 - 0.999**t)) + 0.1
            x -= rate[i] * (step + (0.2 * x if name == "adam decay" else 0))
        np.testing.assert_allclose(out.metrics[name], losses, rtol=1e-4, err_msg=name)
        np.testing.assert_allclose(number.read()["value"], x, rtol=1e-4, err_msg=name)
    assert 6 <= adapted <= 8


def check_a_step_along_a_kept_gradient_is_the_one_that_was_not_made() -> None:
    source = fakes.sources("dqn", fakes.DISCRETE, **SMALL)["q"]
    kinds = ("adam", "radam", "rmsprop", "sgd")
    _, backend = build("dqn", fakes.DISCRETE)
    direct, owned, away = (
        [backend.network(f"{name} {k}", source) for k in kinds]
        for name in ("direct", "owned", "away")
    )
    at_direct, at_owned = (
        [backend.optimizer(net.name, [net], k) for net, k in zip(nets, kinds, strict=True)]
        for nets in (direct, owned)
    )
    backend.given_optimizer = RECORDER
    keeping = [backend.optimizer(net.name, [net], k) for net, k in zip(away, kinds, strict=True)]

    def minimizing(networks: Any, optimizers: Any) -> Any:
        def update(b: Batch) -> Update:
            found, rate, clip = {}, b.settings["rate"], b.settings["clip"]
            for network, optimizer, kind in zip(networks, optimizers, kinds, strict=True):

                def loss(b: Batch, network: Any = network) -> Any:
                    out = network(b.obs)
                    return ops.of(out).sum((out - b.reward[:, None]) ** 2, -1), {}

                found[kind] = backend.minimize(optimizer, loss, b, rate, clip)[0]
            return Update(found)

        return backend.compile(update)

    def step(b: Batch) -> Update:
        for i, optimizer in enumerate(at_owned):  # TensorFlow's tensors cannot be iterated over
            gradient = optimizer.from_vector(b.extra["gradients"][i])
            backend.apply(optimizer, gradient, b.settings["rate"])
        return Update({})

    at_once, apart = minimizing(direct, at_direct), minimizing(away, keeping)
    follow = backend.compile(step)
    rng, first = np.random.default_rng(0), away[0].read()
    for k, clip in enumerate((9.0, 0.1, 9.0)):
        settings = {"rate": np.float32([0.01 * (k + 1)]), "clip": np.float32([clip])}
        obs = rng.normal(size=(1, 5, 4)).astype(np.float32)
        batch = Batch(obs, (), np.float32([[1, 2, 3, 4, 5]]), settings=settings)
        for one, other in zip(away, owned, strict=True):
            one.write(other.read())
        same(at_once(batch).metrics, apart(batch).metrics)
        for one, other in zip(away, owned, strict=True):
            same(one.read(), other.read())
        gradients = np.stack([each.recorded for each in keeping])
        assert gradients.shape == (4, at_owned[0].size)
        assert clip > 1 or (abs(np.linalg.norm(gradients, axis=1) - clip) < 1e-4).all()
        extra = {"gradients": gradients[None]}
        assert follow(Batch((), (), extra=extra, settings=settings)).applied == 1
        for one, other in zip(direct, owned, strict=True):
            for n, x in one.read().items():  # one compiled call, or two: the last bit may differ
                np.testing.assert_allclose(other.read()[n], x, rtol=1e-5, atol=1e-7)
    assert all(not np.array_equal(first[n], x) for net in owned for n, x in net.read().items())


# --- state ----------------------------------------------------------------------------------------


def check_state_brings_everything_back() -> None:
    algorithm, backend, run, fresh, data = begun("dqn", fakes.DISCRETE, 3, stateful_forward)
    later = batches(algorithm, fakes.DISCRETE, 3, seed=1)
    run(data)
    saved = backend.state()
    kept = {n: x.copy() for n, x in saved.items()}
    out, after = run(later), backend.state()
    same(kept, saved)  # a state is a copy
    assert moved(saved, after, "network/q/") and moved(saved, after, "optimizer/q")
    backend.load_state(saved)
    same(saved, backend.state())
    again = run(later)
    same(out.metrics, again.metrics)
    same(after, backend.state())
    same(kept, saved)
    other, elsewhere = build("dqn", fakes.DISCRETE, stateful_forward, seed=7)
    elsewhere.load_state(saved)
    same(out.metrics, elsewhere.compile(other.update)(later).metrics)
    same(after, elsewhere.state())
    backend.load_state(fresh)  # from before the first update
    same(fresh, backend.state())


def check_training_mode_is_for_learning_alone() -> None:
    for body in (stateful_forward, unknown) if FRAMEWORK == "torch" else (unknown,):
        algorithm, backend = build("dqn", fakes.DISCRETE, body)
        run = backend.compile(algorithm.update)
        assert algorithm.q.plan is None
        data = batches(algorithm, fakes.DISCRETE, 3, tau=0.0, learning_rate=0.0)
        before, target = algorithm.q.read(), algorithm.target.read()
        out = run(data)
        assert len(set(out.metrics["loss"])) == 3
        changed = [n for n, w in algorithm.q.read().items() if not np.array_equal(w, before[n])]
        floats = [n for n in changed if before[n].shape == (8,)]
        assert len(floats) == 2, changed  # mean and variance; the rest are counters
        same({n: target[n] for n in floats}, {n: algorithm.target.read()[n] for n in floats})
        state, obs = backend.state(), data.obs[0]
        values = algorithm.q.predict(obs)
        np.testing.assert_array_equal(values, algorithm.q.predict(obs))  # no dropout
        # no statistics of the batch
        np.testing.assert_allclose(algorithm.q.predict(obs[:1]), values[:1], rtol=1e-5, atol=1e-6)
        same(state, backend.state())
        run(batches(algorithm, fakes.DISCRETE, 1, tau=0.5))
        for n in floats:  # copied, not mixed
            np.testing.assert_allclose(algorithm.target.read()[n], algorithm.q.read()[n], rtol=1e-6)


def check_rows_do_not_hang_on_how_many_there_are() -> None:
    algorithm, _ = build("dqn", fakes.DISCRETE, lambda space: layers(8, "relu"))
    obs = np.random.default_rng(0).standard_normal((40, *fakes.VECTOR.shape)).astype(np.float32)
    whole = algorithm.q.predict(obs)
    for rows in (3, 8, 1, 5, 13, 40, 33):
        found = algorithm.q.predict(obs[:rows])
        assert found.shape == (rows, *whole.shape[1:])
        np.testing.assert_allclose(found, whole[:rows], rtol=1e-5, atol=1e-6)


def check_dropout_drops_while_learning() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE, lambda space: layers(8, "relu", "drop"))
    run = backend.compile(algorithm.update)
    data = batches(algorithm, fakes.DISCRETE, 1, learning_rate=0.0, tau=0.0)
    assert run(data).metrics["loss"] != run(data).metrics["loss"]


# --- users' losses --------------------------------------------------------------------------------


def check_arrays_that_have_the_batch_twice_are_found() -> None:
    algorithm, _ = build("dqn", fakes.DISCRETE)
    rows, made = 13, fakes.batches(algorithm, fakes.VECTOR, fakes.DISCRETE, 1, 13)
    batch = tree_map(lambda x: x[0], made._replace(settings={}))

    def error(b: Batch) -> Any:
        return b.reward - algorithm.q(b.obs)[:, :1]  # (B,) with (B, 1)

    def nonsense(b: Batch) -> Any:
        wrong = error(b)
        return (wrong * wrong).mean() if FRAMEWORK == "torch" else ops.of(wrong).mean(wrong * wrong)

    def sound(b: Batch) -> Any:
        td = b.reward - algorithm.q(b.obs)[:, 0]
        return ops.of(td).mean(td * td)

    assert square_arrays(FRAMEWORK, sound, batch, rows) == []
    found = square_arrays(FRAMEWORK, nonsense, batch, rows)
    assert "# (B,) with (B, 1)" in found[0] and "contract.py, line " in found[0], found
    assert len(found) == 2 and "wrong * wrong" in found[1], found
    assert square_arrays(FRAMEWORK, nonsense, tree_map(lambda x: x[:7], batch), 8) == []


# --- users' networks: taken or refused ------------------------------------------------------------


def check_bodies_get_heads() -> None:
    algorithm, _ = build("ppo", fakes.BOX, lambda space: layers(8, "layer", "tanh"))
    kinds = ["Dense", "LayerNorm", "Activation", "Dense", "Scale"]
    assert [type(layer).__name__ for layer in algorithm.actor.plan] == kinds
    obs, rng = batches(algorithm, fakes.BOX, 1).obs[0], np.random.default_rng(0)
    for network in (algorithm.actor, algorithm.critic):
        network.write({n: x + rng.random(x.shape, np.float32) for n, x in network.read().items()})
        twin = Twin(network.plan, network.read())
        np.testing.assert_allclose(twin(obs), network.predict(obs), rtol=1e-4, atol=1e-5)
    bodies = lambda space: (layers(6, "tanh"), layers(9, "relu", 5, "tanh"))  # noqa: E731
    algorithm, _ = build("ppo", fakes.DISCRETE, bodies)
    assert [layer.units for layer in algorithm.critic.plan if hasattr(layer, "units")] == [9, 5, 1]
    assert [layer.units for layer in algorithm.actor.plan if hasattr(layer, "units")] == [6, 2]
    algorithm, backend = build("sac", fakes.BOX, lambda space: layers(8, "relu"))
    a, b = (q.read() for q in algorithm.qs)
    assert all(not np.array_equal(a[n], b[n]) for n in a if a[n].any()), "twin critics start as one"
    assert backend.compile(algorithm.update)(batches(algorithm, fakes.BOX, 2)).applied == 2


def called(network: Any, x: np.ndarray) -> np.ndarray:
    if FRAMEWORK == "torch":
        import torch

        x = torch.as_tensor(x)
    out = network(x)
    return np.asarray(out.detach() if hasattr(out, "detach") else out)


def check_whole_networks_are_taken() -> None:
    networks, x = {"q": layers(8, "relu", 2)}, np.linspace(-1, 1, 12, dtype=np.float32)
    first = called(networks["q"], x := x.reshape(3, 4))
    algorithm, backend = build("dqn", fakes.DISCRETE, networks)
    data = batches(algorithm, fakes.DISCRETE, 3, tau=0.0)
    assert backend.compile(algorithm.update)(data).applied == 3
    q, target = algorithm.q.read(), algorithm.target.read()
    assert algorithm.q.plan is not None and not np.array_equal(q["0/kernel"], target["0/kernel"])
    # a copy of it learns, so that another run with it begins as this one did
    np.testing.assert_array_equal(called(networks["q"], x), first)
    assert not np.allclose(algorithm.q.predict(x), first)
    if FRAMEWORK == "torch":  # a module that is one layer, and no chain
        single, backend = build("dqn", fakes.DISCRETE, {"q": dense(4, 2)})
        assert backend.compile(single.update)(batches(single, fakes.DISCRETE, 1)).applied == 1
        twin = Twin(single.q.plan, single.q.read())
        np.testing.assert_allclose(twin(x), single.q.predict(x), rtol=1e-5)
    made, _ = build("dqn", fakes.DISCRETE, {"q": lambda space: layers(8, "own", 2)})
    assert made.q.plan is None and made.q.predict(np.zeros((3, 4), np.float32)).shape == (3, 2)


def check_whole_networks_share_what_was_shared() -> None:
    trunk = layers(8)
    whole = {"actor": chained(trunk, dense(8, 2)), "critic": chained(trunk, dense(8, 1))}
    algorithm, _, run, _, data = begun("ppo", fakes.DISCRETE, 2, whole)
    before = algorithm.actor.read()["0/kernel"]
    run(data)
    after = algorithm.actor.read()["0/kernel"]
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, algorithm.critic.read()["0/kernel"])


def check_what_is_frozen_in_whole_networks_stays() -> None:
    body, critic = layers(8, "relu", 8), layers(8, "relu", 1)
    if FRAMEWORK == "torch":
        body.requires_grad_(False)
        critic[0].weight.requires_grad_(False)
    else:
        body.trainable = False
        critic.build((None, 4))
        critic.layers[0].kernel.trainable = False
    whole = {"actor": chained(body, dense(8, 2)), "critic": critic}
    algorithm, _, run, _, data = begun("ppo", fakes.DISCRETE, 2, whole)
    networks = algorithm.actor, algorithm.critic
    before = [network.read() for network in networks]
    run(data)
    for network, first, frozen in zip(networks, before, (4, 1), strict=True):
        after = network.read()
        assert sum(np.array_equal(after[n], x) for n, x in first.items()) == frozen


def check_constraints_of_keras_hold() -> None:
    if FRAMEWORK == "torch":
        return
    import keras

    def body(space: Any) -> Any:
        chain = [keras.Input((4,)), keras.layers.Dense(8, kernel_constraint="non_neg")]
        return keras.Sequential(chain)

    algorithm, _, run, _, data = begun("dqn", fakes.DISCRETE, 1, body)
    assert algorithm.q.read()["0/kernel"].min() < 0
    run(data)
    assert algorithm.q.read()["0/kernel"].min() >= 0
    with pytest.raises(NetworkError, match="a policy with weight constraints"):
        build("trpo", fakes.DISCRETE, body)


def check_names_are_kept_from_the_decay_of_keras() -> None:
    if FRAMEWORK in ("torch", "keras-torch"):
        return
    import keras

    from tandem.backends.keras_optimizers import KerasOptimizerCopy

    own = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    own.exclude_from_weight_decay(var_names=["bias", "scale"])
    chain = [keras.Input((2,)), keras.layers.Dense(2, "linear", True, "ones", "ones")]
    model = keras.Sequential(chain)
    copy = KerasOptimizerCopy("q", [SimpleNamespace(module=model, decays=True, unit=())], own)
    copy.apply([keras.ops.zeros(v.shape) for v in model.trainable_variables], 0.0)
    kernel, bias = (np.asarray(v) for v in model.trainable_variables)
    np.testing.assert_allclose(kernel, 0.95, rtol=1e-5)
    np.testing.assert_array_equal(bias, 1.0)


# --- noise on weights -----------------------------------------------------------------------------


def check_statistics_are_placed() -> None:
    _, backend = build("sac", fakes.BOX, normalize_observations=True)
    for role, network in backend.networks.items():
        if not hasattr(network, "place"):  # the temperature
            continue
        places = [n for n in network.read() if n.endswith(("/mean", "/variance"))]
        assert len(places) >= 2, (role, list(network.read()))
        wanted = {n: np.full_like(network.read()[n], 3) for n in places}
        network.place(wanted)
        same(wanted, {n: network.read()[n] for n in places})


def check_users_bodies_get_noisy_heads() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    for body in (planned, stateful_forward):
        algorithm, backend = build("dqn", fakes.DISCRETE, body, noisy="factorised")
        q, quiet = algorithm.q, algorithm.q.predict(x)
        assert (q.plan is not None) == (body is planned)
        assert len(q.noise) == len(algorithm.target.noise) == 2
        q.place({n: v[0] for n, v in q.draw("factorised", np.random.default_rng(1), 1).items()})
        heard, now = q.read_noise(), backend.state()
        loud = q.predict(x)
        assert np.abs(loud - quiet).max() > 0.01
        mean = q.mean()
        same(now, backend.state())  # looking changes nothing
        still = Twin(q.plan, mean)(x) if q.plan is not None else q.frozen(mean)(x)
        np.testing.assert_allclose(still, quiet, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(q.predict(x), loud)
        if q.plan is not None:
            np.testing.assert_allclose(Twin(q.plan, q.read())(x), loud, rtol=1e-5, atol=1e-6)
        assert backend.compile(algorithm.update)(batches(algorithm, fakes.DISCRETE, 2)).applied == 2
        assert not any(np.array_equal(heard[n], v) for n, v in q.read_noise().items())
    # the action enters beside what the body makes
    critics, _ = build("sac", fakes.BOX, stateful_forward, noisy="independent")
    assert critics.qs[0].plan is None and len(critics.qs[0].noise) == 2
    said = r"noisy='independent' is .* custom networks(.|\n)*that returns a feature extractor"
    with pytest.raises(SettingError, match=said):
        build("dqn", fakes.DISCRETE, {"q": layers(8, 2)}, noisy="independent")


def check_what_does_not_fit_is_refused() -> None:
    wrong: dict[str, Any] = {
        r"outputs shape \(2, 3\).*\(2, 2\)": {"q": lambda space: layers(8, "relu", 3)},
        "failed on float32 \\(2, 4\\)": {"q": lambda space: chained(dense(5, 2), width=5)},
        "returned a str": lambda space: "network",
        "a feature extractor, or a pair": lambda space: (layers(8), layers(8), layers(8)),
        "nose does not match": {"q": layers(8, 2), "nose": layers(8)},
        r"network= is a Sequential": layers(8),
        r"outputs shape \(2, 4, 1\)": lambda space: layers("flat"),
    }
    for match, network in wrong.items():
        with pytest.raises(NetworkError, match=match):
            build("dqn", fakes.DISCRETE, network)
            raise AssertionError(f"{match!r} was taken")


# words of the names of those that are checked where each takes seconds to compile
FEW = ("a_seldom", "a_stop", "get_heads", "dropout", "nan_", "training")
FEW += ("optimizers_are", "state_brings", "statistics_are", "does_not_fit", "not_due", "are_taken")


def main() -> None:
    if "graphs" in sys.argv:
        from tests.graphs import interpreted

        interpreted()
    for name, check in list(globals().items()):
        few = "few" not in sys.argv or any(word in name for word in FEW)
        if name.startswith("check_") and few:
            try:
                check()
                fault = None
            except (Exception, pytest.fail.Exception):
                fault = traceback.format_exc(limit=-4)
            print(json.dumps([name.removeprefix("check_"), fault]), flush=True)


if __name__ == "__main__":
    main()
