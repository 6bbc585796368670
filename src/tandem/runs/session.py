"""One sitting of a run: the loop with its folder: evaluation, checkpoints, the table, and the end,
however it comes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tandem import algorithms, spaces
from tandem.collect.actor import fixed, publish
from tandem.collect.evaluation import evaluate
from tandem.collect.trained_agent import Agent
from tandem.envs import atari
from tandem.envs.factory import is_instance, separate
from tandem.envs.league import Game, League
from tandem.errors import CheckpointError, ResumeError, TandemError, WorkerError
from tandem.learning import asynchronous, selfplay
from tandem.learning.build import Spaces, build, network_there
from tandem.learning.config import Config
from tandem.learning.events import (
    BatchEnd,
    CheckpointSaved,
    EpisodeEnd,
    Evaluation,
    EvaluationEnd,
    Event,
    TrainBegin,
    TrainEnd,
)
from tandem.learning.gradient_transport import LearnerSpec
from tandem.learning.loop import Loop
from tandem.learning.seeds import Generators, derived
from tandem.networks import plan as plans
from tandem.networks import serial
from tandem.parallel.env_factory import EnvFactory
from tandem.parallel.pool import WorkerOptions
from tandem.parallel.ray import connect
from tandem.runs import atomic_files, checkpoint, config_file
from tandem.runs import callbacks as calls
from tandem.runs.callbacks import Callback
from tandem.runs.signals import Signals
from tandem.runs.table import Table
from tandem.settings import check_ranges

WRITING = 0.05  # the most of a run's time that checkpoints may take


class Session:
    """Iterate over it for the events of the run; each has gone through the callbacks already.

    With a folder it writes config.json, progress.csv, TensorBoard events, checkpoints and
    result.json there; without one, nothing. `resume` is the checkpoint to go on from.
    `stop(reason)` ends it at the next block.
    """

    def __init__(
        self,
        conf: Config,
        env: Any,
        *,
        folder: Path | None = None,
        network: Any = None,
        optimizer: Any = None,
        callbacks: Iterable[Callback] = (),
        resume: checkpoint.Checkpoint | None = None,
    ) -> None:
        self.config, self.env, self.folder, self.callbacks = (
            conf,
            env,
            folder,
            calls.listed(callbacks),
        )
        s = conf.settings
        check_ranges(s)
        check_ranges(conf.options)
        seed = derived(conf.seed, "environments")
        kwargs = atari.training(env, conf.env_kwargs, conf.options)
        o, needs = conf.options, algorithms.get(conf.algorithm).needs
        assert isinstance(o.workers, int) and isinstance(o.learners, int), "chosen by now"
        asynchronous.refuse(conf.algorithm, needs, env, o)
        selfplay.refuse(conf.algorithm, needs, env, o)
        self.league = League(o.opponents) if o.opponents else None
        trained = (env, kwargs) if self.league is None else (Game(env, self.league, kwargs), None)
        env_factory = EnvFactory.of(
            trained[0], s.envs * o.learners, seed, s.vectorization, trained[1]
        )
        worker_options = WorkerOptions.of(env_factory, o, needs == "rollouts")
        if worker_options.cluster or (o.cluster and o.learners > 1):
            connect(o.cluster)  # before a framework starts threads: Ray forks
        first, count = worker_options.parts(s.envs)[0]
        environments = env_factory.make(
            first, max(1, count) if o.learners == 1 else 1
        )  # also for a look at the spaces
        self.observation, self.action = environments.observation, environments.action
        generators = Generators(conf.seed)
        self.algorithm = build(conf, environments, generators, network, optimizer)
        self.kind, self.backend = type(self.algorithm), self.algorithm.backend
        if o.learners > 1:
            learners = asynchronous.ActorLearners(
                LearnerSpec(conf, env_factory, network), self.algorithm, environments
            )
            self.loop: Loop = asynchronous.Asynchronous(
                learners, self.algorithm, environments, generators
            )
        else:
            there = partial(network_there, conf, Spaces.of(environments), network)
            workers = (env_factory, worker_options, there) if worker_options.workers else None
            self.loop = Loop(
                self.algorithm, self.backend, environments, generators, folder, workers=workers
            )
        self.environments = environments
        if self.league is not None:
            self.league.made = self._agent
        self.best = -np.inf
        self.last_evaluation: Evaluation | None = None
        self.reason: str | None = None
        self._unsaved = (
            resume is None or resume.data["config"] != conf.to_json()
        )  # a beginning, or an extended run
        self.table = Table()
        self._best_weights = self._weights()  # without a folder, the best agent is kept here
        self._evaluated = -1  # env_steps of the latest evaluation
        self._every = {
            "eval": conf.options.eval_every or max(1, s.steps // 20),
            "log": conf.options.log_every or max(1, s.steps // 100),
            "save": conf.options.save_every,
            "snapshot": conf.options.snapshot_every or max(1, s.steps // 100),
        }
        self._due = dict(self._every)
        self.catch_signals = True  # SIGINT and SIGTERM end the sitting with a checkpoint
        self._saved_at, self._pause = monotonic(), conf.options.checkpoint_seconds
        self._numbered: list[str] = []
        if resume is not None:
            self._resume(resume)

    def begin_with(self, weights: dict[str, plans.Weights], source: Any) -> None:
        """Puts trained weights of the roles that act into the networks, and their targets, before
        the first step. CheckpointError where they do not fit; `source` is its name for where they
        are from."""
        for role, given in weights.items():
            for name in (role, f"{role}_target"):
                if (network := self.backend.networks.get(name)) is None:
                    continue
                own = {n: x.shape for n, x in network.read().items()}
                if own != {n: x.shape for n, x in given.items()}:
                    raise CheckpointError(
                        f"the weights of {role!r} in {source} do not fit the network here.",
                        f"weights of the shapes {list(own.values())}",
                        "give the network that they were trained with.",
                    )
                network.write(given)
        publish(self.backend, self.loop.networks)

    # Going

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def events(self, stop_at: int | None = None) -> Iterator[Event]:
        """The events until `stop_at` environment steps or the run's length."""
        try:
            with Signals(self._signalled) if self.catch_signals else nullcontext():
                self._open()
                for event in self.loop.events(stop_at):
                    if isinstance(event, TrainEnd):
                        yield from self._finish(event)
                        return
                    yield self._tell(event)
                    if isinstance(event, TrainBegin) and self._unsaved:
                        yield from self._save("last", *self._kept())
                    if isinstance(event, EpisodeEnd):
                        self.table.episode(event.episode)
                    if isinstance(event, BatchEnd):
                        yield from self._settled(event)
                        if self.reason:
                            yield from self._finish(TrainEnd(**self.loop.now(), reason=self.reason))
                            return
        except WorkerError:
            if self.reason:  # it was to end anyhow
                yield from self._finish(TrainEnd(**self.loop.now(), reason=self.reason))
                return
            yield from self._save("last")
            raise
        finally:
            self.table.close()
            if not is_instance(self.env):  # a user's own object is left open
                self.loop.collector.close()

    def stop(self, reason: str = "callback") -> None:
        """Ends the sitting when the block under way is done, with a checkpoint."""
        self.reason = self.reason or reason

    def _signalled(self, name: str) -> None:
        self.stop(name)
        self.loop.collector.request_stop()

    def _tell(self, event: Event) -> Event:
        reason = calls.dispatch(event, self.callbacks)
        if reason and not isinstance(event, TrainEnd):
            self.stop(reason)
        return event

    def _settled(self, event: BatchEnd) -> Iterator[Event]:
        """After a block: what is due of evaluation, a row, a checkpoint."""
        self.table.metrics(event.metrics)
        if self.league is not None and self._is_due("snapshot"):
            self.league.add(self._weights())
        evaluation = None
        if self.config.options.eval_episodes and self._is_due("eval"):
            yield from self._evaluate()
            evaluation = self.last_evaluation
        if self._is_due("log") or evaluation is not None:
            self._row(evaluation)
        if self._every["save"] and self._is_due("save"):
            yield from self._save(*self._kept())
        if self.folder is not None and monotonic() - self._saved_at > self._pause:
            yield from self._save("last")

    def _kept(self) -> list[str]:
        """The name of a checkpoint that stays, if there are to be any."""
        return [f"kept-{self.loop.env_steps:09d}"] if self._every["save"] else []

    def _is_due(self, what: str) -> bool:
        if self.loop.env_steps < self._due[what]:
            return False
        self._due[what] = (self.loop.env_steps // self._every[what] + 1) * self._every[what]
        return True

    def _finish(self, event: TrainEnd) -> Iterator[Event]:
        complete = self.loop.env_steps >= self.loop.steps
        if (
            self.config.options.eval_episodes
            and complete
            and self._evaluated != self.loop.env_steps
        ):
            yield from self._evaluate()
            self._row(self.last_evaluation)
        yield from self._save("last", *self._kept())
        yield self._tell(event)

    # Evaluating and writing down

    def _evaluate(self) -> Iterator[Event]:
        found = self.score(self.agent(), self.config.options.eval_episodes, "select")
        self.last_evaluation, self._evaluated = found, self.loop.env_steps
        best = found.mean >= self.best
        self.best = max(self.best, found.mean)
        if best and self.folder is None:
            self._best_weights = self._weights()
        yield self._tell(EvaluationEnd(**self.loop.now(), evaluation=found, best=best))
        numbered = f"step-{self.loop.env_steps:09d}"
        yield from self._save(
            *(["best"] if best else []), *([numbered] if self.config.options.keep else [])
        )
        if self.folder is not None and self.config.options.keep:
            self._numbered.append(numbered)
            for old in self._numbered[: -self.config.options.keep]:
                (self.folder / "checkpoints" / f"{old}.zip").unlink(missing_ok=True)
            self._numbered = self._numbered[-self.config.options.keep :]

    def score(self, agent: Agent, episodes: int, purpose: str) -> Evaluation:
        """An agent's deterministic returns on the seeds kept for `purpose`."""
        env = separate(self.env)
        kwargs = self.config.env_kwargs or None
        mode = self.kind.action_mode
        seed = derived(self.config.seed, purpose)
        return Evaluation.of(
            *evaluate(agent.actor, env, episodes, seed, action_mode=mode, kwargs=kwargs)
        )

    def agent(self) -> Agent:
        """The agent as it is now. It stays so while training goes on."""
        return self._agent(self._weights())

    def restored(self, which: str) -> Agent:
        """The agent of one of the run's checkpoints; without a folder, the best one. Where nothing
        was evaluated, "best" is the agent as it is now."""
        if which == "best" and self._evaluated < 0:
            return self.agent()
        if self.folder is None:
            return self._agent(self._best_weights)
        saved = checkpoint.read(checkpoint.find(self.folder, which)).group("networks")
        return self._agent({role: plans.select(saved, role) for role in self.kind.acting})

    def _weights(self) -> dict[str, plans.Weights]:
        """Of the networks that act, without noise."""
        return {role: self.backend.networks[role].mean() for role in self.kind.acting}

    def _agent(self, weights: dict[str, plans.Weights]) -> Agent:
        networks = {role: fixed(self.backend.networks[role], w) for role, w in weights.items()}
        name = f"{self.config.algorithm} {self.config.env}"
        kwargs = self.config.env_kwargs
        return Agent(
            self.kind, self.config.settings, self.observation, self.action, networks, name, kwargs
        )

    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of all weights: equal where, and only where, training went the
        same way."""
        digest = hashlib.sha256()
        for name in sorted(self.backend.networks):
            for key, value in sorted(self.backend.networks[name].read().items()):
                digest.update(f"{name}/{key}".encode() + np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def _row(self, evaluation: Evaluation | None) -> None:
        self.table.write(self.loop.now(), self.fingerprint(), evaluation)

    def _open(self) -> None:
        if self.folder is None:
            return
        config_file.save(self.config, self.folder)
        for folder in (self.folder, self.folder / "checkpoints"):
            atomic_files.sweep(folder)
        self.table.open(self.config, self.folder, self.loop.env_steps)

    # Saving and resuming

    def _save(self, *names: str) -> Iterator[Event]:
        if self.folder is None:
            return
        for name in names:
            began = monotonic()
            data, groups = self.state(replay=name == "last")
            path = self.folder / "checkpoints" / f"{name}.zip"
            checkpoint.write(path, data, groups)
            if name == "last":
                self._saved_at = monotonic()
                self._pause = max(
                    self.config.options.checkpoint_seconds, (self._saved_at - began) / WRITING
                )
            yield self._tell(CheckpointSaved(**self.loop.now(), path=path))

    def state(self, replay: bool) -> tuple[dict[str, Any], checkpoint.Groups]:
        """What a checkpoint holds: `networks` is what acting needs, in names that every framework
        shares."""
        data, groups = self.loop.state(replay)
        acting = {r: self.backend.networks[r].plan for r in self.kind.acting}
        groups["networks"] = {
            f"{r}/{n}": w for r, weights in self._weights().items() for n, w in weights.items()
        }
        data |= {
            "config": self.config.to_json(),
            "observation": spaces.to_json(self.observation),
            "action": spaces.to_json(self.action),
            "plans": {r: None if p is None else serial.to_json(p) for r, p in acting.items()},
            "whole": replay,
            "session": {
                "best": None if self.best == -np.inf else self.best,
                "evaluated": self._evaluated,
                "table": self.table.state(),
                "due": self._due,
                "numbered": self._numbered,
                "callbacks": calls.state(self.callbacks),
            },
        }
        if self.league is not None and replay:
            data["league"], groups["league"] = self.league.state()
        return data, groups

    def _resume(self, saved: checkpoint.Checkpoint) -> None:
        if not saved.data.get("whole"):
            raise ResumeError(
                f"{saved.path} holds an agent, not a whole run.",
                "the run's last.zip",
                "resume from the run's folder.",
            )
        groups = {g: saved.group(g) for g in ("engine", "collector", "learner")}
        try:
            if self.league is not None:  # before episodes are played again, against those in it
                self.league.load_state(saved.data["league"], saved.group("league"))
            self.loop.load_state(saved.data, groups)
            inner = saved.data["session"]
            self.best = -np.inf if inner["best"] is None else inner["best"]
            self.table.load_state(inner["table"])
            self._evaluated, self._numbered = inner["evaluated"], inner["numbered"]
            self._due |= inner["due"]
            states = [{"class": s["class"], "state": s["state"]} for s in inner["callbacks"]]
        except TandemError:
            raise
        except Exception as error:  # each engine has errors of its own for arrays that do not fit
            raise CheckpointError(
                f"{saved.path} does not fit this run ({type(error).__name__}: {str(error)[:200]}).",
                "a checkpoint of the same algorithm, settings and networks",
                "resume with what the run was started with; see its config.json.",
            ) from error
        calls.load_state(self.callbacks, states)

    def result(self) -> dict[str, Any]:
        """Scores the best and the last agent on seeds that chose neither; writes and returns
        result.json."""
        conf, now = self.config, self.loop.now()
        last = self.score(self.agent(), conf.options.final_episodes, "final")
        best = self.score(self.restored("best"), conf.options.final_episodes, "final")
        found = {
            "algorithm": conf.algorithm,
            "env": conf.env,
            "framework": conf.framework,
            "seed": conf.seed,
            "env_steps": now["env_steps"],
            "updates": now["updates"],
            "seconds": round(now["seconds"], 3),
            "steps_per_second": round(now["env_steps"] / max(now["seconds"], 1e-9), 1),
            "eval_mean": best.mean,
            "eval_std": best.std,
            "eval_episodes": len(best.returns),
            **({"eval_agents": list(best.agents)} if best.agents else {}),
            "last_eval_mean": last.mean,
            "last_eval_std": last.std,
            "versions": conf.versions,
        }
        self.evaluation = best
        if self.folder is not None:
            config_file.write_json(self.folder / "result.json", found)
        return found
