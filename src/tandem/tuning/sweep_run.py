"""The run of a trial in a separate process. It trains up to each evaluation and then waits for the
decision to continue."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

from tandem import trainer
from tandem.errors import (
    CheckpointError,
    MemoryBudgetError,
    NonFiniteError,
    ResumeError,
    RunFolderError,
    SettingError,
    TandemError,
    UnrepeatableError,
    WorkerError,
)
from tandem.learning.collect.evaluation import EvaluationStopped
from tandem.learning.events import EvaluationEnd
from tandem.platforms import FULL
from tandem.runs.session import Session
from tandem.tuning.sweep_study import COMPLETE, FAILED, LOST, NOT_FINITE, REFUSED
from tandem.workers.process import WorkerLost

# in addition to the final states of a trial; BLOCKED: by a failure unrelated to its settings
EVALUATED, STOPPED, BLOCKED = "evaluated", "stopped", "blocked"


class Answer(NamedTuple):
    """State of a trial."""

    what: str  # EVALUATED, STOPPED, BLOCKED, COMPLETE, REFUSED, FAILED, LOST or NOT_FINITE
    env_steps: int = 0
    mean: float = 0.0  # mean return of the evaluation
    seconds: float = 0.0  # training time
    why: str = ""  # reason if it was refused or failed


class TrialRun:
    """Object created in a `Process`: runs one trial after another, since backends take seconds to
    start.

    The checkpoint after an evaluation is written only after the main process has recorded that
    evaluation, so a kill loses none.
    """

    def __init__(self) -> None:
        logging.getLogger("tandem").setLevel(logging.ERROR)  # each result.json has the notes
        self._session: Session | None = None
        self._events: Any = None  # generator of the session's events

    def begin_trial(
        self, engine: object, arguments: dict[str, Any], out: Path, resume: dict[str, Any] | None
    ) -> Answer:
        """Create a run with these arguments of `train` and train it to its first evaluation.
        resume: the arguments to resume from the checkpoint in the folder `out`; None for a new
        run."""
        try:
            if resume is None:
                self._session = trainer.session(**arguments, out=out)
            else:
                self._session = trainer.session(resume=out, **resume)
        except (SettingError, MemoryBudgetError) as error:
            return Answer(REFUSED if resume is None else FAILED, why=str(error))
        except Exception as error:  # an environment can raise anything
            return Answer(_kind(error), why=_told(error))
        self._events = self._session.events()
        return self.go_on()

    def go_on(self) -> Answer:
        """Continue training to the next evaluation or the end."""
        answer = self._trained()
        if answer.what != EVALUATED:
            self.leave()
        return answer

    def _trained(self) -> Answer:
        assert self._session is not None
        try:
            for event in self._events:
                if isinstance(event, EvaluationEnd):
                    return self._at(EVALUATED, event.evaluation.mean)
            if self._session.signal is not None:
                return self._at(STOPPED)
            with self._session.catching():
                self._session.result()
            return self._at(COMPLETE)
        except EvaluationStopped:
            return self._at(STOPPED)
        except NonFiniteError as error:
            return self._at(NOT_FINITE, why=error.happened)
        except Exception as error:
            return self._at(_kind(error), why=_told(error))

    def leave(self) -> None:
        """Close a trial that was pruned or has ended."""
        if self._session is not None:
            self._session.train_loop.saves_when_left = False
            self._events.close()
            self._session.close()

    close = leave

    def _at(self, what: str, mean: float = 0.0, why: str = "") -> Answer:
        assert self._session is not None
        now = self._session.loop.now()
        return Answer(what, now["env_steps"], mean, now["seconds"], why)


def _kind(error: BaseException | None) -> str:
    """Return BLOCKED if files cannot be written or another process holds the folder, LOST if
    processes of the run were killed, else FAILED."""
    if isinstance(error, WorkerError) and isinstance(lost := error.__context__, WorkerLost):
        return FAILED if lost.trace else LOST
    if isinstance(error, ResumeError) and not isinstance(error, UnrepeatableError):
        return BLOCKED
    is_ours = isinstance(error, CheckpointError | RunFolderError)
    while error is not None:
        if isinstance(error, OSError) and (is_ours or error.errno in FULL):
            return BLOCKED
        error = error.__cause__
    return FAILED


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, TandemError) else f"{type(error).__name__}: {error}"
