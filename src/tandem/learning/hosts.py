"""Who makes a run's updates with it on JAX and TensorFlow, where processes were launched together:
those follow rank 0's, make the same algorithm, and repeat its calls."""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from tandem import algorithms, backends, spaces
from tandem.errors import EngineError
from tandem.learning import config, launch
from tandem.learning.build import Spaces
from tandem.learning.config import Config
from tandem.parallel.links import LOST, RAISED, Following, Gone, Lead
from tandem.parallel.worker_group import START


def unmet(seconds: float, variables: Sequence[str]) -> EngineError:
    """The error of processes that do not meet."""
    return EngineError(
        f"the processes that were launched do not meet within {seconds:g} s.",
        "all of them at once, and addresses that all reach",
        f"see that each was started, with its own {', '.join(variables)}; or unset "
        f"{variables[0]} for a run of one process.",
    )


@contextmanager
def in_time(seconds: float, variables: Sequence[str]) -> Iterator[None]:
    """Ends the process where what is within does not end in time: engines wait for ever, or end it
    by a fatal error of their own."""

    def over() -> None:
        print(f"tandem: {unmet(seconds, variables)}", file=sys.stderr, flush=True)
        os._exit(2)

    timer = threading.Timer(seconds, over)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Hosts:
    """The `rank`-th of `count` processes of an engine. While rank 0 has entered it, the runs that
    it makes are theirs, one after the other."""

    def __init__(self, engine: str) -> None:
        self.framework = backends.choose_keras(engine)
        # as `backends.make` does: no thread pool for small networks
        if os.environ.get("OMP_NUM_THREADS") == "1":
            os.environ.setdefault("PJRT_NPROC", "1")
        module = importlib.import_module(f"tandem.backends.keras_{engine}_hosts")
        with in_time(START, module.VARIABLES):
            self.meeting = meeting = module.Meeting()
            self.rank, self.count = meeting.rank, meeting.count
            loopback = meeting.host in launch.HERE
            if self.rank == 0:
                self.lead = Lead(self.count, loopback, START)
                meeting.told(self.lead.numbers)
                self.lead.accept()
            else:
                host = "127.0.0.1" if loopback else meeting.host
                numbers = meeting.told(np.zeros(5, np.int32))
                self.following = Following(self.rank, host, numbers.tolist())
        if self.rank == 0:  # before the engine, at its end, waits for the others
            atexit.register(self._leave)

    def _leave(self) -> None:
        # a call of the engine's that waits for one that is lost would be waited for
        if self.lead.broken:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def devices(self, device: str) -> int:
        """How many all processes have."""
        return int(self.meeting.devices(device))

    def __enter__(self) -> Hosts:
        launch.Launch.current = self
        return self

    def __exit__(self, *_: Any) -> None:
        """The others may go."""
        launch.Launch.current = None
        if not self.lead.broken:
            with suppress(OSError):
                self.lead.send("over")
            self.lead.close()

    def begin(self, conf: Config, known: Spaces) -> Hosted:
        """Rank 0: the others for a run."""
        launch.check_launched(
            conf, self.count, self.devices(conf.device), (self.framework,), self.framework
        )
        self.lead.patience = conf.options.device_timeout
        self.lead.during(lambda: self.lead.send("run", launch.told(conf, known)), ())
        return Hosted(self.meeting.layout(conf.device, self.lead))

    def follow(self) -> int:
        """Another rank than 0: takes part in the runs of rank 0 until these are over; the exit
        code."""
        for number in (signal.SIGINT, signal.SIGTERM):  # rank 0's affair, which tells this one
            signal.signal(number, signal.SIG_IGN)
        layout: Any = None
        losing: tuple[type[Exception], ...] = ()
        try:
            while True:
                verb, data, arrays = self.following.receive()
                if verb == "over":
                    self.following.close()
                    return 0
                if verb == "run":
                    layout = self._made(data)
                    losing = layout.calls.losing
                elif verb == "call":
                    layout.calls.repeat(data, arrays)
        except Gone:
            return self._fallen()
        except losing as error:
            short = "RESOURCE_EXHAUSTED" in str(error)  # of memory
            self.following.say(RAISED if short else LOST, traceback.format_exc())
            return self._fallen()
        except BaseException:
            self.following.say(RAISED, traceback.format_exc())
            traceback.print_exc()
            return self._fallen()

    def _made(self, told: dict[str, Any]) -> Any:
        kind = algorithms.get(told["config"]["algorithm"])
        conf, action = config.from_json(told["config"], kind), spaces.from_json(told["action"])
        assert isinstance(action, spaces.Leaf)
        known = Spaces(spaces.from_json(told["observation"]), action, None)
        layout = self.meeting.layout(conf.device, None)
        launch.made(conf, known, None, None, self.rank, layout)
        return layout

    def _fallen(self) -> int:
        """Waits until rank 0 has gone, and ends then without waiting for anybody else."""
        with suppress(Gone):
            while True:
                self.following.receive()
        sys.stderr.flush()
        os._exit(1)


class Hosted:
    """Rank 0's other processes for one run, in the place of its `Companions`."""

    place: int | None = None

    def __init__(self, layout: Any) -> None:
        self.layout = layout

    def join(self, backend: Any) -> None:
        """They follow already."""
