"""From trajectories to updates: the two ways to learn, from whole rollouts once, or from
transitions replayed."""

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

CALL_BYTES = 256 * 2**20  # batches of one call together; more updates are split into several calls


class Span(NamedTuple):
    """The environment steps that a block of collecting took, and the length of the run."""

    begin: int
    end: int
    steps: int

    @property
    def progress(self) -> float:
        return min(1.0, self.end / self.steps)


class Learner:
    """What the loop calls to learn from what it collects."""

    block: int  # steps of each environment between calls
    updates: int  # made so far

    def __init__(self, algorithm: Any, backend: Backend, generators: Generators) -> None:
        self.algorithm, self.backend, self.generators = algorithm, backend, generators
        self.settings = algorithm.settings
        self.block, self.updates = self.settings.block, 0

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """Returns the metrics of the updates, averaged; none where there was no update."""
        raise NotImplementedError

    def _count_updates(self, outcome: Outcome) -> dict[str, float]:
        self.updates += outcome.applied
        return checked(outcome, self.updates)

    def is_warmup(self, env_steps: int) -> bool:
        """Returns whether to act at random still."""
        return False

    def break_off(self, envs: Sequence[int]) -> None:
        """What comes next of these environments belongs to other episodes than what was learned
        from last."""

    def state(self, replay: bool) -> tuple[JSONDict, dict[str, Array]]:
        """Returns what `load_state` takes; with `replay` the replay buffer, too."""
        raise NotImplementedError

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        """Becomes the learner whose `state` this was."""
        raise NotImplementedError


def compiled(algorithm: Algorithm) -> tuple[Callable[..., Outcome], Callable[..., Outcome] | None]:
    """Its update, and that by a whole rollout, compiled: in this order in every process."""
    run, whole = algorithm.backend.compile(algorithm.update), algorithm.whole_update()
    return run, algorithm.backend.compile(whole) if whole else None


class RolloutLearner(Learner):
    """Several epochs over each rollout, then it is gone. Noise on weights stays as it was when they
    acted: on-policy gradients are unbiased only then (Fortunato et al. 2018, section 3.1)."""

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
            memory.reshape(self.settings.envs, -1)[list(envs)] = 0  # with those of its agents

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """The metrics of the updates, averaged."""
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
    """Updates on transitions drawn from a ring of the latest ones."""

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
        """goals: how the environment judges goals, for hindsight. networks: those that `remembered`
        uses."""
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
        # bytes of a transition, of what follows it, and of what lies between
        row = (1 + (s.n_step if self._between else 1)) * Ring.size(
            1, 1, observation, action, extras
        )
        rows = s.batch_size // each * (each + s.burn_in)
        self.most = max(1, CALL_BYTES // max(1, row * rows))  # updates in one call
        self.n = s.n_step
        # environment steps before the first call since then, where calls made no update
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
            # what a user's loss does with next observations is not known
            terminal=s.hindsight != "no" or not is_ours(name_of(type(algorithm))),
        )
        self.batch = s.batch_size // each
        steps = each + s.burn_in  # of what is drawn
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
        self._hindsight = self._relabelling(goals)
        self._reset = Reset(backend) if s.reset_every else None
        self._run = backend.compile(algorithm.update)

    def _relabelling(self, goals: Goals | None) -> Hindsight | None:
        """What gives transitions other goals, if anything. SettingError where it cannot."""
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
        """Whether to act at random still, so that the first updates see some variety."""
        return bool(env_steps < self.settings.learning_starts)

    def break_off(self, envs: Sequence[int]) -> None:
        self.ring.break_off(envs)
        if isinstance(self.algorithm.memory, dict):
            for state in self.algorithm.memory.values():
                state[list(envs)] = 0
        if self._rewards:
            self._rewards.break_off(envs)

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """The metrics of the updates, averaged; none before learning starts."""
        lead = trajectory.reward.shape
        extra = trajectory.extra | self.algorithm.remembered(trajectory, self._networks)
        blank = {
            n: np.zeros((*lead, *x.shape), x.dtype) for n, x in self._kept.items() if n not in extra
        }
        # chance has no memory
        self.sampler.add(trajectory._replace(extra=extra | blank))
        for statistics in (self._observations, self._rewards):
            if statistics:
                statistics.add(trajectory)
        if span.end < self.settings.learning_starts or not self.sampler.ready(1):
            return {}
        owed = self._owed(trajectory, span)
        begin = span.begin if self._waiting is None else self._waiting
        self._waiting = begin
        if not owed:
            return {}
        beta = (
            self.settings.priority_beta(np.full(owed, span.progress))
            if self.settings.prioritized
            else None
        )
        draw = self.sampler.draw(self.generators("replay"), owed, self.batch, beta)
        schedule = self.algorithm.schedule(
            Call(np.full(owed, span.progress), begin, span.end, self.updates)
        )
        if self.settings.noisy != "no":
            schedule |= self.backend.noise(
                self.settings.noisy, self.generators("noise/learning"), owed
            )
        if self._observations:  # acting is brought to them after the updates
            self._observations.publish()
        metrics: list[dict[str, float]] = []
        before = self.updates
        sequence = (self.algorithm.sequence,) if self.algorithm.sequence else ()
        for i in range(0, owed, self.most):
            part = slice(i, min(i + self.most, owed))
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

    def _owed(self, trajectory: Trajectory, span: Span) -> int:
        """How many updates this call makes."""
        s = self.settings
        if s.updates_per_step != "auto":  # as many in all as steps so far ask for
            return int(span.end * s.updates_per_step) - int(span.begin * s.updates_per_step)
        return int(s.updates_per_call if s.updates_per_call > 0 else trajectory.reward.size)

    def _batch(self, ids: Array, weight: Array) -> Batch:
        """The transitions of rows `ids` [k, B], or the sequences that begin there, [k, S, L, ...],
        with "start" where the state of a network with a memory begins anew, and the states before
        their first steps."""
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
    """The means of several calls' metrics, over those that have them."""
    if len(metrics) == 1:
        return metrics[0]
    return {
        n: float(np.mean([m[n] for m in metrics if n in m]))
        for n in dict.fromkeys(n for m in metrics for n in m)
    }


def checked(outcome: Outcome, updates: int) -> dict[str, float]:
    """The means of a call's metrics, over the updates that have them (others say NaN). Raises
    NonFiniteError where an update was refused; the `updates` before it hold."""
    if outcome.fault:
        raise NonFiniteError(
            f"the loss or gradient of optimizer {outcome.fault!r} was not finite in update "
            f"{updates + 1}, which was not made.",
            "finite losses and gradients",
            "restart with a lower learning rate, or scale rewards down with "
            "gymnasium.wrappers.TransformReward; the last checkpoint has the weights from before.",
        )
    if outcome.applied == 1:  # quicker than a mean
        return {n: x for n, v in outcome.metrics.items() if not math.isnan(x := float(v[0]))}
    known = {
        n: v[: outcome.applied][~np.isnan(v[: outcome.applied])] for n, v in outcome.metrics.items()
    }
    return {n: float(v.mean()) for n, v in known.items() if len(v)}
