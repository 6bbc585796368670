"""Callbacks: each event reaches its method, and only True stops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tandem
from tandem.errors import SettingError, UnknownNameError
from tandem.learning import events
from tandem.learning.events import Evaluation, Event
from tandem.runs import checkpoint
from tandem.runs.callbacks import (
    METHODS,
    Callback,
    EarlyStop,
    LambdaCallback,
    dispatch,
    listed,
    load_state,
    state,
)
from tandem.types import Episode

NOW = (100, 5, 2, 1.5)
ONE_OF_EACH: list[Event] = [
    events.TrainBegin(*NOW, 1000, 500),
    events.EpisodeBegin(*NOW, 3),
    events.EpisodeEnd(*NOW, Episode(3, 21.0, 21, True)),
    events.BatchBegin(*NOW),
    events.BatchEnd(*NOW, {"loss": 0.5}),
    events.EvaluationEnd(*NOW, Evaluation.of([1.0, 3.0], [1, 3]), True),
    events.CheckpointSaved(*NOW, Path("last.zip")),
    events.TrainEnd(*NOW, "steps"),
]


def episode(score: float) -> events.EpisodeEnd:
    return events.EpisodeEnd(*NOW, Episode(0, score, 1, True))


def test_every_kind_of_event_has_a_method() -> None:
    kinds = {k for k in vars(events).values() if isinstance(k, type) and issubclass(k, Event)}
    assert set(METHODS) == kinds - {Event} == {type(e) for e in ONE_OF_EACH}
    assert all(hasattr(Callback, name) for name in METHODS.values())


def test_each_event_reaches_its_method_and_no_other() -> None:
    seen: list[tuple[str, Event]] = []
    given = {name: lambda e, name=name: seen.append((name, e)) for name in METHODS.values()}
    callbacks = [LambdaCallback(**given), LambdaCallback(on_evaluation=seen.append), Callback()]
    for event in ONE_OF_EACH:
        assert dispatch(event, callbacks) is None
    each = [[(METHODS[type(e)], e)] for e in ONE_OF_EACH]
    each[5].append(ONE_OF_EACH[5])  # the evaluation, which a subset has too
    assert seen == [e for several in each for e in several]


def test_a_typo_will_not_do() -> None:
    with pytest.raises(SettingError, match="on_batch_end=3"):
        LambdaCallback(on_batch_end=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_epsiode_end"):
        LambdaCallback(on_epsiode_end=print)  # type: ignore[call-arg]
    with pytest.raises(UnknownNameError, match="did you mean 'on_episode_end'"):

        class Mistyped(Callback):
            def on_epsiode_end(self, event: Event) -> None: ...


def test_hooks_of_other_libraries_are_answered_with_those_here() -> None:
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


def test_early_stop_looks_at_the_last_episodes_only() -> None:
    stop = EarlyStop(10.0, episodes=3)
    asked = [stop.on_episode_end(episode(s)) for s in (50, 50, -100, 10, 10, 9, 11, 10)]
    #                            means of three:          -       -       0  -13  -27  9.7  10   10
    assert asked == [False, False, False, False, False, False, True, True]
    with pytest.raises(SettingError, match="episodes=0"):
        EarlyStop(1.0, episodes=0)
    for criterion in ("high", float("nan"), None):
        with pytest.raises(SettingError, match=f"criterion={criterion!r}"):
            EarlyStop(criterion)  # type: ignore[arg-type]


def test_a_plain_function_is_given_every_event_and_stops_by_true() -> None:
    heard: list[Event] = []
    (function,) = listed([heard.append])
    assert [dispatch(event, [function]) for event in ONE_OF_EACH] == [None] * len(ONE_OF_EACH)
    assert heard == ONE_OF_EACH
    (stops,) = listed([lambda event: isinstance(event, events.BatchEnd)])
    reasons = [dispatch(event, [stops]) for event in ONE_OF_EACH]
    assert [r for r in reasons if r] == ["callback"]


@pytest.mark.parametrize("given", [None, 3, [3], ["print"], [EarlyStop], [lambda: 1]])
def test_what_is_no_callback_is_named(given) -> None:
    with pytest.raises(SettingError, match="callbacks=") as caught:
        listed(given)
    code = caught.value.fix.partition(", or ")[0].removeprefix("callbacks=")
    assert len(listed(eval(code))) == 1


def test_one_early_stop_serves_several_runs() -> None:
    stop = EarlyStop(2.0, episodes=2)
    begin = events.TrainBegin(0, 0, 0, 0.0, 1000, 1000)
    for _ in range(2):
        assert dispatch(begin, [stop]) is None
        assert dispatch(episode(3.0), [stop]) is None
        assert dispatch(episode(3.0), [stop]) == "criterion"
    stop.load_state([1.0])  # a run that goes on with it
    dispatch(events.TrainBegin(*NOW, 1000, 1000), [stop])
    assert list(stop.scores) == [1.0]


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
    checkpoint.write(path, {"callbacks": state([Seen(given | {np.str_("x"): 1})])}, {})
    again = Seen(None)
    load_state([again], checkpoint.read(path).data["callbacks"])
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
def test_what_no_checkpoint_can_hold_is_named_with_the_callback_and_the_entry(
    given: object, place: str, fix: str
) -> None:
    with pytest.raises(SettingError, match=f"{place}(.|\n)*Fix: return {fix}"):
        state([EarlyStop(1.0), Seen(given)])


def test_a_callback_with_a_set_ends_a_run_before_its_first_step(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    steps: list[events.BatchEnd] = []
    given = {
        "framework": "torch",
        "callbacks": [LambdaCallback(on_batch_end=steps.append), Seen({1})],
    }
    with pytest.raises(SettingError, match="Seen"):
        tandem.train("a2c", "CartPole-v1", out=tmp_path / "a", steps=64, **given)
    assert not steps
