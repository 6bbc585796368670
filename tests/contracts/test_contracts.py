"""Every algorithm keeps its contract, on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

SNIPPET = Path(__file__).parent / "snippets" / "contracts.py"
pytestmark = pytest.mark.timeout(600)  # TensorFlow compiles every loop of the short contracts again
SOLVED = ("sac", "ppo", "impala")  # in every run of the tests; the others are relatives of them
# which learn these games many times quicker on JAX; the others on torch
ON_JAX = ("sac", "dqn", "dqn, distributions", "ddpg", "td3", "tqc", "crossq", "vdn", "qmix")
ON_JAX += ("maddpg",)
ON_TORCH = ("ppo", "impala", "ppo, slowly", "sac, categorical", "a2c", "trpo", "a3c", "acer")
ON_TORCH += ("nstep_q", "pqn", "mappo", "mat")
HERE = {*(("jax", name) for name in ON_JAX), *(("torch", name) for name in ON_TORCH)}


def run(engine: str, *cases: str, light: bool = True) -> dict[str, Any]:
    env = COMPILED_LIGHTLY if light else {}
    said = run_python(SNIPPET, engine, *cases, engine=engine, timeout=550, env=env)  # type: ignore[arg-type]
    assert [s["case"] for s in said] == list(cases)
    assert not [s for s in said if s["failed"]], said
    return {s["case"].partition("=")[0]: s["found"] for s in said}


def mark(engine: str, algorithm: str) -> Any:
    here = algorithm in SOLVED and (engine, algorithm) in HERE
    return pytest.mark.slow if here else pytest.mark.thorough


@pytest.mark.parametrize(
    "engine, algorithm",
    [
        pytest.param(engine, name, marks=mark(engine, name))
        for engine in ("torch", "jax")
        for name in (*ON_JAX, *ON_TORCH)
    ],
)
def test_known_environments_are_solved(engine: str, algorithm: str) -> None:
    run(engine, algorithm, light=False)


# One of each algorithm, and of those one of each kind of update: of rollouts, transitions, delayed
# actors with moving statistics, whole rollouts, sequences, teams
EACH = ("dqn", "ppo", "ppo_box", "sac", "sac_discrete", "a2c", "ddpg", "trpo", "td3", "crossq")
EACH += ("a3c", "impala", "acer", "nstep_q", "pqn", "qmix", "maddpg", "mappo", "tqc", "mat", "vdn")
KINDS = ("dqn", "ppo_box", "sac", "td3", "crossq", "trpo", "acer", "maddpg", "mappo")
ON_ENGINES = EACH[:-3]  # the last three are others with other networks
SHORT = {
    "torch": {
        "reproducible": KINDS,
        "resumes": (),  # all of them
        "touches_only_its_own": EACH,
        "refuses_what_is_not_finite": KINDS,
        "first_rollout": EACH,
    },
    # tests/runs/test_resume.py compares and resumes whole runs, the parity suite compares losses
    "jax": {
        "touches_only_its_own": ("sac", "trpo"),
        "first_rollout": ("dqn", "ppo_box", "sac", "acer", "maddpg"),
    },
    "tensorflow": {
        "touches_only_its_own": ON_ENGINES,
        "refuses_what_is_not_finite": ON_ENGINES,
        "first_rollout": EACH,
    },
    "keras-torch": {
        "reproducible": ON_ENGINES,
        "resumes": ON_ENGINES[:-3],  # teams' whole runs are the same but for their losses
        "touches_only_its_own": ON_ENGINES,
        "refuses_what_is_not_finite": ON_ENGINES,
        "first_rollout": EACH,
    },
    "jax, whole": {
        "reproducible": ON_ENGINES,
        "touches_only_its_own": ON_ENGINES,
        "refuses_what_is_not_finite": ON_ENGINES,
        "first_rollout": (),
    },
}


def case(name: str, algorithms: tuple[str, ...]) -> str:
    return f"{name}={','.join(algorithms)}".rstrip("=")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(k, marks=pytest.mark.slow if k in ("torch", "jax") else pytest.mark.thorough)
        for k in SHORT
    ],
)
def test_short_contracts(kind: str) -> None:
    """Reproducible, resumable, refuses NaN; each optimizer on its own networks; one seed begins the
    same run on every engine. One test, since an engine is best started once."""
    begun = case("first_rollout", SHORT[kind]["first_rollout"])
    (reference,) = run("torch", begun).values()
    found = run(kind.partition(",")[0], *(case(*given) for given in SHORT[kind].items()))
    for name, (weights, rollout, losses) in found["first_rollout"].items():
        expected = reference[name]
        assert weights == expected[0], f"{name}: the first weights"
        assert rollout == expected[1], f"{name}: the first rollout"
        assert losses == pytest.approx(expected[2], rel=1e-5, abs=1e-6), name
    for name, owners in found["touches_only_its_own"].items():
        assert owners == OWNERS.get(name, ["net"]), name


SOFT = ["critic", "actor", "temperature"]
PAIR = ["critic", "actor"]
# Which optimizers changed weights, by algorithm
OWNERS = {"ppo": ["ppo"], "ppo_box": ["ppo"], "mappo": ["ppo"], "mat": ["ppo"], "a2c": ["a2c"]}
OWNERS |= {"trpo": ["actor", "critic"], "dqn": ["q"], "qmix": ["q"], "pqn": ["q"], "vdn": ["q"]}
OWNERS |= {"sac": SOFT, "sac_discrete": SOFT, "tqc": SOFT, "crossq": SOFT}
OWNERS |= {"ddpg": PAIR, "td3": PAIR, "maddpg": PAIR}
