"""What every backend promises, checked on one of them. Run as a script, it prints [check, fault or
null] line by line.

python tests/backends/contract.py FRAMEWORK [compile] [few]
"""

from __future__ import annotations

import json
import sys
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem import ops
from tandem.backends.broadcast_check import square_arrays
from tandem.errors import NetworkError, SettingError
from tandem.networks.plan import Twin
from tandem.settings import Schedule
from tandem.testing import fakes
from tandem.types import Batch, Update, tree_map

FRAMEWORK, COMPILE = sys.argv[1], "compile" in sys.argv[2:]
SMALL: dict[str, Any] = {"hidden": (8,), "learning_rate": Schedule(3e-2)}
ROWS = 16


def build(
    name: str, action: Any, network: Any = None, seed: int = 0, **settings: Any
) -> tuple[Any, Any]:
    return fakes.build(
        name,
        FRAMEWORK,
        action,
        network=network,
        seed=seed,
        compile=COMPILE,
        **{**SMALL, **settings},
    )


def batches(algorithm: Any, action: Any, updates: int, seed: int = 0, **settings: Any) -> Batch:
    made = fakes.batches(algorithm, fakes.VECTOR, action, updates, ROWS, seed)
    return made._replace(
        settings=made.settings | {n: np.full(updates, x, np.float32) for n, x in settings.items()}
    )


def poisoned(x: np.ndarray, k: int, value: float = np.nan) -> np.ndarray:
    return np.where(np.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1)) == k, np.float32(value), x)


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    """Two states, bit for bit."""
    assert sorted(a) == sorted(b)
    differ = [n for n in a if not np.array_equal(a[n], b[n])]
    assert not differ, f"{differ} differ"


def moved(a: dict[str, Any], b: dict[str, Any], part: str) -> bool:
    """Whether anything under `part` differs."""
    names = [n for n in a if n.startswith(part)]
    assert names, (part, list(a))
    return any(not np.array_equal(a[n], b[n]) for n in names)


# --- users' networks ------------------------------------------------------------------------------


def layers(*wanted: Any) -> Any:
    """A user's chain in the framework's own words: numbers are Dense layers, texts are what they
    say."""
    if FRAMEWORK == "torch":
        from torch import nn

        made, width = [], 4
        for x in wanted:
            if isinstance(x, int):
                made.append(nn.Linear(width, x))
                width = x
            else:
                kinds = {
                    "norm": nn.BatchNorm1d,
                    "layer": nn.LayerNorm,
                    "drop": lambda width: nn.Dropout(0.4),
                }
                kinds |= {"relu": lambda width: nn.ReLU(), "tanh": lambda width: nn.Tanh()}
                kinds["own"] = lambda width: type("Own", (nn.Identity,), {})()
                made.append(kinds[x](width))
        return nn.Sequential(*made)
    import keras

    kinds = {"norm": keras.layers.BatchNormalization, "drop": lambda: keras.layers.Dropout(0.4)}
    kinds |= {
        "layer": lambda: keras.layers.LayerNormalization(epsilon=1e-5),
        "relu": keras.layers.ReLU,
    }
    kinds |= {"tanh": lambda: keras.layers.Activation("tanh")}
    kinds |= {"own": type("Own", (keras.layers.Identity,), {})}
    return keras.Sequential(
        [keras.layers.Dense(x) if isinstance(x, int) else kinds[x]() for x in wanted]
    )


def stateful_forward(space: Any) -> Any:
    return layers(8, "norm", "relu", "drop")


def planned(space: Any) -> Any:
    return layers(8, "layer", "relu")


def unknown(space: Any) -> Any:
    return layers(8, "norm", "relu", "drop", "own")


# --- updates that take no effect ------------------------------------------------------------------


def check_a_stop_leaves_the_weights_of_the_updates_before() -> None:
    # with statistics and generators, which a forward pass moves
    for network in (
        None,
        stateful_forward,
    ):
        algorithm, backend = build("ppo", fakes.DISCRETE, network, max_kl=0.5)
        run, first = backend.compile(algorithm.update), backend.state()
        data = batches(algorithm, fakes.DISCRETE, 6)
        far = data._replace(
            extra=data.extra | {"log_prob": poisoned(data.extra["log_prob"], 3, -4)}
        )
        out = run(far)
        assert (out.applied, out.stopped, out.fault) == (3, True, ""), out
        assert (
            out.metrics["kl"].shape == (4,)
            and out.metrics["kl"][3] > 0.5 > out.metrics["kl"][:3].max()
        )
        stopped = backend.state()
        assert moved(first, stopped, "network/actor")
        backend.load_state(first)
        other = far._replace(extra=far.extra | {"return": poisoned(far.extra["return"], 4, 1e3)})
        run(other)
        same(stopped, backend.state())  # what comes after a stop has no part
        backend.load_state(first)
        assert run(fakes.first(data, 3)).applied == 3
        same(stopped, backend.state())  # nor has the update that asked for it
        assert run(fakes.first(data, 3)).applied == 3  # and the next call goes on


def check_nan_is_named_and_never_reaches_the_weights() -> None:
    poison = {
        "dqn": lambda b: b._replace(reward=poisoned(b.reward, 2)),
        "ppo": lambda b: b._replace(
            extra=b.extra | {"advantage": poisoned(b.extra["advantage"], 2)}
        ),
        # only the actor's loss sees it
        "sac": lambda b: b._replace(noise=(b.noise[0], poisoned(b.noise[1], 2))),
    }
    faults = {"dqn": "q", "ppo": "ppo", "sac": "actor"}
    for name, spoil in poison.items():
        action = fakes.BOX if name == "sac" else fakes.DISCRETE
        algorithm, backend = build(name, action)
        run, first = backend.compile(algorithm.update), backend.state()
        data = batches(algorithm, action, 4)
        out = run(spoil(data))
        assert (out.applied, out.stopped, out.fault) == (2, False, faults[name]), (name, out)
        assert all(np.isfinite(x).all() and len(x) == 2 for x in out.metrics.values()), out
        after = backend.state()
        backend.load_state(first)
        assert run(fakes.first(data, 2)).fault == ""
        same(after, backend.state())
        out = run(tree_map(lambda x: x[2:4], spoil(data)))  # a call whose first update is refused
        assert (out.applied, out.fault) == (0, faults[name])
        same(after, backend.state())


def check_nan_that_a_bound_may_hide_is_named() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE, values="categorical", atoms=5)
    data = batches(algorithm, fakes.DISCRETE, 3)
    reward = data.reward.copy()
    reward[1, 2] = np.nan
    out = backend.compile(algorithm.update)(data._replace(reward=reward))
    assert (out.applied, out.fault) == (1, "q"), out


def check_nan_leaves_statistics_and_generators_alone() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE, stateful_forward)
    run, first = backend.compile(algorithm.update), backend.state()
    data = batches(algorithm, fakes.DISCRETE, 5)
    assert run(data._replace(reward=poisoned(data.reward, 2))).applied == 2
    after = backend.state()
    backend.load_state(first)
    run(fakes.first(data, 2))
    same(after, backend.state())


def check_updates_whose_rows_weigh_nothing_change_nothing() -> None:
    """Neither weights, moments, counts of steps nor targets: as if they had not been asked for."""
    kinds: dict[str, dict[str, Any]] = {"ppo": {}, "trpo": {}, "pqn": {}, "impala": {"rollout": 7}}
    kinds["dqn"] = {"recurrent": 8, "sequence": 4, "prioritized": True}
    for name, settings in kinds.items() if FRAMEWORK == "torch" else [("ppo", {})]:
        algorithm, backend = build(name, fakes.DISCRETE, **settings)
        run, first = backend.compile(algorithm.update), backend.state()
        data = batches(algorithm, fakes.DISCRETE, 3)
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
        alone = run(tree_map(lambda x, rows=others: x[rows], data))
        same(after, backend.state())
        same(out.metrics, alone.metrics)
        if name in ("ppo", "pqn"):
            flat = tree_map(
                lambda x: x.reshape(-1, *x.shape[2:]), data._replace(settings={}, weight=weight)
            )._replace(settings=data.settings)
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
    for i, given in enumerate(own):
        algorithm, backend = build("dqn", fakes.DISCRETE)
        backend.given_optimizer = given
        number = backend.scalar(f"number{i}", 2.0)
        optimizer = backend.optimizer(f"number{i}", [number])

        def update(b: Batch, number: Any = number, optimizer: Any = optimizer) -> Update:
            loss = lambda b: (0.0 * number() * b.reward, {})  # noqa: E731
            rate = b.settings["learning_rate"]
            return Update({"loss": backend.minimize(optimizer, loss, b, rate)[0]})  # noqa: B023

        assert backend.compile(update)(batches(algorithm, fakes.DISCRETE, 2)).applied == 2
        assert number.read()["value"] == 2.0, type(given)


# --- one call -------------------------------------------------------------------------------------


def check_few_lengths_are_compiled() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE)
    traced = 0

    def update(b: Batch) -> Update:
        nonlocal traced
        traced += 1
        return algorithm.update(b)

    run, data = backend.compile(update), batches(algorithm, fakes.DISCRETE, 16)
    found = {}
    for updates in (3, 5, 7, 6, 2, 8, 5, 13, 9, 16, 3):
        out = run(fakes.first(data, updates))
        assert out.applied == updates == len(out.metrics["loss"])
        found[updates] = traced
    # TensorFlow traces once more, for the shapes that come out
    per_length = {"jax": 1, "tensorflow": 2}.get(FRAMEWORK)
    assert per_length is None or traced <= 4 * per_length, found


def check_a_padded_call_is_the_same_call() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE)
    run = backend.compile(algorithm.update)
    first = backend.state()
    data = batches(algorithm, fakes.DISCRETE, 8, tau=0.1)
    run(fakes.first(data, 3)), run(fakes.first(data, 4))
    backend.load_state(first)
    run(fakes.first(data, 7))  # filled up to 8
    after = backend.state()
    backend.load_state(first)
    for part in (slice(0, 4), slice(4, 7)):
        run(tree_map(lambda x, part=part: x[part], data))
    same(after, backend.state())


def check_rows_by_index_are_the_rows_themselves() -> None:
    algorithm, backend = build("ppo", fakes.DISCRETE)
    run, first = backend.compile(algorithm.update), backend.state()
    data = batches(algorithm, fakes.DISCRETE, 4)
    flat = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), data._replace(settings={}))._replace(
        settings=data.settings
    )
    order = np.random.default_rng(0).permutation(4 * ROWS).reshape(4, ROWS)
    out = run(flat, order.astype(np.int32))
    after = backend.state()
    backend.load_state(first)
    chosen = tree_map(lambda x: x[order], flat._replace(settings={}))._replace(
        settings=data.settings
    )
    again = run(chosen)
    same(after, backend.state())
    same(out.metrics, again.metrics)


def check_a_loss_of_the_wrong_shape_is_refused() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE)
    data = batches(algorithm, fakes.DISCRETE, 1)
    losses = {
        "[B, A]": lambda b: (algorithm.q(b.obs), {}),
        "[A]": lambda b: (algorithm.q(b.obs)[0], {}),
    }
    for name, loss in losses.items():

        def update(b, f=loss):
            return Update(
                {"x": backend.minimize(algorithm.optimizer, f, b, b.settings["learning_rate"])[0]}
            )

        with pytest.raises(Exception, match="one number each"):
            backend.compile(update)(data)
            raise AssertionError(name)


# --- updates of which a part is left out ----------------------------------------------------------


def check_what_is_not_due_is_left_out() -> None:
    algorithm, backend = build("td3", fakes.BOX)  # its policy is due in every second update
    run, first = backend.compile(algorithm.update), backend.state()
    data = batches(algorithm, fakes.BOX, 4, tau=0.5)
    out = run(data)
    assert np.isnan(out.metrics["actor_loss"]).tolist() == [True, False, True, False]
    assert np.isfinite(out.metrics["critic_loss"]).all()
    together = backend.state()
    backend.load_state(first)
    parts = [
        "network/actor/",
        "network/actor_target",
        "network/q1_target",
        "optimizer/actor",
        "network/q1/",
        "optimizer/critic",
    ]
    for k in range(4):
        before = backend.state()
        run(tree_map(lambda x, k=k: x[k : k + 1], data))
        found = [moved(before, backend.state(), p) for p in parts]
        assert found == [k % 2 == 1] * 4 + [True] * 2, (k, found)
    for n, x in backend.state().items():
        np.testing.assert_allclose(x, together[n], rtol=1e-5, atol=1e-7, err_msg=n)


def check_a_fault_in_what_is_due_is_named() -> None:
    algorithm, backend = build("td3", fakes.BOX)

    def infinite(b):
        return (
            algorithm.actor_loss(b)[0] + b.settings["policy"] * np.float32(np.inf),
            {},
        )

    def update(b: Batch) -> Update:
        def minimize_joint():
            return {
                "x": backend.minimize(algorithm.actor_optimizer, infinite, b, b.settings["tau"])[0]
            }

        return Update(backend.cond(b.settings["policy"], minimize_joint, ("x",)))

    run, data, before = backend.compile(update), batches(algorithm, fakes.BOX, 4), backend.state()
    out = run(data)
    assert (out.applied, out.fault) == (1, "actor"), out
    same(before, backend.state())


# --- whose weights --------------------------------------------------------------------------------


def check_each_verb_moves_its_own_weights_only() -> None:
    algorithm, backend = build("sac", fakes.BOX)
    data = batches(algorithm, fakes.BOX, 1)
    parts = [
        "network/actor/",
        "network/q1/",
        "network/q2/",
        "network/q1_target",
        "network/q2_target",
        "network/log_alpha",
    ]
    parts += ["optimizer/actor", "optimizer/critic"]

    def soft_update(b):
        return backend.soft_update(algorithm.qs[0], algorithm.targets[0], b.settings["tau"])

    def minimize_joint(optimizer, loss):
        return lambda b: backend.minimize(optimizer, loss, b, b.settings["learning_rate"])

    verbs = {
        "actor": (minimize_joint(algorithm.actor_optimizer, algorithm.actor_loss), [0, 6]),
        "critic": (minimize_joint(algorithm.critic_optimizer, algorithm.critic_loss), [1, 2, 7]),
        "track": (soft_update, [3]),
    }
    critics_first = batches(algorithm, fakes.BOX, 1, seed=1, tau=0.0)
    backend.compile(algorithm.update)(critics_first)  # so that targets are behind
    for name, (verb, wanted) in verbs.items():
        before = backend.state()
        out = backend.compile(lambda b, verb=verb: (verb(b), Update({"x": b.settings["tau"]}))[1])(
            data
        )
        assert out.applied == 1
        after = backend.state()
        assert [i for i, p in enumerate(parts) if moved(before, after, p)] == wanted, name


def check_targets_follow_by_tau() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE)
    run = backend.compile(algorithm.update)
    first = algorithm.target.read()
    run(batches(algorithm, fakes.DISCRETE, 3, tau=0.0))
    same(first, algorithm.target.read())
    before = algorithm.target.read()
    run(batches(algorithm, fakes.DISCRETE, 1, tau=0.25))
    net = algorithm.q.read()
    for n, w in algorithm.target.read().items():
        np.testing.assert_allclose(w, 0.75 * before[n] + 0.25 * net[n], rtol=1e-5, atol=1e-7)
    run(batches(algorithm, fakes.DISCRETE, 1, tau=1.0))
    for n, w in algorithm.target.read().items():
        np.testing.assert_allclose(w, algorithm.q.read()[n], rtol=1e-6, atol=1e-8)


def check_a_seldom_target_moves_with_kept_updates_alone() -> None:
    """In one call as one by one, statistics copied at that time; never with an update that is
    refused, nor with those after."""
    more: dict[str, Any] = {"noisy": "independent", "prioritized": True}
    for jit, network in ((True, stateful_forward), (False, None)):
        algorithm, backend = build("dqn", fakes.DISCRETE, network, **({} if network else more))
        run = backend.compile(algorithm.update, jit)
        first = backend.state()
        data = batches(algorithm, fakes.DISCRETE, 5)
        data = data._replace(settings=data.settings | {"tau": np.float32([0, 0.5, 0, 1, 1])})
        spoilt = data._replace(reward=poisoned(data.reward, 3))
        assert run(spoilt).applied == 3
        after = backend.state()
        backend.load_state(first)
        for k in range(3):
            was = algorithm.target.mean()
            run(tree_map(lambda x, k=k: x[k : k + 1], data))
            now, net = algorithm.target.mean(), algorithm.q.mean()
            if k != 1:
                same(was, now)
                continue
            floats = [n for n, w in was.items() if w.dtype.kind == "f"]
            mixed = [
                n
                for n in floats
                if np.allclose(now[n], (was[n] + net[n]) / 2, rtol=1e-5, atol=1e-7)
            ]
            copied = sorted({*floats} - {*mixed})
            assert len(copied) == (2 if network else 0) and mixed, copied
            same({n: net[n] for n in copied}, {n: now[n] for n in copied})
        for n, x in backend.state().items():
            np.testing.assert_allclose(x, after[n], rtol=1e-5, atol=1e-6, err_msg=n)
        before = backend.state()
        assert run(tree_map(lambda x: x[3:4], spoilt)).applied == 0
        same(before, backend.state())


def check_adam_is_the_paper_s() -> None:
    """Kingma & Ba 2015, algorithm 1, with an epsilon that shows where it is added; and gradients
    clipped by their norm."""
    _check_adam(0.0)


def check_adam_with_weight_decay_is_the_paper_s() -> None:
    """Loshchilov & Hutter 2019, algorithm 2."""
    _check_adam(0.2, weight_decay=0.2)


def _check_adam(decay: float, **options: float) -> None:
    _, backend = build("dqn", fakes.DISCRETE)
    number = backend.scalar("number", 0.5)
    optimizer = backend.optimizer("number", [number], "adam", epsilon=0.1, **options)

    def update(b: Batch) -> Update:
        loss = lambda b: ((number() - b.reward) ** 2, {})  # noqa: E731
        value, _ = backend.minimize(optimizer, loss, b, b.settings["rate"], b.settings["clip"])
        return Update({"loss": value})

    rng = np.random.default_rng(0)
    reward = rng.normal(3, 1, (6, 5)).astype(np.float32)
    clip = np.array([9, 9, 9, 0.5, 9, 9], np.float32)
    rate = np.linspace(0.1, 0.3, 6, dtype=np.float32)
    out = backend.compile(update)(
        Batch(reward, reward, reward, settings={"rate": rate, "clip": clip})
    )
    x, m, v, losses = 0.5, 0.0, 0.0, []
    for t in range(6):
        losses.append(np.mean((x - reward[t]) ** 2))
        g = np.mean(2 * (x - reward[t]))
        g *= min(1, clip[t] / abs(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x -= rate[t] * decay * x
        x -= rate[t] * (m / (1 - 0.9 ** (t + 1))) / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 0.1)
    np.testing.assert_allclose(out.metrics["loss"], losses, rtol=1e-4)
    np.testing.assert_allclose(number.read()["value"], x, rtol=1e-4)


def check_radam_is_the_paper_s() -> None:
    """Liu et al. 2020, algorithm 2: steps of momentum until rho is above 5, then rectified ones."""
    _, backend = build("dqn", fakes.DISCRETE)
    number = backend.scalar("number", 0.5)
    optimizer = backend.optimizer("number", [number], "radam", epsilon=0.1)

    def update(b: Batch) -> Update:
        loss = lambda b: ((number() - b.reward) ** 2, {})  # noqa: E731
        return Update({"loss": backend.minimize(optimizer, loss, b, b.settings["rate"])[0]})

    reward = np.random.default_rng(0).normal(3, 1, (12, 5)).astype(np.float32)
    rate = np.linspace(0.01, 0.3, 12, dtype=np.float32)
    backend.compile(update)(Batch(reward, reward, reward, settings={"rate": rate}))
    x, m, v, limit, adapted = 0.5, 0.0, 0.0, 2 / 0.001 - 1, 0
    for i in range(12):
        t, g = i + 1, np.mean(2 * (x - reward[i]))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step, rho = m / (1 - 0.9**t), limit - 2 * t * 0.999**t / (1 - 0.999**t)
        if rho > 5:
            r = np.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
            step, adapted = r * step / (np.sqrt(v / (1 - 0.999**t)) + 0.1), adapted + 1
        x -= rate[i] * step
    assert 6 <= adapted <= 8
    np.testing.assert_allclose(number.read()["value"], x, rtol=1e-4)


def check_rmsprop_is_the_paper_s() -> None:
    """Mnih et al. 2016, supplement, with an epsilon that shows where it is added and a mean square
    that begins at 1."""
    _, backend = build("dqn", fakes.DISCRETE)
    number = backend.scalar("number", 0.5)
    optimizer = backend.optimizer("number", [number], "rmsprop", decay=0.8, epsilon=0.1)

    def update(b: Batch) -> Update:
        loss = lambda b: ((number() - b.reward) ** 2, {})  # noqa: E731
        return Update({"loss": backend.minimize(optimizer, loss, b, b.settings["rate"])[0]})

    reward = np.random.default_rng(0).normal(3, 1, (6, 5)).astype(np.float32)
    rate = np.linspace(0.1, 0.3, 6, dtype=np.float32)
    backend.compile(update)(Batch(reward, reward, reward, settings={"rate": rate}))
    x, v = 0.5, 1.0
    for t in range(6):
        g = np.mean(2 * (x - reward[t]))
        v = 0.8 * v + 0.2 * g * g
        x -= rate[t] * g / np.sqrt(v + 0.1)
    np.testing.assert_allclose(number.read()["value"], x, rtol=1e-4)


def check_a_step_along_a_kept_gradient_is_the_one_that_was_not_made() -> None:
    source = fakes.sources("dqn", fakes.DISCRETE, **SMALL)["q"]
    for kind in ("adam", "radam", "rmsprop", "sgd"):
        _, backend = build("dqn", fakes.DISCRETE)
        direct, owned, away = (
            backend.network(name, source) for name in ("direct", "owned", "away")
        )
        optimizers = [backend.optimizer(net.name, [net], kind) for net in (direct, owned)]
        backend.gradients_only = True
        keeping = backend.optimizer("away", [away], kind)

        def minimizing(network: Any, optimizer: Any, backend: Any = backend) -> Any:
            def update(b: Batch) -> Update:
                def loss(b: Batch) -> Any:
                    out = network(b.obs)
                    return ops.of(out).sum((out - b.reward[:, None]) ** 2, -1), {}

                return Update(
                    {
                        "loss": backend.minimize(
                            optimizer, loss, b, b.settings["rate"], b.settings["clip"]
                        )[0]
                    }
                )

            return backend.compile(update)

        def step(b: Batch, backend: Any = backend, optimizer: Any = optimizers[1]) -> Update:
            backend.step(optimizer, b.reward, b.settings["rate"])
            return Update({})

        at_once = minimizing(direct, optimizers[0])
        apart = minimizing(away, keeping)
        follow = backend.compile(step)
        rng, first = np.random.default_rng(0), away.read()
        for k, clip in enumerate((9.0, 0.1, 9.0)):
            settings = {"rate": np.float32([0.01 * (k + 1)]), "clip": np.float32([clip])}
            batch = Batch(
                rng.normal(size=(1, 5, 4)).astype(np.float32),
                (),
                np.float32([[1, 2, 3, 4, 5]]),
                settings=settings,
            )
            away.write(owned.read())
            assert at_once(batch).metrics["loss"] == apart(batch).metrics["loss"]
            same(owned.read(), away.read())
            gradient = backend.recorded_gradient(keeping)
            assert gradient.shape == (optimizers[1].size,) and (
                clip > 1 or abs(np.linalg.norm(gradient) - clip) < 1e-4
            )
            assert follow(Batch((), (), gradient[None], settings=settings)).applied == 1
            for n, x in direct.read().items():  # one compiled call, or two: the last bit may differ
                np.testing.assert_allclose(owned.read()[n], x, rtol=1e-5, atol=1e-7)
        assert all(not np.array_equal(first[n], x) for n, x in owned.read().items())


# --- state ----------------------------------------------------------------------------------------


def check_state_brings_everything_back() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE, stateful_forward)
    run, fresh = backend.compile(algorithm.update), backend.state()
    data = batches(algorithm, fakes.DISCRETE, 3)
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
    _training_mode_is_for_learning_alone(stateful_forward)


def check_it_is_so_with_layers_of_their_own() -> None:
    _training_mode_is_for_learning_alone(unknown)


def _training_mode_is_for_learning_alone(body: Any) -> None:
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
    """Batches are filled up to lengths that are compiled already; nothing of that is to be seen."""
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
    rows, spec = 13, fakes.batches(algorithm, fakes.VECTOR, fakes.DISCRETE, 1, 13)
    batch = tree_map(lambda x: x[0], spec._replace(settings={}))

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
    algorithm, backend = build("ppo", fakes.BOX, lambda space: layers(8, "layer", "tanh"))
    assert [type(layer).__name__ for layer in algorithm.actor.plan] == [
        "Dense",
        "LayerNorm",
        "Activation",
        "Dense",
        "Scale",
    ]
    obs = batches(algorithm, fakes.BOX, 1).obs[0]
    backend.compile(algorithm.update)(batches(algorithm, fakes.BOX, 2))
    for network in (algorithm.actor, algorithm.critic):
        twin = Twin(network.plan, network.read())
        np.testing.assert_allclose(twin(obs), network.predict(obs), rtol=1e-4, atol=1e-5)
    algorithm, backend = build(
        "ppo", fakes.DISCRETE, lambda space: (layers(6, "tanh"), layers(9, "relu", 5, "tanh"))
    )
    assert [layer.units for layer in algorithm.critic.plan if hasattr(layer, "units")] == [9, 5, 1]
    assert [layer.units for layer in algorithm.actor.plan if hasattr(layer, "units")] == [6, 2]
    algorithm, backend = build("sac", fakes.BOX, lambda space: layers(8, "relu"))
    a, b = (q.read() for q in algorithm.qs)
    assert all(not np.array_equal(a[n], b[n]) for n in a if a[n].any()), "twin critics start as one"
    assert backend.compile(algorithm.update)(batches(algorithm, fakes.BOX, 2)).applied == 2


def called(network: Any, x: np.ndarray) -> np.ndarray:
    """What a user's network gives when the user calls it."""
    if FRAMEWORK == "torch":
        import torch

        x = torch.as_tensor(x)
    out = network(x)
    return np.asarray(out.detach() if hasattr(out, "detach") else out)


def check_whole_networks_are_taken() -> None:
    networks, x = (
        {"q": layers(8, "relu", 2)},
        np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    )
    first = called(networks["q"], x)
    algorithm, backend = build("dqn", fakes.DISCRETE, networks)
    assert (
        backend.compile(algorithm.update)(batches(algorithm, fakes.DISCRETE, 3, tau=0.0)).applied
        == 3
    )
    q, target = algorithm.q.read(), algorithm.target.read()
    assert algorithm.q.plan is not None and not np.array_equal(q["0/kernel"], target["0/kernel"])
    # a copy of it learns, so that another run with it begins as this one did
    np.testing.assert_array_equal(called(networks["q"], x), first)
    assert not np.allclose(algorithm.q.predict(x), first)
    if FRAMEWORK == "torch":  # a module that is one layer, and no chain
        from torch import nn

        single, backend = build("dqn", fakes.DISCRETE, {"q": nn.Linear(4, 2)})
        assert backend.compile(single.update)(batches(single, fakes.DISCRETE, 1)).applied == 1
        np.testing.assert_allclose(
            Twin(single.q.plan, single.q.read())(x), single.q.predict(x), rtol=1e-5
        )
    made, _ = build("dqn", fakes.DISCRETE, {"q": lambda space: layers(8, "own", 2)})
    assert made.q.plan is None and made.q.predict(np.zeros((3, 4), np.float32)).shape == (3, 2)


def check_whole_networks_share_what_was_shared() -> None:
    trunk = layers(8)
    if FRAMEWORK == "torch":
        from torch import nn

        whole = {"actor": nn.Sequential(trunk, nn.Linear(8, 2))}
        whole["critic"] = nn.Sequential(trunk, nn.Linear(8, 1))
    else:
        import keras

        whole = {"actor": keras.Sequential([trunk, keras.layers.Dense(2)])}
        whole["critic"] = keras.Sequential([trunk, keras.layers.Dense(1)])
    algorithm, backend = build("ppo", fakes.DISCRETE, whole)
    before = algorithm.actor.read()["0/kernel"]
    backend.compile(algorithm.update)(batches(algorithm, fakes.DISCRETE, 2))
    after = algorithm.actor.read()["0/kernel"]
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, algorithm.critic.read()["0/kernel"])


def check_what_is_frozen_in_whole_networks_stays() -> None:
    body, network = layers(8, "relu", 8), layers(8, "relu", 2)
    if FRAMEWORK == "torch":
        from torch import nn

        body.requires_grad_(False)
        network[0].weight.requires_grad_(False)
        whole = nn.Sequential(body, nn.Linear(8, 2))
    else:
        import keras

        body.trainable = False
        network.build((None, 4))
        network.layers[0].kernel.trainable = False
        whole = keras.Sequential([keras.Input((4,)), body, keras.layers.Dense(2)])
    for given, frozen in (whole, 4), (network, 1):
        algorithm, backend = build("dqn", fakes.DISCRETE, {"q": given})
        before = algorithm.q.read()
        backend.compile(algorithm.update)(batches(algorithm, fakes.DISCRETE, 2))
        after = algorithm.q.read()
        assert sum(np.array_equal(after[n], x) for n, x in before.items()) == frozen


def check_constraints_of_keras_hold() -> None:
    if FRAMEWORK == "torch":
        return
    import keras

    def body(space: Any) -> Any:
        chain = [keras.Input((4,)), keras.layers.Dense(8, kernel_constraint="non_neg")]
        return keras.Sequential(chain)

    algorithm, backend = build("dqn", fakes.DISCRETE, body)
    first = algorithm.q.read()["0/kernel"]
    assert first.min() < 0
    backend.compile(algorithm.update)(batches(algorithm, fakes.DISCRETE, 1))
    assert algorithm.q.read()["0/kernel"].min() >= 0
    with pytest.raises(NetworkError, match="whose weights have a constraint"):
        build("trpo", fakes.DISCRETE, body)


def check_names_are_kept_from_the_decay_of_keras() -> None:
    if FRAMEWORK in ("torch", "keras-torch"):
        return
    import keras

    from tandem.backends.keras_optimizers import Given

    own = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    own.exclude_from_weight_decay(var_names=["bias", "scale"])
    chain = [keras.Input((2,)), keras.layers.Dense(2, "linear", True, "ones", "ones")]
    model = keras.Sequential(chain)
    copy = Given("q", [SimpleNamespace(module=model)], own)
    copy.apply([keras.ops.zeros(v.shape) for v in model.trainable_variables], 0.0)
    kernel, bias = (np.asarray(v) for v in model.trainable_variables)
    np.testing.assert_allclose(kernel, 0.95, rtol=1e-5)
    np.testing.assert_array_equal(bias, 1.0)


# --- noise on weights -----------------------------------------------------------------------------


def noises(network: Any) -> dict[str, np.ndarray]:
    return network.read_noise()


def check_noise_enters_with_each_update() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE, dueling=True, noisy="factorised")
    run, first = backend.compile(algorithm.update), backend.state()
    data = batches(algorithm, fakes.DISCRETE, 3, tau=1.0)
    noise = {n: x for n, x in data.settings.items() if n.startswith("noise/")}
    assert sorted(noise) == sorted(
        f"noise/{net}/2/{s}/1/{n}_noise"
        for net in ("q", "q_target")
        for s in ("value", "advantage")
        for n in ("kernel", "bias")
    )
    out = run(data)
    for name, x in noise.items():
        _, net, place = name.split("/", 2)
        # each keeps its own, whatever is tracked
        np.testing.assert_array_equal(noises(backend.networks[net])[place], x[2])
    tracked, kernel = algorithm.target.mean(), "2/value/1/kernel"
    np.testing.assert_allclose(tracked[kernel], algorithm.q.mean()[kernel], rtol=1e-5)
    after = backend.state()
    backend.load_state(first)
    one = [run(tree_map(lambda x, k=k: x[k : k + 1], data)).metrics["loss"][0] for k in range(3)]
    np.testing.assert_allclose(one, out.metrics["loss"], rtol=1e-5)
    backend.load_state(first)
    quiet = data._replace(settings=data.settings | {n: 0 * x for n, x in noise.items()})
    assert np.abs(run(quiet).metrics["loss"] - out.metrics["loss"]).min() > 1e-4
    backend.load_state(first)
    run(data)
    same(after, backend.state())


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


def check_noise_travels_beside_indices() -> None:
    algorithm, backend = build("ppo", fakes.DISCRETE, noisy="independent")
    run, first = backend.compile(algorithm.update), backend.state()
    data = batches(algorithm, fakes.DISCRETE, 3)
    run(data)
    stacked = backend.state()
    backend.load_state(first)
    rows = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), data._replace(settings={}))
    run(rows._replace(settings=data.settings), np.arange(3 * ROWS, dtype=np.int32).reshape(3, ROWS))
    for n, x in backend.state().items():
        np.testing.assert_allclose(x, stacked[n], rtol=1e-5, atol=1e-6)
    kept = {n: x for n, x in data.settings.items() if not n.startswith("noise/")}
    before = noises(algorithm.actor)
    run(rows._replace(settings=kept), np.arange(3 * ROWS, dtype=np.int32).reshape(3, ROWS))
    same(before, noises(algorithm.actor))  # where none travels, it stays
    assert moved(stacked, backend.state(), "network/actor")


def check_a_refused_update_leaves_no_noise() -> None:
    algorithm, backend = build("dqn", fakes.DISCRETE, noisy="independent")
    run, first = backend.compile(algorithm.update), backend.state()
    data = batches(algorithm, fakes.DISCRETE, 4)
    assert run(data._replace(reward=poisoned(data.reward, 2))).applied == 2
    after = backend.state()
    backend.load_state(first)
    run(fakes.first(data, 2))
    same(after, backend.state())


def check_users_bodies_get_noisy_heads() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    for body in (planned, stateful_forward):
        algorithm, backend = build("dqn", fakes.DISCRETE, body, noisy="factorised")
        q, quiet = algorithm.q, algorithm.q.predict(x)
        assert (q.plan is not None) == (body is planned) and len(q.noise) == len(
            algorithm.target.noise
        ) == 2
        q.place({n: v[0] for n, v in q.draw("factorised", np.random.default_rng(1), 1).items()})
        heard, now = noises(q), backend.state()
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
        assert not any(np.array_equal(heard[n], v) for n, v in noises(q).items())
    # the action enters beside what the body makes
    critics, _ = build("sac", fakes.BOX, stateful_forward, noisy="independent")
    assert critics.qs[0].plan is None and len(critics.qs[0].noise) == 2
    with pytest.raises(
        SettingError,
        match=r"noisy='independent' with whole networks(.|\n)*function that returns a body",
    ):
        build("dqn", fakes.DISCRETE, {"q": layers(8, 2)}, noisy="independent")


def check_what_does_not_fit_is_refused() -> None:
    wrong: dict[str, Any] = {
        r"puts out shape \(2, 3\).*\n.*\(2, 2\)": {"q": lambda space: layers(8, "relu", 3)},
        "failed on float32 \\(2, 4\\)": {"q": lambda space: broken()},
        "gave a str": lambda space: "network",
        "a body, or the pair": lambda space: (layers(8), layers(8), layers(8)),
        "nose does not fit": {"q": layers(8, 2), "nose": layers(8)},
        r"network= is a Sequential": layers(8),
        r"puts out shape \(2, 4, 1\)": lambda space: flat(),
    }
    for match, network in wrong.items():
        with pytest.raises(NetworkError, match=match):
            build("dqn", fakes.DISCRETE, network)
            raise AssertionError(f"{match!r} was taken")


def broken() -> Any:
    if FRAMEWORK == "torch":
        from torch import nn

        return nn.Linear(5, 2)
    import keras

    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])


def flat() -> Any:
    if FRAMEWORK == "torch":
        from torch import nn

        return nn.Unflatten(1, (4, 1))
    import keras

    return keras.layers.Reshape((4, 1))


# for where each takes seconds to compile
FEW = {
    check_a_refused_update_leaves_no_noise,
    check_a_stop_leaves_the_weights_of_the_updates_before,
    check_adam_is_the_paper_s,
    check_adam_with_weight_decay_is_the_paper_s,
    check_bodies_get_heads,
    check_dropout_drops_while_learning,
    check_each_verb_moves_its_own_weights_only,
    check_nan_leaves_statistics_and_generators_alone,
    check_nan_that_a_bound_may_hide_is_named,
    check_noise_enters_with_each_update,
    check_radam_is_the_paper_s,
    check_rmsprop_is_the_paper_s,
    check_state_brings_everything_back,
    check_statistics_are_placed,
    check_targets_follow_by_tau,
    check_training_mode_is_for_learning_alone,
    check_what_does_not_fit_is_refused,
    check_what_is_not_due_is_left_out,
    check_whole_networks_are_taken,
}


def main() -> None:
    for name, check in list(globals().items()):
        if name.startswith("check_") and ("few" not in sys.argv or check in FEW):
            try:
                check()
                fault = None
            except (Exception, pytest.fail.Exception):
                fault = traceback.format_exc(limit=-4)
            print(json.dumps([name.removeprefix("check_"), fault]), flush=True)


if __name__ == "__main__":
    main()
