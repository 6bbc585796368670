"""A loop over a session's events that is left: the run continues as if it had not been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.learning import events
from tandem.runs.callbacks import Callback
from tests.runs.shared import QUICK, rows

SMALL = QUICK | {"steps": 320, "envs": 2, "vectorization": "plain", "log_every": 40}
SMALL |= {"eval_every": 80, "eval_episodes": 2}
PPO = {"rollout": 16, "batch_size": 16, "epochs": 1}
DQN = {"learning_starts": 40, "train_every": 8, "batch_size": 8, "buffer_size": 300}
A3C = {"learners": 2, "envs": 1, "rollout": 8, "staleness": 1}
KINDS = (events.BatchBegin, events.BatchEnd, events.EpisodeEnd, events.EvaluationEnd)
PAST = 130  # steps after which a run is left


class Display(Callback):
    """Notes the events that it is given, and whether it gave its terminal back."""

    def __init__(self) -> None:
        self.seen: list[events.Event] = []
        self.closed = False

    def on_batch_end(self, event: events.BatchEnd) -> None:
        self.seen.append(event)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def untimed(folder: Path) -> list[list[str]]:
    timed = ("second", "time", "share")
    return [[x for n, x in row.items() if not any(t in n for t in timed)] for row in rows(folder)]


@pytest.mark.parametrize(
    "algorithm, given, kinds",
    [
        ("ppo", PPO, (events.TrainBegin, events.CheckpointSaved, *KINDS)),
        ("dqn", DQN, (events.EpisodeEnd, events.BatchBegin)),
        ("dqn", DQN | {"workers": 1, "ahead": 1}, [events.EpisodeEnd]),
        ("a3c", A3C, [events.BatchBegin]),
    ],
)
def test_a_run_that_is_left_continues_as_if_it_had_not_been(
    algorithm, given, kinds, tmp_path
) -> None:
    def session(name: str, **more: Any) -> Any:
        options = SMALL | given | more
        return tandem.session(algorithm, "CartPole-v1", out=tmp_path / name, **options)

    whole = session("whole")
    list(whole)
    for kind in kinds:
        folder, display = tmp_path / kind.__name__, Display()
        left = session(kind.__name__, callbacks=[display])
        for event in left:
            if isinstance(event, kind) and (kind is events.TrainBegin or event.env_steps > PAST):
                break
        assert display.closed
        assert not display.seen or display.seen[-1].env_steps <= event.env_steps
        at = left.loop.env_steps
        assert at == event.env_steps or kind in (events.EpisodeEnd, events.BatchBegin)
        resumed = tandem.session(resume=folder)
        first, *_, last = resumed
        assert first.env_steps == at and isinstance(last, events.TrainEnd)
        assert resumed.fingerprint() == whole.fingerprint()
        assert untimed(folder) == untimed(tmp_path / "whole")
        assert resumed.evaluations.best == whole.evaluations.best


def test_a_generator_that_is_kept_saves_when_it_is_closed(tmp_path: Path) -> None:
    run = tandem.session("ppo", "CartPole-v1", out=tmp_path / "run", **SMALL, **PPO)
    source = iter(run)
    while not isinstance(event := next(source), events.BatchEnd) or event.env_steps < PAST:
        pass
    assert next(iter(tandem.session(resume=tmp_path / "run"))).env_steps == 0
    source.close()
    assert next(iter(tandem.session(resume=tmp_path / "run"))).env_steps == event.env_steps
