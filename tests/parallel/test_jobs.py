"""Calls in processes: in order, side by side, made again where a process is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tandem.errors import WorkerError
from tandem.workers.jobs import Call, Caller, Jobs, Processes, Request, results
from tests.helpers import runs


def square(x: int) -> tuple[int, int]:
    return x * x, os.getpid()


def unlucky(x: int, folder: Path, times: int) -> int:
    """Ends its process, the first times that it is called with this number."""
    marks = len(list(folder.glob(f"{x}-*")))
    (folder / f"{x}-{marks}-{os.getpid()}").touch()
    if x == 1 and marks < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail(message: str) -> None:
    raise ValueError(message)


def named(function: Any, *each: tuple[Any, ...]) -> list[Call]:
    return [Call(f"call {i}", function, arguments) for i, arguments in enumerate(each)]


def test_results_are_in_order_and_told_as_they_come() -> None:
    done: list[int] = []
    calls = named(square, *((x,) for x in range(5)))
    found = results(calls, 2, lambda i, result: done.append(i))
    assert [r[0] for r in found] == [0, 1, 4, 9, 16] and sorted(done) == list(range(5))
    pids = {r[1] for r in found}
    fresh = results(named(square, (1,), (2,), (3,)), 1, most=1)
    assert len({pid for _, pid in fresh}) == 3
    assert len(pids) == 2 and os.getpid() not in pids and not any(map(runs, pids))


def test_a_call_is_made_again_where_its_process_was_killed(tmp_path: Path) -> None:
    calls = named(unlucky, (0, tmp_path, 2), (1, tmp_path, 2), (2, tmp_path, 2))
    with pytest.warns(UserWarning, match=r"call 1 was killed .*; it is run again") as warned:
        assert results(calls, 2) == [0, 1, 2]
    assert [str(w.message)[-9:] for w in warned] == ["(1 of 3).", "(2 of 3)."]


def test_a_process_that_is_lost_too_often_ends_all(tmp_path: Path) -> None:
    calls = named(unlucky, (1, tmp_path, 9))
    raises = pytest.raises(WorkerError, match="call 0 was killed")
    with pytest.warns(UserWarning, match="run again"), raises as caught:
        results(calls, 1, again=1)
    assert "1 had been lost before" in caught.value.expected and caught.value.fix
    assert not any(runs(int(mark.name.split("-")[-1])) for mark in tmp_path.iterdir())


def test_what_raises_is_not_made_again() -> None:
    with pytest.raises(WorkerError, match="call 0 raised ValueError: mine") as caught:
        results(named(fail, ("mine",)), 1)
    assert "in fail" in str(caught.value)


def test_no_process_is_left_when_it_is_interrupted() -> None:
    jobs, began = Jobs(Processes(Caller), 2), time.monotonic()
    waits = [0.1, 60.0]

    def heard(seconds: float, answer: Any) -> None:
        running.extend(worker.handle.pid for worker in jobs._running)
        raise KeyboardInterrupt

    running: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        jobs.run(lambda: (s := waits.pop(0), Request("call", (wait, s))) if waits else None, heard)
    assert running and not any(map(runs, running)) and time.monotonic() - began < 30


class Slow(Caller):
    def __init__(self) -> None:
        time.sleep(60)


@pytest.mark.parametrize(("make", "given", "late"), [(Caller, {}, 0.3), (Slow, {"start": 0.3}, 60)])
def test_a_job_and_a_start_have_their_time(make: Any, given: Any, late: float) -> None:
    waits, lost = [Request("call", (wait, 60), late)], list[Any]()
    jobs = Jobs(Processes(make), 1, **given)
    jobs.run(lambda: (0, waits.pop()) if waits else None, lambda i, x: lost.append(x))
    assert str(lost[0]) == "did not respond for 0.3 s" and lost[0].at_start is bool(given)
