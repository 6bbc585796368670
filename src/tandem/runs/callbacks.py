"""Callbacks: user code that runs at the events of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf, isnan
from numbers import Real
from time import monotonic
from typing import Any

import numpy as np

from tandem.errors import SettingError, UnknownNameError, misfit
from tandem.learning.events import (
    BatchBegin,
    BatchEnd,
    CheckpointSaved,
    EpisodeBegin,
    EpisodeEnd,
    EvaluationEnd,
    Event,
    TrainBegin,
    TrainEnd,
)
from tandem.types import Tree

METHODS: dict[type[Event], str] = {
    TrainBegin: "on_train_begin",
    TrainEnd: "on_train_end",
    EpisodeBegin: "on_episode_begin",
    EpisodeEnd: "on_episode_end",
    BatchBegin: "on_batch_begin",
    BatchEnd: "on_batch_end",
    EvaluationEnd: "on_evaluation",
    CheckpointSaved: "on_checkpoint",
}
# hooks of Stable-Baselines3 and Keras -> nearest hook here
OTHER_HOOKS = {
    "on_training_start": "on_train_begin",
    "on_training_end": "on_train_end",
    "on_rollout_start": "on_batch_end",
    "on_rollout_end": "on_batch_begin",
    "on_step": "on_batch_end",
    "on_epoch_begin": "on_batch_begin",
    "on_epoch_end": "on_batch_end",
    "on_train_batch_begin": "on_batch_begin",
    "on_train_batch_end": "on_batch_end",
}


def refuse_other_hooks(kind: type, known: Iterable[str], stop: str) -> None:
    """Raise UnknownNameError if a callback class defines a method that looks like a hook but is not
    in `known`. `stop` describes how the hooks stop the run."""
    for name in vars(kind):
        if name.startswith(("on_", "_on_")) and name not in known:
            here = OTHER_HOOKS.get(name.removeprefix("_"))
            fix = here and f"rename it to {here!r}; {stop} stops the run."
            raise UnknownNameError(f"callback method for {kind.__name__}:", name, known, fix or "")


class Callback:
    """Base class of callbacks. Override any of these methods; each receives the event. Return True
    to stop the run; other return values are ignored.

    Defining a method whose name starts with `on_` or `_on_` but is not one of these is an error
    when the class is created, because it would never be called.
    """

    session: Any = None  # agent(), environments, settings, folder (`tandem.session`)
    reason = "callback"  # TrainEnd.reason if this callback stops the run

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_other_hooks(cls, METHODS.values(), "returning True")

    def on_train_begin(self, event: TrainBegin) -> bool | None:
        return None

    def on_train_end(self, event: TrainEnd) -> bool | None:
        return None

    def on_episode_begin(self, event: EpisodeBegin) -> bool | None:
        return None

    def on_episode_end(self, event: EpisodeEnd) -> bool | None:
        return None

    def on_batch_begin(self, event: BatchBegin) -> bool | None:
        return None

    def on_batch_end(self, event: BatchEnd) -> bool | None:
        return None

    def on_evaluation(self, event: EvaluationEnd) -> bool | None:
        return None

    def on_checkpoint(self, event: CheckpointSaved) -> bool | None:
        return None

    def expired(self) -> bool:
        """Return True to end the run immediately. Called between the steps of an evaluation, where
        no event occurs; override it to interrupt a long evaluation."""
        return False

    def state(self) -> Any:
        """Return the state to keep across a resume, as JSON data."""
        return None

    def load_state(self, state: Tree) -> None:
        """Restore the state that `state` returned."""


class EventFunction(Callback):
    """Callback that calls a function with every event, and with the session if it takes two
    arguments. The function stops the run by returning True."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self._takes_session = function, bool(misfit(function, None))

    def __call__(self, event: Event) -> Any:
        more = (self.session,) if self._takes_session else ()
        return self.function(event, *more)

    on_train_begin = on_train_end = on_episode_begin = on_episode_end = __call__
    on_batch_begin = on_batch_end = on_evaluation = on_checkpoint = __call__


CallbackLike = Callback | Callable[..., Any]


def listed(callbacks: Iterable[CallbackLike]) -> list[Callback]:
    """Return the callbacks of a run; a plain function receives every event. Raises SettingError for
    invalid callbacks, before the run starts."""
    as_list = list(callbacks) if isinstance(callbacks, Iterable) else [None]
    found = [
        EventFunction(one) if callable(one) and not isinstance(one, (Callback, type)) else one
        for one in as_list
    ]
    if not all(isinstance(callback, Callback) for callback in found):
        raise SettingError(
            f"callbacks={callbacks!r}.",
            "a list of functions of an event, or of instances of tandem.runs.callbacks.Callback",
            "callbacks=[lambda event: print(event)], or callbacks=[EarlyStop(475)].",
        )
    for function in (one for one in as_list if not isinstance(one, Callback)):
        if misfit(function, None) and misfit(function, None, None):
            raise SettingError(
                f"callbacks=[{function!r}], which takes no event.",
                "functions that take the event, or the event and the session",
                "callbacks=[lambda event: print(event)], or an instance of Callback.",
            )
    return found  # type: ignore[return-value]


def dispatch(event: Event, callbacks: Iterable[Callback]) -> str | None:
    """Pass the event to every callback in order. Return the reason of the first one that stops the
    run, or None."""
    name = METHODS[type(event)]
    reason = None
    for callback in callbacks:
        answer = getattr(callback, name)(event)
        # only a bool counts: a lambda may happen to return a list or a number
        if isinstance(answer, bool | np.bool_) and answer and reason is None:
            reason = callback.reason
    return reason


@contextmanager
def entered(callbacks: Iterable[Callback]) -> Iterator[None]:
    """Enter the callbacks that are context managers, such as a display that must release the
    terminal."""
    with ExitStack() as stack:
        for callback in callbacks:
            if hasattr(callback, "__exit__"):
                stack.enter_context(callback)  # type: ignore[arg-type]
        yield


def expired(callbacks: Iterable[Callback]) -> str | None:
    """Return the reason of the first callback that ends the run immediately, or None."""
    return next((callback.reason for callback in callbacks if callback.expired()), None)


def state(callbacks: Iterable[Callback]) -> list[dict[str, Any]]:
    """Return the states of all callbacks. Raises SettingError for values that JSON cannot hold."""
    return [
        {"class": (name := type(c).__name__), "state": _as_json(c.state(), f"{name}.state()")}
        for c in callbacks
    ]


def _as_json(value: Any, place: str) -> Any:
    """Return JSON data with NumPy numbers converted to Python numbers. `place` locates the value in
    errors."""
    if isinstance(value, dict):
        return {
            _plain(key, f"a key of {place}"): _as_json(x, f"{place}[{key!r}]")
            for key, x in value.items()
        }
    if isinstance(value, list | tuple):
        return [_as_json(x, f"{place}[{i}]") for i, x in enumerate(value)]
    return _plain(value, place)


def _plain(value: Any, place: str) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, str | int | float):
        return value
    way = "its tolist()" if hasattr(value, "tolist") else "a list of it"
    raise SettingError(
        f"{place} is a {type(value).__name__}: {value!r:.200}.",
        "JSON data: numbers, text, true or false, None, lists, dicts",
        f"return {way}, for example, and rebuild it in load_state.",
    )


def load_state(callbacks: Iterable[Callback], states: Iterable[dict[str, Any]]) -> None:
    """Restore each callback from the first unused state of its class: callbacks may have been added
    or removed since."""
    left = list(states)
    for callback in callbacks:
        state = next((s for s in left if s["class"] == type(callback).__name__), None)
        if state is not None:
            left.remove(state)
            callback.load_state(state["state"])


class LambdaCallback(Callback):
    """Callback built from functions: `LambdaCallback(on_evaluation=lambda event:
    print(event.evaluation.mean))`."""

    def __init__(
        self,
        *,
        on_train_begin: Callable[[TrainBegin], Any] | None = None,
        on_train_end: Callable[[TrainEnd], Any] | None = None,
        on_episode_begin: Callable[[EpisodeBegin], Any] | None = None,
        on_episode_end: Callable[[EpisodeEnd], Any] | None = None,
        on_batch_begin: Callable[[BatchBegin], Any] | None = None,
        on_batch_end: Callable[[BatchEnd], Any] | None = None,
        on_evaluation: Callable[[EvaluationEnd], Any] | None = None,
        on_checkpoint: Callable[[CheckpointSaved], Any] | None = None,
    ) -> None:
        functions = {
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_episode_begin": on_episode_begin,
            "on_episode_end": on_episode_end,
            "on_batch_begin": on_batch_begin,
            "on_batch_end": on_batch_end,
            "on_evaluation": on_evaluation,
            "on_checkpoint": on_checkpoint,
        }
        for name, function in functions.items():
            if function is not None and not callable(function):
                raise SettingError(
                    f"LambdaCallback got {name}={function!r}.",
                    "a function of the event",
                    f"give {name}=lambda event: print(event).",
                )
            if function is not None:
                setattr(self, name, function)


class EarlyStop(Callback):
    """Stop the run when the mean return of the last `episodes` finished episodes is at least
    `criterion`.

    `scores` holds these returns. Checkpoints include them, so a resumed run stops where an
    uninterrupted run would.
    """

    reason = "criterion"

    def __init__(self, criterion: float, episodes: int = 100) -> None:
        if episodes < 1:
            raise SettingError(
                f"EarlyStop got episodes={episodes}.",
                "at least 1",
                "try episodes=100.",
            )
        limit: Any = criterion
        if not isinstance(limit, Real) or isnan(limit):
            raise SettingError(
                f"EarlyStop got criterion={criterion!r}.",
                "a number",
                "give the mean return that counts as solved, as in criterion=475.",
            )
        self.criterion = float(criterion)
        self.scores: deque[float] = deque(maxlen=episodes)

    def state(self) -> list[float]:
        return list(self.scores)

    def load_state(self, state: list[float]) -> None:
        self.scores.clear()  # may be left from another run
        self.scores.extend(state)

    def on_train_begin(self, event: TrainBegin) -> None:
        if not event.env_steps:
            self.scores.clear()

    def on_episode_end(self, event: EpisodeEnd) -> bool:
        self.scores.append(event.episode.score)
        full = len(self.scores) == self.scores.maxlen
        return full and sum(self.scores) / len(self.scores) >= self.criterion


class TimeLimit(Callback):
    """Stop the run after `seconds` seconds of this session, even during an evaluation."""

    reason = "time limit"

    def __init__(self, seconds: float) -> None:
        limit: Any = seconds
        if not isinstance(limit, Real) or not float(limit) > 0:
            raise SettingError(
                f"TimeLimit got seconds={seconds!r}.", "a number above 0", "try seconds=3600."
            )
        self.seconds, self.end = float(seconds), inf

    def on_train_begin(self, event: TrainBegin) -> None:
        self.end = monotonic() + self.seconds

    def expired(self) -> bool:
        return monotonic() >= self.end

    def on_batch_end(self, event: BatchEnd) -> bool:
        return self.expired()
