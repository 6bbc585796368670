"""Trials of settings that Optuna proposes: what `tandem sweep` does. Each is a whole run in a
process of its own, which is ended early where it is worse than others were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from tandem import trainer, zoo
from tandem.algorithms import own
from tandem.algorithms.base import Algorithm
from tandem.envs import ids
from tandem.envs.factory import EnvLike, environment_name, versioned
from tandem.errors import ResumeError, SettingError, WorkerError, one_of
from tandem.learning.config import plain
from tandem.parallel.choice import cpus_of, runs_at_once
from tandem.runs import config_file
from tandem.runs.folder import new_folder
from tandem.runs.signals import Signals, raise_again
from tandem.runs.trust import Names, expect
from tandem.settings import as_path, shell_path, whole_number
from tandem.tuning import space as spaces
from tandem.tuning import sweep_run as at
from tandem.tuning.search import (
    Candidate,
    arguments_of,
    default_folder,
    engine_of,
    refuse_own_optimizer,
)
from tandem.tuning.sweep_report import Swept, concluded, save_best, save_table
from tandem.tuning.sweep_study import (
    COMPLETE,
    FAILED,
    LOST,
    PRUNED,
    PRUNERS,
    REFUSED,
    Plan,
    Study,
    SweepTrial,
    check_sampler,
    seed_of,
)
from tandem.workers.jobs import Jobs, Processes, RayActors, Request
from tandem.workers.process import START, WorkerLost

TRIALS_UNTOLD = 40
REFUSALS = 20  # one after the other, after which there is nothing to hope for
# of a process on TensorFlow, which keeps every program that it has compiled
MOST_TRIALS = 10
PLACES = ("env_kwargs", "device", "network")
# A trial is for its evaluations: it draws nothing, and keeps its best agent and the latest state.
OWN: dict[str, object] = {"plots": False, "tensorboard": False, "keep": 0}


def sweep(
    algorithm: str | type[Algorithm] | None = None,
    env: EnvLike = None,
    **more: Any,
) -> Swept:
    """Looks for the best settings of an algorithm in an environment, by trials of what Optuna
    proposes.

    The first trial has the settings as they are, where the space has them. Each is a run of `steps`
    environment steps (None: as many as the settings say), evaluated ten times; what counts is the
    mean return of the second half. One that is worse than others were at the same evaluation is
    ended there, by `pruner`: "median", "asha" (successive halving), "hyperband" or "none". One that
    fails, or whose losses are not finite, is one result among others.

    more: trials, how many (40); parallel, how many at a time (as many as cores; one, where there is
    a GPU); cluster, the address of a Ray cluster that makes them ("auto": one that runs here, else
    a new one), whose machines share the folder; pruner ("median"); sampler ("tpe"; or "gp",
    "random"); space, ranges by setting over those that the settings have, as a dict or a TOML file
    (docs/howto/sweeps.md); seed (0), which the
    seeds of trials follow from: none of them is one that you would report by; steps; framework,
    env_kwargs, device, network and any setting, as for `tandem.train`; out, a new folder
    (runs/sweep-…); begun, a function that is given the `Sweep` before its first trial, heard, one
    that is given (a trial's number, its evaluations so far, the latest return), and told, one that
    is given each SweepTrial when it is over.

    resume: the folder of a sweep to go on with, in place of an algorithm's name, an environment's
    and of all but `trials`, which may be more, parallel and cluster. No trial that was finished is
    made again, and those under way go on from their checkpoints, whatever ended the sweep. trust:
    with `resume`, as in `tandem.train`.

    Raises what `tandem.train` raises for settings that do not fit, before anything runs;
    EngineError where Optuna is not installed; WorkerError where no trial came to an end. SIGINT and
    SIGTERM end the trials under way with a checkpoint, and are then raised again.
    """
    made = Sweep(algorithm, env, **more)
    came = made.train()
    if came is not None:
        raise_again(came)
    return made.result()


class Sweep:
    """A sweep that goes on when it is told to; the arguments are those of `sweep`."""

    def __init__(
        self,
        algorithm: str | type[Algorithm] | None = None,
        env: EnvLike = None,
        *,
        trials: int | None = None,
        parallel: int | None = None,
        cluster: str | None = None,
        out: str | Path | None = None,
        resume: str | Path | None = None,
        trust: bool = False,
        begun: Callable[[Sweep], object] = lambda sweep: None,
        heard: Callable[[int, int, float], object] = lambda number, evaluations, mean: None,
        told: Callable[[SweepTrial], object] = lambda trial: None,
        **asked: Any,
    ) -> None:
        trials = None if trials is None else whole_number("trials", trials, 1)
        self._parallel = None if parallel is None else whole_number("parallel", parallel, 1)
        self.cluster, self.trust = cluster, trust
        self.begun, self.heard, self.told = begun, heard, told
        spaces.optuna()  # before anything is made without it
        if resume is None:
            if trust:
                raise SettingError(
                    "trust=True requires resume=.",
                    "a sweep to trust",
                    "give resume=, or leave trust out.",
                )
            self._program = {n: x for n, x in asked.items() if n == "network" and x is not None}
            self.plan = _planned(algorithm, env, trials or TRIALS_UNTOLD, asked)
            if out is not None:
                self.folder = new_folder(as_path("out", out))
        else:
            self.folder = as_path("resume", resume)
            names = Names(env, env_kwargs=asked.get("env_kwargs"), trust=trust)
            self.plan = _continued(self.folder, algorithm, env, trials, out, asked, names)
            self._program = {n: x for n, x in asked.items() if x is not None}
        if "algorithm" in self.plan.own:
            self._program["algorithm"] = algorithm
        if "env" in self.plan.own:
            self._program["env"] = env
        kind = self._program.get("algorithm", self.plan.algorithm)
        # the settings that the space says nothing of, and where they are from
        self.base, options, self.source, _ = trainer.resolve(kind, self.plan.env, self.plan.given)
        zoo.note_short(kind, self.plan.env, options.entry, self.base, self.plan.given)
        self.space = spaces.Space.from_json(self.plan.space, self.base)
        if resume is None and out is None:
            name = self.plan.algorithm.rpartition(":")[2]
            self.folder = default_folder("sweep", [name], self.plan.env)
        self.resumes = resume is not None
        self.done: list[SweepTrial] = []  # before it was begun, or gone on with
        self.carrier: Processes | RayActors = Processes(at.TrialRun)
        self.outside: list[str] = []  # settings that no trial can have as they are

    @property
    def parallel(self) -> int:
        """How many trials are made at a time."""
        if self._parallel is not None:
            return self._parallel
        if isinstance(self.carrier, RayActors):
            room = self.carrier.room
        else:
            room = runs_at_once({"device": self.plan.device, **self.plan.given})
        return min(room, self.plan.trials)

    def train(self) -> str | None:
        """Makes the trials that are left. The name of the signal that ended it, or None."""
        if self.cluster:
            self.carrier = RayActors(self.cluster, cpus_of(self.plan.given), at.TrialRun)
        study = Study(self.folder, self.plan, self.space)
        trials, empty = None, False
        try:
            self.outside = study.outside
            self.done = [t for t in study.trials() if t.state != REFUSED]
            self.begun(self)
            trials = _Trials(self, study)
            return trials.run()
        except SettingError:
            empty = not (self.resumes or trials is None or trials.made)
            raise
        finally:
            study.close()
            if empty:  # nothing is in it that anyone could go on from
                shutil.rmtree(self.folder, ignore_errors=True)

    def result(self) -> Swept:
        """What the trials came to; writes a table, an entry for the zoo and a picture into the
        folder. WorkerError where none came to its end."""
        with closing(Study(self.folder, self.plan, self.space)) as study:
            return concluded(self.folder, self.plan, study, self.base)

    def arguments(self, trial: Any) -> dict[str, object]:
        """What `train` is given for a trial."""
        plan, drawn = self.plan, trial.user_attrs["settings"]
        places = {"framework": plan.framework, "device": plan.device, "env_kwargs": plan.env_kwargs}
        named = {"algorithm": plan.algorithm, "env": plan.env} | self._program
        seed = seed_of(plan.seed, trial.number)
        return {**named, **places, **plan.given, **drawn, "seed": seed}

    def again(self) -> dict[str, object]:
        """What it is given to go on with a trial's run."""
        names: dict[str, object] = {"env": self.plan.env, "trust": self.trust}
        if ":" in self.plan.env and self.plan.env_kwargs:  # else the run may have more of them
            names["env_kwargs"] = self.plan.env_kwargs
        return {**names, **self._program}


def _planned(
    algorithm: str | type[Algorithm] | None, env: EnvLike, trials: int, asked: dict[str, Any]
) -> Plan:
    """What was asked for, checked before anything runs."""
    if algorithm is None or env is None:
        raise SettingError(
            "sweep() was called without an algorithm or an environment.",
            "both, or resume=",
            "tandem.sweep('ppo', 'CartPole-v1')",
        )
    refuse_own_optimizer(asked)
    names, asked = [n for n, x in asked.items() if x is not None], dict(asked)
    pruner, sampler = asked.pop("pruner", "median"), asked.pop("sampler", "tpe")
    one_of("pruner", pruner, PRUNERS)
    check_sampler(sampler)
    seed, steps, told = asked.pop("seed", 0), asked.pop("steps", None), asked.pop("space", None)
    framework = asked.pop("framework", None)
    kind, name = own.checked(algorithm, trainer.TAKEN), own.name_of(algorithm)
    env = versioned(env)
    if not isinstance(told, Mapping):
        told = {} if told is None else spaces.read(as_path("space", told))
    gated = spaces.fixed_beside(kind.Settings, asked, told)
    asked, told = {n: x for n, x in asked.items() if n not in gated}, {**told, **gated}
    given = {n: x for n, x in asked.items() if n not in PLACES}
    if given.get("runners"):  # what a cluster makes is whole trials
        raise SettingError(
            f"runners={given['runners']!r} is not supported in a sweep.",
            "trials that collect their own data, in parallel (parallel), here or on a cluster",
            "leave runners out; cluster= runs the trials there.",
        )
    chosen = trainer.resolve(kind, environment_name(env), given)[0]
    steps = chosen.steps if steps is None else whole_number("steps", steps, 1)
    candidate = Candidate(name, {}, name, kind=kind)
    whole = arguments_of(candidate, env, steps, framework, {**OWN, **asked})
    given = {n: x for n, x in whole.items() if n not in ("algorithm", "env", "framework", *PLACES)}
    base, options, *_ = trainer.resolve(kind, environment_name(env), given)
    if not options.eval_episodes:
        raise SettingError(
            "eval_episodes=0 is not supported in a sweep.",
            "evaluations to compare trials by",
            "leave eval_episodes out.",
        )
    space = spaces.space_of(base, {n: x for n, x in asked.items() if n not in PLACES}, told)
    by_program = {"algorithm": not own.is_known(name), "env": not isinstance(env, str)}
    by_program["network"] = asked.get("network") is not None
    data = json.loads(json.dumps(plain(base) | asdict(options)))  # converted
    return Plan(
        algorithm=name,
        env=env if isinstance(env, str) else environment_name(env),
        framework=whole["framework"],
        trials=trials,
        seed=whole_number("seed", seed),
        pruner=pruner,
        sampler=sampler,
        space=space.to_json(),
        given={n: data[n] for n in given},
        device=asked.get("device", "auto"),
        env_kwargs=asked.get("env_kwargs"),
        own=[n for n, is_own in by_program.items() if is_own],
        origin=ids.origin(env) if isinstance(env, str) else {},
        asked=names,
    )


def _continued(
    folder: Path,
    algorithm: str | type[Algorithm] | None,
    env: EnvLike,
    trials: int | None,
    out: str | Path | None,
    asked: Mapping[str, object],
    names: Names,
) -> Plan:
    """What the sweep in a folder was asked for."""
    plan = Plan.read(folder)
    command = f"tandem sweep {plan.algorithm} {{}}--resume {shell_path(folder)}"
    expect(plan.names, folder, plan.signature, names, command, ResumeError)
    if "env" not in plan.own:
        config_file.expect_env(asdict(plan), folder, ResumeError)
    again = {"algorithm": algorithm, "env": env, "out": out, **asked}
    given = [name for name, value in again.items() if value is not None]
    if odd := [n for n in given if n not in plan.own and again[n] != getattr(plan, n, None)]:
        raise ResumeError(
            f"resume= is not supported with {', '.join(odd)}.",
            "only trials, parallel or cluster: the rest comes from the sweep's sweep.json",
            "leave these out.",
        )
    if left := [name for name in plan.own if name not in given]:
        raise ResumeError(
            f"the sweep in {folder} was started by a program with {', '.join(left)}.",
            "the same objects again, as no file contains them",
            f"tandem.sweep({', '.join(f'{n}=...' for n in left)}, resume={str(folder)!r})",
        )
    if trials is not None and trials < plan.trials:
        raise ResumeError(
            f"the sweep in {folder} has {plan.trials} trials, more than trials={trials}.",
            "at least as many",
            "leave trials out; Ctrl-C ends a sweep and keeps its results.",
        )
    return plan if trials is None else replace(plan, trials=trials)


def expect_here(folder: Path) -> None:
    """SettingError if the folder of a trial that has answered is not to be seen here."""
    if not folder.is_dir():
        raise SettingError(
            f"the cluster's machines write trials to local folders: {folder} does not exist here.",
            "a shared folder, from which any free machine can resume a trial",
            "give out= on a file system that every machine mounts at the same path, or leave "
            "cluster out.",
        )


@dataclass
class _Trial:
    """A trial under way."""

    trial: Any
    seconds: float = 0.0  # that it has trained
    steps: int = 0
    pruned: bool = False


class _Trials:
    """The trials of a sweep as jobs."""

    def __init__(self, sweep: Sweep, study: Study) -> None:
        self.sweep, self.study = sweep, study
        self.came: str | None = None  # the name of the signal that is to end it
        self._lost: dict[int, int] = {}  # evaluations of a trial when its process was lost
        self._blocked = ""  # what ends the sweep that is no fault of a trial's
        self._interrupted = study.interrupted()
        self._engine = engine_of(sweep.plan.framework)
        self.made, self._refused = len(sweep.done) - len(self._interrupted), 0
        most = MOST_TRIALS if sweep.plan.framework == "tensorflow" else inf
        self.jobs = Jobs(sweep.carrier, sweep.parallel, most)

    def run(self) -> str | None:
        """Makes what is left. The name of the signal that ended it, or None."""
        with Signals(self._stop):
            self.jobs.run(self._take, self._hear, self._look)
        if self._blocked:
            raise WorkerError(
                f"the sweep in {self.sweep.folder} stopped at {self._blocked}",
                "writable files, and processes that nothing kills",
                self.sweep.plan.to_resume(self.sweep.folder),
            )
        return self.came

    def _stop(self, name: str | None) -> None:
        self.came = name
        self.jobs.stop()

    def _take(self) -> tuple[_Trial, Request] | None:
        """The next trial, or one to resume."""
        if not self._interrupted and self.made + len(self.jobs.running) >= self.sweep.plan.trials:
            return None
        trial = self._interrupted.pop(0) if self._interrupted else self.study.ask()
        folder = self.study.folder_of(trial)
        resume = None
        if (folder / "checkpoints" / "last.zip").is_file():
            resume = self.sweep.again()
        else:
            shutil.rmtree(folder, ignore_errors=True)
        arguments = self._engine, self.sweep.arguments(trial), folder.absolute(), resume
        return _Trial(trial), Request("begin_trial", arguments)

    def _look(self) -> None:
        self.jobs.at_once = self.sweep.parallel  # machines join a cluster

    def _hear(self, line: _Trial, answer: at.Answer | WorkerLost | None) -> Request | None:
        """Takes an answer; what to ask next."""
        if line.pruned:  # and has closed its environments, or was lost
            self._over(line, PRUNED)
        elif isinstance(answer, WorkerLost):
            if not self.jobs.stopped:
                self._lose(line, answer)
        elif answer is not None:
            return self._answered(line, answer)
        return None

    def _answered(self, line: _Trial, answer: at.Answer) -> Request | None:
        line.seconds, line.steps = answer.seconds, answer.env_steps
        if self.sweep.cluster and answer.what not in (REFUSED, at.BLOCKED):
            expect_here(self.study.folder_of(line.trial))
        if answer.what == at.EVALUATED:
            line.pruned = self.study.report(line.trial, answer.env_steps, answer.mean)
            count = answer.env_steps // self.sweep.plan.every
            self.sweep.heard(line.trial.number, count, answer.mean)
            return Request("leave", patience=START) if line.pruned else Request("go_on")
        if answer.what == at.BLOCKED:
            self._block(line, answer.why)
        elif answer.what != at.STOPPED:
            self._over(line, answer.what, answer.why)
        return None

    def _block(self, line: _Trial, why: str) -> None:
        """Stops the sweep for a failure that is not the trial's; resuming repeats the trial."""
        self._blocked = self._blocked or f"trial {line.trial.number}: {why.partition(chr(10))[0]}"
        self._stop(self.came)

    def _lose(self, line: _Trial, lost: WorkerLost) -> None:
        """Resumes the trial in another process. It fails if its process raised, and is lost if its
        process is killed again before a new evaluation."""
        evaluations = len(self.study.frozen(line.trial).intermediate_values)
        if lost.at_start:
            self._block(line, f"its process {lost} before it began.")
        elif lost.trace or self._lost.get(line.trial.number) == evaluations:
            self._over(line, FAILED if lost.trace else LOST, f"its process {lost}")
        else:
            self._lost[line.trial.number] = evaluations
            self._interrupted.append(line.trial)

    def _over(self, line: _Trial, state: str, why: str = "") -> None:
        """A trial has come to its end. What it would go on from is not kept, where it will not."""
        folder = self.study.folder_of(line.trial)
        found = self.study.tell(line.trial, state, line.seconds, why, line.steps)
        if state == REFUSED:
            shutil.rmtree(folder, ignore_errors=True)
            self._refused += 1
            if self._refused > REFUSALS:
                first, asks = why.partition("; expected ")[0], why.partition("Fix: ")[2]
                raise SettingError(
                    f"{REFUSALS} combinations of settings in a row were refused, the last one: "
                    f"{first}.",
                    "a space in which most combinations are valid",
                    "narrow it (--space, space=), as the last error "
                    f"says{f': {asks}' if asks else '.'}",
                )
            return
        self._refused = 0
        self.made += 1
        trials = self.study.trials()
        save_table(self.sweep.folder, self.sweep.plan, trials)
        if state == COMPLETE:
            save_best(self.sweep.folder, self.sweep.plan, trials, self.sweep.base)
        elif self.study.frozen(line.trial).state.is_finished():
            (folder / "checkpoints" / "last.zip").unlink(missing_ok=True)
        self.sweep.told(found)
