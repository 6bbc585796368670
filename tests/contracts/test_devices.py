"""Every algorithm learns on several devices as on one, but for rounding. (Whole runs are in
tests/learning.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import COMPILED_LIGHTLY, Engine, run_python

SNIPPET = Path(__file__).parent / "snippets" / "devices.py"
ENGINES: tuple[Engine, ...] = ("jax", "tensorflow", "torch", "keras-torch")
REST = (
    ("four", "stops"),
    ("dqn", "dqn_noisy", "dqn_moving", "dqn_categorical", "dqn_quantile", "dqn_implicit"),
    ("dqn_convolving", "ppo_convolving"),
    ("ppo", "ppo_gsde", "ppo_rnd", "a2c", "trpo", "trpo_normalizing"),
    # TensorFlow compiles for minutes what follows sequences
    ("ppo_recurrent", "ppo_recurrent_moving"),
    ("mappo_recurrent",),
    ("trpo_recurrent",),
    ("dqn_recurrent", "sac_recurrent"),
    ("acer_recurrent",),
    ("sac", "sac_discrete", "td3", "tqc", "ddpg"),
    ("crossq",),
    ("a3c", "impala", "acer", "nstep_q", "nstep_q_expected", "pqn"),
    ("vdn", "qmix", "mappo", "mat", "maddpg"),
)
SHORT = ("short", "uneven")  # what can be had of one algorithm in seconds
MORE = {"tensorflow": (SHORT,)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("engine", "cases"),
    [
        *(
            pytest.param(e, SHORT, marks=pytest.mark.slow, id=f"{e}-short")
            for e in ("jax", "torch")
        ),
        *(
            pytest.param(engine, cases, marks=pytest.mark.thorough, id=f"{engine}-{cases[0]}")
            for engine in ENGINES  # of Keras on torch, which learns through the torch backend, too
            for cases in (*REST, *MORE.get(engine, ()))
        ),
    ],
)
def test_several_devices_learn_as_one(engine: Engine, cases: tuple[str, ...]) -> None:
    said = run_python(SNIPPET, engine, *cases, engine=engine, timeout=850, env=COMPILED_LIGHTLY)
    assert [s["case"] for s in said] == list(cases)
    assert not [s for s in said if s["failed"]], said
