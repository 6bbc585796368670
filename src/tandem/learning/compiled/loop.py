"""Loop of a compiled run, a generator of the events of `Loop`. Blocks of collecting and learning
are one function on the device, and a call executes many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem.algorithms.base import Call, ReplaySettings
from tandem.backends import backend as seam
from tandem.errors import ResumeError
from tandem.learning.collect.actor import forwards
from tandem.learning.collect.evaluation import Played
from tandem.learning.events import (
    BatchBegin,
    BatchEnd,
    Counters,
    EpisodeBegin,
    EpisodeEnd,
    Event,
    TrainBegin,
    TrainEnd,
)
from tandem.learning.learners import Span, checked
from tandem.networks.plan import Weights
from tandem.networks.users import refuse_old_critics
from tandem.types import Array, EpisodeResult, JSONDict

if TYPE_CHECKING:  # imports JAX, which other runs do not need
    from tandem.learning.compiled.blocks import BlockInputs, Blocks, Carry, Report

SECONDS = 0.5  # target duration of a call; signals and callbacks wait that long
FASTER = 4  # maximum growth of the number of blocks between calls
EPISODES = 10_000  # per call; above this, only relevant ones are reported without listeners
LATEST = 100  # relevant episodes: the latest, for running means (and the longest)


class CompiledLoop:
    """Training loop in functional environments, as calls of a compiled function. It has the
    interface of `Loop`; BatchEnd follows each call, when the state is ready for a checkpoint.

    blocks, evaluator: see `compiled.blocks.Blocks`, `compiled.evaluation.CompiledEvaluator`. The
    number of blocks per call adapts to their duration, and does not change results.
    """

    unlearned = False  # true while a call is unfinished
    breaks_by_signals = False

    def __init__(
        self,
        algorithm: Any,
        environments: Any,
        blocks: Blocks,
        evaluator: Any,
        seed: int,
    ) -> None:
        backend = algorithm.backend
        self.evaluator = evaluator
        self.algorithm, self.backend, self.settings = algorithm, backend, algorithm.settings
        self.environments, self.blocks, self.seed = environments, blocks, seed
        self.n, s = environments.n, self.settings
        self._starts = s.learning_starts if isinstance(s, ReplaySettings) else 0
        # for acting on the host
        roles = tuple(dict.fromkeys((*algorithm.acting, *algorithm.preparing)))
        self.networks = forwards(backend, roles)
        self.learner = self.collector = self  # has their interfaces: see `updates`, `close`
        self.steps, self.env_steps, self.updates, self.episodes = self.settings.steps, 0, 0, 0
        self.seconds = 0.0
        # the step at which the next action is due, which a call must not exceed
        self.due: Callable[[], int] = lambda: self.steps
        self.listened: Callable[[], bool] = lambda: True  # true if all episodes must be reported
        self._carry: Carry | None = None
        self._paces: dict[bool, int] = {}  # blocks per call, by whether blocks learn
        self._stopping = False

    def now(self) -> Counters:
        """Return the counters that every event carries."""
        return {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "seconds": self.seconds,
        }

    def events(self, stop_at: int | None = None) -> Iterator[Event]:
        """See `Loop.events`."""
        if self.unlearned:
            raise ResumeError(
                f"this session was left inside the call that starts at step {self.env_steps:,}.",
                "a session left at BatchEnd or later, or with stop()",
                "resume from the run's folder; next time, leave at the next BatchEnd.",
            )
        stop = min(self.steps, self.steps if stop_at is None else stop_at)
        yield TrainBegin(**self.now(), steps=self.steps, stop_at=stop)
        if not self.env_steps:
            for env in range(self.n):
                yield EpisodeBegin(**self.now(), env=env)
        while self.env_steps < stop:
            yield from self._call(stop)
        yield TrainEnd(**self.now(), reason="steps" if self.env_steps >= self.steps else "stop_at")

    def _call(self, stop: int) -> Iterator[Event]:
        """Make a call and yield its events."""
        carry = self._begin_once()
        begin, learns = self.env_steps, self._learns(0)
        count = self._count(learns, min(stop, max(self.due(), begin + 1)))
        yield BatchBegin(**self.now())
        began, self.unlearned = perf_counter(), True
        if learns not in self._paces:
            self.backend.on_compile()
        inputs = self._inputs(count)
        self._carry, report = self.blocks.run(carry, learns, inputs)
        took = perf_counter() - began
        # report invalid results of environments before their effects on updates
        self.blocks.collecting.faults.check(report.ended.faults, report.ended.length)
        if learns in self._paces:  # otherwise the time includes compiling
            fits = max(1, int(count * SECONDS / took))
            self._paces[learns] = min(fits, FASTER * count)
        else:
            self._paces[learns] = 1
        self.seconds += took
        calls, updates = self._metrics(report), []
        for codes in report.codes:
            updates.append(self.updates)
            self.updates += int(np.count_nonzero(codes == 0))
        yield from self._ended(report.ended, begin, updates)
        self.env_steps, self.unlearned = begin + count * self._rows, False
        yield BatchEnd(
            **self.now(),
            metrics=_averaged(calls),
            calls=calls,
            shares=self.shares,
        )

    def make_calls(self, calls: list[Any]) -> None:
        """See `Loop.make_calls`. Raises SettingError, since the environments are compiled."""
        self.environments.make_calls(calls)

    def attribute(self, name: str) -> list[object]:
        """See `Collector.attribute`. Raises SettingError."""
        return list(self.environments.attribute(name))

    def judge_after(self, calls: list[Any]) -> None:
        """See `Loop.judge_after`."""

    @property
    def shares(self) -> dict[str, float]:
        """See `Loop.shares`."""
        return {"compiled": self.seconds}

    @property
    def _rows(self) -> int:
        """Number of environment steps in a block."""
        return int(self.blocks.steps * self.n)

    def _learns(self, block: int) -> bool:
        """Return true if a block, counted from now, learns."""
        return bool(self.env_steps + (block + 1) * self._rows >= self._starts)

    def _count(self, learns: bool, limit: int) -> int:
        """Return the number of blocks for the next call: up to the step `limit`, as many as fit in
        its duration, and either all or none learning."""
        count = min(-(-(limit - self.env_steps) // self._rows), self.blocks.capacity)
        count = min(count, self._paces.get(learns, 1))
        if not learns:
            before = -(-(self._starts - self.env_steps) // self._rows) - 1
            count = min(count, max(1, before))
        return int(count)

    def _inputs(self, count: int) -> BlockInputs:
        """Return the inputs of the next blocks: the settings of their updates, and the run's
        progress."""
        rows, each = self._rows, self.blocks.per_block
        schedules, progress, chance = [], [], []
        for i in range(count):
            begin, made = self.env_steps + i * rows, self.updates + i * each
            span = Span(begin, begin + rows, self.steps)
            at = np.full(each, span.progress)
            schedules.append(self.algorithm.schedule(Call(at, begin, begin + rows, made)))
            progress.append(begin + np.arange(self.blocks.steps) * self.n)
            chance.append(begin < self._starts)
        settings = {n: np.stack([one[n] for one in schedules]) for n in schedules[0]}
        share = np.minimum(1.0, np.stack(progress) / self.steps).astype(np.float32)
        return self.blocks.inputs(settings, share, np.array(chance))

    def _metrics(self, report: Report) -> list[dict[str, float]]:
        """Return the metrics of each block that learned. Raises NonFiniteError if an update was not
        finite; neither it nor later ones were applied."""
        names, faults = self.blocks.names, self.backend.optimizer_names
        calls, updates = list[dict[str, float]](), self.updates
        for metrics, codes in zip(report.metrics, report.codes, strict=True):
            if (codes < 0).all() and not calls:
                continue
            named = dict(zip(names, metrics.T, strict=True))
            outcome = seam.outcome(named, (), codes.tolist(), faults)
            updates += outcome.applied
            calls.append(checked(outcome, updates))
        return calls

    def _ended(self, ended: Any, begin: int, updates: list[int]) -> Iterator[Event]:
        """Yield the ends of episodes in order. updates: number of updates before each block."""
        blocks, steps, envs = np.nonzero(ended.last)
        scores, lengths, over = (
            x[ended.last] for x in (ended.score, ended.length, ended.terminated)
        )
        told = range(len(blocks))
        if len(blocks) > EPISODES and not self.listened():
            latest, longest = len(blocks) - LATEST, int(lengths.argmax())
            told = sorted({longest, *range(latest, len(blocks))})  # type: ignore[assignment]
        first = self.episodes
        for k in told:
            t = int(blocks[k]) * self.blocks.steps + int(steps[k])
            self.episodes = first + k + 1
            at: Counters = {
                "env_steps": begin + (t + 1) * self.n,
                "updates": updates[blocks[k]],
                "episodes": self.episodes,
                "seconds": self.seconds,
            }
            env = int(envs[k])
            episode = EpisodeResult(env, float(scores[k]), int(lengths[k]), bool(over[k]))
            yield EpisodeEnd(**at, episode=episode)
            yield EpisodeBegin(**at, env=env)
        self.episodes = first + len(blocks)

    def evaluate(
        self,
        weights: dict[str, Weights],
        episodes: int,
        seed: int,
        max_steps: int,
        longest: int,
        stopped: Callable[[], bool],
    ) -> Played:
        """Evaluate whole episodes on the device: see `collect.evaluation.evaluate`."""
        from tandem.envs.episode_budget import default_budget  # imports Gymnasium

        limit = SimpleNamespace(max_episode_steps=self.blocks.env.max_episode_steps)
        budget = max_steps or default_budget(SimpleNamespace(spec=limit), longest)
        played: Played = self.evaluator(weights, episodes, seed, budget, stopped)
        return played

    # Interface of a collector

    def request_stop(self) -> None:
        """Do nothing: the run ends after the current call anyway."""

    def close(self) -> None:
        """Release the environments' resources."""
        self.environments.close()

    # Saving

    def state(self, replay: bool = True) -> tuple[JSONDict, dict[str, dict[str, Array]]]:
        """See `Loop.state`."""
        collected, learned = dict[str, Array](), dict[str, Array]()
        if self._carry is not None:
            collected, learned = self.blocks.state(self._carry, replay)
        data = {
            "collector": {"env_steps": self.env_steps, "begun": self._carry is not None},
            "learner": {"updates": self.updates},
            "counters": {"episodes": self.episodes, "seconds": self.seconds},
        }
        return data, {"engine": self.backend.state(), "collector": collected, "learner": learned}

    def take(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        """See `Loop.take`."""
        kept = self.blocks.taken(self._begin_once().kept, arrays)
        self._carry = self._begin_once()._replace(kept=kept)

    def statistics(self) -> dict[str, Array]:
        """See `Loop.statistics`."""
        kept: dict[str, Array] = self.blocks.statistics(self._begin_once().kept)
        return kept

    def _begin_once(self) -> Carry:
        if self._carry is None:
            self._carry = self.blocks.begin(self.seed)
        return self._carry

    def load_state(self, data: JSONDict, groups: dict[str, dict[str, Array]]) -> None:
        """Resume exactly from the result of `state`."""
        refuse_old_critics(groups["engine"], self.backend.networks)
        self.backend.load_state(groups["engine"])
        self.env_steps, self.updates = data["collector"]["env_steps"], data["learner"]["updates"]
        self.episodes, self.seconds = (data["counters"][k] for k in ("episodes", "seconds"))
        if data["collector"]["begun"]:
            self._carry = self.blocks.load(self.seed, groups["collector"], groups["learner"])


def _averaged(calls: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(n for call in calls for n in call)
    return {n: float(np.mean([call[n] for call in calls if n in call])) for n in names}
