"""Results of a sweep: a table of its trials, a plot of setting importances, and a zoo entry."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path

from tandem.algorithms.base import Settings
from tandem.errors import WorkerError
from tandem.learning.config import Options, plain
from tandem.learning.figures import figures
from tandem.reports import plots
from tandem.runs import trust
from tandem.runs.atomic_files import read_json, write_json, writing
from tandem.settings import apply
from tandem.tuning.search import Candidate
from tandem.tuning.sweep_study import COMPLETE, LOST, TRIALS, Plan, Study, SweepTrial

BEST, ENTRY, TABLE, PICTURE = "best.json", "entry.toml", "trials.csv", "importances.png"
FEW = 20  # with fewer completed trials, importances are unreliable


@dataclass(frozen=True)
class Swept:
    """Results of a sweep.

    best: the completed trial with the highest score. entry: its settings as a table for a user's
    zoo. importances: the importance of each setting, as shares of 1; {} if there were too few
    trials. picture: their plot.
    """

    folder: Path
    trials: list[SweepTrial]
    best: SweepTrial
    entry: str
    importances: dict[str, float]
    picture: Path | None

    @property
    def ranked(self) -> list[SweepTrial]:
        """The completed trials, best first, followed by the others in order."""
        whole = [t for t in self.trials if t.state == COMPLETE]
        rest = [t for t in self.trials if t.state != COMPLETE]
        return [*sorted(whole, key=lambda t: -t.score), *rest]

    def flags(self) -> str:
        """Return the flags of `tandem train` for the best trial's settings."""
        return Candidate("", self.best.settings, "").flags()


def concluded(folder: Path, plan: Plan, study: Study, base: Settings) -> Swept:
    """Return the results of the trials and write the files to the folder. base: the settings of a
    run that a trial does not override."""
    trials = study.trials()
    save_table(folder, plan, trials)
    whole = [t for t in trials if t.state == COMPLETE]
    if not whole:
        why = next((t.why for t in trials if t.why), "")
        raise WorkerError(
            f"none of the {len(trials)} trials in {folder} finished. {why}".rstrip(),
            "at least one complete trial",
            plan.to_resume(folder)
            if any(t.state == LOST for t in trials)
            else "see trials.csv there for the outcome of each; narrow the space, or run one by "
            f"itself: tandem train {plan.algorithm} {plan.env}",
        )
    best = save_best(folder, plan, trials, base)
    entry = written(plan, _trained_with(folder, best, base), best, len(trials))
    with writing(folder / ENTRY, plan.to_resume(folder)):
        (folder / ENTRY).write_text(entry, "utf-8")
    shares, picture = study.importances(), None
    if shares:
        title = f"{plan.algorithm} on {plan.env}: what mattered{few(len(whole))}"
        picture = plots.importances(shares, folder / PICTURE, title)
    return Swept(folder, trials, best, entry, shares, picture)


def few(trials: int) -> str:
    """Return a remark on importances from too few completed trials, or ""."""
    return "" if trials >= FEW else f", from {trials} trials only"


def save_best(folder: Path, plan: Plan, trials: Sequence[SweepTrial], base: Settings) -> SweepTrial:
    """Write the best settings so far, with the options of the sweep, for `tandem train --config`,
    and return their trial. At least one of the trials must be complete."""
    best = max((t for t in trials if t.state == COMPLETE), key=lambda t: t.score)
    options = {f.name for f in fields(Options)} & {*(plan.asked or ())}
    data = {n: getattr(plan, n) for n in ("algorithm", "env", "framework", "device", "origin")}
    data |= {"network": plan.network} if plan.network else {}
    data |= {"env_kwargs": plan.env_kwargs or {}} | {f"own_{n}": True for n in plan.own}
    data.pop("own_algorithm", None)  # the command repeats its name
    data["settings"] = plain(_trained_with(folder, best, base))
    data["options"] = {n: x for n, x in plan.given.items() if n in options}
    signed = data | {"signature": trust.signature(data, folder)}
    write_json(folder / BEST, signed, plan.to_resume(folder))
    return best


def _trained_with(folder: Path, trial: SweepTrial, base: Settings) -> Settings:
    """Return a trial's settings, with what its run changed to fit them, such as `envs`."""
    settings = apply(base, trial.settings)
    config = read_json(folder / TRIALS / f"{trial.number:04d}" / "config.json")
    asked = plain(settings)
    fitted = {n: x for n, x in config.get("settings", {}).items() if asked.get(n, x) != x}
    return apply(settings, fitted)


def save_table(folder: Path, plan: Plan, trials: Sequence[SweepTrial]) -> None:
    """Write trials.csv, with a row for each trial."""
    names = list(dict.fromkeys(name for t in trials for name in t.settings))
    path, fix = folder / TABLE, plan.to_resume(folder)
    with writing(path, fix), path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(
            ["trial", "state", "return", "evaluations", "steps", "seconds", *names, "why"]
        )
        for t in trials:
            score = "" if t.score != t.score else t.score
            values = [t.settings.get(name, "") for name in names]
            told = [t.number, t.state, score, len(t.returns), t.steps, t.seconds]
            rows.writerow([*told, *values, t.why])


def written(plan: Plan, settings: Settings, best: SweepTrial, trials: int) -> str:
    """Return a table for a user's zoo: all settings that differ from the algorithm's defaults."""
    own, defaults = plain(settings), plain(type(settings)())
    differ = {f.name: own[f.name] for f in fields(settings) if own[f.name] != defaults[f.name]}
    source = (
        f"tandem sweep of {date.today():%Y-%m-%d}: trial {best.number} of {trials}, "
        f"return {figures(best.score)} on the sweep's own seed"
    )
    name = plan.algorithm if plan.algorithm.isidentifier() else f'"{plan.algorithm}"'
    lines = [f'[{name}."{plan.env}"]', f'source = "{source}"', f"steps = {own['steps']:_}"]
    lines += [f"{name} = {_toml(x)}" for name, x in differ.items() if name != "steps"]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """Return a setting as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        try:
            return repr(float(value))  # a schedule that is a number
        except ValueError:
            return f'"{value}"'
    return f"{value:_}" if isinstance(value, int) else repr(value)
