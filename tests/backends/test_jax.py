"""Keras on JAX: compiled actions, arrays that updates reuse, and how XLA adds up losses that
compare many pairs of numbers."""

from pathlib import Path

import pytest

from tests.helpers import run_python


@pytest.mark.slow
def test_actions_are_compiled_and_arrays_that_others_hold_stay() -> None:
    checks = run_python(Path(__file__).with_name("acting.py"), engine="jax", timeout=280)
    assert len(checks) == 6


def test_agents_come_before_jax_has_made_an_array() -> None:
    code = """
    import json
    import keras
    from jax import config
    from tandem.agents.rl import RL

    name = "jax_cpu_enable_async_dispatch"  # read with the first array

    class Agent(RL):
        def __init__(self):
            print(json.dumps(config.values[name]))

    print(json.dumps(config.values[name]))
    Agent()
    """
    assert run_python(code, engine="jax", forked=False) == [True, False]


def test_the_traced_update_tells_how_many_pairs_it_sums() -> None:
    code = """
    import json
    from tandem.backends import keras_jax
    from tandem.testing import fakes

    class Traced(Exception):
        pass

    def traced(largest):
        raise Traced(largest)

    def largest(name, action, **given):
        algorithm, backend = fakes.build(name, "jax", action, **given)
        batches = fakes.batches(algorithm, fakes.VECTOR, action, updates=1, rows=8)
        try:
            backend.compile(algorithm.update)(batches)
        except Traced as found:
            return found.args[0]

    keras_jax.options = traced  # nothing is compiled
    atoms = {"values": "categorical", "atoms": 11}
    implicit = {"values": "implicit", "fractions": 5, "target_fractions": 20, "hidden": (4, 4)}
    print(json.dumps([
        largest("dqn", fakes.DISCRETE),
        largest("dqn", fakes.DISCRETE, **atoms),
        largest("dqn", fakes.DISCRETE, values="quantile", quantiles=30),
        largest("dqn", fakes.DISCRETE, **implicit),
        largest("sac", fakes.BOX),
        largest("sac", fakes.BOX, **atoms),
        largest("sac", fakes.DISCRETE, **atoms),
        largest("crossq", fakes.BOX, **atoms),
        largest("tqc", fakes.BOX, quantiles=10, critics=3, dropped=1),
    ]))
    """
    atoms, quantiles = 8 * 11**2, 8 * 30**2
    expected = [0, atoms, quantiles, 8 * 5 * 20, 0, atoms, 2 * atoms, atoms, 8 * 10 * 3 * 9]
    assert run_python(code, engine="jax") == [expected]


@pytest.mark.slow
def test_the_way_in_which_pairs_are_added_up_changes_nothing_but_the_rounding() -> None:
    code = """
    import json
    import numpy as np
    from tandem import trainer
    from tandem.backends import keras_jax

    fused, most = keras_jax.FUSED_SUMS.keys(), keras_jax.MANY
    assert most == 64 * 128**2  # of the quantiles below
    assert fused <= keras_jax.options(most).keys()
    assert not fused & keras_jax.options(most - 1).keys()

    def learned():
        run = trainer.session(
            "dqn", "CartPole-v1", framework="jax", values="quantile", quantiles=128, batch_size=64,
            hidden=16, steps=256, learning_starts=192, train_every=32, updates_per_call=4,
            eval_episodes=0, plots=False, tensorboard=False,
        )
        list(run)
        return np.concatenate([np.ravel(x) for x in run.backend.networks["q"].read().values()])

    one = learned()
    keras_jax.MANY *= 2
    assert not fused & keras_jax.options(most).keys()
    other = learned()
    print(json.dumps([len(one), float(np.abs(one - other).max()), float(np.abs(one).max())]))
    """
    ((numbers, apart, most),) = run_python(code, engine="jax", timeout=250)
    assert numbers > 4_000 and apart < 1e-4 < most


@pytest.mark.slow
def test_updates_stay_on_the_second_device() -> None:
    code = """
    import json

    import jax

    jax.config.update("jax_default_device", jax.devices()[1])

    from tests.algorithms import cases

    for name in ("dqn double dueling prioritized", "ppo multi-categorical", "td3"):
        algorithm, backend, batches = cases.prepared(cases.CASES[name], "jax")
        assert not backend.compile(algorithm.update)(batches).fault, name
        assert len(jax.live_arrays()) > 10
    print(json.dumps([str(x.aval) for x in jax.live_arrays() if x.devices() != {jax.devices()[1]}]))
    """
    flags = "--xla_force_host_platform_device_count=2"
    assert run_python(code, engine="jax", env={"XLA_FLAGS": flags}, forked=False) == [[]]
