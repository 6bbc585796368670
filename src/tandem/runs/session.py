"""One session of a run: the loop with its folder, evaluation, checkpoints, the table, and a clean
end in all cases."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tandem import spaces
from tandem.algorithms.base import Algorithm
from tandem.backends import process
from tandem.backends.backend import Network
from tandem.envs.factory import EnvLike, is_instance
from tandem.envs.league import League
from tandem.envs.occupied import running
from tandem.envs.vector import closed_on_error
from tandem.errors import (
    CheckpointError,
    ResumeError,
    TandemError,
    collected,
)
from tandem.learning.build import expect_frozen
from tandem.learning.collect.actor import fixed
from tandem.learning.collect.trained_agent import Agent
from tandem.learning.config import Config, executed, restarted
from tandem.learning.events import Evaluation, Event
from tandem.learning.vectors import note_resuming
from tandem.networks import plan as plans
from tandem.networks import serial
from tandem.networks.users import refuse_old_layers
from tandem.runs import atomic_files, checkpoint, config_file
from tandem.runs import callbacks as calls
from tandem.runs.callbacks import Callback
from tandem.runs.environments import RunEnvironments
from tandem.runs.folder import FolderLock, locked
from tandem.runs.make_loop import make_loop
from tandem.runs.observers import Checkpoints, Evaluations, Every, LeagueCopies
from tandem.runs.result import summary_of
from tandem.runs.scoring import Scoring
from tandem.runs.signals import raise_again
from tandem.runs.start import Start
from tandem.runs.table import Averages, Table
from tandem.runs.train_loop import TrainLoop
from tandem.types import JSONDict


def _close_all(opened: list[Any]) -> None:
    while opened:
        opened.pop().close()


class Session:
    """One session of a run. Iterate over it to get its events, after the callbacks have handled
    them.

    With a folder, it writes config.json, progress.csv, TensorBoard events, checkpoints and
    result.json there; without one, nothing. `resume`: the checkpoint to resume from. `start`: what
    a new run starts from. `eval_env`: the environment for evaluations, if it is not `env`.
    `stop(reason)` ends the session at the next block.
    """

    def __init__(
        self,
        conf: Config,
        env: EnvLike,
        *,
        folder: Path | None = None,
        network: Any = None,
        optimizer: Any = None,
        callbacks: Iterable[Callback] = (),
        resume: checkpoint.Checkpoint | None = None,
        eval_env: EnvLike = None,
        start: Start | None = None,
    ) -> None:
        self.config, self.env, self.folder, self.eval_env = conf, env, folder, eval_env
        self.callbacks = calls.listed(callbacks)
        for callback in self.callbacks:
            callback.session = self
        self.notes = collected()  # for result.json, see errors.note
        self.league = League(conf.options.opponents) if conf.options.opponents else None
        self.loop, self.vector = make_loop(conf, env, self.league, folder, network, optimizer)
        self.environments = RunEnvironments(self)
        self.observation = self.environments.observation
        self.action = self.environments.action
        self.algorithm: Algorithm = self.loop.algorithm
        self.kind, self.backend = type(self.algorithm), self.loop.backend
        self.config = replace(conf, device_used=self.backend.device)
        if self.league is not None:
            self.league.made = self.agent_of
        self.evaluation: Evaluation  # of the best agent; set by `result`
        self._is_ours = resume is not None  # the folder belongs to this run
        self.lock: FolderLock | None = None  # of the folder, held until `close`
        self.is_open = True  # environments and worker processes exist
        # an environment object of the user is left open
        self._own = [] if is_instance(env) else [self.loop.collector]
        self._opened = [*self._own]
        weakref.finalize(self, _close_all, self._opened)  # the iteration may stop early
        self.averages, self.score = Averages(), Scoring(self)
        self.table: Table | None = None
        self.checkpoints: Checkpoints | None = None
        with closed_on_error(self.close):
            self._attach(resume)
            if resume is not None:
                self._resume(resume)
            elif start is not None:
                start.enter(self)
            expect_frozen(self.backend)
            self.score.prepare()

    def _attach(self, resume: checkpoint.Checkpoint | None) -> None:
        """Create the observers of the loop's events."""
        conf, folder, options = self.config, self.folder, self.config.options
        steps = conf.settings.steps
        hundredth = max(1, steps // 100)
        self.every = {
            "eval": Every(options.eval_every or max(1, steps // 20)),
            "log": Every(options.log_every or hundredth),
            "save": Every(options.save_every),
            "snapshot": Every(options.snapshot_every or hundredth),
        }
        watched = ["eval", *(["log", "save"] if folder is not None else [])]
        used = [self.every[name] for name in watched if self.every[name].steps]
        self.loop.due = lambda: min((every.due for every in used), default=steps)
        self.loop.listened = lambda: bool(self.callbacks)
        self.evaluations = Evaluations(
            self.every["eval"],
            steps,
            self._evaluate,
            self._weights if folder is None else None,
            self.averages.return_mean,
            lambda now: self.checkpoints.save(now, "best") if self.checkpoints else iter(()),
            at_begin=bool(conf.start and options.eval_episodes),
        )
        noting = SimpleNamespace(
            on_train_begin=self._note_compiled, on_batch_end=self._note_compiled
        )
        observers: list[object] = [self.averages, noting]
        if self.league is not None:
            observers.append(LeagueCopies(self.league, self.every["snapshot"], self._weights))
        observers.append(self.evaluations)
        if folder is not None:
            note_resuming(self.vector)
            self.table = Table(conf, folder, self.averages, self.every["log"], self.fingerprint)
            self.checkpoints = Checkpoints(
                folder / "checkpoints",
                self.state,
                seconds=options.checkpoint_seconds,
                keep=options.keep,
                every=self.every["save"],
                save_at_begin=resume is None or resume.data["config"] != conf.to_json(),
            )
            observers += [self.table, self.checkpoints]
        self.train_loop = TrainLoop(self.loop, observers, self.callbacks, self._save)

    # Running the session

    def __iter__(self) -> Iterator[Event]:
        """Yield the events of the session. A signal that ended it is raised again after the last
        one."""
        try:
            yield from self.events()
        finally:
            self.close()
        if self.signal is not None:
            raise_again(self.signal)

    @process.within
    def events(self, stop_at: int | None = None) -> Generator[Event]:
        """Yield the events; see `TrainLoop.events`."""
        running.add(self.vector)
        self.is_open, self._opened[:] = True, self._own
        try:
            with self.catching():
                self._open()
                yield from self.train_loop.events(stop_at)
        finally:
            self._shut()

    def _shut(self) -> None:
        """Close what training needs."""
        if not self.is_open:
            return
        self.is_open = False
        running.discard(self.vector)
        if self.table is not None:
            self.table.close()
        _close_all(self._opened)
        if (goals := getattr(self.loop, "goals", None)) is not None:
            goals.close()
        self.backend.close()

    def close(self) -> None:
        """End worker processes and close all environments. Another evaluation, such as in `result`,
        recreates its own."""
        self._shut()
        self.score.close()
        self.lock = None

    @property
    def last_evaluation(self) -> Evaluation | None:
        """The latest evaluation of this session."""
        return self.evaluations.last

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the session."""
        return self.train_loop.signal

    @property
    def settings(self) -> Any:
        """The settings of the algorithm."""
        return self.config.settings

    def stop(self, reason: str = "callback") -> None:
        """See `TrainLoop.stop`."""
        self.train_loop.stop(reason)

    def take_signal(self, name: str) -> None:
        """See `TrainLoop.take_signal`."""
        self.train_loop.take_signal(name)

    def catching(self) -> AbstractContextManager[None]:
        """See `TrainLoop.catching`."""
        return self.train_loop.catching()

    def _open(self) -> None:
        if self.folder is None or self.table is None:
            return
        self.lock = self.lock or locked(self.folder, "the run")
        config_file.save(self.config, self.folder, is_new=not self._is_ours)
        self._is_ours = True
        for folder in (self.folder, self.folder / "checkpoints"):
            atomic_files.sweep(folder)
        self.table.open(self.loop.env_steps)

    def _save(self) -> Iterator[Event]:
        """Write the latest checkpoint."""
        if self.checkpoints is not None:
            yield from self.checkpoints.save(self.loop.now(), "last")

    def _note_compiled(self, event: Event) -> None:
        """Store the choice made by compile="auto", so that the run always repeats it."""
        compiled = self.backend.compiled
        if compiled and compiled != self.config.compiled:
            self.config = replace(self.config, compiled=compiled)
            if self.folder is not None:
                config_file.save(self.config, self.folder)

    # Agents

    def _evaluate(self) -> Evaluation:
        """Evaluate the current agent, to choose the best one."""
        episodes = self.config.options.eval_episodes
        found = self.score(self._weights(), episodes, "select", self.train_loop.ends)
        if self.table is not None and episodes and not found.returns:
            self.table.evaluation = found  # keep rows at the same steps as with evaluations
        return found

    def agent(self) -> Agent:
        """Return the current agent. Later training does not change it."""
        return self.agent_of(self._weights())

    def restored(self, which: str) -> Agent:
        """Return the agent of a checkpoint; until a best one is chosen, "best" is the current
        agent."""
        return self.agent_of(self._kept(which))

    def _kept(self, which: str) -> dict[str, plans.Weights]:
        """Return the weights of `restored`."""
        if which == "best" and self.evaluations.best == -np.inf:
            return self._weights()
        if self.folder is None:
            return self.evaluations.best_weights
        saved = checkpoint.read(checkpoint.find(self.folder, which)).group("networks")
        return {role: plans.select(saved, role) for role in self.kind.acting}

    def _weights(self) -> dict[str, plans.Weights]:
        """Return the weights of the acting networks, without noise."""
        return {role: network.mean() for role, network in self._acting.items()}

    @property
    def _acting(self) -> dict[str, Network]:
        """The networks of the acting roles."""
        return {role: self.backend.networks[role] for role in self.kind.acting}

    def agent_of(self, weights: dict[str, plans.Weights]) -> Agent:
        networks = {role: fixed(self.backend.networks[role], w) for role, w in weights.items()}
        name = f"{self.config.algorithm} {self.config.env}"
        agent = Agent(
            self.kind,
            self.config.settings,
            self.observation,
            self.action,
            networks,
            name,
            self.config.env_kwargs,
            self.averages.longest,
        )
        agent.wrappers = self.config.wrappers
        return agent

    def fingerprint(self) -> str:
        """Return sixteen hexadecimal digits that are equal if and only if all weights are equal."""
        networks = self.backend.networks.items()
        return checkpoint.fingerprint(
            {f"{r}/{n}": x for r, w in networks for n, x in w.read().items()}
        )

    # Saving and resuming

    def state(self, replay: bool) -> tuple[JSONDict, checkpoint.Groups]:
        """Return a checkpoint's JSON data, and its arrays in groups: `networks`, by names common to
        all frameworks; `engine`, weights and optimizers as the backend stores them; `collector`,
        the running episodes; `learner`, statistics and, with `replay`, the replay buffer; `league`,
        past copies of the agent."""
        data, groups = self.loop.state(replay)
        acting = {r: network.plan for r, network in self._acting.items()}
        groups["networks"] = {
            f"{r}/{n}": w
            for r, network in self.backend.networks.items()
            for n, w in (network.mean() if r in acting else network.read()).items()
        }
        data |= {
            "config": self.config.to_json(),
            "observation": spaces.to_json(self.observation),
            "observation_space": spaces.outline(self.environments.observation_space),
            "action": spaces.to_json(self.action),
            "plans": {r: None if p is None else serial.to_json(p) for r, p in acting.items()},
            "parts": self.backend.shapes,
            "whole": replay,
            "device": self.backend.device,
            "session": {
                "best": None if self.evaluations.best == -np.inf else self.evaluations.best,
                "evaluated": self.evaluations.evaluated_at,
                "table": self.averages.state(),
                "pending": self.train_loop.pending,
                "due": {name: every.due for name, every in self.every.items()},
                "numbered": [] if self.checkpoints is None else self.checkpoints.numbered,
                "callbacks": calls.state(self.callbacks),
                "notes": self.notes,
            },
        }
        if self.environments.made:
            data["session"]["calls"] = [*self.environments.made]
        if self.league is not None and replay:
            data["league"], groups["league"] = self.league.state()
        return data, groups

    def _resume(self, saved: checkpoint.Checkpoint) -> None:
        if not saved.data.get("whole"):
            raise ResumeError(
                f"{saved.path} holds an agent, not a whole run.",
                "the run's last.zip",
                "restore the run's own last.zip; this one can be loaded with tandem.load.",
            )
        groups = {g: saved.group(g) for g in ("engine", "collector", "learner")}
        try:
            refuse_old_layers(saved.group("networks"), self._acting, saved.path)
            if self.league is not None:  # before replaying episodes against its opponents
                self.league.load_state(saved.data["league"], saved.group("league"))
            self.loop.load_state(saved.data, groups)
            self.config = executed(self.config, self.backend.device, saved.data)
            if why := getattr(self.loop.collector, "restarted", ""):
                self.config = restarted(self.config, self.loop.env_steps, why)
            inner = saved.data["session"]
            self.environments.resume(inner.get("calls", []))
            self.averages.load_state(inner["table"])
            self.train_loop.pending = inner.get("pending", False)
            self.notes[:0] = [n for n in inner.get("notes", []) if n not in self.notes]
            self.evaluations.best = -np.inf if inner["best"] is None else inner["best"]
            self.evaluations.evaluated_at = inner["evaluated"]
            for name, due in inner["due"].items():
                self.every[name].due = due
            if self.checkpoints is not None:
                self.checkpoints.numbered = inner["numbered"]
            states = [{"class": s["class"], "state": s["state"]} for s in inner["callbacks"]]
        except TandemError:
            raise
        except Exception as error:  # each backend raises other errors for arrays that do not fit
            raise CheckpointError(
                f"{saved.path} does not fit this run ({type(error).__name__}: {str(error)[:200]}).",
                "a checkpoint of the same algorithm, settings and networks",
                "resume with the original arguments; see config.json.",
            ) from error
        calls.load_state(self.callbacks, states)

    def result(self) -> dict[str, Any]:
        """Score the best and the last agent on seeds that were used for neither choice, if
        possible; write and return result.json. Raises EvaluationStopped on a signal or `stop`."""
        train, stops = self.train_loop, self.train_loop.stops
        last, best = self.score.final(
            self._weights(), self._kept("best"), lambda: train.stops > stops
        )
        summary, self.evaluation = summary_of(self, best, last), best
        if self.folder is not None:
            config_file.save_result(self.folder, summary)
        return summary
