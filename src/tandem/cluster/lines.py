"""A line to an actor of Ray's: what is sent arrives in order; what cannot arrive for now is sent
again; what never will is an error that says whose end it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tandem.cluster.copies import writable
from tandem.errors import SettingError, TandemError, WorkerError
from tandem.parallel.ray import library


class Line:
    """To the actor `handle`. name: what to call it in messages. patience: seconds that it may be
    away."""

    def __init__(self, handle: Any, name: str, patience: float) -> None:
        self.handle, self.name, self.patience = handle, name, patience

    def send(self, method: str, *given: Any, group: str = "") -> Any:
        self._ray()
        call = getattr(self.handle, method)
        return sent(
            (call.options(concurrency_group=group) if group else call).remote,
            f"what {self.name} is given",
            *given,
        )

    def receive(self, reference: Any, method: str, *given: Any, group: str = "") -> Any:
        """The answer to what was sent. Where the actor was away, the same is sent again, until its
        patience is over. WorkerError where it is gone for good; what its code raised is raised
        here, with its traceback in the notes."""
        ray, until = self._ray(), time.monotonic() + self.patience
        while True:
            try:
                return writable(ray.get(reference))
            except ray.exceptions.RayTaskError as error:
                raise _own(error, self.name) from None
            except ray.exceptions.ActorUnavailableError as error:
                if time.monotonic() > until:
                    raise self._gone(error) from error
            except (ray.exceptions.ActorDiedError, ray.exceptions.RayActorError) as error:
                raise self._gone(error) from error
            time.sleep(0.1)
            reference = self.send(method, *given, group=group)

    def ask(self, method: str, *given: Any, group: str = "") -> Any:
        return self.receive(self.send(method, *given, group=group), method, *given, group=group)

    def arrived(self, reference: Any) -> bool:
        ready, _ = self._ray().wait([reference], timeout=0)
        return bool(ready)

    def fetched(self, reference: Any) -> Any:
        """What a reference stands for; None where it was lost with its owner."""
        ray = self._ray()
        try:
            return ray.get(reference)
        except (ray.exceptions.ObjectLostError, ray.exceptions.RayActorError):
            return None

    def _ray(self) -> Any:
        """WorkerError where this process has left its cluster: Ray would start another one, without
        a word."""
        ray = library()
        if not ray.is_initialized():
            raise WorkerError(
                f"{self.name} was called after ray.shutdown().",
                "a process that is connected to its cluster",
                "shut Ray down when nobody is called any more, or make the agents anew.",
            )
        return ray

    def _gone(self, error: Exception) -> WorkerError:
        return gone(self.name, error)


def sent(remote: Callable[..., Any], what: str, *given: Any) -> Any:
    """What Ray's `remote` gives back. SettingError, with `what` it was, where something of it
    cannot be pickled."""
    try:
        return remote(*given)
    except (TandemError, library().exceptions.RayError):
        raise
    except Exception as error:
        # as many kinds as there are objects; Ray's is the report of a search for the object
        raise SettingError(
            f"{what} cannot go to another process: {str(error.__cause__ or error)[:600]}",
            "values, objects and classes that can be pickled",
            "leave out what cannot be, or make it there (a runner's and an agent's __init__ runs "
            "there).",
        ) from error


def gone(name: str, error: Exception) -> WorkerError:
    """What to raise where an actor ended and is not restarted any more."""
    told = " ".join(str(error).split())
    return WorkerError(
        f"{name} is gone: {told[:600]}",
        "a process that lives, or one that Ray may start anew",
        "look into its output for the reason; Cluster(restarts=...) says how often it is started "
        "anew.",
    )


def _own(error: Any, name: str) -> BaseException:
    """The exception that an actor's code raised, with the traceback from there."""
    cause = getattr(error, "cause", None)
    if not isinstance(cause, BaseException) or cause is error:
        return error  # type: ignore[no-any-return]
    cause.add_note(f"In {name}:\n{error}")
    return cause
