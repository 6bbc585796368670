"""Every algorithm keeps its contract on every engine; it learns on several devices as on one, but
for rounding; and with every kind of space it is trained, or refused by name in three parts before
a folder exists, never in a traceback of another library."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, Engine, run_python

SNIPPETS = Path(__file__).parent / "snippets"
ENGINES: tuple[Engine, ...] = ("jax", "tensorflow", "torch", "keras-torch")
pytestmark = pytest.mark.timeout(600)  # TensorFlow compiles every loop of the short contracts again
SOLVED = ("sac", "ppo", "impala")  # in every run of the tests; the others are relatives of them
# which learn these games many times quicker on JAX; the others on torch
ON_JAX = ("sac", "dqn", "dqn, distributions", "ddpg", "td3", "tqc", "crossq", "vdn", "qmix")
ON_JAX += ("maddpg",)
ON_TORCH = ("ppo", "impala", "ppo, slowly", "sac, categorical", "a2c", "trpo", "a3c", "acer")
ON_TORCH += ("nstep_q", "pqn", "mappo", "mat")
HERE = {*(("jax", name) for name in ON_JAX), *(("torch", name) for name in ON_TORCH)}
PAIRS = [(engine, name) for engine in ("torch", "jax") for name in (*ON_JAX, *ON_TORCH)]
SWEEPS = (("0", 100, 80), ("150", 30, 30))  # how many by chance; trained and refused at least


def run(engine: Any, *cases: str, light: bool = True) -> dict[str, Any]:
    env = COMPILED_LIGHTLY if light else {}
    said = run_python(
        SNIPPETS / "contracts.py", engine, *cases, engine=engine, timeout=550, env=env
    )  # type: ignore[arg-type]
    assert [s["case"] for s in said] == list(cases)
    assert not [s for s in said if s["failed"]], said
    return {s["case"].partition("=")[0]: s["found"] for s in said}


def mark(engine: str, algorithm: str) -> Any:
    here = algorithm in SOLVED and (engine, algorithm) in HERE
    return pytest.mark.slow if here else pytest.mark.thorough


@pytest.mark.parametrize(
    "engine, algorithm", [pytest.param(*pair, marks=mark(*pair)) for pair in PAIRS]
)
def test_known_environments_are_solved(engine: str, algorithm: str) -> None:
    run(engine, algorithm, light=False)


# One of each algorithm, and of those one of each kind of update: of rollouts, transitions, delayed
# actors with moving statistics, whole rollouts, sequences, teams
EACH = ("dqn", "ppo", "ppo_box", "sac", "sac_discrete", "a2c", "ddpg", "trpo", "td3", "crossq")
EACH += ("a3c", "impala", "acer", "nstep_q", "pqn", "qmix", "maddpg", "mappo", "tqc", "mat", "vdn")
KINDS = ("dqn", "ppo_box", "sac", "td3", "crossq", "trpo", "acer", "maddpg", "mappo")
ON_ENGINES = EACH[:-3]  # the last three are others with other networks
ALONE = ("dqn", "ppo_box", "sac", "acer", "maddpg")
ORDER = ("reproducible", "resumes", "touches_only_its_own", "refuses_what_is_not_finite")
ORDER += ("first_rollout",)
SHORT = {  # of which algorithms each of these: None, of none; (), of all
    "torch": (KINDS, (), EACH, KINDS, EACH),
    # tests/runs/test_resume.py compares and resumes whole runs, the parity suite compares losses
    "jax": (None, None, ("sac", "trpo"), None, ALONE),
    "tensorflow": (None, None, ON_ENGINES, ON_ENGINES, EACH),
    # teams' whole runs are the same but for their losses
    "keras-torch": (ON_ENGINES, ON_ENGINES[:-3], ON_ENGINES, ON_ENGINES, EACH),
    "jax, whole": (ON_ENGINES, None, ON_ENGINES, ON_ENGINES, ()),
}


def case(name: str, algorithms: tuple[str, ...]) -> str:
    return f"{name}={','.join(algorithms)}".rstrip("=")


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("torch", "jax")),
        *(pytest.param(kind, marks=pytest.mark.thorough) for kind in [*SHORT][2:]),
    ],
)
def test_short_contracts(kind: str) -> None:
    """Reproducible, resumable, refuses NaN; each optimizer on its own networks; one seed begins the
    same run on every engine. One test, since an engine is best started once."""
    asked = {name: of for name, of in zip(ORDER, SHORT[kind], strict=True) if of is not None}
    (reference,) = run("torch", case("first_rollout", asked["first_rollout"])).values()
    found = run(kind.partition(",")[0], *(case(*given) for given in asked.items()))
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


# Several devices (whole runs are in tests/learning)

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
OF_ONE = ("short", "uneven")  # what can be had of one algorithm in seconds
MORE = {"tensorflow": (OF_ONE,)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("engine", "cases"),
    [
        *(
            pytest.param(e, OF_ONE, marks=pytest.mark.slow, id=f"{e}-short")
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
    given = {"engine": engine, "timeout": 850, "env": COMPILED_LIGHTLY}
    run_python(SNIPPETS / "devices.py", engine, *cases, **given)


# Spaces

WHOLE = [(engine, count, 80, 80) for engine in ENGINES for count in ("0", "400")]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "engine, chosen, trained, refused",
    [
        *(pytest.param("torch", *given, marks=pytest.mark.slow) for given in SWEEPS),
        *(pytest.param(*given, marks=pytest.mark.thorough) for given in WHOLE),
    ],
)
def test_every_algorithm_with_every_kind_of_space(engine, chosen, trained, refused) -> None:
    given = {"engine": engine, "timeout": 3500, "env": COMPILED_LIGHTLY}
    ((found, wrong),) = run_python(SNIPPETS / "sweep.py", engine, chosen, **given)
    assert not wrong
    assert found["trained"] > trained and found["refused"] > refused
