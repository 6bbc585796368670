"""One sitting of a run: the loop with its folder: evaluation, checkpoints, the table, and the end, however it comes."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tandem import algorithms, backends, spaces
from tandem.collect.agent import Agent
from tandem.collect.environments import separate, vectorize
from tandem.collect.evaluation import evaluate
from tandem.errors import CheckpointError, ResumeError
from tandem.networks import plan as plans
from tandem.networks.defaults import sources
from tandem.training import checkpoint, config
from tandem.training.callbacks import Callback, dispatch
from tandem.training.config import Config
from tandem.training.events import (
    BatchEnd,
    CheckpointSaved,
    EpisodeEnd,
    Evaluation,
    EvaluationEnd,
    Event,
    TrainBegin,
    TrainEnd,
)
from tandem.training.loop import Loop
from tandem.training.seeds import Generators, derived
from tandem.training.writers import CsvWriter, TensorBoardWriter, WandbWriter, Writer

COLUMNS = ("env_steps", "updates", "episodes", "seconds", "return_mean", "length_mean", "eval_mean", "eval_std", "fingerprint")
WRITING = 0.05  # the most of a run's time that checkpoints may take


class Session:
    """Iterate over it for the events of the run; each has gone through the callbacks already.

    With a folder it writes config.json, progress.csv, TensorBoard events, checkpoints and result.json there; without one,
    nothing. `resume` is the checkpoint to go on from. `stop(reason)` ends it at the next block.
    """

    def __init__(
        self,
        conf: Config,
        env: Any,
        *,
        folder: Path | None = None,
        network: Any = None,
        callbacks: Iterable[Callback] = (),
        resume: checkpoint.Checkpoint | None = None,
    ) -> None:
        self.config, self.env, self.folder, self.callbacks = conf, env, folder, list(callbacks)
        self.kind, s = algorithms.get(conf.algorithm), conf.settings
        config.check_ranges(s)
        seed = derived(conf.seed, "environments")
        environments = vectorize(env, s.envs, seed, s.vectorization, conf.env_kwargs or None)
        self.observation, self.action = environments.observation, environments.action
        self.kind.check(self.observation, self.action)
        generators = Generators(conf.seed)
        roles = self.kind.roles(self.observation, self.action, s)
        made = sources(roles, network, environments.observation_space, generators)
        self.backend = backends.make(
            conf.framework,
            conf.device,
            seed=derived(conf.seed, "framework"),
            threads=conf.options.threads,
            compile=config.compiles(conf, network is None),
        )
        self.algorithm = self.kind(self.backend, made, self.observation, self.action, s)
        self.loop = Loop(self.algorithm, self.backend, environments, generators, folder)
        self.environments = environments
        self.best = -np.inf
        self.last_evaluation: Evaluation | None = None
        self.reason: str | None = None
        self._returns: deque[float] = deque(maxlen=100)
        self._lengths: deque[int] = deque(maxlen=100)
        self._sums: dict[str, float] = {}
        self._calls = 0
        self._every = {
            "eval": conf.options.eval_every or max(1, s.steps // 20),
            "log": conf.options.log_every or max(1, s.steps // 100),
        }
        self._due = dict(self._every)
        self._saved_at, self._pause = monotonic(), conf.options.checkpoint_seconds
        self._numbered: list[str] = []
        if resume is not None:
            self._resume(resume)

    # Going

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def events(self, stop_at: int | None = None) -> Iterator[Event]:
        """The events until `stop_at` environment steps or the run's length."""
        self._writers = self._open()
        caught = _Signals(self.stop)
        try:
            with caught:
                for event in self.loop.events(stop_at):
                    if isinstance(event, TrainEnd):
                        yield from self._finish(event)
                        return
                    yield self._tell(event)
                    if isinstance(event, TrainBegin) and not event.env_steps:
                        yield from self._save("last", "best")
                    if isinstance(event, EpisodeEnd):
                        self._returns.append(event.episode.score)
                        self._lengths.append(event.episode.length)
                    if isinstance(event, BatchEnd):
                        yield from self._settled(event)
                        if self.reason:
                            yield from self._finish(TrainEnd(**self.loop.now(), reason=self.reason))
                            return
        finally:
            for writer in self._writers:
                writer.close()
            self.environments.close()

    def stop(self, reason: str = "callback") -> None:
        """Ends the sitting when the block under way is done, with a checkpoint."""
        self.reason = self.reason or reason

    def _tell(self, event: Event) -> Event:
        reason = dispatch(event, self.callbacks)
        if reason and not isinstance(event, TrainEnd):
            self.stop(reason)
        return event

    def _settled(self, event: BatchEnd) -> Iterator[Event]:
        """After a block: what is due of evaluation, a row, a checkpoint."""
        if event.metrics:
            self._calls += 1
            for name, value in event.metrics.items():
                self._sums[name] = self._sums.get(name, 0.0) + value
        evaluation = None
        if self.config.options.eval_episodes and self._is_due("eval"):
            yield from self._evaluate()
            evaluation = self.last_evaluation
        if self._is_due("log") or evaluation is not None:
            self._row(evaluation)
        if self.folder is not None and monotonic() - self._saved_at > self._pause:
            yield from self._save("last")

    def _is_due(self, what: str) -> bool:
        if self.loop.env_steps < self._due[what]:
            return False
        self._due[what] = (self.loop.env_steps // self._every[what] + 1) * self._every[what]
        return True

    def _finish(self, event: TrainEnd) -> Iterator[Event]:
        wanted = self.config.options.eval_episodes and self.loop.env_steps >= self.loop.steps
        if wanted and (self.last_evaluation is None or self._due["eval"] <= self.loop.env_steps):
            yield from self._evaluate()
            self._row(self.last_evaluation)
        yield from self._save("last")
        yield self._tell(event)

    # Evaluating and writing down

    def _evaluate(self) -> Iterator[Event]:
        found = self.score(self.agent(), self.config.options.eval_episodes, "select")
        self.last_evaluation = found
        best = found.mean >= self.best
        self.best = max(self.best, found.mean)
        yield self._tell(EvaluationEnd(**self.loop.now(), evaluation=found, best=best))
        numbered = f"step-{self.loop.env_steps:09d}"
        yield from self._save(*(["best"] if best else []), *([numbered] if self.config.options.keep else []))
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
        return Evaluation.of(*evaluate(agent.actor, env, episodes, seed, action_mode=mode, kwargs=kwargs))

    def agent(self) -> Agent:
        """The agent as it is now; it goes on learning where its networks act through their framework."""
        from tandem.collect.actor import forwards

        name = f"{self.config.algorithm} {self.config.env}"
        networks = forwards(self.backend, self.kind.acting)
        return Agent(self.kind, self.config.settings, self.observation, self.action, networks, name)

    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of all weights: equal where, and only where, training went the same way."""
        digest = hashlib.sha256()
        for name in sorted(self.backend.networks):
            for key, value in sorted(self.backend.networks[name].read().items()):
                digest.update(f"{name}/{key}".encode() + np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def _row(self, evaluation: Evaluation | None) -> None:
        now = self.loop.now()
        row = {**now, "seconds": round(now["seconds"], 3), "fingerprint": self.fingerprint()}
        row["return_mean"] = float(np.mean(self._returns)) if self._returns else None
        row["length_mean"] = float(np.mean(self._lengths)) if self._lengths else None
        row["eval_mean"], row["eval_std"] = (evaluation.mean, evaluation.std) if evaluation else (None, None)
        row |= {name: total / self._calls for name, total in self._sums.items()}
        self._sums, self._calls = {}, 0
        for writer in self._writers:
            writer.write(row)

    def _open(self) -> list[Writer]:
        if self.folder is None:
            return []
        config.save(self.config, self.folder)
        options = self.config.options
        writers: list[Writer] = [CsvWriter(self.folder / "progress.csv", COLUMNS)]
        if options.tensorboard:
            writers.append(TensorBoardWriter(self.folder / "tensorboard"))
        if options.wandb:
            writers.append(WandbWriter(options.wandb, self.folder.name, self.folder, self.config.to_json()))
        for writer in writers:
            writer.rewind(self.loop.env_steps)
        return writers

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
                self._pause = max(self.config.options.checkpoint_seconds, (self._saved_at - began) / WRITING)
            yield self._tell(CheckpointSaved(**self.loop.now(), path=path))

    def state(self, replay: bool) -> tuple[dict[str, Any], checkpoint.Groups]:
        """What a checkpoint holds: `networks` is what acting needs, in names that every framework shares."""
        data, groups = self.loop.state(replay)
        networks = self.backend.networks
        acting = {r: networks[r].plan for r in self.kind.acting}
        groups["networks"] = {f"{r}/{n}": w for r in acting for n, w in networks[r].read().items()}
        data |= {
            "config": self.config.to_json(),
            "observation": spaces.to_json(self.observation),
            "action": spaces.to_json(self.action),
            "plans": {r: None if p is None else plans.to_json(p) for r, p in acting.items()},
            "whole": replay,
            "session": {
                "best": None if self.best == -np.inf else self.best,
                "returns": list(self._returns),
                "lengths": list(self._lengths),
                "sums": self._sums,
                "calls": self._calls,
                "due": self._due,
                "numbered": self._numbered,
                "callbacks": [c.state() for c in self.callbacks],
            },
        }
        return data, groups

    def _resume(self, saved: checkpoint.Checkpoint) -> None:
        if not saved.data.get("whole"):
            raise ResumeError(
                f"{saved.path} holds an agent, not a whole run.", "the run's last.zip", "resume from the run's folder."
            )
        try:
            self.loop.load_state(saved.data, {g: saved.group(g) for g in ("engine", "collector", "learner")})
            inner = saved.data["session"]
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{saved.path} does not fit this run ({type(error).__name__}: {error}).",
                "a checkpoint of the same algorithm, settings and networks",
                "resume with what the run was started with; see its config.json.",
            ) from error
        self.best = -np.inf if inner["best"] is None else inner["best"]
        self._returns.extend(inner["returns"])
        self._lengths.extend(inner["lengths"])
        self._sums, self._calls, self._numbered = inner["sums"], inner["calls"], inner["numbered"]
        self._due = inner["due"]
        for callback, state in zip(self.callbacks, inner["callbacks"], strict=False):
            if state is not None:  # of another callback, which had nothing to remember
                callback.load_state(state)

    def result(self) -> dict[str, Any]:
        """Scores the best and the last agent on seeds that chose neither; writes and returns result.json."""
        conf, now = self.config, self.loop.now()
        last = self.score(self.agent(), conf.options.final_episodes, "final")
        best = last
        if self.folder is not None and (self.folder / "checkpoints" / "best.zip").is_file():
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
            "last_eval_mean": last.mean,
            "last_eval_std": last.std,
            "versions": conf.versions,
        }
        self.evaluation = best
        if self.folder is not None:
            (self.folder / "result.json").write_text(json.dumps(found, indent=2) + "\n")
        return found

    def restored(self, which: str) -> Agent:
        """The agent of one of the run's checkpoints."""
        assert self.folder is not None
        saved = checkpoint.read(checkpoint.find(self.folder, which))
        agent = self.agent()
        for role in self.kind.acting:
            weights = plans.select(saved.group("networks"), role)
            network = self.backend.networks[role]
            if network.plan is not None:
                agent.networks[role] = plans.Twin(network.plan, weights)
            else:
                kept = network.read()
                network.write(weights)
                agent.networks[role] = _frozen(network, kept, weights)
        return agent


def _frozen(network: Any, current: Any, weights: Any) -> Any:
    """A forward function with other weights than the network has now."""
    network.write(current)

    def forward(x: Any) -> Any:
        now = network.read()
        network.write(weights)
        try:
            return network.predict(x)
        finally:
            network.write(now)

    return forward


class _Signals:
    """SIGINT and SIGTERM ask for the end of the sitting; a second SIGINT interrupts at once."""

    def __init__(self, stop: Any) -> None:
        self.stop, self._old = stop, {}  # type: ignore[var-annotated]

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._caught)

    def _caught(self, number: int, frame: Any) -> None:
        self.stop(signal.Signals(number).name)
        signal.signal(number, self._old[number])

    def __exit__(self, *_: Any) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)
