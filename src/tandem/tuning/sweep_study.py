"""What is kept of a sweep in its folder: what was asked for, and Optuna's journal of the trials."""

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
# What Optuna calls these. It learns from those that were pruned, and not from those that failed:
# that losses became infinite says something of the settings. A killed process (LOST) does not.
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
    """What was asked for: sweep.json."""

    algorithm: str
    env: str
    framework: str
    trials: int
    seed: int
    pruner: str
    sampler: str
    space: list[JSONDict]
    given: JSONDict  # settings and options of all trials, those of the sweep's own too
    device: str = "auto"
    env_kwargs: JSONDict | None = None
    own: list[str] = field(default_factory=list)  # what a program gave, and has to give again
    origin: JSONDict = field(default_factory=dict)  # of the environment's id, as in config.json
    asked: list[str] | None = None  # which of all these were asked for; older files do not say
    signature: str = ""  # of its names, by the user who made it (`runs.trust`)

    @property
    def every(self) -> int:
        """Environment steps between two evaluations of a trial."""
        return int(self.given["eval_every"])

    @property
    def evaluations(self) -> int:
        """How many a trial has."""
        return max(1, int(self.given["steps"]) // self.every)

    def save(self, folder: Path) -> None:
        """Writes it into the sweep's folder."""
        signed = replace(self, signature=trust.signature(self.names, folder))
        write_json(folder / FILE, asdict(signed), self.to_resume(folder))

    @property
    def names(self) -> JSONDict:
        """What may lead to code, as in a run's config.json."""
        own_env = "env" in self.own
        return asdict(self) | {"own_env": own_env, "options": self.given}

    def to_resume(self, folder: Path) -> str:
        """What to do where something ends the sweep that is no fault of a trial's."""
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
        """What `save` wrote. RunFolderError where there is none."""
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
    """A trial: what it trained with beside the settings of all, and what it came to."""

    number: int
    state: str  # one of those above
    settings: JSONDict
    returns: list[float]  # of its evaluations
    score: float  # the mean over their second half; of one that was pruned, the last of them
    seconds: float
    why: str  # it failed, or was refused
    steps: int = 0  # of the environment, that it has trained for


def seed_of(seed: int, number: int) -> int:
    """The seed that a trial trains with: above all that anyone would report by, and each another,
    so that no seed's luck is found."""
    return 2**31 + derived(seed, f"sweep, trial {number}")


def check_sampler(name: str) -> None:
    """SettingError for one that there is not, EngineError where it needs what is not installed."""
    one_of("sampler", name, SAMPLERS)
    if name == "gp" and not all(map(find_spec, GP_NEEDS)):
        raise EngineError(
            f"sampler='gp' cannot be used: {' or '.join(GP_NEEDS)} is not installed.",
            "both, for Optuna's Gaussian processes",
            f"pip install {' '.join(GP_NEEDS)}; or use sampler='tpe'.",
        )


class Study:
    """The trials of a sweep, in Optuna's journal. One process at a time may have it."""

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
        self.outside = outside  # settings that no trial can have as they are

    def close(self) -> None:
        """Another process may have it."""
        self._lock.release()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The journal, maybe; Optuna says nothing meanwhile."""
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
        """What draws trial `number`: made anew for each, so that a sweep that was resumed draws as
        it would have."""
        samplers, seed = optuna().samplers, derived(self.plan.seed, f"sweep, sampler {number}")
        if self.plan.sampler == "random":
            return samplers.RandomSampler(seed=seed)
        kind = samplers.GPSampler if self.plan.sampler == "gp" else samplers.TPESampler
        return kind(seed=seed)

    # Trials under way

    def ask(self) -> Trial:
        """A new trial, with what it is to train with."""
        with self._writing():
            waiting = self._study.get_trials(deepcopy=False, states=(self._states.WAITING,))
            number = len(self._study.get_trials(deepcopy=False)) - len(waiting)
            self._study.sampler = self._sampler(number)
            trial = self._study.ask()
            self._drawn(trial)
            return trial

    def interrupted(self) -> list[Trial]:
        """The trials that were under way when the sweep ended, and lost ones to retry. Optuna knows
        them as running, and would leave them so for good."""
        found = []
        with self._writing():
            for frozen in self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
                self._study.sampler = self._sampler(frozen.number)
                # there is no public name for its number in the storage
                trial = optuna().Trial(self._study, frozen._trial_id)
                self._drawn(trial)
                found.append(trial)
        return found

    def _drawn(self, trial: Trial) -> None:
        settings = self.space.trial(self.space.suggest(trial))
        trial.set_user_attr("settings", settings)
        trial.set_user_attr("seed", seed_of(self.plan.seed, trial.number))

    def folder_of(self, trial: Trial) -> Path:
        """That of the trial's run."""
        return self.folder / TRIALS / f"{trial.number:04d}"

    def report(self, trial: Trial, env_steps: int, mean: float) -> bool:
        """Notes an evaluation; whether the trial is to end there. It is numbered by the multiple of
        `Plan.every` that it follows, so that trials whose blocks differ can be compared."""
        number = env_steps // self.plan.every
        with self._writing():
            if number not in self.frozen(trial).intermediate_values:
                trial.report(mean, number)
            return bool(trial.should_prune())

    def tell(
        self, trial: Trial, state: str, seconds: float = 0.0, why: str = "", steps: int = 0
    ) -> SweepTrial:
        """A trial is over; one that is lost for the first time only until the sweep is resumed."""
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

    # Trials so far

    def frozen(self, trial: Trial) -> FrozenTrial:
        """A trial as Optuna has kept it."""
        return self._study.get_trials(deepcopy=False)[trial.number]

    def trials(self) -> list[SweepTrial]:
        """All that were begun."""
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
        """How much each setting mattered to be among the best tenth (PED-ANOVA, Watanabe et al.
        2023), as shares of 1, the highest first; {} where too few trials were completed to say."""
        with self._writing(), suppress(ValueError, RuntimeError):
            by_name = optuna().importance.get_param_importances(self._study)
            labels = {d.name: d.label for d in self.space.dimensions}
            if len(set(by_name.values())) > 1:  # all alike is how it says that it does not know
                return {labels[name]: share for name, share in by_name.items()}
        return {}


def _mend(journal: Path) -> None:
    """Takes away what only a process leaves that was killed while it wrote: half of a line, and
    Optuna's lock."""
    Path(f"{journal}.lock").unlink(missing_ok=True)
    if journal.is_file():
        text = journal.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            with replacing(journal) as file:
                file.write(whole)
