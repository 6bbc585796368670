"""Ray, which runs work in other processes and on other machines. It is imported on first use."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tandem.errors import EngineError
from tandem.platforms import hangups_blocked
from tandem.workers.child import ObjectServer
from tandem.workers.process import END, SLICE, WorkerLost, not_picklable, result
from tandem.workers.ray_probe import check_cluster

# Send no usage statistics to Ray, and suppress its GPU warning.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}

# environment variables of this process that workers inherit
OWN = (
    "KERAS_BACKEND",
    "JAX_PLATFORMS",
    "TF_CPP_MIN_LOG_LEVEL",
)


def library() -> ModuleType:
    """Return the module ray. Raises EngineError if it is not installed."""
    if (imported := sys.modules.get("ray")) is not None:
        return imported
    if importlib.util.find_spec("ray") is None:
        raise EngineError(
            "a cluster requires Ray, which is not installed.",
            "the package ray",
            "pip install 'tandem-rl[ray]'",
        )
    _be_quiet()
    import ray  # an optional package

    return ray


def _be_quiet() -> None:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def connect(address: str = "") -> ModuleType:
    """Return the module ray, connected to a cluster.

    "" uses the cluster that this process is connected to, the one that RAY_ADDRESS names, or one
    that runs on this machine; otherwise it starts one, which ends with this process. "local" starts
    one unless this process is connected. Any other address is that of a running cluster (`ray
    start`). Raises EngineError if the cluster cannot be reached, or if this process is connected to
    another one.
    """
    ray = library()
    if "://" in address:
        raise EngineError(
            f"the cluster address {address!r} is not supported.",
            "HOST:PORT, on a machine of the cluster",
            "run the program there, or submit it: ray job submit -- python PROGRAM.",
        )
    if ray.is_initialized():
        here = joined(ray)
        if address not in ("", "auto", "local", here):
            raise EngineError(
                f"the cluster {address!r} is not available: this process is connected to {here!r}.",
                "one cluster per process",
                "call ray.shutdown() first, or leave the address out.",
            )
        return ray
    _be_quiet()  # other code may have imported it
    address = _running_cluster() if address in ("", "auto") else address
    try:
        check_cluster(address)
        with hangups_blocked():  # the cluster is needed until the run is saved
            ray.init(address=address, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise EngineError(
            f"the cluster {address!r} cannot be reached: {str(error).splitlines()[0][:300]}",
            "the address of a running cluster (HOST:PORT), or none, to start one here",
            "run `ray start --head --port=6379`, which prints the address.",
        ) from error
    return ray


def _running_cluster() -> str:
    """Return the address in RAY_ADDRESS, or of the cluster that `ray start` started here if it
    still runs, else "local". Ray's own search would wait minutes for a cluster that has ended."""
    if named := os.environ.get("RAY_ADDRESS", ""):
        return named
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    try:
        address = note.read_text(encoding="utf-8").strip()
        check_cluster(address)
    except OSError:
        return "local"
    return address or "local"


def joined(ray: ModuleType) -> str | None:
    """Return the address of the cluster that this process is connected to, or None."""
    return str(ray.get_runtime_context().gcs_address) if ray.is_initialized() else None


def check_joined(ray: ModuleType, cluster: str | None) -> None:
    """Raise EngineError if this process has left the cluster."""
    if joined(ray) != cluster:
        raise EngineError(
            "ray.shutdown() was called while a run still used the cluster.",
            "a process that stays connected until the run ends",
            "call ray.shutdown() after the run; tandem.train(resume=...) continues it from its "
            "folder.",
        )


class RayActor:
    """Actor that creates `make(*arguments)` on a cluster, like a `Process`. If it is lost, Ray
    restarts it on this or another node; `begin` then recreates the object. options: Ray options of
    the actor."""

    def __init__(self, ray: ModuleType, cpus: float, **options: object) -> None:
        self._ray = ray
        options = {"num_cpus": cpus, "max_restarts": -1, **options}
        self._cluster = joined(ray)
        own = {name: os.environ[name] for name in OWN if name in os.environ}
        self._actor = _actor_host(ray).options(**options).remote(own)
        self._calls: deque[object] = deque()
        self._closing: object = None  # reference of the close call, once made
        self.runs = True

    @property
    def ended(self) -> bool:
        """True once it was closed, after which it cannot begin again."""
        return self._closing is not None

    @property
    def _left(self) -> bool:
        """True if this process has left the actor's cluster, possibly by `ray.shutdown`. Any call
        would then make Ray start a new one."""
        return joined(self._ray) != self._cluster

    def begin(self, make: Callable[..., object], *arguments: object) -> None:
        """Start creating the object. `answer` returns its reply; those of earlier calls are
        discarded."""
        check_joined(self._ray, self._cluster)
        self._calls.clear()
        self._calls.append(self._actor.begin.remote(make, *arguments))
        self.runs = True

    def ask(self, name: str, *arguments: object) -> None:
        """See `Process.ask`."""
        check_joined(self._ray, self._cluster)
        self._calls.append(self._actor.reply.remote(name, *arguments))

    def send_bytes(self, data: bytes = b"") -> None:
        """See `Process.send_bytes`."""
        self.ask("on_bytes", data)

    def answer(self, patience: float | Callable[[], float], since: float | None = None) -> Any:
        """See `Process.answer`."""
        check_joined(self._ray, self._cluster)
        limit = patience if callable(patience) else lambda: patience
        began, errors = time.monotonic() if since is None else since, self._ray.exceptions
        while True:
            left = limit() - time.monotonic() + began
            try:
                answer = self._ray.get(self._calls[0], timeout=max(0.0, min(SLICE, left)))
                break
            except errors.GetTimeoutError:
                if left <= 0:
                    self.kill()
                    raise WorkerLost(f"did not respond for {limit():g} s") from None
            except errors.RayError as error:
                self.runs = False
                raise WorkerLost(f"died: {str(error).splitlines()[0].rstrip('.')}") from None
        self._calls.popleft()
        return result(self, answer)

    def ready(self, others: Sequence[RayActor], seconds: float) -> list[int]:
        """See `Process.ready`."""
        check_joined(self._ray, self._cluster)
        calls = [actor._calls[0] for actor in others]
        finished, _ = self._ray.wait(calls, timeout=seconds)
        return [i for i, call in enumerate(calls) if call in finished]

    def kill(self) -> None:
        """Kill it immediately; Ray then restarts it."""
        if self.runs and not self._left:
            self._ray.kill(self._actor, no_restart=False)
        self.runs = False

    def close(self) -> None:
        """See `WorkerHandle.close`; the actor is not restarted."""
        self.runs = False
        if not self.ended and not self._left:
            self._closing = self._actor.close.remote()

    def end(self, patience: float = END) -> None:
        """See `WorkerHandle.end`."""
        self.close()
        if self._left:
            return
        with suppress(self._ray.exceptions.RayError):  # it took too long, or has died
            self._ray.get(self._closing, timeout=patience)
        self._ray.kill(self._actor)


@lru_cache
def _actor_host(ray: ModuleType) -> Any:
    """Return the class of an actor."""

    class ActorHost(ObjectServer):
        def __init__(self, own: dict[str, str]) -> None:
            super().__init__()
            os.environ.update(own)  # before anything that imports a framework arrives

        @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
        def begin(self, make: Any, *arguments: Any) -> tuple[Any, ...]:
            """Create the object, also if Ray first has to restart the actor."""
            return self.reply("begin", make, *arguments)

    return ray.remote(ActorHost)


def put(ray: ModuleType, what: object) -> object:
    """Put an object into the object store and return a reference, which can be an argument of
    calls. Raises SettingError if it cannot be pickled."""
    try:
        return ray.put(what)
    except Exception as error:  # pickling can raise any type
        raise not_picklable(error) from error


def wait_for_cpus(ray: ModuleType, cpus: float, patience: float) -> None:
    """Wait, with a warning, until the cluster has this many CPUs. Raises EngineError if it does not
    after `patience` seconds."""
    began, warned = time.monotonic(), False
    while (there := ray.cluster_resources().get("CPU", 0.0)) < cpus:
        if time.monotonic() - began > patience:
            raise EngineError(
                f"the cluster has {there:g} CPUs, but {cpus:g} are needed.",
                "enough CPUs for every runner",
                "add machines (ray start --address=HOST:PORT), or use fewer runners, or fewer "
                "CPUs for each (runner_cpus).",
            )
        if not warned:
            warned = True
            warnings.warn(
                f"the cluster has {there:g} CPUs, but {cpus:g} are needed: waiting up to "
                f"{patience:g} s for machines to join.",
                RuntimeWarning,
                stacklevel=2,
            )
        time.sleep(SLICE)
