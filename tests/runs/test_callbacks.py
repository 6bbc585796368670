"""Callbacks: each event reaches its method, and only True stops."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import tandem
from tandem.backends.backend import Outcome
from tandem.errors import NonFiniteError, SettingError, UnknownNameError
from tandem.learning import events
from tandem.learning.config import Config, Options
from tandem.learning.events import Evaluation, Event
from tandem.learning.learners import checked
from tandem.runs import callbacks, checkpoint
from tandem.runs.callbacks import METHODS, Callback, EarlyStop, LambdaCallback, dispatch, listed
from tandem.runs.observers import Checkpoints, Evaluations, Every
from tandem.runs.table import Averages, Table
from tandem.runs.writers import read_table
from tandem.types import EpisodeResult
from tests.runs.shared import QUICK

NOW = (100, 5, 2, 1.5)
ONE_OF_EACH: list[Event] = [
    events.TrainBegin(*NOW, 1000, 500),
    events.EpisodeBegin(*NOW, 3),
    events.EpisodeEnd(*NOW, EpisodeResult(3, 21.0, 21, True)),
    events.BatchBegin(*NOW),
    events.BatchEnd(*NOW, {"loss": 0.5}),
    events.EvaluationEnd(*NOW, Evaluation.of([1.0, 3.0], [1, 3]), True),
    events.CheckpointSaved(*NOW, Path("last.zip")),
    events.TrainEnd(*NOW, "steps"),
]


def episode(score: float) -> events.EpisodeEnd:
    return events.EpisodeEnd(*NOW, EpisodeResult(0, score, 1, True))


def test_each_kind_of_event_has_a_method_and_reaches_no_other() -> None:
    kinds = {k for k in vars(events).values() if isinstance(k, type) and issubclass(k, Event)}
    assert set(METHODS) == kinds - {Event} == {type(e) for e in ONE_OF_EACH}
    assert all(hasattr(Callback, name) for name in METHODS.values())
    seen: list[tuple[str, Event]] = []
    given = {name: lambda e, name=name: seen.append((name, e)) for name in METHODS.values()}
    callbacks = [LambdaCallback(**given), LambdaCallback(on_evaluation=seen.append), Callback()]
    for event in ONE_OF_EACH:
        assert dispatch(event, callbacks) is None
    each = [[(METHODS[type(e)], e)] for e in ONE_OF_EACH]
    each[5].append(ONE_OF_EACH[5])  # the evaluation, which a subset has too
    assert seen == [e for several in each for e in several]


def test_a_typo_will_not_do_and_hooks_of_other_libraries_are_answered_with_those_here() -> None:
    with pytest.raises(SettingError, match="on_batch_end=3"):
        LambdaCallback(on_batch_end=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_epsiode_end"):
        LambdaCallback(on_epsiode_end=print)  # type: ignore[call-arg]
    with pytest.raises(UnknownNameError, match="did you mean 'on_episode_end'"):

        class Mistyped(Callback):
            def on_epsiode_end(self, event: Event) -> None: ...

    renamed = {"_on_step": "on_batch_end", "_on_training_start": "on_train_begin"}
    renamed |= {"_on_rollout_end": "on_batch_begin", "on_epoch_end": "on_batch_end"}
    for other, here in (renamed | {"on_train_batch_end": "on_batch_end"}).items():
        with pytest.raises(UnknownNameError, match=f"rename it to '{here}'; returning True stops"):
            type("Other", (Callback,), {other: lambda self: True})


def test_only_true_stops_the_first_to_ask_names_the_reason_and_all_are_told() -> None:
    for answer in (None, False, 1, "yes", [0], np.bool_(False)):
        callback = LambdaCallback(on_episode_end=lambda e, answer=answer: answer)
        assert dispatch(episode(1.0), [callback]) is None
    told: list[str] = []
    callbacks = [
        LambdaCallback(on_episode_end=lambda e: told.append("first")),
        LambdaCallback(on_episode_end=lambda e: np.bool_(True)),
        EarlyStop(0.0, episodes=1),
        LambdaCallback(on_episode_end=lambda e: told.append("last")),
    ]
    assert dispatch(episode(1.0), callbacks) == "callback"
    assert told == ["first", "last"]
    assert dispatch(episode(1.0), callbacks[2:]) == "criterion"


def test_early_stop_looks_at_the_last_episodes_only_and_serves_several_runs() -> None:
    stop = EarlyStop(10.0, episodes=3)
    asked = [stop.on_episode_end(episode(s)) for s in (50, 50, -100, 10, 10, 9, 11, 10)]
    #                            means of three:          -       -       0  -13  -27  9.7  10   10
    assert asked == [False, False, False, False, False, False, True, True]
    wrong = [{"criterion": criterion} for criterion in ("high", float("nan"), None)]
    for given in ({"episodes": 0}, *wrong):
        ((name, value),) = given.items()
        with pytest.raises(SettingError, match=f"{name}={value!r}"):
            EarlyStop(**{"criterion": 1.0} | given)
    stop = EarlyStop(2.0, episodes=2)
    run = [events.TrainBegin(0, 0, 0, 0.0, 1000, 1000), episode(3.0), episode(3.0)]
    for _ in range(2):
        assert [dispatch(event, [stop]) for event in run] == [None, None, "criterion"]
    stop.load_state([1.0])  # a run that goes on with it
    dispatch(events.TrainBegin(*NOW, 1000, 1000), [stop])
    assert list(stop.scores) == [1.0]


def test_a_plain_function_is_given_every_event_and_what_is_no_callback_is_named() -> None:
    heard: list[Event] = []
    (function,) = listed([heard.append])
    assert [dispatch(event, [function]) for event in ONE_OF_EACH] == [None] * len(ONE_OF_EACH)
    assert heard == ONE_OF_EACH
    (stops,) = listed([lambda event: isinstance(event, events.BatchEnd)])
    reasons = [dispatch(event, [stops]) for event in ONE_OF_EACH]
    assert [r for r in reasons if r] == ["callback"]
    for given in (None, 3, [3], ["print"], [EarlyStop], [lambda: 1]):
        with pytest.raises(SettingError, match="callbacks=") as caught:
            listed(given)
        code = caught.value.fix.partition(", or ")[0].removeprefix("callbacks=")
        assert len(listed(eval(code))) == 1


class Seen(Callback):
    def __init__(self, what: object) -> None:
        self.what = what

    def state(self) -> object:
        return self.what

    def load_state(self, state: object) -> None:
        self.what = state


def test_numpys_numbers_go_into_a_checkpoint_as_pythons(tmp_path: Path) -> None:
    given = {"best": np.float32(0.5), "at": [np.int64(3), (np.bool_(True), None)], "name": "a"}
    path = tmp_path / "last.zip"
    checkpoint.write(path, {"callbacks": callbacks.state([Seen(given | {np.str_("x"): 1})])}, {})
    again = Seen(None)
    callbacks.load_state([again], checkpoint.read(path).data["callbacks"])
    assert again.what == {"best": 0.5, "at": [3, [True, None]], "name": "a", "x": 1}


@pytest.mark.parametrize(
    "given, place, fix",
    [
        ({"seen": {1, 2}}, r"Seen\.state\(\)\['seen'\] is a set: \{1, 2\}", "a list of it"),
        ([0, np.zeros(2)], r"Seen\.state\(\)\[1\] is a ndarray", r"its tolist\(\)"),
        ({(1, 2): 3}, r"a key of Seen\.state\(\) is a tuple", "a list of it"),
        (Path("a"), r"Seen\.state\(\) is a PosixPath", "a list of it"),
    ],
)
def test_what_no_checkpoint_can_hold_is_named_before_the_first_step(given, place, fix, tmp_path):
    steps: list[events.BatchEnd] = []
    callbacks = [LambdaCallback(on_batch_end=steps.append), EarlyStop(1.0), Seen(given)]
    with pytest.raises(SettingError, match=f"{place}(.|\n)*Fix: return {fix}"):
        tandem.train("a2c", "CartPole-v1", out=tmp_path, callbacks=callbacks, **QUICK)
    assert not steps


# The observers of a run, each by itself


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
    scores = Mock(side_effect=[events.Evaluation.of([mean], [7]) for mean in means])
    return Evaluations(Every(10), steps, scores, weights, lambda: np.nan, lambda now: iter(()))


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
    averages.on_episode_end(events.EpisodeEnd(*at(8), EpisodeResult(0, 3.0, 8, True)))
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


def outcome(applied: int, fault: str = "", **metrics: list[float]) -> Outcome:
    arrays = {n: np.array(v, np.float32) for n, v in metrics.items()}
    return Outcome(arrays, (), applied, False, fault)


def test_means_are_over_the_updates_that_have_the_metric() -> None:
    some = {"actor": [np.nan, 4, np.nan, 8], "never": [np.nan] * 4}
    assert checked(outcome(4, critic=[1, 2, 3, 6], **some), 4) == {"critic": 3.0, "actor": 6.0}
    assert checked(outcome(1, critic=[2], actor=[np.nan]), 1) == {"critic": 2.0}
    assert checked(outcome(0, critic=[5]), 0) == {}  # the row of the update that asked to stop
    assert checked(outcome(2, critic=[1, 2, 99]), 2) == {"critic": 1.5}
    with pytest.raises(NonFiniteError, match="'critic' was not finite in update 8"):
        checked(outcome(1, "critic", loss=[1, np.nan]), 7)
    averages = Averages()
    for metrics in ({"critic": 1.0}, {"critic": 3.0, "actor": 5.0}, {}):
        averages.on_batch_end(events.BatchEnd(1, 2, 0, 0.5, metrics))
    resumed = Averages()
    resumed.load_state(averages.state())
    for each in (averages, resumed):
        assert each.of_metrics() == {"critic": 2.0, "actor": 5.0}
        assert each.of_metrics() == {}, "the next row begins at nothing"
