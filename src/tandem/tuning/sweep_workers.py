"""Who makes the trials of a sweep: processes of this machine, or actors on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tandem.errors import SettingError
from tandem.parallel import ray as cluster
from tandem.parallel.process import Process, WorkerHandle, begun
from tandem.tuning import sweep_run as at


class Workers(Protocol):
    """They are started one by one."""

    def room(self) -> int | None:
        """For how many trials at a time there is room; None where the settings of a trial say
        it."""

    def start(self) -> WorkerHandle:
        """One that has `sweep_run.TrialRun`; that it has begun is its first answer."""

    def stop(self, worker: WorkerHandle) -> None:
        """It ends the trial under way; what was evaluated is saved."""

    def check(self, folder: Path) -> None:
        """SettingError where the folder of a trial that has answered is not to be seen here."""


class Here:
    """Processes of this machine. One that is stopped writes a checkpoint first."""

    def room(self) -> int | None:
        return None

    def start(self) -> WorkerHandle:
        return Process((), at.TrialRun)

    def stop(self, worker: WorkerHandle) -> None:
        assert isinstance(worker, Process)
        worker.terminate()

    def check(self, folder: Path) -> None:
        pass


class OnCluster:
    """Actors on the Ray cluster at an address, with so many CPUs each. One that is stopped is
    killed: its trial goes on from its last checkpoint."""

    def __init__(self, address: str, cpus: int) -> None:
        self._ray, self._cpus = cluster.connect(address), cpus

    def room(self) -> int | None:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1.0)) // self._cpus)

    def start(self) -> WorkerHandle:
        actor = cluster.PlacedActor(self._ray, self._cpus, max_restarts=0)
        actor.begin(*begun(at.TrialRun))
        return actor

    def stop(self, worker: WorkerHandle) -> None:
        worker.kill()

    def check(self, folder: Path) -> None:
        if not folder.is_dir():
            raise SettingError(
                f"the cluster's machines write trials into folders of their own: {folder} is not "
                "here.",
                "a folder that all of them share: trials are gone on with from there, by whichever "
                "machine is free",
                "give out= on a file system that every machine has at the same place, or leave "
                "cluster out.",
            )
