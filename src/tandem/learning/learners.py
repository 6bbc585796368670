"""Learners, which turn trajectories into updates: from whole rollouts, which are then discarded, or
from replayed transitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tandem.algorithms import teams
from tandem.algorithms.base import Algorithm, Call, Forward
from tandem.algorithms.own import is_ours, name_of
from tandem.backends.backend import Backend, Outcome
from tandem.errors import NonFiniteError, SettingError
from tandem.learning import fits, normalization
from tandem.learning.learner_state import carried, load_carried, load_stored, stored
from tandem.learning.normalization import RewardScale, RewardStandard
from tandem.learning.resets import Reset
from tandem.learning.seeds import Generators
from tandem.replay import windows
from tandem.replay.buffer import Ring
from tandem.replay.hindsight import Goals, Hindsight
from tandem.replay.samplers import PrioritizedSampler, SequenceSampler, UniformSampler
from tandem.types import Array, Batch, JSONDict, Trajectory, Tree

CALL_BYTES = 256 * 2**20  # maximum size of the batches in one call; more updates need several calls


class Span(NamedTuple):
    """The environment steps of a collected block, and the length of the run."""

    begin: int
    end: int
    steps: int

    @property
    def progress(self) -> float:
        return min(1.0, self.end / self.steps)


class Learner:
    """Base class of learners, which the loop calls with collected trajectories."""

    block: int  # steps of each environment between calls
    updates: int  # updates made so far

    def __init__(self, algorithm: Any, backend: Backend, generators: Generators) -> None:
        self.algorithm, self.backend, self.generators = algorithm, backend, generators
        self.settings = algorithm.settings
        self.block, self.updates = self.settings.block, 0

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """Learn from a block, and return the averaged metrics; empty if there was no update."""
        raise NotImplementedError

    def _count_updates(self, outcome: Outcome) -> dict[str, float]:
        self.updates += outcome.applied
        return checked(outcome, self.updates)

    def is_warmup(self, env_steps: int) -> bool:
        """Return True if actions should still be random."""
        return False

    def break_off(self, envs: Sequence[int]) -> None:
        """End the running episodes of these environments: their next steps belong to other
        episodes."""

    def state(self, replay: bool) -> tuple[JSONDict, dict[str, Array]]:
        """Return the state for `load_state`; with `replay`, including the replay buffer."""
        raise NotImplementedError

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        """Restore the learner whose `state` this was."""
        raise NotImplementedError


def compiled(algorithm: Algorithm) -> tuple[Callable[..., Outcome], Callable[..., Outcome] | None]:
    """Compile the algorithm's update and its `whole_update`, in this order in every process."""
    run, whole = algorithm.backend.compile(algorithm.update), algorithm.whole_update()
    return run, algorithm.backend.compile(whole) if whole else None


class RolloutLearner(Learner):
    """Makes several epochs over each rollout, then discards it. Noisy weights keep the noise that
    they acted with: only then are on-policy gradients unbiased (Fortunato et al. 2018,
    section 3.1)."""

    def __init__(
        self,
        algorithm: Algorithm,
        backend: Backend,
        observation: Tree,
        generators: Generators,
        networks: dict[str, Forward],
    ) -> None:
        super().__init__(algorithm, backend, generators)
        s = self.settings
        self.rows, each = s.rollout * s.envs, algorithm.sequence or 1
        self.epochs, self.batch = s.epochs, s.batch_size or self.rows
        fits.rollouts(s, algorithm.sequence, backend.devices)
        self.rows, self.batch = self.rows // each, self.batch // each
        self._run, self._first = compiled(algorithm)
        self._networks = networks
        seeing = {r: backend.networks[r] for r in networks if r not in algorithm.apart}
        self._observations, scaled = normalization.statistics(s, observation, seeing)
        self._rewards = RewardStandard() if s.standardize_rewards else scaled

    def break_off(self, envs: Sequence[int]) -> None:
        if isinstance(self._rewards, RewardScale):
            self._rewards.break_off(envs)
        if isinstance(self.algorithm.memory, np.ndarray):
            self.algorithm.memory = memory = self.algorithm.memory.copy()
            memory.reshape(self.settings.envs, -1)[list(envs)] = 0  # including all agents of a team

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """Learn from a rollout, and return the averaged metrics."""
        scaled = self._rewards(trajectory) if self._rewards else trajectory
        data = self.algorithm.prepare(scaled, self._networks)
        calls = self.epochs * (self.rows // self.batch)
        first = 1 if self._first else 0
        order = self.generators("batches")
        indices = np.concatenate([order.permutation(self.rows) for _ in range(self.epochs)])
        schedule = self.algorithm.schedule(
            Call(np.full(first + calls, span.progress), span.begin, span.end, self.updates)
        )
        metrics = dict[str, float]()
        if self._first:
            settings = {n: x[:1] for n, x in schedule.items()}
            every = np.arange(self.rows, dtype=np.int32)[None]
            metrics = self._count_updates(self._first(data._replace(settings=settings), every))
            schedule = {n: x[1:] for n, x in schedule.items()}
        outcome = self._run(
            data._replace(settings=schedule), indices.reshape(calls, -1).astype(np.int32)
        )
        metrics |= self._count_updates(outcome)
        if self._observations:
            self._observations.add(trajectory)
            self._observations.publish()
        return metrics

    def state(self, replay: bool) -> tuple[JSONDict, dict[str, Array]]:
        arrays = carried(self.algorithm)
        statistics = normalization.state(self._observations, self._rewards)
        return {"updates": self.updates}, arrays | statistics

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        self.updates = data["updates"]
        load_carried(self.algorithm, arrays)
        normalization.load_state(self._observations, self._rewards, arrays)


class ReplayLearner(Learner):
    """Makes updates on transitions sampled from a ring of the latest ones."""

    def __init__(
        self,
        algorithm: Algorithm,
        backend: Backend,
        observation: Tree,
        action: Any,
        generators: Generators,
        folder: Path | None,
        goals: Goals | None = None,
        networks: dict[str, Forward] | None = None,
    ) -> None:
        """Create the ring and the sampler. goals: the environment's goals, for hindsight.
        networks: the networks that `remembered` uses."""
        super().__init__(algorithm, backend, generators)
        s = self.settings
        fits.transitions(s, algorithm.sequence, backend.devices)
        self._networks, kept = networks or {}, algorithm.buffer_extras(action)
        kept = {**kept, **getattr(goals, "stored", {})}
        zero = s.start_state == "zero"
        self._zeros = {n: x.shape for n, x in kept.items() if zero and n.endswith("_state")}
        self._kept = extras = {n: x for n, x in kept.items() if n not in self._zeros}
        each = algorithm.sequence or 1
        self._between = algorithm.sees_between and s.n_step > 1
        # bytes of a transition, of its next observation, and of the observations between
        row = (1 + (s.n_step if self._between else 1)) * Ring.size(
            1, 1, observation, action, extras
        )
        rows = s.batch_size // each * (each + s.burn_in)
        self.most = max(1, CALL_BYTES // max(1, row * rows))  # maximum updates per call
        self.n = s.n_step
        # environment steps before the first call since the last update, if later calls made none
        self._waiting: int | None = None
        files = str(folder / "replay") if s.memmap and folder is not None else None
        limited = teams.ACTIVE if algorithm.team else ""
        self.ring = Ring(
            s.buffer_size,
            s.envs,
            observation,
            action,
            path=files,
            extra=extras,
            limited=limited,
            # custom losses may use next observations after terminations
            terminal=s.hindsight != "no" or not is_ours(name_of(type(algorithm))),
        )
        self.batch = s.batch_size // each
        steps = each + s.burn_in  # length of the sampled sequences
        if s.prioritized:
            self.sampler: Any = PrioritizedSampler(self.ring, alpha=s.priority_alpha, steps=steps)
        elif algorithm.sequence:
            self.sampler = SequenceSampler(self.ring, steps)
        else:
            self.sampler = UniformSampler(self.ring)
        statistics = normalization.statistics(s, observation, backend.networks)
        self._observations, self._rewards = statistics
        if self._rewards:
            self.ring.scaled = self._rewards.scaled
        self._hindsight = self._relabeling(goals)
        self._reset = Reset(backend) if s.reset_every else None
        self._run = backend.compile(algorithm.update)

    def _relabeling(self, goals: Goals | None) -> Hindsight | None:
        """Return the relabeling of goals, if enabled. Raise SettingError if it is not possible."""
        s = self.settings
        if s.hindsight == "no":
            return None
        if goals is None:
            raise SettingError(
                f"hindsight={s.hindsight!r} requires an environment to compute rewards.",
                "a run that makes its environments, as tandem.train does",
                "give hindsight='no'.",
            )
        return Hindsight(self.ring, goals, k=s.relabel, strategy=s.hindsight)

    def is_warmup(self, env_steps: int) -> bool:
        """Return True if actions should still be random, so that the first data is diverse."""
        return bool(env_steps < self.settings.learning_starts)

    def break_off(self, envs: Sequence[int]) -> None:
        self.ring.break_off(envs)
        if isinstance(self.algorithm.memory, dict):
            for state in self.algorithm.memory.values():
                state[list(envs)] = 0
        if self._rewards:
            self._rewards.break_off(envs)

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """Add a block to the ring, make the updates, and return the averaged metrics; empty before
        learning starts."""
        lead = trajectory.reward.shape
        extra = trajectory.extra | self.algorithm.remembered(trajectory, self._networks)
        # the random actor provides no recurrent states
        blank = {
            n: np.zeros((*lead, *x.shape), x.dtype) for n, x in self._kept.items() if n not in extra
        }
        self.sampler.add(trajectory._replace(extra=extra | blank))
        for statistics in (self._observations, self._rewards):
            if statistics:
                statistics.add(trajectory)
        if span.end < self.settings.learning_starts or not self.sampler.ready(1):
            return {}
        due = self._due(trajectory, span)
        begin = span.begin if self._waiting is None else self._waiting
        self._waiting = begin
        if not due:
            return {}
        beta = (
            self.settings.priority_beta(np.full(due, span.progress))
            if self.settings.prioritized
            else None
        )
        draw = self.sampler.draw(self.generators("replay"), due, self.batch, beta)
        schedule = self.algorithm.schedule(
            Call(np.full(due, span.progress), begin, span.end, self.updates)
        )
        if self.settings.noisy != "no":
            schedule |= self.backend.noise(
                self.settings.noisy, self.generators("noise/learning"), due
            )
        if self._observations:  # acting networks get them after the updates
            self._observations.publish()
        metrics: list[dict[str, float]] = []
        before = self.updates
        sequence = (self.algorithm.sequence,) if self.algorithm.sequence else ()
        for i in range(0, due, self.most):
            part = slice(i, min(i + self.most, due))
            ids = draw.ids[part]
            batch = self._batch(
                ids, () if isinstance(draw.weight, tuple) else draw.weight[part]
            )._replace(
                noise=self.algorithm.loss_noise(
                    self.generators("learning"), (*ids.shape, *sequence)
                ),
                settings={n: v[part] for n, v in schedule.items()},
            )
            outcome = self._run(batch)
            metrics.append(self._count_updates(outcome))
            if not isinstance(outcome.priority, tuple):
                self.sampler.update(ids, outcome.priority)
        self._waiting = None if self.updates > before else begin
        every = self.settings.reset_every
        if self._reset and self.updates // every > before // every:
            self._reset(self.generators("network/reset"))
            if self._observations:
                self._observations.publish()
        return averaged(metrics)

    def _due(self, trajectory: Trajectory, span: Span) -> int:
        """Return the number of updates of this call."""
        s = self.settings
        if s.updates_per_step != "auto":  # keeps the total proportional to the steps
            return int(span.end * s.updates_per_step) - int(span.begin * s.updates_per_step)
        return int(s.updates_per_call if s.updates_per_call > 0 else trajectory.reward.size)

    def _batch(self, ids: Array, weight: Array) -> Batch:
        """Return the transitions of rows `ids` [k, B], or the sequences that start there,
        [k, S, L, ...]. Sequences have "start", which marks resets of the recurrent state, and the
        recurrent states before their first steps. Losses are averaged over all of their rows,
        also over the few of weight 0 that only reset an environment."""
        if not self.algorithm.sequence:
            batch = self.ring.transitions(ids, self.n)._replace(weight=weight)
            if self._between:
                obs, discount = windows.between(self.ring, ids, self.n)
                extra = {**batch.extra, "between": obs, "between_discount": discount}
                batch = batch._replace(extra=extra)
            if self._hindsight is None:
                return batch
            return self._hindsight.relabel(self.generators("replay/hindsight"), ids, batch)
        rows = self.sampler.sequences(ids)
        transitions, at = self.ring.transitions(rows), self.ring.position(rows)
        ended, valid = self.ring.last.take(at), self.ring.valid.take(at)
        start = np.zeros(rows.shape, np.float32)
        start[..., 1:] = (ended | ~valid)[..., :-1]
        extra = {n: x[:, :, 0] if n.endswith("_state") else x for n, x in transitions.extra.items()}
        extra |= {n: np.zeros((*ids.shape, *x), np.float32) for n, x in self._zeros.items()}
        learned = valid.astype(np.float32)
        learned[..., : self.settings.burn_in] = 0.0
        if not isinstance(weight, tuple):
            learned *= weight[..., None]
        return transitions._replace(weight=learned, extra={**extra, "start": start})

    def state(self, replay: bool) -> tuple[JSONDict, dict[str, Array]]:
        data, arrays = stored(self.ring, self.sampler) if replay else ({}, {})
        statistics = normalization.state(self._observations, self._rewards)
        arrays |= carried(self.algorithm) | statistics
        return data | {"updates": self.updates, "waiting": self._waiting}, arrays

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        self.updates, self._waiting = data["updates"], data.get("waiting")
        load_carried(self.algorithm, arrays)
        normalization.load_state(self._observations, self._rewards, arrays)
        load_stored(self.ring, self.sampler, data, arrays)


def averaged(metrics: list[dict[str, float]]) -> dict[str, float]:
    """Return the means of several calls' metrics, each over the calls that have it."""
    if len(metrics) == 1:
        return metrics[0]
    return {
        n: float(np.mean([m[n] for m in metrics if n in m]))
        for n in dict.fromkeys(n for m in metrics for n in m)
    }


def checked(outcome: Outcome, updates: int) -> dict[str, float]:
    """Return the means of a call's metrics, each over the updates that have it (it is NaN in
    others). Raise NonFiniteError if an update was rejected; the `updates` before it remain."""
    if outcome.fault:
        raise NonFiniteError(
            f"the loss or gradient of optimizer {outcome.fault!r} was not finite in update "
            f"{updates + 1}, which was not made.",
            "finite losses and gradients",
            "restart with a lower learning rate, or scale rewards down with "
            "gymnasium.wrappers.TransformReward; the last checkpoint has the weights from before.",
        )
    if outcome.applied == 1:  # faster than a mean
        return {n: x for n, v in outcome.metrics.items() if not math.isnan(x := float(v[0]))}
    known = {
        n: v[: outcome.applied][~np.isnan(v[: outcome.applied])] for n, v in outcome.metrics.items()
    }
    return {n: float(v.mean()) for n, v in known.items() if len(v)}
