"""Runs as lines of JSON: what each says, that nothing else is on stdout, resuming."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tandem.cli import main
from tandem.learning import events
from tandem.runs.json_log import JsonLog
from tandem.testing import environments as known
from tandem.types import EpisodeResult
from tests.runs.shared import CHILD, rows

SMALL = "--framework torch --no-tensorboard --no-plots --hidden 8 --eval-episodes 1 --log json"
SMALL += " --final-episodes 2 --rollout 32 --envs 2 --batch-size 64 --log-every 64 --eval-every 128"


def lines(text: str) -> list[dict[str, Any]]:
    def refused(name: str) -> Any:
        raise AssertionError(name)

    return [json.loads(line, parse_constant=refused) for line in text.splitlines()]


def test_a_run_is_lines_of_json_and_nothing_else(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "run"
    words = f"train ppo CartPole-v1 {SMALL} --steps 256 --out {folder}".split()
    assert main([*words, "--stop-at", "128"]) == 0
    half = capsys.readouterr()
    assert main(["train", "--resume", str(folder), "--log", "json"]) == 0
    whole = capsys.readouterr()
    assert half.err == whole.err == ""
    first, second = lines(half.out), lines(whole.out)
    begun = {"event": "run", "algorithm": "ppo", "seed": 0, "steps": 256, "folder": str(folder)}
    for said, at in ((first, 0), (second, 128)):
        assert said[0].items() >= (begun | {"env_steps": at}).items()
        assert [line["event"] for line in said[-2:]] == ["end", "result"]
    assert first[-2]["reason"] == "stop_at" and second[-2]["reason"] == "steps"
    assert set(second[-2]["shares"]) == {"environment", "acting", "learning"}
    said = [line for line in first + second if line["event"] == "row"]
    assert len(said) == 4
    for line, row in zip(said, rows(folder), strict=True):
        for name, cell in row.items():
            assert line.get(name) == (None if cell == "" else type(line[name])(cell)), name
    evaluations = [line for line in first + second if line["event"] == "evaluation"]
    assert [(e["env_steps"], e["episodes"]) for e in evaluations] == [(128, 1), (256, 1)]
    assert evaluations[0]["best"] is True
    saved = [line["path"] for line in first + second if line["event"] == "checkpoint"]
    assert str(folder / "checkpoints" / "best.zip") in saved
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert second[-1] == {"event": "result", **result, "folder": str(folder)}
    assert main(["train", "--resume", str(folder), "--log", "json", "--quiet"]) == 0  # all is done
    assert lines(capsys.readouterr().out) == [{"event": "result", **result}]
    quiet = ["--quiet", "--out", str(tmp_path / "quiet"), "--steps", "64"]
    assert main([*words, *quiet]) == 0
    assert [line["event"] for line in lines(capsys.readouterr().out)] == ["result"]


def test_a_signal_ends_the_stream_and_gives_its_code(tmp_path: Path, capsys, monkeypatch) -> None:
    original = JsonLog._evaluation

    def interrupted(self: JsonLog, event: events.EvaluationEnd) -> None:
        original(self, event)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(JsonLog, "_evaluation", interrupted)
    words = f"train ppo CartPole-v1 {SMALL} --steps 640 --out {tmp_path / 'a'}"
    assert main(words.split()) == 143
    last = lines(capsys.readouterr().out)[-1]
    assert (last["event"], last["reason"]) == ("end", "SIGTERM")


def test_lines_of_progress_by_a_clock() -> None:
    """A line after five seconds, with rates and what remains; what is not finite is null."""
    now, stream = [100.0], io.StringIO()
    log = JsonLog(0, stream=stream, clock=lambda: now[0])
    log(events.TrainBegin(0, 0, 0, 0.0, 1000, 1000))
    for step in range(100, 700, 100):
        now[0] += 1.0
        at = (step, step // 10, step // 100, now[0] - 100)
        log(events.EpisodeEnd(*at, EpisodeResult(0, float(step), 10, True)))
        log(events.BatchEnd(*at, {"loss": float("nan")}, {"learning": 0.5}))
    log(events.EvaluationEnd(*at, events.Evaluation.of([], []), best=False))
    log(events.TrainEnd(*at, reason="stop_at"))
    *progress, evaluation, end = lines(stream.getvalue())
    assert progress and {line["event"] for line in progress} == {"progress"}
    line = progress[-1]
    assert line["steps_per_second"] == pytest.approx(100.0)
    assert line["updates_per_second"] == pytest.approx(10.0)
    assert line["seconds_left"] == pytest.approx((1000 - line["env_steps"]) / 100)
    assert line["stop_at"] == 1000 and line["loss"] is None and line["return_mean"] > 0
    assert evaluation["mean"] is None and evaluation["episodes"] == 0
    assert end["reason"] == "stop_at" and end["shares"] == {"learning": 0.5}


class Noisy(known.InfiniteHorizon):
    """Prints whenever it is stepped, by Python and by descriptor."""

    def step(self, action: Any) -> Any:
        print("from Python")
        os.write(1, b"from C\n")
        return super().step(action)


def test_what_environments_print_is_not_on_stdout(tmp_path: Path, capfd, request) -> None:
    gymnasium.register("Noisy-v0", Noisy, max_episode_steps=10)
    request.addfinalizer(lambda: gymnasium.registry.pop("Noisy-v0"))
    place = str(tmp_path / "run")
    words = f"train ppo Noisy-v0 {SMALL} --steps 64 --batch-size 16 --workers 1 --out {place}"
    assert main(words.split()) == 0
    train = capfd.readouterr()
    assert main(["evaluate", place, "--episodes", "2", "--json"]) == 0
    evaluate = capfd.readouterr()
    assert {line["event"] for line in lines(train.out)} >= {"run", "row", "end", "result"}
    assert json.loads(evaluate.out)["lengths"] == [10, 10]
    assert train.err.count("from C") > 64 and "from Python" in train.err
    assert evaluate.err.count("from C") == evaluate.err.count("from Python") == 20
    print("mine")
    os.write(1, b"mine, too\n")
    assert capfd.readouterr() == ("mine\nmine, too\n", "")  # it is as before


SCRIPT = """
import ctypes, os, sys
from tandem import cli

def run(words):
    ctypes.CDLL(None).puts(b"kept by the C library until the end")
    cli.output.echo("{}")
    return 0

from tandem.cli import evaluate
evaluate.run = run
sys.exit(cli.main(["evaluate"]))
"""


@pytest.mark.skipif(os.name != "posix", reason="calls the C library")
@pytest.mark.parametrize("closed", ["", ">&-", ">&- 2>&-"])
def test_the_c_library_is_told_to_write_before_stdout_is_restored(closed: str) -> None:
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(SCRIPT)} {closed}"
    shell: Any = {"shell": True, "capture_output": True, "text": True, "env": CHILD}
    done = subprocess.run(command, check=True, **shell)
    assert done.stdout == ("" if closed else "{}\n")
    assert done.stderr == ("" if "2>&-" in closed else "kept by the C library until the end\n")
