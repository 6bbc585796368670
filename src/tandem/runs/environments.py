"""The environments of a run, for the program that trains: what it calls in them during training, as
a curriculum does."""

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
    """A call, and when it was made: the run's environment steps, and whether these had been
    evaluated. evaluation: whether evaluations see the call, too. JSON data."""

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
    workers, in a vector of the user's, on a Ray cluster. A session has it as `environments`.

    n: their number. name: the id or the class's name. observation_space, action_space: of one of
    them, as Gymnasium has them; observation, action: as algorithms have them.

    `call` and `set_attribute` reach every environment between two blocks of steps, in the middle of
    episodes too, and before the same block in every worker. They are stored with the run: a resumed
    run repeats them, each at its step, before it continues, and so does `tandem verify`. A method
    must therefore do the same whenever it is called in the same order. Environments that are
    stepped by compiled code raise SettingError.
    """

    def __init__(self, session: Session) -> None:
        self._session, of = session, session.vector
        self.n, self.name = int(session.loop.collector.n), of.name
        self.observation_space, self.action_space = of.observation_space, of.action_space
        self.observation, self.action = of.observation, of.action
        self.made: list[Made] = []
        self._stored: deque[Made] | None = None

    def call(self, name: str, *arguments: Any, evaluation: bool = False, **keywords: Any) -> None:
        """Calls a method of every environment, or of a wrapper around it, with arguments that JSON
        can hold. evaluation: in the environments of evaluations, too.

        UnknownNameError for a method that is not there, EnvironmentFault where it raises."""
        self._make(EnvironmentCall(name, list(arguments), keywords), evaluation)

    def set_attribute(self, name: str, value: Any, *, evaluation: bool = False) -> None:
        """As `call`: sets an attribute that the environment or a wrapper around it has."""
        self._make(EnvironmentCall(name, [value], {}, True), evaluation)

    def get_attribute(self, name: str) -> list[Any]:
        """The values [N] of an attribute, after all blocks of steps and calls so far."""
        self._expect_open()
        return list(self._session.loop.collector.attribute(name))

    def _make(self, call: EnvironmentCall, evaluation: bool) -> None:
        call, run = checked(call), self._session
        if self._stored is not None:
            return  # what the run's program called then is called again
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
                f"the environments of {self.name} have been closed: the sitting has ended.",
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
            run.evaluations.best = -np.inf  # earlier scores are of other environments

    @property
    def for_evaluation(self) -> list[EnvironmentCall]:
        """The calls that evaluations are to see."""
        return [made.call for made in self.made if made.evaluation]

    def resume(self, data: Iterable[list[Any]]) -> None:
        """Continues after these calls, which have been made in the loop's environments."""
        self.made = [Made.read(one) for one in data]
        self._session.loop.judge_after([made.call for made in self.made])

    def repeat(self, made: Iterable[Made]) -> None:
        """From now on makes these calls, in `follow`, and no others."""
        self._stored = deque(made)

    def follow(self, event: Event) -> None:
        """Makes the calls that were made by this event."""
        stored, steps = self._stored, self._session.loop.env_steps
        while stored and stored[0].env_steps <= steps:
            if stored[0].evaluated and not isinstance(event, EvaluationEnd):
                return
            made = stored.popleft()
            self._make_now(made.call, made.evaluation)
