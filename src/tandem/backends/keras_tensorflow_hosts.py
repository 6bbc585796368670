"""Several processes with TensorFlow, on one machine or more, by TF_CONFIG: each takes the gradient
of its own rows of an update, and TensorFlow's collective all-reduce adds them up."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

from tandem.backends.keras_hosts import Calls, Group
from tandem.backends.keras_tensorflow_devices import Layout
from tandem.backends.keras_tensorflow_workers import LOST
from tandem.errors import EngineError
from tandem.types import AnyArray, Array, Variable

VARIABLES = ("TF_CONFIG",)
FIRST = ("chief", "worker")  # the jobs whose tasks learn, in this order


def tasks() -> list[str]:
    """The addresses of TF_CONFIG's tasks that learn, the first one's first."""
    jobs = json.loads(os.environ.get(VARIABLES[0]) or "{}").get("cluster", {})
    return [address for job in FIRST for address in jobs.get(job, ())]


class Meeting:
    """The processes, once all of them are there: of `count` this is the `rank`-th; `host` is the
    machine of the first. It waits for them. EngineError where TF_CONFIG makes no sense."""

    def __init__(self) -> None:
        try:
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
            resolver = self._strategy.cluster_resolver
            chiefs = len(resolver.cluster_spec().as_dict().get("chief", ()))
            self.rank = int(resolver.task_id) + chiefs * (resolver.task_type == "worker")
        except (RuntimeError, ValueError, TypeError, tf.errors.OpError) as error:
            raise EngineError(
                f"the launched processes do not meet: {str(error).splitlines()[0][:200]}",
                "TF_CONFIG as MultiWorkerMirroredStrategy reads it, with addresses that all reach",
                "set it for each process, or unset TF_CONFIG for a run of one process.",
            ) from error
        addresses = tasks()
        self.host, self.count = addresses[0].rpartition(":")[0].strip("[]"), len(addresses)
        self._sum: Any = tf.function(self._summed, autograph=False)

    def _summed(self, x: Array) -> Any:
        each = self._strategy.run(lambda: tf.identity(x))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

    def told(self, numbers: AnyArray) -> AnyArray:
        """The first process's numbers, int32, which all call this with as many of."""
        here = self._strategy.num_replicas_in_sync // self.count
        own = numbers.astype(np.int64) if self.rank == 0 else np.zeros(len(numbers), np.int64)
        whole: AnyArray = np.asarray(self._sum(tf.constant(own))) // here
        return whole.astype(np.int32)

    def devices(self, device: str) -> int:
        """Of all processes."""
        return int(self._strategy.num_replicas_in_sync)

    def layout(self, device: str, group: Group | None) -> HostLayout:
        """For a run: of all their devices."""
        return HostLayout(self._strategy, group)


class HostLayout(Layout):
    """The devices of several processes, among which the rows of updates are divided: each has all
    rows, and takes those of its own devices."""

    def __init__(self, strategy: Any, group: Group | None) -> None:
        self.strategy, self.count = strategy, strategy.num_replicas_in_sync
        self.calls = Calls(group, self._changed, self._leave, LOST)
        self._left: list[Any] = []  # copies of what the latest call left
        self._differ: Any = tf.function(self._differences, autograph=False)

    def _differences(self, variables: list[Any], left: list[Any]) -> Any:
        # what is not a number differs from itself: it is sent again
        return tf.stack([tf.reduce_any(x != y) for x, y in zip(variables, left, strict=True)])

    def _changed(self, variables: list[Variable]) -> list[int]:
        if not self._left:
            return list(range(len(variables)))
        now = [tf.identity(v.value) for v in variables]
        return np.flatnonzero(self._differ(now, self._left)).tolist()

    def _leave(self, variables: list[Variable]) -> None:
        self._left = [tf.identity(v.value) for v in variables]
