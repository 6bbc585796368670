"""`python -m tandem.testing`."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tandem.testing import engine_checks, self_test
from tandem.testing.engine_checks import RUNS, Checks, Short, Wrong
from tests.helpers import ROOT


def said(engines: list[str], **more: object) -> tuple[int, list[str]]:
    lines: list[str] = []
    return self_test.self_test(engines, tell=lines.append, **more), lines  # type: ignore[arg-type]


@pytest.fixture
def child(monkeypatch) -> Any:
    """Has jax be the engine that is installed, and its child run this program."""
    monkeypatch.setattr(self_test, "installed", lambda: ["jax"])
    return lambda program: monkeypatch.setattr(self_test, "CHILD", ("-c", program))


def test_an_engine_that_is_missing_is_skipped_unless_it_was_asked_for(child, monkeypatch) -> None:
    child('print(\'{"check": "ppo trains", "said": "well", "seconds": 1.5}\')')
    code, lines = said([])
    assert code == 0 and lines[-1].startswith("1 passed, 0 failed, in ")
    skipped = [line.split()[0] for line in lines[1:-1] if " skip " in line]
    assert skipped == ["torch", "tensorflow", "keras-torch"]
    assert "skip            not installed: pip install 'tandem-rl[torch]'" in lines[1]
    (done,) = [line for line in lines if line.startswith("jax")]
    assert done.split() == ["jax", "ppo", "trains", "ok", "1.5", "s", "well"]
    code, lines = said(["tensorflow"])
    assert code == 1 and "FAULT" in lines[1] and lines[-1].startswith("0 passed, 1 failed")
    monkeypatch.setattr(self_test, "installed", list)
    code, lines = said([])
    assert code == 1 and "pip install 'tandem-rl[jax]'" in lines[-2]


@pytest.mark.parametrize(
    ("ending", "patience", "how"),
    [("sys.exit(3)", 60.0, "with code 3"), ("time.sleep(60)", 1.0, "still ran after 1 s")],
)
def test_an_engine_that_dies_or_stands_still_is_a_fault(child, ending, patience, how) -> None:
    program = "import sys, time; print('what it said', file=sys.stderr, flush=True)"
    child(f"{program}; {ending}")
    code, lines = said(["jax"], patience=patience)
    assert code == 1 and how in lines[1] and lines[2] == "    what it said"


def test_arguments_that_cannot_be_are_told(capsys, tmp_path: Path) -> None:
    for words in (["troch"], ["--timeout", "0"], ["--keep", str(tmp_path)]):
        assert self_test.main(words) == 2
        error = capsys.readouterr().err
        assert "Fix: " in error and ("expected " in error or "did you mean" in error), error


@pytest.mark.slow
def test_it_notices_what_goes_wrong(tmp_path: Path, monkeypatch) -> None:
    """Each check is passed first, and then is not, for what it is there to notice."""
    small = {"steps": 256, "envs": 4, "rollout": 16, "batch_size": 64, "log_every": 64}
    run = Short({**small, "eval_every": 128, "eval_episodes": 1}, 5.0, {"workers": 2, "steps": 128})
    monkeypatch.setitem(RUNS, "ppo", run)
    checks = Checks("torch", tmp_path)
    assert "256 steps of CartPole-v1" in checks.trains("ppo")
    assert checks.loads("ppo") and "equal" in checks.resumes("ppo") and checks.verifies("ppo")
    assert "2 processes" in checks.works("ppo")
    table = tmp_path / "ppo" / "progress.csv"
    text = table.read_text(encoding="utf-8")
    (first, *_) = csv.DictReader(text.splitlines())
    table.write_text(text.replace(first["fingerprint"], "0" * 16, 1))
    with pytest.raises(Wrong, match="it differs"):
        checks.verifies("ppo")
    (tmp_path / "ppo-resumed").rename(tmp_path / "before")
    with pytest.raises(Wrong, match="fingerprints of weights differ"):
        checks.resumes("ppo")
    agent = checks._results["ppo"].agent
    monkeypatch.setattr(type(agent), "act", lambda self, obs: [id(self)])
    with pytest.raises(Wrong, match="acts otherwise"):
        checks.loads("ppo")
    monkeypatch.setitem(RUNS, "ppo", run._replace(least=1e6))
    (tmp_path / "ppo").rename(tmp_path / "first")
    with pytest.raises(Wrong, match="at least 1e\\+06 was expected"):
        checks.trains("ppo")


@pytest.mark.slow
def test_what_raises_is_told_with_its_traceback(tmp_path: Path) -> None:
    """An engine that is broken: torch without `torch.Tensor`, as a damaged installation has it."""
    broken = tmp_path / "torch"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libtorch_cpu.so is damaged')")
    command = [sys.executable, "-m", "tandem.testing.engine_checks", "torch", f"{tmp_path}/runs"]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    child = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    assert child.returncode == 0 and len(answers) == 5 * len(engine_checks.RUNS)
    assert "ImportError: libtorch_cpu.so is damaged" in answers[0]["fault"]
    assert "Traceback" in answers[0]["trace"]


@pytest.mark.thorough
def test_it_passes_on_every_engine() -> None:
    code, lines = said([])
    assert code == 0, "\n".join(lines)
