"""What a run does at the events of its loop: each observer by itself; means of metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.backends.backend import Outcome
from tandem.errors import NonFiniteError
from tandem.learning import events
from tandem.learning.config import Config, Options
from tandem.learning.learners import checked
from tandem.runs import checkpoint
from tandem.runs.observers import Checkpoints, Evaluations, Every
from tandem.runs.table import Averages, Table
from tandem.runs.writers import read_table
from tandem.types import Episode


def at(steps: int) -> tuple[int, int, int, float]:
    return (steps, steps // 4, steps // 20, steps / 100)


def block(steps: int, **metrics: float) -> events.BatchEnd:
    return events.BatchEnd(*at(steps), metrics)


def scored(steps: int, mean: float, best: bool) -> events.EvaluationEnd:
    return events.EvaluationEnd(*at(steps), events.Evaluation.of([mean], [1]), best)


def test_every_so_many_steps_is_at_the_first_look_beyond_each_multiple() -> None:
    every = Every(10)
    assert [n for n in range(0, 60, 4) if every(n)] == [12, 20, 32, 40, 52]
    every = Every(10)
    assert [n for n in (35, 36, 40) if every(n)] == [35, 40], "those that were missed are one"


def evaluations(means: list[float], weights: Any = None, steps: int = 100) -> Evaluations:
    given = iter(means)

    def evaluate() -> events.Evaluation:
        return events.Evaluation.of([next(given)], [7])

    return Evaluations(Every(10), steps, evaluate, weights, lambda: np.nan, lambda now: iter(()))


def test_evaluations_say_which_is_the_best_and_remember_its_weights() -> None:
    now = [0]
    observer = evaluations([3, 1, 3], lambda: {"actor": {"w": np.array(now)}})
    best, kept = [], []
    for now[0] in (10, 20, 30):
        best += [(event.best, event.tie) for event in observer.on_batch_end(block(now[0]))]
        kept.append(int(observer.best_weights["actor"]["w"][0]))
    assert best == [(True, False), (False, False), (True, True)] and kept == [10, 10, 30]
    assert observer.last is not None and (observer.last.mean, observer.best) == (3.0, 3.0)


def test_without_evaluations_the_best_is_by_training_returns_and_is_saved() -> None:
    means, saved = [np.nan, 3.0, 1.0, 3.0], list[int]()

    def save(now: Any) -> Any:
        saved.append(now["env_steps"])
        yield block(0)

    none = events.Evaluation.of([], [])
    observer = Evaluations(Every(10), 100, lambda: none, None, lambda: means.pop(0), save)
    told = [len(list(observer.on_batch_end(block(steps)))) for steps in (10, 20, 30, 40)]
    assert told == [0, 1, 0, 1] and saved == [20, 40] and observer.last is None


def test_a_complete_run_ends_with_an_evaluation_and_no_step_has_two() -> None:
    observer = evaluations([1, 2, 3])
    ends = [events.TrainEnd(*at(n), "steps") for n in (95, 100, 100)]
    assert [len(list(observer.on_train_end(end))) for end in ends] == [0, 1, 0]
    assert not list(observer.on_batch_end(block(5)))


def checkpoints(folder: Path, **options: Any) -> Checkpoints:
    given = {"seconds": 1000.0, "keep": 2, "every": Every(0), "save_at_begin": True} | options
    return Checkpoints(folder, lambda whole: ({"whole": whole}, {}), **given)


def names(folder: Path) -> set[str]:
    return {file.stem for file in folder.glob("*.zip")}


def test_the_newest_numbered_checkpoints_stay_and_the_best(tmp_path: Path) -> None:
    observer = checkpoints(tmp_path)
    said = []
    for steps, best in ((10, True), (20, False), (30, False)):
        said += [event.path.stem for event in observer.on_evaluation(scored(steps, 1.0, best))]
    assert said == ["best", "step-000000010", "step-000000020", "step-000000030"]
    assert names(tmp_path) == {"best", "step-000000020", "step-000000030"}
    assert observer.numbered == ["step-000000020", "step-000000030"]
    list(checkpoints(tmp_path / "none", keep=0).on_evaluation(scored(10, 1.0, False)))
    assert not (tmp_path / "none").exists()


def test_checkpoints_that_stay_are_agents_and_only_the_last_is_a_whole_run(tmp_path: Path) -> None:
    observer = checkpoints(tmp_path, every=Every(50))
    list(observer.on_train_begin(events.TrainBegin(*at(0), 100, 100)))
    for steps in (40, 60):
        list(observer.on_batch_end(block(steps)))
    list(observer.on_train_end(events.TrainEnd(*at(80), "stop_at")))
    assert names(tmp_path) == {"last", *(f"kept-{n:09d}" for n in (0, 60, 80))}
    whole = {n for n in names(tmp_path) if checkpoint.read(tmp_path / f"{n}.zip").data["whole"]}
    assert whole == {"last"}


def test_the_last_checkpoint_is_written_as_often_as_time_allows(tmp_path: Path) -> None:
    observer = checkpoints(tmp_path, seconds=0.0, save_at_begin=False)
    assert not list(observer.on_train_begin(events.TrainBegin(*at(0), 100, 100)))
    assert [event.path.stem for event in observer.on_batch_end(block(10))] == ["last"]
    assert observer.pause > 0, "writing may take a twentieth of the time"
    observer.pause = 1000.0
    assert not list(observer.on_batch_end(block(20)))


@pytest.mark.parametrize("evaluated", [True, False])
def test_rows_are_written_when_due_and_after_an_evaluation(tmp_path: Path, evaluated: bool) -> None:
    conf = Config("ppo", "E-v0", "torch", "cpu", 0, None, Options(tensorboard=False))
    averages = Averages()
    table = Table(conf, tmp_path, averages, Every(20), lambda: "f")
    table.open(0)
    averages.on_episode_end(events.EpisodeEnd(*at(8), Episode(0, 3.0, 8, True)))
    for event in (block(10, loss=1.0), block(20, loss=3.0), block(30, loss=5.0)):
        averages.on_batch_end(event)
        if evaluated and event.env_steps == 30:
            table.on_evaluation(scored(30, 7.0, True))
        table.on_batch_end(event)
    table.on_train_end(events.TrainEnd(*at(30), "stop_at"))
    table.close()
    columns, cells = read_table(tmp_path / "progress.csv")
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    assert [row["env_steps"] for row in rows] == (["20", "30"] if evaluated else ["20"])
    assert (rows[0]["loss"], rows[0]["return_mean"], rows[0]["eval_mean"]) == ("2.0", "3.0", "")
    if evaluated:
        assert (rows[1]["loss"], rows[1]["eval_mean"], rows[1]["eval_std"]) == ("5.0", "7.0", "0.0")


# Metrics that not every update has: NaN stands for "not measured"


def outcome(applied: int, fault: str = "", **metrics: list[float]) -> Outcome:
    arrays = {n: np.array(v, np.float32) for n, v in metrics.items()}
    return Outcome(arrays, (), applied, False, fault)


def test_a_mean_is_over_the_updates_that_have_the_metric() -> None:
    some = {"actor": [np.nan, 4, np.nan, 8], "never": [np.nan] * 4}
    assert checked(outcome(4, critic=[1, 2, 3, 6], **some), 4) == {"critic": 3.0, "actor": 6.0}
    assert checked(outcome(1, critic=[2], actor=[np.nan]), 1) == {"critic": 2.0}
    assert checked(outcome(0, critic=[5]), 0) == {}  # the row of the update that asked to stop
    assert checked(outcome(2, critic=[1, 2, 99]), 2) == {"critic": 1.5}


def test_a_refused_update_is_an_error_whatever_its_metrics() -> None:
    with pytest.raises(NonFiniteError, match="'critic' was not finite in update 8"):
        checked(outcome(1, "critic", loss=[1, np.nan]), 7)


def test_a_row_averages_each_metric_over_the_calls_that_had_it() -> None:
    averages = Averages()
    for metrics in ({"critic": 1.0}, {"critic": 3.0, "actor": 5.0}, {}):
        averages.on_batch_end(events.BatchEnd(1, 2, 0, 0.5, metrics))
    resumed = Averages()
    resumed.load_state(averages.state())
    for each in (averages, resumed):
        assert each.of_metrics() == {"critic": 2.0, "actor": 5.0}
        assert each.of_metrics() == {}, "the next row begins at nothing"
