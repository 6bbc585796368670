"""Environments are closed however a run ends; workers that do not end are killed with theirs."""

import gc
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import tandem
from tandem.errors import TandemError
from tandem.exploration import GreedyQPolicy
from tandem.learning.events import BatchEnd
from tandem.testing.environments import Game
from tandem.workers.process import Process, WorkerLost
from tests.agents.agents import Probe
from tests.helpers import run_python, runs
from tests.parallel.processes import gone, program

SMALL: dict[str, Any] = dict(framework="torch", steps=96, envs=4, hidden=(4,), eval_episodes=1)


class Noted(Game):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, file: Path) -> None:
        self.file = file
        self._note("made")

    def _note(self, what: str) -> None:
        with self.file.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def observe(self) -> Any:
        return np.zeros(2, np.float32)

    def play(self, action: Any) -> tuple[float, bool]:
        return 1.0, self.t == 5

    def close(self) -> None:
        self._note("closed")


class Third(Noted):
    def __init__(self, file: Path) -> None:
        if file.exists() and file.read_text(encoding="utf-8").count("made") >= 3:
            raise ValueError("no licence left")
        super().__init__(file)


def counts(file: Path) -> dict[str, list[str]]:
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    return {what: sorted(pid for w, pid in lines if w == what) for what in ("made", "closed")}


@pytest.mark.parametrize("ends", ["steps", "SIGTERM", "left"])
@pytest.mark.parametrize(
    ("algorithm", "given"),
    [
        ("ppo", {"workers": 2, "rollout": 8, "batch_size": 16}),
        ("dqn", {"workers": 2, "ahead": 1, "learning_starts": 8, "batch_size": 8}),
        ("a3c", {"learners": 2, "envs": 2, "rollout": 4, "staleness": 1}),
    ],
)
def test_environments_of_workers_and_learners_are_closed(algorithm, given, ends, tmp_path) -> None:
    file = tmp_path / "notes"
    run = tandem.session(algorithm, lambda: Noted(file), **{**SMALL, **given})
    workers = [w.process for w in run.loop.collector.group.workers]
    assert all(process.runs for process in workers)
    for event in run:
        if isinstance(event, BatchEnd):
            if ends == "SIGTERM":
                run.train_loop.take_signal("SIGTERM")
                run.train_loop.signal = None  # it is not to be raised again
            elif ends == "left":
                break
    found = counts(file)
    assert found["made"] == found["closed"] and len(set(found["made"])) == 3
    assert not any(process.runs for process in workers)


def broken(space: Any) -> Any:
    raise TandemError("no such network")


def test_environments_of_a_refused_run_are_closed(tmp_path: Path) -> None:
    unknown, elsewhere = {"no_such_setting": 1}, {"eval_env": "CartPole-v1"}
    wrong = (unknown, {"network": broken}, elsewhere, {"hindsight": "future"})
    vector = (lambda file: SyncVectorEnv([partial(Noted, file)] * 4), {"workers": 2})
    refused = [*((Noted, given) for given in wrong), (Third, {}), (Third, {"workers": 2}), vector]
    for i, (kind, given) in enumerate(refused):
        env = partial(kind, tmp_path / f"{i}")
        with pytest.raises((TandemError, ValueError)):
            tandem.session("dqn", env, **SMALL, **given)
        found = counts(tmp_path / f"{i}")
        assert found["made"] == found["closed"] != [], given


class Starts:
    """Starts a process that its own end does not end."""

    def __init__(self, session: bool, hangs: bool) -> None:
        self.hangs = hangs
        self.child = subprocess.Popen(["sleep", "600"], start_new_session=session)

    def pid(self) -> int:
        return self.child.pid

    def fail(self) -> None:
        raise ValueError("on purpose")

    def exit(self) -> None:
        os._exit(3)

    def close(self) -> None:
        if self.hangs:
            time.sleep(600)
        self.child.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="starts sleep")
@pytest.mark.parametrize(
    ("how", "session", "hangs"),
    [
        *(("end", False, True), ("end", True, True), ("kill", True, True), ("exit", False, True)),
        *(("end", True, False), ("fail", True, False), ("terminate", True, False)),
    ],
)
def test_what_a_worker_started_ends_with_it(how: str, session: bool, hangs: bool) -> None:
    """Killed where the worker hangs or exits; else it closes what it made."""
    process = Process((), Starts, session, hangs)
    process.answer(60)
    process.ask("pid")
    pid = process.answer(60)
    assert runs(pid)
    if how == "kill":
        process.kill()
    elif how == "end":
        process.end(0.3 if hangs else 5.0)
        assert hangs or process._process.returncode == 0
    else:
        process.terminate() if how == "terminate" else process.ask(how)
        said = {"exit": "exit code 3", "fail": "raised ValueError", "terminate": "died of SIGTERM"}
        with pytest.raises(WorkerLost, match=said[how]):
            process.answer(60)
    assert gone([pid]) and not process.runs


def test_environments_that_an_agent_made_are_closed_with_it(tmp_path: Path) -> None:
    file = tmp_path / "log"
    gymnasium.register("AgentNoted-v0", lambda render_mode=None: Noted(file))
    agent = Probe("AgentNoted-v0")
    agent.set(policy=GreedyQPolicy())
    for episodes in (2, 1):
        agent.train(torch.optim.SGD(agent.param, 0.01), episodes, p=0)
    assert "closed" not in file.read_text()
    del agent
    gc.collect()
    log = file.read_text().split("\n")
    assert len(log) == 3 and log[0].startswith("made") and log[1].startswith("closed")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_has_not_begun_closes_its_own(number, tmp_path, monkeypatch) -> None:
    code = """
import pathlib, signal, sys, time, gymnasium
from tandem.cli import main

class Slow(gymnasium.Wrapper):
    def __init__(self, render_mode=None):
        super().__init__(gymnasium.make("CartPole-v1"))

    def reset(self, **how):
        pathlib.Path("resetting").touch()
        time.sleep(60)

    def close(self):
        pathlib.Path("closed").touch()

gymnasium.register("Slow-v0", entry_point=Slow)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # not as by nohup
words = "train ppo Slow-v0 --framework torch --steps 64 --no-plots --quiet"
sys.exit(main(words.split()))
"""
    monkeypatch.chdir(tmp_path)
    with program(code) as process:
        while not (tmp_path / "resetting").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(30) == 128 + number and (tmp_path / "closed").exists()


@pytest.mark.parametrize("how", ["unused", "left open", "an exception"])
def test_a_session_that_nobody_ends_is_closed_with_its_process(how: str, tmp_path: Path) -> None:
    code = """
    import sys
    from pathlib import Path
    import tandem
    from tests.parallel.test_closing import SMALL, Noted
    run = tandem.session("dqn", lambda: Noted(Path(sys.argv[1])), **SMALL | {"envs": 2})
    if sys.argv[2] != "unused":
        events = iter(run)
        next(events)
    if sys.argv[2] == "an exception":
        try:
            for event in run:
                raise ValueError
        except ValueError:
            pass
    """
    run_python(code, str(tmp_path / "log"), how)
    words = (tmp_path / "log").read_text().split()
    assert words.count("made") == words.count("closed") > 2
