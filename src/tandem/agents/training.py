"""Training phases of an agent: when it learns, and from which minibatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tandem.agents import built_networks
from tandem.agents.collection import keep_all
from tandem.agents.custom_loop import CustomLoop
from tandem.agents.rounds import Rounds
from tandem.agents.user_functions import AgentAlgorithm
from tandem.backends.backend import Backend
from tandem.learning.learner_state import load_stored, stored
from tandem.learning.learners import Learner, Span, averaged, checked
from tandem.learning.seeds import Generators
from tandem.replay.buffer import Ring
from tandem.replay.resized import take_over
from tandem.replay.samplers import Draw, Sampler
from tandem.types import (
    AnyArray,
    Array,
    Batch,
    IntArray,
    JSONDict,
    State,
    Trajectory,
    Tree,
    tree_map,
)

AFTER_EACH = ("batch_size_fn", "adjust_func")  # hooks called after each minibatch
LEARNED = 20_000  # upper limit of transitions in the pool times minibatches per step


def usual_updates(stored: int, batch_size: int) -> int:
    """Return the default number of minibatches per step with `stored` transitions in the pool: one
    pass over the pool, at most 20,000 / stored, at least one. A power of two limits
    recompilation."""
    updates = max(1, min(stored // batch_size, LEARNED // max(stored, 1)))
    return 1 << (updates.bit_length() - 1)


@dataclass
class UpdateSchedule:
    """Timing and size of training phases."""

    batch_size: int  # transitions per minibatch
    # steps collected for a phase, which trains on all of them; None: a phase after each step
    rollout_steps: int | None
    # minibatches; None: `usual_updates` after each step, else `passes` over the pool
    updates_per_phase: int | None
    passes: int  # over the collected steps
    sync_phases: int | None  # phases between calls of update_param
    sync_updates: int | None  # minibatches between calls of update_param, as an alternative
    # episodes to finish before the phases of all their steps follow, one after the other
    store_episodes: int | None = None
    # make the phases of such a round while the next one is collected, not before it
    beside: bool = False
    # episodes of each environment collected for a phase, instead of rollout_steps
    rollout_episodes: int | None = None

    @property
    def collects(self) -> bool:
        """True if a phase uses steps collected for it, rather than following each step."""
        return self.rollout_steps is not None or self.rollout_episodes is not None


class Listener(Protocol):
    """Observer of minibatches during a phase."""

    def hears_batches(self) -> bool:
        """Return whether it needs a notification for each minibatch; then each is a separate
        call."""

    def batch_begins(self, number: int) -> None: ...

    def batch_ended(self, number: int, loss: float) -> None: ...

    def should_stop(self) -> bool:
        """Return whether to make no further minibatch for now."""


@dataclass
class Part:
    """Minibatches sampled together: those up to the next `update_param`."""

    ids: IntArray  # [K, B]
    weight: Array  # [K, B], or () for ones
    made: int = 0  # how many of them have been used
    goals: JSONDict | None = None  # generator state from which hindsight goals were sampled
    batch: Batch | None = None  # all of them; fetched again after `load_state`


@dataclass
class Phase:
    """Running training phases with no `update_param` between them, or a single phase if
    `update_param` goes by minibatches."""

    count: int  # phases
    each: int  # minibatches per phase
    left: int  # minibatches not sampled yet
    part: Part | None = None


class PhaseLearner(Learner):
    """Learner that makes a training phase after each step, or after the scheduled number of steps:
    minibatches, then `update_param`. A listener can stop it after any minibatch; `go_on` then makes
    the rest.

    fetch: returns the transitions of sampled ids. relabel: replaces their goals. preprocess:
    converts observations to inputs of the loss. after_update_param is called with the sampler after
    `update_param`, on_new_rows whenever transitions were added; either can drop transitions.
    """

    block = 1  # one step of each environment at a time, so that episodes are counted exactly

    def __init__(
        self,
        algorithm: AgentAlgorithm,
        backend: Backend,
        generators: Generators,
        sampler: Sampler,
        schedule: UpdateSchedule,
        *,
        preprocess: Callable[[Tree], Tree],
        relabel: Callable[[np.random.Generator, IntArray, Batch], Batch] | None,
        fetch: Callable[[IntArray], Batch],
        beta: float,
        after_update_param: Callable[[Sampler], None],
    ) -> None:
        self.algorithm, self.backend, self.generators = algorithm, backend, generators
        self.sampler, self.schedule = sampler, schedule
        self.preprocess, self.relabel, self.fetch, self.beta = preprocess, relabel, fetch, beta
        self.after_update_param = after_update_param
        self.on_new_rows: Callable[[Sampler], None] = keep_all
        self.updates = 0  # total so far
        self.phases = 0
        self.fresh = 0  # steps since the last phase
        self.ended: IntArray = np.zeros(sampler.ring.envs, np.int64)  # episodes since then
        # episodes since adjusted numbers were reset to their originals
        self.since = sampler.ring.envs
        self.due = 0  # phases to come after the current one
        self.phase: Phase | None = None  # the current one
        self.listener: Listener | None = None
        self.waiting = 0  # remaining phases of the last round of episodes
        self.losses: list[float] = []  # of each minibatch since the list was last cleared
        self.jit = True
        self.rounds: Rounds | None = None  # with several workers
        self._agreed = 0  # updates that follow this round
        self.loop: CustomLoop | None = None  # the user's own loop
        self._run: Callable[[Batch], Any] | None = None

    @property
    def ring(self) -> Ring:
        return self.sampler.ring

    def break_off(self, envs: Sequence[int]) -> None:
        self.ring.break_off(envs)

    def compile_anew(self) -> None:
        """Compile the next update even if an equal one was compiled before."""
        self._run = None

    def compile(self, jit: bool) -> None:
        """Set whether XLA compiles updates."""
        # each optimizer checks, since weights may have been frozen or unfrozen
        changed = [o.look() for o in self.algorithm.optimizers]
        if self._run is None or jit != self.jit or any(changed):
            self.jit, self._run = jit, self.backend.compile(self.algorithm.update, jit)
            self.algorithm.constants.forget()

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """Return the mean losses of the updates; an empty dict if there were none."""
        self.sampler.add(trajectory)
        self.fresh += trajectory.reward.size
        ended = np.count_nonzero(trajectory.last, axis=0)
        self.ended += ended
        self.on_new_rows(self.sampler)
        phases, s = self._phases(trajectory.reward.size), self.schedule
        # for adaptive rules a phase is an episode of each environment, unless steps are collected
        # for it
        begins, episodes = self.since >= self.ring.envs, int(ended.sum())
        self.since += episodes
        collected = s.collects or s.store_episodes is not None
        if phases and (not self.fresh if collected else begins):
            self.since = episodes
            self.algorithm.agent.initialize_adjusting()
        self.due += phases
        return self.go_on()

    def _phases(self, steps: int) -> int:
        """Return how many phases follow these steps."""
        s = self.schedule
        if self.rounds is not None:
            return self._end_round(self.rounds)
        if s.rollout_episodes is not None:
            early = bool((self.ended < s.rollout_episodes).any())
        elif s.store_episodes:
            early = int(self.ended.sum()) < s.store_episodes
        else:
            early = s.rollout_steps is not None and self.fresh < s.rollout_steps
        beside = s.beside and s.store_episodes is not None
        if early and not beside:
            return 0
        if not self.sampler.ready(s.batch_size):
            if s.rollout_episodes is not None:
                self.ended[:] = 0  # wait for another episode of each environment
            return 0
        if beside and early:  # as many as new steps
            phases = min(steps, self.waiting)
            self.waiting -= phases
            return phases
        phases = 1 if s.collects else self.fresh if s.store_episodes else steps
        if beside:  # the rest of the previous round
            phases, self.waiting = self.waiting, phases
        self.fresh = 0
        self.ended[:] = 0
        return phases

    def _end_round(self, rounds: Rounds) -> int:
        """Return 1 if a phase follows, else 0. A phase follows once each environment has finished
        an episode and all workers have enough transitions."""
        if (self.ended < 1).any():
            return 0
        self.ended[:] = 0
        s = self.schedule
        enough = s.rollout_steps is None or self.fresh >= s.rollout_steps
        updates = self._updates() if enough and self.sampler.ready(s.batch_size) else 0
        self._agreed = rounds.end_round(updates)
        if not self._agreed:
            return 0
        self.fresh = 0
        return 1

    def go_on(self) -> dict[str, float]:
        """Make the pending phases and the rest of the current one, until the listener stops it.
        Return the mean losses of the updates."""
        metrics: list[dict[str, float]] = []
        while (self.phase is not None or self.due) and not self._stopped():
            if self.phase is None and not self.sampler.ready(self.schedule.batch_size):
                self.due = 0  # too few transitions are left in the window
                break
            if self.phase is None:
                self.phase = self._next_phase()
            metrics += self._advance(self.phase)
        return averaged(metrics) if metrics else {}

    def _stopped(self) -> bool:
        asked = self.listener is not None and self.listener.should_stop()
        return asked if self.rounds is None else self.rounds.stops(asked)

    def _next_phase(self) -> Phase:
        """Start all phases that precede the next update_param."""
        s = self.schedule
        together = 1
        if s.sync_phases is not None:
            together = min(self.due, s.sync_phases - self.phases % s.sync_phases)
        elif s.sync_updates is not None:
            together = self.due
        updates = self._updates() if self.rounds is None else self._agreed
        self.due -= together
        return Phase(together, updates, updates * together)

    def _updates(self) -> int:
        """Return the number of minibatches in a phase."""
        s, stored = self.schedule, len(self.ring)
        if s.updates_per_phase is not None:
            return s.updates_per_phase
        if s.collects:
            return max(1, s.passes * stored // s.batch_size)
        if self.rounds is not None:
            return -(-stored // s.batch_size)
        return usual_updates(stored, s.batch_size)

    def set_updates_per_phase(self, value: float) -> None:
        """Set the number of minibatches per phase. This includes the current phase, unless it has
        already made that many; then nothing changes."""
        s, new, phase = self.schedule, int(value), self.phase
        if phase is not None:
            drawn = 0 if phase.part is None else len(phase.part.ids) - phase.part.made
            if to_come := phase.left + drawn:
                made = phase.each * phase.count - to_come
                if new * phase.count <= made:
                    return
                phase.left = max(0, new * phase.count - made - drawn)
                phase.each = new
        s.updates_per_phase = new

    def _advance(self, phase: Phase) -> list[dict[str, float]]:
        """Make one compiled call of the phase, and `update_param` when it is due. Return the call's
        metrics."""
        s, sync = self.schedule, self.schedule.sync_updates
        if phase.part is None:
            agent = self.algorithm.agent
            hooked = any(getattr(agent, name, None) is not None for name in AFTER_EACH)
            updates = min(phase.left, 1) if hooked else phase.left
            if sync is not None:
                updates = min(updates, sync - self.updates % sync)
            phase.part = Part(*self._draw(updates))
            phase.left -= updates
        part = phase.part
        # none is left if a callback of the last minibatch saved the agent
        metrics = [self._call(part)] if part.made < len(part.ids) else []
        if part.made < len(part.ids):
            return metrics
        phase.part = None
        self._adjust()
        over = not phase.left
        if sync is not None and self.updates % sync == 0:
            self._update_param()
            # the agent may have dropped too many transitions for another minibatch
            ready = self.sampler.ready(s.batch_size)
            over = over or not (ready if self.rounds is None else self.rounds.ready(ready))
        if over:
            self.phase = None
            self.phases += phase.count
            if sync is None and (s.sync_phases is None or self.phases % s.sync_phases == 0):
                self._update_param()
        return metrics

    def _draw(self, updates: int) -> Draw:
        """Return the rows of this many minibatches, all of which are in the pool now."""
        beta = np.full(updates, self.beta)
        rng, size = self.generators("replay"), self.schedule.batch_size
        return self.sampler.draw(rng, updates, size, beta)

    def _call(self, part: Part) -> dict[str, float]:
        """Make one compiled call of the part's remaining updates, or of the next one only if the
        listener needs each. Return its metrics."""
        if part.batch is None:
            part.batch = self._fetch(part)
        listener = self.listener
        told = listener is not None and listener.hears_batches()
        begin, number = part.made, self.updates
        if listener is not None and told:
            listener.batch_begins(number)
        if self._run is None or self.algorithm.outdated():
            self.compile_anew()
            self.compile(self.jit)
        assert self._run is not None
        end = begin + 1 if told else len(part.ids)
        batch = part.batch
        if end - begin < len(part.ids):
            batch = tree_map(lambda x: x[begin:end], batch)
        updates = np.arange(number, number + end - begin, dtype=np.float32)
        settings = {"update": updates} | self.algorithm.inputs.settings(end - begin)
        batch = batch._replace(settings=settings)
        outcome = self._run(batch) if self.loop is None else self.loop(self._run, batch)
        self.updates += outcome.applied
        metrics = checked(outcome, self.updates)
        part.made = end
        losses = [float(x) for x in outcome.metrics["loss"]]
        self.losses += losses
        if not isinstance(outcome.priority, tuple):
            self.sampler.update(part.ids[begin:end], outcome.priority)
        if listener is not None and told:
            listener.batch_ended(number, losses[0])
        return metrics

    def _fetch(self, part: Part) -> Batch:
        """Return the inputs of the loss for the part's rows; after `load_state`, with the same
        goals as before."""
        batch = self.fetch(part.ids)
        if self.relabel is not None:
            rng = self.generators("hindsight")
            now = rng.bit_generator.state
            if part.goals is None:
                part.goals = dict(now)
                batch = self.relabel(rng, part.ids, batch)
            else:
                rng.bit_generator.state = part.goals
                batch = self.relabel(rng, part.ids, batch)
                rng.bit_generator.state = now
        return batch._replace(
            obs=self.preprocess(batch.obs),
            next_obs=self.preprocess(batch.next_obs),
            weight=part.weight,
        )

    def _adjust(self) -> None:
        """Call the agent's adaptive hooks after a minibatch, once the pool holds the minibatches of
        a phase."""
        agent, s = self.algorithm.agent, self.schedule
        if len(self.ring) < (s.updates_per_phase or 1) * s.batch_size:
            return
        if (size := getattr(agent, "batch_size_fn", None)) is not None:
            s.batch_size = max(1, min(int(size()), len(self.ring)))
        if (adjust := getattr(agent, "adjust_func", None)) is not None:
            adjust()

    def _update_param(self) -> None:
        self.algorithm.agent.update_param()
        built_networks.follow(self.algorithm.agent)
        self.after_update_param(self.sampler)

    def forget(self) -> None:
        """Empty the pool and end its phases."""
        self.sampler.forget()
        self.due, self.waiting, self.phase = 0, 0, None

    def state(self, replay: bool) -> State:
        """Return the state; with `replay` including the pool and the rest of the current phase."""
        data, arrays = stored(self.ring, self.sampler) if replay else ({}, {})
        data |= {n: getattr(self, n) for n in ("updates", "phases", "fresh", "since")}
        data |= {"ended": self.ended.tolist(), "batch": self.schedule.batch_size}
        if replay:
            data |= {"due": self.due, "waiting": self.waiting}
            if (phase := self.phase) is not None:
                data["phase"] = {"count": phase.count, "each": phase.each, "left": phase.left}
                if (part := phase.part) is not None:
                    data["phase"] |= {"made": part.made, "goals": part.goals}
                    arrays["part/ids"] = part.ids
                    if not isinstance(part.weight, tuple):
                        arrays["part/weight"] = part.weight
        return data, arrays

    def load_state(self, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Resume from the result of `state`. With data["anew"], the sampler, the pool size and the
        schedule come from new arguments: counters continue, and the pool keeps what fits."""
        self.updates, self.phases, self.fresh = data["updates"], data["phases"], data["fresh"]
        self.due, self.waiting, self.phase, anew = 0, 0, None, data.get("anew", False)
        self.since = data.get("since", self.since)
        if not anew:
            self.schedule.batch_size = data["batch"]
        # earlier versions had longer pools for several environments
        longer = "ring" in data and data["ring"]["slots"] != self.ring.slots
        if "ring" in data and (anew or longer):
            take_over(self.ring, self.sampler, self.algorithm.settings.gamma, data, arrays)
        elif "ring" in data:
            load_stored(self.ring, self.sampler, data, arrays)
        ended = data.get("ended", 0)
        self.ended[:] = 0
        # older files store the sum
        self.ended[: len(ended) if isinstance(ended, list) else 1] = ended
        if "ring" not in data or anew:
            return
        self.due, self.waiting = data.get("due", 0), data.get("waiting", 0)
        if (saved := data.get("phase")) is not None:
            each = saved.get("each", self.schedule.updates_per_phase or 1)  # missing in older files
            self.phase = Phase(saved["count"], each, saved["left"])
            if "part/ids" in arrays:
                weight = arrays.get("part/weight", ())
                ids = np.array(arrays["part/ids"])
                self.phase.part = Part(ids, weight, saved["made"], saved["goals"])
