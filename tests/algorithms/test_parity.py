"""From the same weights and batches, after 20 updates by plain gradient descent, every engine
stands where a slow, independent reference in float64 stands."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest
from filelock import FileLock

from tests.algorithms import cases
from tests.helpers import COMPILED_LIGHTLY, run_python

SCRIPT = Path(cases.__file__)


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By the reference, which takes a while: one of the processes that test has it for all."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    path = folder / "expected.npz"
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            np.savez(path, **{quote(n, safe=""): x for n, x in by_reference().items()})
        with np.load(path) as found:
            return {unquote(n): found[n] for n in found.files}


def by_reference() -> dict[str, Any]:
    from tests.algorithms.reference_memories import KINDS as REMEMBERING
    from tests.algorithms.reference_sequences import KINDS

    found: dict[str, Any] = {}
    for name, case in cases.CASES.items():
        algorithm, _, batches = cases.prepared(case, "torch")
        first = {n: net.read() for n, net in cases.trained(algorithm).items()}
        kinds = REMEMBERING if algorithm.sequence and case.algorithm in REMEMBERING else KINDS
        paper = kinds.get(name, kinds[case.algorithm])(first, algorithm.settings)
        paper.action = case.action
        metrics = paper.run(batches)
        found[f"{name}: applied"] = metrics.pop("applied", [cases.UPDATES])[0]
        found |= {f"{name}: {m}": np.array(values) for m, values in metrics.items()}
        found |= {f"first {name}: {n} {k}": w for n, net in first.items() for k, w in net.items()}
        found |= {
            f"{name}: {n} {k}": w.detach().numpy()
            for n, net in paper.nets.items()
            for k, w in net.items()
        }
    return found


@pytest.mark.slow
def test_the_reference_learns_stops_and_moves_what_it_should(expected) -> None:
    stopped = "ppo multi-categorical"
    assert 3 < expected[f"{stopped}: applied"] < cases.UPDATES - 3
    assert len(expected[f"{stopped}: kl"]) == expected[f"{stopped}: applied"] + 1
    assert expected["dqn: loss"][-5:].mean() < 0.9 * expected["dqn: loss"][:5].mean()
    assert np.ptp(expected["sac: temperature"]) > 0.1
    weights = [n for n in expected if "/" in n and not n.startswith("first ")]
    far = {n: np.abs(expected[n] - expected[f"first {n}"]).max() for n in weights}
    moved = [x for n, x in far.items() if n.endswith("/kernel")]
    sigmas = [x for n, x in far.items() if "_sigma" in n]
    assert len(sigmas) == 12 and min(sigmas) > 1e-4
    assert len(moved) > 30 and min(moved) > 3e-4  # far more than engines may differ by


# they compile
LONG = [
    pytest.param(engine, marks=pytest.mark.slow)
    for engine in ("jax few", "tensorflow few", "torch graphs few")
]
WHOLE = [
    pytest.param(engine, marks=pytest.mark.thorough)
    for engine in ("keras-torch", "jax", "tensorflow", "torch graphs", "torch compile some")
]
ENGINES = ["torch", *LONG, *WHOLE]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_agrees_with_the_reference(engine, expected, tmp_path) -> None:
    framework, *flags = engine.split()
    part = {"some", "few"} & {*flags}
    file, env = str(tmp_path / "found.npz"), COMPILED_LIGHTLY if part else {}
    arguments = (SCRIPT, framework, file, *flags)
    (names,) = run_python(*arguments, engine=framework, timeout=550, env=env)
    found = np.load(file)
    assert set(names) <= expected.keys() and len(names) > 50
    assert part or len(names) == len(expected)
    wrong = []
    for name in names:
        wanted = expected[name]
        got = found[name]
        if got.shape != np.shape(wanted) or got.dtype not in (np.float32, np.int64):
            wrong.append(f"{name}: {got.dtype} {got.shape}, expected {np.shape(wanted)}")
            continue
        weight = "/" in name.split()[-1]
        allowed = 3e-6 * np.maximum(1, np.abs(wanted)) if weight else 1e-6 + 1e-5 * np.abs(wanted)
        if (np.abs(got - wanted) > allowed).any() or (np.isnan(got) != np.isnan(wanted)).any():
            wrong.append(f"{name}: off by {np.abs(got - wanted).max():.2e}")
    assert not wrong, "\n".join(wrong)
