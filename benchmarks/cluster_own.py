"""Our side of benchmarks.cluster: a run with runners, with a pool or alone, and handing transitions
over."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Job = dict[str, Any]

ROWS, FLOATS = 1_000, 17  # what is handed over at once
# with actions, rewards and ends beside
AT_ONCE = "a runner's block, by our own exchange: asked for, answered, in new arrays"
BARE, THERE = "a Ray actor, one call", "a Ray actor, one call, asked for and done before"
SINGLY, POOL = "a Ray actor, 1,000 calls of one each", "a worker of our pool, shared memory"


def run(job: Job) -> Job:
    """Seconds, environment steps and updates of a run from the first updates after `warm` steps to
    its last ones; nothing is evaluated or written."""
    import tandem
    from tandem.learning.events import BatchEnd

    session = tandem.session(
        job["algorithm"],
        job["env"],
        framework=job["contestant"],
        steps=job["warm"] + job["steps"],
        seed=job["seed"],
        eval_episodes=0,
        **job["settings"],
    )
    marks: list[tuple[float, int, int]] = []
    for event in session:
        if isinstance(event, BatchEnd) and event.env_steps >= job["warm"]:
            marks = [*marks[:1], (time.perf_counter(), event.env_steps, event.updates)]
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()  # or what it has to say would come behind the result
    seconds, steps, updates = (
        last - first for first, last in zip(marks[0], marks[-1], strict=True)
    )
    return {"seconds": seconds, "steps": steps, "updates": updates}


class Holder:
    """Has transitions, and hands them over when it is asked: a runner without environments."""

    def __init__(self) -> None:
        self.rows = np.ones((ROWS, FLOATS), np.float32)

    def all(self) -> Any:
        return self.rows

    def one(self, i: int) -> Any:
        return self.rows[i]

    def block(self, steps: int) -> Any:
        from tandem.learning.collect.trajectories import BlockInfo, pack
        from tandem.types import Cuts, Trajectory

        n = ROWS // steps
        number, flag = np.ones((steps, n), np.float32), np.ones((steps, n), np.bool_)
        none = Cuts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, FLOATS), np.float32))
        obs, action = self.rows.reshape(steps, n, FLOATS), np.ones((steps, n, 6), np.float32)
        block = Trajectory(obs, action, number, number, flag, flag, none, obs[-1])
        return BlockInfo.of(block, []), pack(block)


def handing_over(job: Job) -> Job:
    """Milliseconds from asking a process for 1,000 transitions of 17 floats to having them in an
    array here, one for each time that it was done: by a Ray actor, and by a worker of our pool
    through shared memory."""
    from tandem.learning.collect.trajectories import join_environments, unpack
    from tandem.workers.ray import RayActor, connect

    ray = connect("local")
    into, blank = np.empty((ROWS, FLOATS), np.float32), np.zeros((1, FLOATS), np.float32)
    runner = RayActor(ray, 0)
    runner.begin(Holder)
    runner.answer(60)
    actor = ray.remote(num_cpus=0)(Holder).remote()

    def exchanged() -> None:
        runner.ask("block", 125)
        info, arrays = runner.answer(60)
        block = join_environments([unpack(arrays, info, blank, ())], [0])
        into[:] = block.obs.reshape(ROWS, FLOATS)

    def at_once() -> None:
        into[:] = ray.get(actor.all.remote())

    def singly() -> None:
        into[:] = ray.get([actor.one.remote(i) for i in range(ROWS)])

    times = job["times"]
    milliseconds = {AT_ONCE: [_took(exchanged, into) for _ in range(times)], BARE: [], THERE: []}
    milliseconds[BARE] = [_took(at_once, into) for _ in range(times)]
    for _ in range(times):
        there = actor.all.remote()
        ray.wait([there])
        milliseconds[THERE].append(_took(lambda: np.copyto(into, ray.get(there)), into))  # noqa: B023
    milliseconds[SINGLY] = [_took(singly, into) for _ in range(max(1, times // 50))]
    ray.shutdown()
    milliseconds[POOL] = by_memory(times)
    # the first ones warm up
    return {"milliseconds": {name: took[len(took) // 10 :] for name, took in milliseconds.items()}}


def by_memory(times: int) -> list[float]:
    """The same by a worker process of ours, with whom the array is shared."""
    from benchmarks.workers import Filler
    from tandem.workers.process import Process
    from tandem.workers.shared_memory import SharedArrays

    arrays = SharedArrays.create({"rows": ((ROWS, FLOATS), "<f4")})
    process = Process((arrays.handle.fd,), Filler, arrays.handle)
    process.answer(60)
    into = np.empty((ROWS, FLOATS), np.float32)

    def ask() -> None:
        process.send_bytes()
        process.answer(60)
        into[:] = arrays["rows"]

    milliseconds = [_took(ask, into) for _ in range(times)]
    process.end()
    return milliseconds


def _took(work: Callable[[], None], into: Any) -> float:
    """Milliseconds of having ones handed over."""
    into[:] = 0
    began = time.perf_counter()
    work()
    took = 1e3 * (time.perf_counter() - began)
    if not into.all():
        raise RuntimeError("not all transitions arrived.")
    return took
