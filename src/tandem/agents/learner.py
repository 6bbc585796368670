"""Training phases: when a user's agent learns, from which transitions, and what follows."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem.learning.learners import Span, averaged, checked, load_stored, stored
from tandem.replay.buffer import Ring
from tandem.types import Array, Batch, IntArray, Trajectory, Tree

Relabel = Callable[[np.random.Generator, IntArray, Batch], Batch]


@dataclass
class UpdateSchedule:
    """When to learn, and how much."""

    batch: int  # transitions in a mini-batch
    collect: (
        int | None
    )  # steps collected for a phase, which goes over all of them; None: a phase after each step
    updates: int | None  # mini-batches of a phase; None: 1, or `passes` over the pool
    passes: int  # over what was collected
    phases: int | None  # between calls of update_param
    batches: int | None  # mini-batches between them instead
    store: int | None = (
        None  # episodes that end before the phases of all their steps come, one after the other
    )


class PhaseLearner:
    """After each step, or after as many as were asked for, a training phase: mini-batches, and then
    `update_param`.

    fetch: from drawn ids to transitions. relabel: gives them other goals. see: what of observations
    the loss is given. renew: what becomes of the pool after `update_param`; trim: and whenever
    there is something new in it.
    """

    block = 1  # a step of each environment at a time: episodes are counted exactly

    def __init__(
        self,
        algorithm: Any,
        backend: Any,
        generators: Any,
        sampler: Any,
        rhythm: UpdateSchedule,
        *,
        see: Callable[[Tree], Tree],
        relabel: Relabel | None,
        renew: Callable[[Any], None],
        trim: Callable[[Any], None],
        fetch: Callable[[IntArray], Batch],
        beta: float,
    ) -> None:
        self.algorithm, self.backend, self.generators, self.sampler, self.rhythm = (
            algorithm,
            backend,
            generators,
            sampler,
            rhythm,
        )
        self.see, self.relabel, self.renew, self.trim, self.fetch, self.beta = (
            see,
            relabel,
            renew,
            trim,
            fetch,
            beta,
        )
        self.updates = 0  # made so far
        self.phases = 0
        self.fresh = 0  # steps since the last phase
        self.ended = 0  # episodes since then
        self.losses: list[float] = []  # of each mini-batch since this was emptied
        self.jit = True
        self._run: Any = None

    @property
    def ring(self) -> Ring:
        found: Ring = self.sampler.ring
        return found

    def is_warmup(self, env_steps: int) -> bool:
        """The agent's policy or noise explores from the first step on."""
        return False

    def break_off(self, envs: Sequence[int]) -> None:
        self.ring.break_off(envs)

    def compile(self, jit: bool) -> None:
        """Updates are compiled, or not, from now on."""
        others = [
            o.look() for o in self.algorithm.optimizers
        ]  # each, since weights may have been frozen or thawed
        if self._run is None or jit != self.jit or any(others):
            self.jit, self._run = jit, self.backend.compile(self.algorithm.update, jit)
            self.algorithm.reads.forget()

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """The losses of the updates, averaged; none while there is nothing to learn yet."""
        self.sampler.add(trajectory)
        self.fresh += trajectory.reward.size
        self.ended += int(np.count_nonzero(trajectory.last))
        self.trim(self.sampler)
        r = self.rhythm
        early = (
            self.ended < r.store if r.store else r.collect is not None and self.fresh < r.collect
        )
        if early or not self.sampler.ready(r.batch):
            return {}
        phases = 1 if r.collect is not None else self.fresh if r.store else trajectory.reward.size
        self.fresh = self.ended = 0
        metrics: list[dict[str, float]] = []
        while phases:
            several = phases if r.phases is None and r.batches is not None else 1
            if r.phases is not None:
                several = min(phases, r.phases - self.phases % r.phases)
            metrics += self._phase(several)
            phases -= several
        return averaged(metrics)

    def _phase(self, several: int) -> list[dict[str, float]]:
        """As many phases as may be one call, and `update_param` where it is due."""
        r = self.rhythm
        each = r.updates or (
            1 if r.collect is None else max(1, r.passes * len(self.ring) // r.batch)
        )
        ids, weight = self.sampler.draw(
            self.generators("replay"), several * each, r.batch, np.full(several * each, self.beta)
        )
        metrics: list[dict[str, float]] = []
        at = 0
        while at < len(ids):
            room = len(ids) - at if r.batches is None else r.batches - self.updates % r.batches
            part = slice(at, min(at + room, len(ids)))
            metrics.append(
                self._call(ids[part], weight if isinstance(weight, tuple) else weight[part])
            )
            at = part.stop
            if r.batches is not None and self.updates % r.batches == 0:
                self._update_param()
        self.phases += several
        if r.batches is None and (r.phases is None or self.phases % r.phases == 0):
            self._update_param()
        return metrics

    def _call(self, ids: IntArray, weight: Array) -> dict[str, float]:
        batch = self.fetch(ids)
        if self.relabel is not None:
            batch = self.relabel(self.generators("hindsight"), ids, batch)
        number = self.updates + np.arange(len(ids), dtype=np.float32)
        batch = batch._replace(
            obs=self.see(batch.obs),
            next_obs=self.see(batch.next_obs),
            weight=weight,
            settings={"update": number},
        )
        if changed := self.algorithm.reads.changed():
            warnings.warn(
                f"{', '.join(changed)} changed, which the compiled loss had taken for constant: "
                "it is compiled anew. Make it a"
                " variable (keras.Variable) that you assign to, and it need not be.",
                stacklevel=2,
            )
            self._run = None
            self.compile(self.jit)
        outcome = self._run(batch)
        self.updates += outcome.applied
        metrics = checked(outcome, self.updates)
        self.losses += [float(x) for x in outcome.metrics["loss"]]
        if not isinstance(outcome.priority, tuple):
            self.sampler.update(ids, outcome.priority)
        self._hooks()
        return metrics

    def _hooks(self) -> None:
        """What the agent may want to change after mini-batches."""
        agent = self.algorithm.agent
        if (size := getattr(agent, "batch_size_fn", None)) is not None:
            self.rhythm.batch = max(1, min(int(size()), len(self.ring)))
        if (adjust := getattr(agent, "adjust_func", None)) is not None:
            adjust()

    def _update_param(self) -> None:
        self.algorithm.agent.update_param()
        self.renew(self.sampler)

    def state(self, replay: bool) -> tuple[dict[str, Any], dict[str, Array]]:
        data, arrays = stored(self.ring, self.sampler) if replay else ({}, {})
        data |= {n: getattr(self, n) for n in ("updates", "phases", "fresh", "ended")}
        return data | {"batch": self.rhythm.batch}, arrays

    def load_state(self, data: dict[str, Any], arrays: dict[str, Array]) -> None:
        self.updates, self.phases, self.fresh = data["updates"], data["phases"], data["fresh"]
        self.ended = data.get("ended", 0)
        self.rhythm.batch = data["batch"]
        if "ring" in data:
            load_stored(self.ring, self.sampler, data, arrays)


# What becomes of the pool after update_param


def keep(sampler: Any) -> None:
    """All of it stays: old transitions are as good as new ones."""


def empty(sampler: Any) -> None:
    """Nothing stays: they are of a policy that is gone."""
    sampler.forget()


@dataclass
class Drop:
    """The oldest go: as many as the agent's function says, or a fixed number."""

    function: Callable[..., Any] | None
    fixed: int | None

    def __call__(self, sampler: Any) -> None:
        rows = told(self.function) if self.function is not None else self.fixed
        if rows:
            sampler.forget(max(0, int(rows)) // sampler.ring.envs)


@dataclass
class Windows:
    """What goes while transitions come in: `size` of the oldest when the pool is full (the ring
    drops one by itself), and `periodic` of them every `every` stored ones."""

    capacity: int
    size: Any = None  # a number, or a function
    every: int | None = None
    periodic: int | None = None

    def __call__(self, sampler: Any) -> None:
        ring = sampler.ring
        if self.size is not None and len(ring) >= self.capacity:
            sampler.forget(
                max(1, int(told(self.size) if callable(self.size) else self.size)) // ring.envs
            )
        stored = ring.time * ring.envs  # ever, also before a checkpoint
        if (
            self.every is not None
            and self.periodic
            and stored // self.every > (stored - ring.envs) // self.every
        ):
            sampler.forget(self.periodic // ring.envs)


def told(function: Callable[..., Any]) -> Any:
    """What a hook says that may want the number of a process: here there is one, number 0."""
    return function(*([0] if inspect.signature(function).parameters else []))
