"""The folder of a sweep: its plan, and Optuna's journal of the trials."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.backends import ENGINES
from tandem.errors import EngineError, RunFolderError, one_of
from tandem.learning.seeds import derived
from tandem.runs import trust
from tandem.runs.atomic_files import ELSEWHERE, replacing, write_json, writing
from tandem.runs.folder import locked
from tandem.settings import IMPORTED, shell_path
from tandem.tuning.search import second_half
from tandem.tuning.space import Space, optuna
from tandem.types import JSONDict

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

FILE, JOURNAL, TRIALS = "sweep.json", "journal.log", "trials"
PRUNERS = ("median", "asha", "hyperband", "none")
SAMPLERS = ("tpe", "gp", "random")
GP_NEEDS = ("torch", "scipy")

COMPLETE, PRUNED, FAILED, REFUSED = "complete", "pruned", "failed", "refused"
NOT_FINITE, RUNNING, LOST = "not finite", "running", "lost"
# Optuna's names. It learns from pruned trials, but not from failed ones: infinite losses are
# informative about the settings, a killed process (LOST) is not.
STATES = {
    COMPLETE: "COMPLETE",
    PRUNED: "PRUNED",
    NOT_FINITE: "PRUNED",
    FAILED: "FAIL",
    LOST: "FAIL",
    REFUSED: "FAIL",
}


@dataclass(frozen=True)
class Plan:
    """The arguments of a sweep, stored in sweep.json."""

    algorithm: str
    env: str
    framework: str
    trials: int
    seed: int
    pruner: str
    sampler: str
    space: list[JSONDict]
    given: JSONDict  # settings and options of all trials, including the sweep's own
    device: str = "auto"
    env_kwargs: JSONDict | None = None
    network: str = ""  # module:function of a custom network
    own: list[str] = field(default_factory=list)  # passed from Python, needed to resume
    origin: JSONDict = field(default_factory=dict)  # of the environment id, see config.json
    asked: list[str] | None = None  # names of the explicit arguments; None in older files
    signature: str = ""  # of its names, by its user (`runs.trust`)

    @property
    def every(self) -> int:
        """Environment steps between two evaluations of a trial."""
        return int(self.given["eval_every"])

    @property
    def evaluations(self) -> int:
        """Number of evaluations per trial."""
        return max(1, int(self.given["steps"]) // self.every)

    def save(self, folder: Path) -> None:
        """Write the plan to the sweep's folder."""
        signed = replace(self, signature=trust.signature(self.names, folder))
        write_json(folder / FILE, asdict(signed), self.to_resume(folder))

    @property
    def names(self) -> JSONDict:
        """The data that may lead to code, as in a run's config.json."""
        own_env = "env" in self.own
        return asdict(self) | {"own_env": own_env, "options": self.given}

    def to_resume(self, folder: Path) -> str:
        """Return advice after a failure that is not a trial's."""
        if not (folder / FILE).exists():
            return ELSEWHERE
        own = "".join(f", {name}=..." for name in self.own)
        modules = "".join(f" --import {module}" for module in IMPORTED)
        command = f"tandem sweep --resume {shell_path(folder)}{modules}"
        return "fix this (for example, free some space), then resume: " + (
            f"tandem.sweep(resume={str(folder)!r}{own})" if own else command
        )

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Return the plan that `save` wrote. Raises RunFolderError if there is none."""
        try:
            plan = cls(**json.loads((folder / FILE).read_text(encoding="utf-8")))
            if plan.framework not in ENGINES:
                raise ValueError(f"it has framework={plan.framework!r}")
            return plan
        except (OSError, ValueError, TypeError) as error:
            raise RunFolderError(
                f"{folder} is not a sweep: cannot read {folder / FILE}: {error}.",
                "a folder created by `tandem sweep`",
                "check the path, or start a new sweep: tandem sweep ALGORITHM ENV",
            ) from error


@dataclass(frozen=True)
class SweepTrial:
    """A trial: its settings in addition to the shared ones, and its results."""

    number: int
    state: str  # COMPLETE, PRUNED etc.
    settings: JSONDict
    returns: list[float]  # one per evaluation
    score: float  # mean over their second half; the last one if pruned
    seconds: float
    why: str  # reason if it failed or was refused
    steps: int = 0  # environment steps trained


def seed_of(seed: int, number: int) -> int:
    """Return the seed of a trial. Each trial has a different one, and all lie above the seeds that
    anyone reports results with, so that no lucky seed is selected."""
    return 2**31 + derived(seed, f"sweep, trial {number}")


def check_sampler(name: str) -> None:
    """Raise SettingError for an unknown sampler, EngineError if its dependencies are not
    installed."""
    one_of("sampler", name, SAMPLERS)
    if name == "gp" and not all(map(find_spec, GP_NEEDS)):
        raise EngineError(
            f"sampler='gp' cannot be used: {' or '.join(GP_NEEDS)} is not installed.",
            "both, for Optuna's Gaussian processes",
            f"pip install {' '.join(GP_NEEDS)}; or use sampler='tpe'.",
        )


class Study:
    """The trials of a sweep, in Optuna's journal. Only one process at a time can open it."""

    def __init__(self, folder: Path, plan: Plan, space: Space) -> None:
        self.folder, self.plan, self.space = folder, plan, space
        self._lock = locked(folder, "the sweep", shared=False)
        try:
            plan.save(folder)
            self._open(folder.absolute() / JOURNAL)
        except BaseException:
            self.close()
            raise

    def _open(self, journal: Path) -> None:
        o, plan, space = optuna(), self.plan, self.space
        self._states = o.trial.TrialState
        with self._writing():
            _mend(journal)
            storage = o.storages.JournalStorage(o.storages.journal.JournalFileBackend(str(journal)))
            self._study = o.create_study(
                storage=storage,
                study_name=f"{plan.algorithm} on {plan.env}",
                direction="maximize",
                load_if_exists=True,
                pruner=self._pruner(),
                sampler=self._sampler(0),
            )
            drawn, outside = space.as_they_are()
            if not outside and not self._study.get_trials(deepcopy=False):
                self._study.enqueue_trial(drawn)
        self.outside = outside  # current settings that lie outside the space

    def close(self) -> None:
        """Release the lock for other processes."""
        self._lock.release()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Guard code that may write the journal; silences Optuna."""
        log = optuna().logging
        before = log.get_verbosity()
        log.set_verbosity(log.ERROR)
        try:
            fix = self.plan.to_resume(self.folder)
            with warnings.catch_warnings(), writing(self.folder / JOURNAL, fix):
                warnings.filterwarnings("ignore", module="optuna")
                warnings.filterwarnings("ignore", category=optuna().exceptions.ExperimentalWarning)
                yield
        finally:
            log.set_verbosity(before)

    def _pruner(self) -> Any:
        pruners, count = optuna().pruners, self.plan.evaluations
        if self.plan.pruner == "median":
            return pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=count // 3)
        if self.plan.pruner == "asha":
            least = max(1, count // 5)
            return pruners.SuccessiveHalvingPruner(min_resource=least, reduction_factor=4)
        if self.plan.pruner == "hyperband":
            return pruners.HyperbandPruner(min_resource=1, max_resource=count, reduction_factor=3)
        return pruners.NopPruner()

    def _sampler(self, number: int) -> Any:
        """Return a new sampler for trial `number`, so that a resumed sweep proposes the same
        trials."""
        samplers, seed = optuna().samplers, derived(self.plan.seed, f"sweep, sampler {number}")
        if self.plan.sampler == "random":
            return samplers.RandomSampler(seed=seed)
        kind = samplers.GPSampler if self.plan.sampler == "gp" else samplers.TPESampler
        return kind(seed=seed)

    # Running trials

    def ask(self) -> Trial:
        """Return a new trial with its settings."""
        with self._writing():
            waiting = self._study.get_trials(deepcopy=False, states=(self._states.WAITING,))
            number = len(self._study.get_trials(deepcopy=False)) - len(waiting)
            self._study.sampler = self._sampler(number)
            trial = self._study.ask()
            self._drawn(trial)
            return trial

    def interrupted(self) -> list[Trial]:
        """Return the trials that were running when the sweep ended, and lost ones to retry. Optuna
        would list them as running forever."""
        found = []
        with self._writing():
            for frozen in self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
                self._study.sampler = self._sampler(frozen.number)
                # its number in the storage has no public name
                trial = optuna().Trial(self._study, frozen._trial_id)
                self._drawn(trial)
                found.append(trial)
        return found

    def _drawn(self, trial: Trial) -> None:
        settings = self.space.trial(self.space.suggest(trial))
        trial.set_user_attr("settings", settings)
        trial.set_user_attr("seed", seed_of(self.plan.seed, trial.number))

    def folder_of(self, trial: Trial) -> Path:
        """Return the folder of the trial's run."""
        return self.folder / TRIALS / f"{trial.number:04d}"

    def report(self, trial: Trial, env_steps: int, mean: float) -> bool:
        """Record an evaluation and return True if the trial is to be pruned. Evaluations are
        numbered by the preceding multiple of `Plan.every`, so that trials with different block
        sizes can be compared."""
        number = env_steps // self.plan.every
        with self._writing():
            if number not in self.frozen(trial).intermediate_values:
                trial.report(mean, number)
            return bool(trial.should_prune())

    def tell(
        self, trial: Trial, state: str, seconds: float = 0.0, why: str = "", steps: int = 0
    ) -> SweepTrial:
        """Record the end of a trial. A trial lost for the first time stays open until the sweep is
        resumed."""
        with self._writing():
            if is_retried := state == LOST and self._trial(self.frozen(trial)).state != LOST:
                why += "; retried once when the sweep is resumed"
            known = {"came to": state, "seconds": round(seconds, 1), "why": why, "steps": steps}
            for name, said in known.items():
                trial.set_user_attr(name, said)
            told: dict[str, object] = {"state": self._states[STATES[state]]}
            if state == COMPLETE:
                told["values"] = second_half(self._trial(self.frozen(trial)).returns)
            if not is_retried:
                self._study.tell(trial, **told)
            return self._trial(self.frozen(trial))

    # All trials so far

    def frozen(self, trial: Trial) -> FrozenTrial:
        """Return a trial as stored by Optuna."""
        return self._study.get_trials(deepcopy=False)[trial.number]

    def trials(self) -> list[SweepTrial]:
        """Return all trials that were started."""
        frozen = self._study.get_trials(deepcopy=False)
        return [self._trial(f) for f in frozen if f.state != self._states.WAITING]

    def _trial(self, frozen: FrozenTrial) -> SweepTrial:
        known, values = frozen.user_attrs, frozen.intermediate_values
        is_over = frozen.state.is_finished() or known.get("came to") == LOST
        return SweepTrial(
            number=frozen.number,
            state=known["came to"] if is_over else RUNNING,
            settings=known.get("settings", {}),
            returns=[values[step] for step in sorted(values)],
            score=float("nan") if frozen.values is None else frozen.values[0],
            seconds=known.get("seconds", 0.0),
            why=known.get("why", ""),
            steps=known.get("steps", 0),
        )

    def importances(self) -> dict[str, float]:
        """Return the importance of each setting for being among the best tenth (PED-ANOVA, Watanabe
        et al. 2023), as shares of 1, the highest first; {} with too few completed trials."""
        with self._writing(), suppress(ValueError, RuntimeError):
            by_name = optuna().importance.get_param_importances(self._study)
            labels = {d.name: d.label for d in self.space.dimensions}
            if len(set(by_name.values())) > 1:  # equal values mean unknown
                return {labels[name]: share for name, share in by_name.items()}
        return {}


def _mend(journal: Path) -> None:
    """Remove the traces of a process killed while writing: an incomplete line, and Optuna's
    lock."""
    Path(f"{journal}.lock").unlink(missing_ok=True)
    if journal.is_file():
        text = journal.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            with replacing(journal) as file:
                file.write(whole)
