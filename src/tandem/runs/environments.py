"""The environments of a run, with calls into them during training, as for a curriculum."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tandem.envs.calls import EnvironmentCall, checked
from tandem.errors import ResumeError, SettingError
from tandem.learning.events import EvaluationEnd, Event

if TYPE_CHECKING:
    from tandem.runs.session import Session


class Made(NamedTuple):
    """An environment call and its time: the environment steps of the run, and whether the
    evaluation at that step was already done. `evaluation`: the call also applies to evaluation
    environments. JSON data."""

    env_steps: int
    evaluated: bool
    evaluation: bool
    call: EnvironmentCall

    @classmethod
    def read(cls, data: list[Any]) -> Made:
        env_steps, evaluated, evaluation, call = data
        return cls(env_steps, evaluated, evaluation, EnvironmentCall(*call))


class RunEnvironments:
    """The N environments that a run trains in, wherever they are stepped: in this process, in
    worker processes, in a user's vector environment, or on a Ray cluster. Available as
    `environments` of a session.

    n: number of environments. name: the id or the class name. observation_space, action_space:
    Gymnasium spaces of one environment; observation, action: the same as algorithms see them.

    `call` and `set_attribute` apply to every environment between two blocks of steps, also in the
    middle of episodes, and before the same block in every worker process. They are stored with the
    run: a resumed run repeats each one at its step before it continues, and so does `tandem
    verify`. A method must therefore be deterministic given the order of calls. Environments that
    are stepped by compiled code raise SettingError.
    """

    def __init__(self, session: Session) -> None:
        self._session, of = session, session.vector
        self.n, self.name = int(session.loop.collector.n), of.name
        self.observation_space, self.action_space = of.observation_space, of.action_space
        self.observation, self.action = of.observation, of.action
        self.made: list[Made] = []
        self._stored: deque[Made] | None = None

    def call(self, name: str, *arguments: Any, evaluation: bool = False, **keywords: Any) -> None:
        """Call a method of every environment, or of a wrapper around it, with JSON arguments.
        `evaluation`: also call it in evaluation environments.

        Raises UnknownNameError if there is no such method, EnvironmentFault if it raises.
        """
        self._make(EnvironmentCall(name, list(arguments), keywords), evaluation)

    def set_attribute(self, name: str, value: Any, *, evaluation: bool = False) -> None:
        """Set an existing attribute of every environment or of a wrapper around it, as `call`
        does."""
        self._make(EnvironmentCall(name, [value], {}, True), evaluation)

    def get_attribute(self, name: str) -> list[Any]:
        """Return the values [N] of an attribute, after all blocks of steps and calls so far."""
        self._expect_open()
        return list(self._session.loop.collector.attribute(name))

    def _make(self, call: EnvironmentCall, evaluation: bool) -> None:
        call, run = checked(call), self._session
        if self._stored is not None:
            return  # `follow` repeats the stored calls instead
        self._expect_open()
        if run.score.copies and not evaluation:
            raise SettingError(
                f"{call.name!r} would also change the evaluations of {self.name}: they copy the "
                "environment that was passed, with what was called in it.",
                "evaluation=True, or other environments to evaluate in",
                "pass a function that makes the environment, or eval_env=.",
            )
        self._make_now(call, evaluation)

    def _expect_open(self) -> None:
        if not self._session.is_open:
            raise ResumeError(
                f"the environments of {self.name} have been closed: the session has ended.",
                "a call in a callback, or in the loop over the session's events",
                "make the call there; get_attribute reads before TrainEnd.",
            )

    def _make_now(self, call: EnvironmentCall, evaluation: bool) -> None:
        run = self._session
        run.loop.make_calls([call])
        steps = run.loop.env_steps
        evaluated = run.evaluations.evaluated_at == steps
        self.made.append(Made(steps, evaluated, evaluation, call))
        if evaluation:
            run.score.catch_up()
            run.evaluations.best = -np.inf  # earlier scores are not comparable

    @property
    def for_evaluation(self) -> list[EnvironmentCall]:
        """The calls that apply to evaluation environments."""
        return [made.call for made in self.made if made.evaluation]

    def resume(self, data: Iterable[list[Any]]) -> None:
        """Continue after these calls, which have already been made in the loop's environments."""
        self.made = [Made.read(one) for one in data]
        self._session.loop.judge_after([made.call for made in self.made])

    def repeat(self, made: Iterable[Made]) -> None:
        """From now on make only these calls, in `follow`."""
        self._stored = deque(made)

    def follow(self, event: Event) -> None:
        """Make the stored calls that are due at this event."""
        stored, steps = self._stored, self._session.loop.env_steps
        while stored and stored[0].env_steps <= steps:
            if stored[0].evaluated and not isinstance(event, EvaluationEnd):
                return
            made = stored.popleft()
            self._make_now(made.call, made.evaluation)
