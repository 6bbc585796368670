"""Trials of settings proposed by Optuna: the implementation of `tandem sweep`. Each trial is a
complete run in a separate process, and stops early if it is worse than others were."""

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
from tandem.learning.parallel.choice import cpus_of, runs_at_once
from tandem.runs import config_file
from tandem.runs.new_folders import new_folder
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
REFUSALS = 20  # consecutive refused trials before giving up
# per process on TensorFlow, which never frees compiled programs
MOST_TRIALS = 10
PLACES = ("env_kwargs", "device", "network")
# Only a trial's evaluations matter: no plots; keep the best agent and the latest state.
OWN: dict[str, object] = {"plots": False, "tensorboard": False, "keep": 0}


def sweep(
    algorithm: str | type[Algorithm] | None = None,
    env: EnvLike = None,
    **more: Any,
) -> Swept:
    """Search for the best settings of an algorithm in an environment, with trials that Optuna
    proposes.

    The first trial uses the current settings, if the space contains them. Each trial is a run of
    `steps` environment steps (None: as many as the settings have), evaluated ten times; its score
    is the mean return of the second half. The `pruner` stops a trial that is worse than others were
    at the same evaluation. A trial that fails or has non-finite losses is recorded as such. SIGINT
    and SIGTERM end the running trials with a checkpoint, and are then raised again.

    Args:
        algorithm: The name or class of the algorithm.
        env: The environment, as for `tandem.train`.
        **more: `steps`, `framework`, `env_kwargs`, `device`, `network` and any setting, as for
            `tandem.train`, and:

            - `trials`: The number of trials (40).
            - `parallel`: Trials at a time (default: the number of cores; one with a GPU).
            - `cluster`: The address of a Ray cluster for the trials ("auto": one that runs here,
              else a new one), whose machines share the folder.
            - `pruner`: "median" (default), "asha" (successive halving), "hyperband" or "none".
            - `sampler`: "tpe" (default), "gp" or "random".
            - `space`: Ranges by setting that override the declared ones, as a dict or a TOML file
              (docs/howto/sweeps.md).
            - `seed`: The seed (0) from which the trials' seeds are derived. They are distinct from
              seeds to report results with.
            - `out`: A new folder (runs/sweep-…).
            - `begun`: A function called with the `Sweep` before its first trial.
            - `heard`: A function called with (trial number, number of evaluations so far, latest
              return).
            - `told`: A function called with each SweepTrial when it is over.
            - `resume`: The folder of a sweep to resume, instead of the algorithm, the environment
              and all other arguments except `trials`, which may be larger, `parallel` and
              `cluster`. Finished trials are not repeated; interrupted ones continue from their
              checkpoints, whatever ended the sweep.
            - `trust`: With `resume`, as in `tandem.train`.

    Raises:
        SettingError: A setting is invalid. This and other errors of `tandem.train` are raised
            before anything runs.
        EngineError: Optuna is not installed.
        WorkerError: No trial finished.
    """
    made = Sweep(algorithm, env, **more)
    came = made.train()
    if came is not None:
        raise_again(came)
    return made.result()


class Sweep:
    """A sweep that starts with `train`; takes the arguments of `sweep`."""

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
        spaces.optuna()  # fail early if it is missing
        if resume is None:
            if trust:
                raise SettingError(
                    "trust=True requires resume=.",
                    "a sweep to trust",
                    "give resume=, or leave trust out.",
                )
            self.plan = _planned(algorithm, env, trials or TRIALS_UNTOLD, asked)
            self._program = {n: asked[n] for n in ("network",) if n in self.plan.own}
            if out is not None:
                self.folder = new_folder(as_path("out", out))
        else:
            self.folder = as_path("resume", resume)
            given = {n: asked.get(n) for n in ("env_kwargs", "network")}
            names = Names(env, trust=trust, **given)
            self.plan = _continued(self.folder, algorithm, env, trials, out, asked, names)
            self._program = {n: x for n, x in asked.items() if x is not None}
        if "algorithm" in self.plan.own:
            self._program["algorithm"] = algorithm
        if "env" in self.plan.own:
            self._program["env"] = env
        kind = self._program.get("algorithm", self.plan.algorithm)
        # the settings that the space does not override, and their source
        self.base, options, self.source, _ = trainer.resolve(kind, self.plan.env, self.plan.given)
        zoo.note_short(kind, self.plan.env, options.entry, self.base, self.plan.given)
        self.space = spaces.Space.from_json(self.plan.space, self.base)
        if resume is None and out is None:
            name = self.plan.algorithm.rpartition(":")[2]
            self.folder = default_folder("sweep", [name], self.plan.env)
        self.resumes = resume is not None
        self.done: list[SweepTrial] = []  # trials made before this start or resume
        self.carrier: Processes | RayActors = Processes(at.TrialRun)
        self.outside: list[str] = []  # current settings that lie outside the space

    @property
    def parallel(self) -> int:
        """Number of trials to run at a time."""
        if self._parallel is not None:
            return self._parallel
        if isinstance(self.carrier, RayActors):
            room = self.carrier.room
        else:
            room = runs_at_once({"device": self.plan.device, **self.plan.given})
        return min(room, self.plan.trials)

    def train(self) -> str | None:
        """Run the remaining trials. Return the name of the signal that ended the sweep, or None."""
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
            if empty:  # the folder holds nothing to resume
                shutil.rmtree(self.folder, ignore_errors=True)

    def result(self) -> Swept:
        """Return the results; write a table, a zoo entry and a plot to the folder. Raises
        WorkerError if no trial finished."""
        with closing(Study(self.folder, self.plan, self.space)) as study:
            return concluded(self.folder, self.plan, study, self.base)

    def arguments(self, trial: Any) -> dict[str, object]:
        """Return the arguments of `train` for a trial."""
        plan, drawn = self.plan, trial.user_attrs["settings"]
        places = {n: getattr(plan, n) for n in ("framework", *PLACES)}
        places["network"] = plan.network or None
        named = {"algorithm": plan.algorithm, "env": plan.env} | self._program
        seed = seed_of(plan.seed, trial.number)
        return {**named, **places, **plan.given, **drawn, "seed": seed}

    def again(self) -> dict[str, object]:
        """Return the arguments to resume a trial's run."""
        names: dict[str, object] = {"env": self.plan.env, "trust": self.trust}
        if ":" in self.plan.env and self.plan.env_kwargs:  # otherwise the run may have more of them
            names["env_kwargs"] = self.plan.env_kwargs
        if self.plan.network:
            names["network"] = self.plan.network
        return {**names, **self._program}


def _planned(
    algorithm: str | type[Algorithm] | None, env: EnvLike, trials: int, asked: dict[str, Any]
) -> Plan:
    """Return the plan for these arguments, validated before anything runs."""
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
    if given.get("runners"):  # a cluster runs whole trials
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
    network = asked.get("network")
    by_program["network"] = not isinstance(network, str | None)
    data = json.loads(json.dumps(plain(base) | asdict(options)))  # convert to JSON types
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
        network=network if isinstance(network, str) else "",
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
    """Return the plan of the sweep in a folder."""
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
    """Raise SettingError if the folder of a trial that has reported is not visible on this
    machine."""
    if not folder.is_dir():
        raise SettingError(
            f"the cluster's machines write trials to local folders: {folder} does not exist here.",
            "a shared folder, from which any free machine can resume a trial",
            "give out= on a file system that every machine mounts at the same path, or leave "
            "cluster out.",
        )


@dataclass
class _Trial:
    """A running trial."""

    trial: Any
    seconds: float = 0.0  # training time
    steps: int = 0
    pruned: bool = False


class _Trials:
    """The trials of a sweep as jobs."""

    def __init__(self, sweep: Sweep, study: Study) -> None:
        self.sweep, self.study = sweep, study
        self.came: str | None = None  # the name of the signal that ends the sweep
        self._lost: dict[int, int] = {}  # number of a trial's evaluations when its process was lost
        self._blocked = ""  # failure outside the trials that ends the sweep
        self._interrupted = study.interrupted()
        self._engine = engine_of(sweep.plan.framework)
        self.made, self._refused = len(sweep.done) - len(self._interrupted), 0
        most = MOST_TRIALS if sweep.plan.framework == "tensorflow" else inf
        self.jobs = Jobs(sweep.carrier, sweep.parallel, most)

    def run(self) -> str | None:
        """Run the remaining trials. Return the name of the signal that ended the sweep, or None."""
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
        """Return the next trial, or one to resume, with its request; None if there are no more."""
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
        self.jobs.at_once = self.sweep.parallel  # machines may join a cluster

    def _hear(self, line: _Trial, answer: at.Answer | WorkerLost | None) -> Request | None:
        """Process an answer and return the next request."""
        if line.pruned:  # it has closed its environments, or was lost
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
        """Stop the sweep for a failure that is not the trial's; resuming repeats the trial."""
        self._blocked = self._blocked or f"trial {line.trial.number}: {why.partition(chr(10))[0]}"
        self._stop(self.came)

    def _lose(self, line: _Trial, lost: WorkerLost) -> None:
        """Resume the trial in another process. It fails if its process raised an error, and is lost
        if its process is killed again before a new evaluation."""
        evaluations = len(self.study.frozen(line.trial).intermediate_values)
        if lost.at_start:
            self._block(line, f"its process {lost} before it began.")
        elif lost.trace or self._lost.get(line.trial.number) == evaluations:
            self._over(line, FAILED if lost.trace else LOST, f"its process {lost}")
        else:
            self._lost[line.trial.number] = evaluations
            self._interrupted.append(line.trial)

    def _over(self, line: _Trial, state: str, why: str = "") -> None:
        """Record the end of a trial. Delete the files for resuming it if it is finished."""
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
