import signal
import time

import pytest

from tests.helpers import run_python
from tests.parallel.processes import gone

PRINT = "import json, os; print(json.dumps(os.environ.get('{}')))"


@pytest.mark.parametrize(
    "engine, backend",
    [
        ("jax", "jax"),
        pytest.param("tensorflow", "tensorflow", marks=pytest.mark.slow),
        ("keras-torch", "torch"),
        ("torch", None),
    ],
)
def test_the_engine_is_chosen_whatever_the_parent_has(engine, backend, monkeypatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "openvino")
    assert run_python(PRINT.format("KERAS_BACKEND"), engine=engine) == [backend]


def test_the_child_has_one_thread_and_env_overrides(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    code = PRINT.format("OMP_NUM_THREADS")
    assert run_python(code) == ["1"]
    assert run_python(code, env={"OMP_NUM_THREADS": "2"}) == ["2"]


def test_a_failure_shows_the_childs_traceback_or_output_that_is_not_json() -> None:
    says = r"(?s)ended with status 1.*snippet\.py.*ZeroDivisionError"
    for code, said in (("1 / 0", says), ("print('hello')", r"(?s)not JSON.*hello")):
        with pytest.raises(AssertionError, match=said):
            run_python(code)


@pytest.mark.slow
def test_a_child_that_hangs_is_killed_with_its_own_processes(tmp_path) -> None:
    note = tmp_path / "pid"
    code = f"""
        import pathlib, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        pathlib.Path({str(note)!r}).write_text(str(child.pid))
        time.sleep(60)
    """
    began = time.monotonic()
    with pytest.raises(AssertionError, match="still running after 2"):
        run_python(code, timeout=2.0)
    assert time.monotonic() - began < 20
    assert gone([int(note.read_text(encoding="utf-8"))])


def test_a_snippet_after_one_that_was_interrupted_gets_its_own_answer() -> None:
    def raises(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, raises)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)  # as pytest's timeout does
        with pytest.raises(TimeoutError):
            run_python("import time; time.sleep(60)", engine="torch")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert run_python("print(7)", engine="torch") == [7]
