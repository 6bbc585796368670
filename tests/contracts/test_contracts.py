"""Every algorithm keeps its contract, on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

SNIPPET = Path(__file__).parent / "snippets" / "contracts.py"
SHORT = (
    "reproducible",
    "resumes",
    "touches_only_its_own",
    "refuses_what_is_not_finite",
    "first_rollout",
)
COMPILED = ("reproducible", "resumes", "refuses_what_is_not_finite")  # which jax compiles much for
LEARNING = {
    "dqn": (
        "dqn_identity",
        "dqn_masked",
        "dqn_dict",
        "dqn_image",
        "dqn_chain",
        "dqn_infinite_horizon",
        "dqn_pair",
        "dqn_matrix",
        "dqn_noisy",
    ),
    "dqn, distributions": ("dqn_distributions", "dqn_soft"),
    "ppo": (
        "ppo_identity",
        "ppo_masked",
        "ppo_dict",
        "ppo_image",
        "ppo_box",
        "ppo_chain",
        "ppo_infinite_horizon",
        "ppo_pair",
        "ppo_matrix",
        "ppo_recall",
        "ppo_shared",
    ),
    "ppo, slowly": ("ppo_beta_box", "ppo_parts"),
    "sac": (
        "sac_box",
        "sac_identity",
        "sac_masked",
        "sac_chain",
        "sac_infinite_horizon",
        "sac_pair",
    ),
    "a2c": (
        "a2c_identity",
        "a2c_masked",
        "a2c_box",
        "a2c_beta_box",
        "a2c_chain",
        "a2c_infinite_horizon",
        "a2c_pair",
        "a2c_recall",
        "a2c_shared",
    ),
    "ddpg": ("ddpg_box", "ddpg_infinite_horizon", "ddpg_pair"),
    "trpo": (
        "trpo_identity",
        "trpo_masked",
        "trpo_box",
        "trpo_beta_box",
        "trpo_chain",
        "trpo_infinite_horizon",
        "trpo_pair",
        "trpo_recall",
    ),
    "td3": ("td3_box", "td3_infinite_horizon", "td3_pair"),
    "tqc": ("tqc_games",),
    "sac, categorical": ("sac_categorical_games",),
    "crossq": ("crossq_games",),
    "a3c": ("a3c_games",),
    "impala": ("impala_games", "impala_recall"),
    "acer": ("acer_games", "acer_of_replay_alone"),
    "nstep_q": ("nstep_q_games", "sequences_masked"),
    "pqn": ("pqn_games",),
    "vdn": ("vdn_games",),
    "qmix": ("qmix_games",),
    "mappo": ("mappo_games", "mappo_own_critic"),
    "mat": ("mat_games",),
    "maddpg": ("maddpg_games",),
}
pytestmark = pytest.mark.timeout(600)  # TensorFlow compiles every loop of the short contracts again
ENGINES = ("torch", "jax", "tensorflow", "keras-torch")


def run(engine: str, *cases: str) -> dict[str, Any]:
    light = COMPILED_LIGHTLY if not {*cases}.isdisjoint(SHORT) else {}
    said = run_python(SNIPPET, engine, *cases, engine=engine, timeout=550, env=light)  # type: ignore[arg-type]
    assert [s["case"] for s in said] == list(cases)
    assert not [s for s in said if s["failed"]], said
    return {s["case"]: s["found"] for s in said}


# which learn these games many times quicker there; the others on torch
ON_JAX = (
    "dqn",
    "dqn, distributions",
    "sac",
    "ddpg",
    "td3",
    "tqc",
    "crossq",
    "vdn",
    "qmix",
    "maddpg",
)


# of which a relative is in every run of the tests
THOROUGH = ("a2c", "crossq", "dqn", "maddpg", "mappo", "mat", "td3", "tqc", "vdn")
THOROUGH += ("ppo, slowly", "sac, categorical", "dqn, distributions")
THOROUGH += ("acer", "a3c", "ddpg", "nstep_q", "pqn", "qmix", "trpo")


def mark(engine: str, algorithm: str = "") -> Any:
    """That of an engine's test: what another has shown already is thorough."""
    thorough = (
        engine != "jax"
        if not algorithm
        else (algorithm in ON_JAX) != (engine == "jax") or algorithm in THOROUGH
    )
    return pytest.mark.thorough if thorough else pytest.mark.slow


@pytest.mark.parametrize(
    "engine, algorithm",
    [pytest.param(e, a, marks=mark(e, a)) for e in ("torch", "jax") for a in LEARNING],
)
def test_known_environments_are_solved(engine: str, algorithm: str) -> None:
    run(engine, *LEARNING[algorithm])


@pytest.fixture(scope="module")
def reference() -> Any:
    """How each run begins on torch."""
    return run("torch", "first_rollout")["first_rollout"]


@pytest.mark.parametrize(
    "engine",
    [pytest.param(e, marks=pytest.mark.slow if e == "torch" else mark(e)) for e in ENGINES],
)
def test_short_contracts(engine: str, reference: Any) -> None:
    """Reproducible, resumable, refuses NaN; each optimizer on its own networks; one seed begins the
    same run on every engine. One test, since an engine is best started once."""
    # XLA compiles for a minute for each of these; tests/runs/test_resume.py compares and resumes
    # whole runs
    left_out = {"tensorflow": ("reproducible", "resumes"), "jax": COMPILED}.get(engine, ())
    of_each = "first_rollout_of_each_algorithm"  # variants are begun on jax by a thorough test
    cases = [c for c in SHORT if c not in left_out]
    cases = [of_each if (engine, c) == ("jax", "first_rollout") else c for c in cases]
    found = run(engine, *cases)
    check_owners(engine, found["touches_only_its_own"])
    assert of_each in found or found["first_rollout"].keys() == reference.keys()
    compare(found.get(of_each) or found["first_rollout"], reference)


@pytest.mark.thorough
def test_one_seed_gives_one_run_and_nan_is_refused_on_jax(reference: Any) -> None:
    found = run("jax", *(case for case in COMPILED if case != "resumes"), "first_rollout")
    assert found["first_rollout"].keys() == reference.keys()
    compare(found["first_rollout"], reference)


def compare(rollouts: dict[str, Any], reference: dict[str, Any]) -> None:
    """How runs begin on an engine with how they begin on torch."""
    # QMIX without its mixing network; SAC with other critics; MAPPO with another network
    missing = LEARNING.keys() - rollouts.keys() - {"vdn", "tqc", "mat"}
    missing -= {name for name in LEARNING if ", " in name}  # more of an algorithm's
    assert not missing and rollouts.keys() <= reference.keys()
    for name, mine in rollouts.items():
        weights, rollout, expected = reference[name]
        assert mine[0] == weights, f"{name}: the first weights"
        assert mine[1] == rollout, f"{name}: the first rollout"
        losses = mine[2]
        for key in expected:
            assert losses[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-6), f"{name}: {key}"


def check_owners(engine: str, owners: dict[str, list[str]]) -> None:
    """Which optimizers changed weights, by algorithm."""
    assert (
        owners["sac"] == ["critic", "actor", "temperature"]
        and owners["dqn"] == ["q"]
        and owners["ppo"] == ["ppo"]
    )
    assert owners["a2c"] == ["a2c"]
    if engine == "torch":
        assert owners["a2c_noisy"] == owners["a2c_lstm"] == ["a2c"]
        assert owners["dqn_noisy"] == ["q"] and owners["ppo_recurrent"] == ["ppo"]
    assert owners["sac_discrete"] == owners["sac"]
    assert owners["trpo"] == ["actor", "critic"]
    assert all(owners[n] == ["net"] for n in ("a3c", "impala", "acer", "nstep_q"))
    assert owners["ddpg"] == owners["td3"] == owners["maddpg"] == ["critic", "actor"]
    assert owners["qmix"] == owners["pqn"] == ["q"] and owners["mappo"] == ["ppo"]
