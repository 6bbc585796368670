"""Processes that share a run's updates, one per device: companions that the run starts, or
processes launched together with it by torchrun or a similar tool. Launched processes wait until
rank 0 publishes its run in torch's store, create the same algorithm, and repeat its calls."""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
import traceback
from contextlib import suppress
from functools import partial
from typing import Any

from tandem import algorithms, spaces
from tandem.backends import BY_PROCESSES
from tandem.errors import EngineError, SettingError, WorkerError
from tandem.learning import config
from tandem.learning.build import Spaces, build
from tandem.learning.companions import GRACE, Companions
from tandem.learning.config import Config
from tandem.learning.learners import compiled
from tandem.learning.seeds import Generators
from tandem.platforms import ENDING
from tandem.workers.process import SLICE, START

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
HERE = ("localhost", "127.0.0.1", "::1")
OVER = b"over"


def begin(
    conf: Config, known: Spaces, network: object, optimizer: object
) -> Companions | Launched | None:
    """Return the other processes of a run, which start in the background; `join` waits for them.
    None if this process uses all devices itself."""
    if Launch.current is not None:
        return Launched(Launch.current, conf, known)
    o = conf.options
    if o.devices == 1 or conf.framework not in BY_PROCESSES:
        return None
    make = partial(made, conf, known, network, optimizer)
    return Companions(make, o.devices, o.device_timeout)


def made(conf: Config, known: Spaces, network: object, optimizer: object, rank: int) -> Any:
    """Create the backend of a rank above 0, with the same compiled updates as rank 0."""
    generators = Generators(conf.seed)
    algorithm = build(conf, known, generators, network, optimizer, rank=rank)
    compiled(algorithm)
    return algorithm.backend


def find() -> Launch | None:
    """Return the processes that torchrun started together with this one; None if it is alone.

    Raises EngineError for processes of `jax.distributed` or of a TensorFlow cluster, among which a
    run cannot be divided.
    """
    if (found := Launch.find()) is None and (name := _other_launcher()):
        raise EngineError(
            f"{name} is set for several processes, each of which would train the whole run.",
            fix=f"unset {name}; then give --devices N for devices of this machine, --runners N "
            "--cluster HOST:PORT for a Ray cluster, or start the command with torchrun and "
            "--framework torch.",
        )
    return found


def _other_launcher() -> str:
    """Return the environment variable that connects this process to others for JAX or TensorFlow,
    or an empty string."""
    given = os.environ.get
    if given("JAX_COORDINATOR_ADDRESS") and given("JAX_NUM_PROCESSES") != "1":
        return "JAX_COORDINATOR_ADDRESS"
    # other programs can use TF_CONFIG for something else
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        jobs = json.loads(given("TF_CONFIG") or "{}")["cluster"]
        if sum(len(jobs.get(job, ())) for job in ("chief", "worker")) > 1:
            return "TF_CONFIG"
    return ""


def check_launched(conf: Config, count: int) -> None:
    """Raise an error for a run that `count` launched processes do not support."""
    if conf.framework not in BY_PROCESSES:
        raise EngineError(
            f"{count} processes were launched, but the framework is {conf.framework!r}.",
            f"a framework that supports launched processes: {' or '.join(BY_PROCESSES)}",
            "use framework='torch', or start one process, without torchrun or the environment "
            "variables.",
        )
    if conf.options.devices != count:
        raise SettingError(
            f"devices={conf.options.devices}, but {count} processes were launched, each with one "
            "device.",
            "one device for each process",
            f"use devices={count}, or launch {conf.options.devices} processes.",
        )
    o = conf.options
    if o.cluster and not o.runners:
        raise SettingError(
            f"cluster={o.cluster!r} is not supported with {count} launched processes.",
            "a Ray cluster or launched processes",
            "leave cluster out; or start one process, without torchrun or the environment "
            "variables.",
        )
    if conf.own_network or conf.network or conf.own_optimizer or conf.own_algorithm:
        raise SettingError(
            "network=, optimizer= and custom algorithms are not supported in launched processes.",
            "networks, optimizers and algorithms by name",
            "start one process without the launcher: devices= on one machine supports all of them.",
        )


class Launch:
    """The `rank`-th of `count` processes that were started together. While rank 0 is inside the
    context manager, all processes take part in its runs, one after another."""

    current: Launch | None = None

    def __init__(self) -> None:
        try:
            self.rank, self.count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        except ValueError as error:
            raise EngineError(
                f"RANK={os.environ['RANK']!r} and WORLD_SIZE={os.environ['WORLD_SIZE']!r}.",
                "whole numbers, as torchrun sets them",
                f"set both, as in RANK=0 and WORLD_SIZE=2; or unset {VARIABLES[0]} for a "
                "single-process run.",
            ) from error
        # if all are on this machine, others need no access
        together = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
        self.local = together or os.environ["MASTER_ADDR"] in HERE
        self.runs = 0
        self.group = importlib.import_module("tandem.backends.torch_group")
        self.store = self.group.launched_store(START)

    @classmethod
    def find(cls) -> Launch | None:
        """Return the Launch described by torchrun's environment variables, or None."""
        if not all(os.environ.get(name) for name in VARIABLES) or os.environ["WORLD_SIZE"] == "1":
            return None
        return cls()

    def __enter__(self) -> Launch:
        Launch.current = self
        return self

    def __exit__(self, *_: object) -> None:
        """Allow the other processes to end."""
        Launch.current = None
        self.store.set(f"run {self.runs}", OVER)
        self.said("left", range(1, self.count), GRACE)

    def said(self, what: str, ranks: range, seconds: float) -> dict[int, str]:
        """Return the messages `what` that these ranks sent within `seconds`, by rank."""
        found: dict[int, str] = {}
        limit = time.monotonic() + seconds
        while True:
            for rank in ranks:
                if rank not in found and self.store.check([f"{what} {self.runs} {rank}"]):
                    found[rank] = self.store.get(f"{what} {self.runs} {rank}").decode()
            if len(found) == len(ranks) or time.monotonic() > limit:
                return found
            time.sleep(SLICE / 5)

    def say(self, what: str, text: str = "") -> None:
        """Send a message about the current run, on ranks above 0."""
        self.store.set(f"{what} {self.runs} {self.rank}", text)

    def follow(self) -> int:
        """Take part in the runs of rank 0 until they are over, on ranks above 0; return the exit
        code."""
        for number in ENDING:  # rank 0 handles signals, and ends this process
            signal.signal(number, signal.SIG_IGN)
        while (told := self.store.get(f"run {self.runs}")) != OVER:
            try:
                if not self._follow(json.loads(told)):
                    self.say("lost")
                    return 1
            except BaseException:
                self.say("lost", traceback.format_exc())
                raise
            self.runs += 1
        self.say("left")
        return 0

    def _follow(self, told: dict[str, Any]) -> bool:
        kind = algorithms.get(told["config"]["algorithm"])
        conf, action = config.from_json(told["config"], kind), spaces.from_json(told["action"])
        assert isinstance(action, spaces.Leaf)
        known = Spaces(spaces.from_json(told["observation"]), action, None)
        layout = made(conf, known, None, None, self.rank).layout
        self.say("ready")
        self.join(layout.group, conf.options.device_timeout)
        return layout.serve()

    def join(self, group: Any, patience: float) -> None:
        """Connect to the other processes for the current run."""
        store = self.group.within(self.store, f"group {self.runs}")
        group.join(store, patience, "127.0.0.1" if self.local else "")


class Others:
    """Rank 0's view of the other processes."""

    again = "with resume= if the run has a checkpoint"  # advice on restarting all processes

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    def lost(self) -> WorkerError:
        """See `torch_group.Followers`."""
        ranks = range(1, self.launch.count)
        said = self.launch.said("lost", ranks, GRACE)
        if raised := {rank: text for rank, text in said.items() if text}:
            rank, text = next(iter(raised.items()))
            return self.error(rank, f"raised: {text}")
        silent = [rank for rank in ranks if rank not in said]
        return self.error((silent or [1])[0], "has died or hangs")

    def error(self, rank: int, how: str) -> WorkerError:
        return WorkerError(
            f"the process of rank {rank}, of {self.launch.count} that were launched, {how}.",
            "processes that run until the end",
            f"see its output; then start all of them again, {self.again}.",
        )

    def end(self) -> None:
        """Do nothing: they end by themselves."""


class Launched(Others):
    """The launched processes of one run, used by rank 0 in place of `Companions`."""

    def __init__(self, launch: Launch, conf: Config, known: Spaces) -> None:
        check_launched(conf, launch.count)
        super().__init__(launch)
        self.patience = conf.options.device_timeout
        run = {  # JSON data for the other processes
            "config": conf.to_json(),
            "observation": spaces.to_json(known.observation),
            "action": spaces.to_json(known.action),
        }
        launch.store.set(f"run {launch.runs}", json.dumps(run))

    def join(self, backend: Any) -> None:
        """See `Companions.join`."""
        ranks = range(1, self.launch.count)
        missing = {*ranks} - {*self.launch.said("ready", ranks, START + self.patience)}
        if missing:
            raise self.error(min(missing), "has not started")
        backend.layout.group.followers = self
        self.launch.join(backend.layout.group, self.patience)

    def end(self) -> None:
        """Let them wait for the next run."""
        self.launch.runs += 1
