"""A loop over a session's events that is left: what was learned is saved, and the run continues as
if it had not been left."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.learning.events import (
    BatchBegin,
    BatchEnd,
    CheckpointSaved,
    EpisodeEnd,
    EvaluationEnd,
    Event,
    TrainBegin,
    TrainEnd,
)
from tandem.runs.callbacks import Callback

SMALL: dict[str, Any] = {
    "framework": "torch",
    "steps": 320,
    "envs": 2,
    "hidden": (8,),
    "vectorization": "plain",
    "eval_every": 80,
    "eval_episodes": 2,
    "log_every": 40,
    "plots": False,
    "tensorboard": False,
}
PPO = {"rollout": 16, "batch_size": 16, "epochs": 1}
DQN = {"learning_starts": 40, "train_every": 8, "batch_size": 8, "buffer_size": 300}
A3C = {"learners": 2, "envs": 1, "rollout": 8, "staleness": 1}
PAST = 130  # steps after which a run is left


class Display(Callback):
    """Notes the events that it is given, and whether it gave its terminal back."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.closed = False

    def on_batch_end(self, event: BatchEnd) -> None:
        self.seen.append(event)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def rows(folder: Path) -> list[list[str]]:
    """The table of a run, without its times."""
    with open(folder / "progress.csv", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    timed = ("seconds", "second", "time", "share")
    return [[x for n, x in row.items() if not any(t in n for t in timed)] for row in found]


@pytest.mark.parametrize(
    ("algorithm", "given", "kind"),
    [
        *(("ppo", PPO, k) for k in (EpisodeEnd, BatchBegin, BatchEnd, EvaluationEnd)),
        *(("ppo", PPO, k) for k in (CheckpointSaved, TrainBegin)),
        *(("dqn", DQN, k) for k in (EpisodeEnd, BatchBegin, BatchEnd, EvaluationEnd)),
        ("dqn", DQN | {"workers": 1, "ahead": 1}, EpisodeEnd),
        ("a3c", A3C, BatchBegin),
    ],
)
def test_a_run_that_is_left_continues_as_if_it_had_not_been(
    algorithm: str, given: dict[str, Any], kind: type[Event], tmp_path: Path
) -> None:
    def session(name: str, **more: Any) -> Any:
        options = SMALL | given | more
        return tandem.session(algorithm, "CartPole-v1", out=tmp_path / name, **options)

    whole = session("whole")
    list(whole)
    display = Display()
    left = session("left", callbacks=[display])
    for event in left:
        if isinstance(event, kind) and (kind is TrainBegin or event.env_steps > PAST):
            break
    assert display.closed
    assert not display.seen or display.seen[-1].env_steps <= event.env_steps
    at = left.loop.env_steps
    assert at == event.env_steps or kind in (EpisodeEnd, BatchBegin)
    resumed = tandem.session(resume=tmp_path / "left")
    events = list(resumed)
    assert events[0].env_steps == at and isinstance(events[-1], TrainEnd)
    assert resumed.fingerprint() == whole.fingerprint()
    assert rows(tmp_path / "left") == rows(tmp_path / "whole")
    assert resumed.evaluations.best == whole.evaluations.best


def test_a_generator_that_is_kept_saves_when_it_is_closed(tmp_path: Path) -> None:
    run = tandem.session("ppo", "CartPole-v1", out=tmp_path / "run", **SMALL, **PPO)
    events = iter(run)
    while not isinstance(event := next(events), BatchEnd) or event.env_steps < PAST:
        pass
    assert next(iter(tandem.session(resume=tmp_path / "run"))).env_steps == 0
    events.close()
    assert next(iter(tandem.session(resume=tmp_path / "run"))).env_steps == event.env_steps
