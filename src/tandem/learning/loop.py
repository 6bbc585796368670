"""The training loop: collect, learn, publish weights, repeat. It is a generator of events with
counters and schedules, and independent of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from tandem.algorithms.base import Forward
from tandem.backends.backend import Backend, Network
from tandem.envs.calls import EnvironmentCall
from tandem.envs.vector import Environments, begun
from tandem.envs.vector_env import VectorEnvironments
from tandem.errors import ResumeError
from tandem.learning import vectors
from tandem.learning.collect.actor import PolicyActor, RandomActor, forwards, publish, redraw
from tandem.learning.collect.collector import Actor, Collector
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
from tandem.learning.learners import Learner, ReplayLearner, RolloutLearner, Span
from tandem.learning.parallel.env_factory import EnvFactory
from tandem.learning.parallel.pool import WorkerOptions, WorkerPool
from tandem.learning.seeds import Generators
from tandem.learning.sequence_learner import SequenceLearner
from tandem.networks.users import refuse_old_critics
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, JSONDict, Tree


def learner_of(
    algorithm: Any,
    observation: Spec,
    action: Leaf,
    generators: Generators,
    networks: dict[str, Forward],
    folder: Any = None,
    goals: Any = None,
) -> Learner:
    """Return the learner for what an algorithm `needs`. networks: those that act and prepare.
    goals: the environment's goals, for hindsight."""
    if algorithm.needs == "rollouts":
        return RolloutLearner(
            algorithm, algorithm.backend, seen(observation, action), generators, networks
        )
    if algorithm.needs == "sequences":
        return SequenceLearner(
            algorithm, algorithm.backend, observation, action, generators, networks
        )
    return ReplayLearner(
        algorithm, algorithm.backend, observation, action, generators, folder, goals, networks
    )


class Loop:
    """Trains an algorithm in environments, from `env_steps` to the run's length of `steps`.

    At the end of a block, as defined by `settled`, the state is consistent for a checkpoint. By
    default an algorithm acts with its networks, and its learner is the one for its `needs`.
    `actor`, `learner` and the class `collector` replace these defaults. workers: the factory of
    their environments, their options, and the function that creates the network of a role there.
    """

    breaks_by_signals = True  # a terminal's Ctrl-C also reaches the processes of a user's vector
    evaluate: Callable[..., Played] | None = None  # its own way to evaluate weights
    # set by a session: the step at which the next action is due, and whether all episodes must be
    # reported; for loops that make many blocks at once
    due: Callable[[], int]
    listened: Callable[[], bool]

    def __init__(
        self,
        algorithm: Any,
        backend: Backend,
        environments: Environments,
        generators: Generators,
        folder: Any = None,
        *,
        actor: Actor | None = None,
        learner: Learner | None = None,
        collector: type[Collector] = Collector,
        workers: tuple[EnvFactory, WorkerOptions, Callable[[str], Network]] | None = None,
        goals: Any = None,
    ) -> None:
        self.algorithm, self.backend, self.generators = algorithm, backend, generators
        self.settings = algorithm.settings
        observation, action = environments.observation, environments.action
        roles = tuple(dict.fromkeys((*algorithm.acting, *algorithm.preparing)))
        on_device = isinstance(environments, VectorEnvironments) and vectors.stays_on_device(
            algorithm, backend, environments
        )
        make = None if workers is None else workers[2]
        self.networks, self.goals = forwards(backend, roles, make, on_device), goals
        acting = {role: self.networks[role] for role in algorithm.acting}
        self.actor: Actor = actor or PolicyActor(type(algorithm), self.settings, action, acting)
        self.random_actor = RandomActor(action, self.actor.initial_state)
        self.learner: Learner = learner or learner_of(
            algorithm, observation, action, generators, self.networks, folder, goals
        )
        own = collector(
            environments, self.settings.gamma, algorithm.action_mode(self.settings, action)
        )
        # a Collector or its replacement
        self.collector: Any = own if workers is None else self._pool(own, *workers[:2])
        self._sync()
        self.steps, self.episodes, self.seconds, self.learning = self.settings.steps, 0, 0.0, 0.0
        self.unlearned = False  # a block was collected, but learning from it has not finished

    @property
    def env_steps(self) -> int:
        return int(self.collector.env_steps)

    def now(self) -> Counters:
        """Return the counters that every event has."""
        return {
            "env_steps": self.env_steps,
            "updates": self.learner.updates,
            "episodes": self.episodes,
            "seconds": self.seconds,
        }

    def events(self, stop_at: int | None = None) -> Iterator[Event]:
        """Yield all events until `stop_at` environment steps, or the run's length. A started block
        is completed, so a session can end up to one block later. Raise ResumeError if the previous
        session left a block unfinished, since its steps are lost."""
        if self.unlearned:
            raise ResumeError(
                f"this session was exited within the block that ends at step {self.env_steps:,}, "
                "before the update.",
                "a session that is exited at BatchEnd or later, or with stop()",
                "resume from the run's folder; next time, exit at the next BatchEnd.",
            )
        stop = min(self.steps, self.steps if stop_at is None else stop_at)
        yield TrainBegin(**self.now(), steps=self.steps, stop_at=stop)
        if not self.env_steps:
            for env in range(self.collector.n):
                yield EpisodeBegin(**self.now(), env=env)
        while self.env_steps < stop:
            yield from self._block()
        yield TrainEnd(**self.now(), reason="steps" if self.env_steps >= self.steps else "stop_at")

    def _block(self) -> Iterator[Event]:
        began, begin = perf_counter(), self.env_steps
        actor, noise = self._noise(self.collector.begun_steps)
        trajectory = self.collector.collect(self.learner.block, actor, noise)
        self.seconds += perf_counter() - began
        if trajectory is None:  # workers that collect ahead have only started
            return
        self.unlearned = True
        for ended in self.collector.episodes:
            self.episodes += 1
            at = self.now()
            at["env_steps"] = begin + int(trajectory.valid[: ended.t + 1].sum())
            yield EpisodeEnd(**at, episode=ended.episode)
            yield EpisodeBegin(**at, env=ended.episode.env)
        yield BatchBegin(**self.now())
        began = perf_counter()
        if self.collector.broken:
            self.learner.break_off(self.collector.broken)
        before = self.learner.updates
        metrics = self.learner.learn(trajectory, Span(begin, self.env_steps, self.steps))
        # a rollout changes statistics even if no update was applied
        if self.learner.updates > before or self.algorithm.preparing:
            self._sync()
        self.collector.version, self.unlearned = self.learner.updates, False
        if metrics and self.collector.lag is not None:
            metrics = metrics | {"lag": self.collector.lag}
        took = perf_counter() - began
        self.learning += took
        self.seconds += took
        yield BatchEnd(
            **self.now(),
            metrics=metrics,
            shares=self.shares,
        )

    @property
    def shares(self) -> dict[str, float]:
        """Seconds of the run so far, by activity."""
        return {**self.collector.seconds, "learning": self.learning}

    def _sync(self) -> None:
        """Publish the weights to the acting networks, and resample the noise of noisy networks,
        which stays fixed until the next call."""
        if self.settings.noisy != "no":
            redraw(
                self.backend, self.networks, self.settings.noisy, self.generators("noise/acting")
            )
        publish(self.backend, self.networks)

    def make_calls(self, calls: Sequence[EnvironmentCall]) -> None:
        """Make calls in the environments: see `Collector.make_calls`."""
        self.collector.make_calls(calls)
        self.judge_after(calls)

    def judge_after(self, calls: Sequence[EnvironmentCall]) -> None:
        """Make calls in the environment that only evaluates goals and is not in checkpoints."""
        for call in calls if self.goals is not None and self.goals.env is not None else ():
            call.on(self.goals.env, self.collector.environments.name)

    def _noise(self, begin: int) -> tuple[Actor | None, Tree]:
        """Return the actor of the next block, and its random numbers."""
        shape = (self.learner.block, self.collector.n)
        rng = self.generators("acting")
        if self.learner.is_warmup(begin):
            return self.random_actor, self.random_actor.noise(rng, shape)
        progress = np.minimum(1.0, (begin + np.arange(shape[0]) * shape[1]) / self.steps)
        return self.actor, self.algorithm.exploration_noise(
            self.settings, self.random_actor.action, rng, shape, progress
        )

    def _pool(self, own: Collector, env_factory: EnvFactory, options: WorkerOptions) -> WorkerPool:
        """Return workers for all environments except those of `own`."""
        assert isinstance(self.actor, PolicyActor)
        rng = np.random.default_rng(0)  # for examples
        shape, action = (self.learner.block, env_factory.n), self.random_actor.action
        noises = (
            self.algorithm.exploration_noise(self.settings, action, rng, shape, np.zeros(shape[0])),
            self.random_actor.noise(rng, shape),
        )
        actors = (self.actor, self.random_actor)
        mode = self.algorithm.action_mode(self.settings, action)
        return WorkerPool(env_factory, options, own, actors, mode, noises)

    # Saving

    def state(self, replay: bool = True) -> tuple[JSONDict, dict[str, dict[str, Array]]]:
        """Return everything that the next block depends on, as JSON data and groups of arrays.
        Does not change anything."""
        collector, collected = self.collector.state()
        learner, learned = self.learner.state(replay)
        data = {
            "collector": collector,
            "learner": learner,
            "generators": self.generators.state(),
            "counters": {
                "episodes": self.episodes,
                "seconds": self.seconds,
                "learning": self.learning,
            },
        }
        return data, {"engine": self.backend.state(), "collector": collected, "learner": learned}

    def statistics(self) -> dict[str, Array]:
        """Return the learner's arrays without the replay buffer. They include the statistics of
        normalization, by the names of `normalization.state`."""
        return self.learner.state(False)[1]

    def take(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        """Start from saved data of another run's learner: statistics, or its replay buffer."""
        own, kept = self.learner.state(True)
        self.learner.load_state(own | data, kept | arrays)
        self.learner.break_off(range(self.collector.n))

    def load_state(self, data: JSONDict, groups: dict[str, dict[str, Array]]) -> None:
        """Resume exactly from the output of `state`."""
        refuse_old_critics(groups["engine"], self.backend.networks)
        self.backend.load_state(groups["engine"])
        self.collector.load_state(data["collector"], groups["collector"])
        self.learner.load_state(data["learner"], groups["learner"])
        self.generators.load_state(data["generators"])
        self.episodes, self.seconds, self.learning = (
            data["counters"][k] for k in ("episodes", "seconds", "learning")
        )
        if not data["collector"]["begun"]:
            self.learner.break_off(range(self.collector.n))
        publish(self.backend, self.networks)


def broken_off(loop: JSONDict) -> JSONDict:
    """Return a loop's state in which the running episodes have ended."""
    collector = loop["collector"]
    after = {"after": begun(collector["environments"])} if collector["begun"] else {}
    return loop | {"collector": collector | {"begun": False} | after}
