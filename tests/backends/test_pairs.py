"""Losses that compare many pairs of numbers: who has such, and how XLA adds them up."""

from __future__ import annotations

from typing import Any

import pytest

from tandem import trainer
from tests.helpers import run_python

QUIET: dict[str, Any] = {"framework": "torch", "plots": False, "tensorboard": False}


@pytest.mark.parametrize(
    ("algorithm", "given", "pairs"),
    [
        ("dqn", {"values": "categorical", "atoms": 11}, 11 * 11),
        ("dqn", {"values": "quantile", "quantiles": 30}, 30 * 30),
        ("dqn", {"values": "implicit"}, 0),
        ("sac", {}, 0),
        ("sac", {"values": "categorical", "atoms": 11}, 11 * 11),
        ("sac discrete", {"values": "categorical", "atoms": 11}, 2 * 11 * 11),
        ("crossq", {"values": "categorical", "atoms": 11}, 11 * 11),
        ("tqc", {"quantiles": 10, "critics": 3, "dropped": 1}, 10 * 3 * 9),
    ],
)
def test_backends_know_how_many_pairs_a_loss_compares(algorithm, given, pairs) -> None:
    name, *discrete = algorithm.split()
    env = "CartPole-v1" if discrete or name == "dqn" else "Pendulum-v1"
    made = trainer.session(name, env, batch_size=8, **given, **QUIET)
    assert made.backend.pairs == 8 * pairs
    made.backend.close()


@pytest.mark.slow
def test_the_way_in_which_pairs_are_added_up_changes_nothing_but_the_rounding() -> None:
    code = """
    import json
    import numpy as np
    from tandem import trainer
    from tandem.backends import keras_jax

    fused, most = keras_jax.FUSED_SUMS.keys(), keras_jax.MANY_PAIRS
    assert fused <= keras_jax.options(most).keys()
    assert not fused & keras_jax.options(most - 1).keys()

    def learned():
        run = trainer.session(
            "dqn", "CartPole-v1", framework="jax", values="quantile", quantiles=128, batch_size=64,
            hidden=16, steps=256, learning_starts=192, train_every=32, updates_per_call=4,
            eval_episodes=0, plots=False, tensorboard=False,
        )
        assert run.backend.pairs == most == 64 * 128**2
        list(run)
        return np.concatenate([np.ravel(x) for x in run.backend.networks["q"].read().values()])

    one = learned()
    keras_jax.MANY_PAIRS *= 2
    assert not fused & keras_jax.options(most).keys()
    other = learned()
    print(json.dumps([len(one), float(np.abs(one - other).max()), float(np.abs(one).max())]))
    """
    ((numbers, apart, most),) = run_python(code, engine="jax", timeout=250)
    assert numbers > 4_000 and apart < 1e-4 < most
