"""Groups of runs: the seeds of one algorithm, or those of one folder, in each environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from tandem.envs.atari import Preprocessing
from tandem.errors import RunFolderError, SettingError
from tandem.learning.config import differing
from tandem.runs.folder import Run, describe, runs_in
from tandem.settings import shell_path
from tandem.types import Array, JSONDict

WHICH = {"best": "eval_mean", "last": "last_eval_mean"}  # keys of result.json
WAYS = ("algorithm", "folder")  # what the runs of a group share

Groups = dict[str, list[Run]]


def grouped(folders: Sequence[Path], against: Path | None, by: str) -> Groups:
    """Return the runs by group name, each run once; the runs of `against` form the last group.

    by: see `WAYS`; the runs of `against` are always one group. Raises RunFolderError for a folder
    without a run; SettingError for runs of one group that are not repetitions of the same
    experiment.
    """
    theirs = [] if against is None else [Run(f) for f in runs_in(against)]
    seen = {run.folder.resolve() for run in theirs}
    found: dict[tuple[str, ...], list[Run]] = {}
    for folder in folders:
        for run in map(Run, runs_in(folder)):
            if run.folder.resolve() not in seen:
                seen.add(run.folder.resolve())
                own = [str(run.config.get(k)) for k in ("algorithm", "framework")]
                found.setdefault((str(folder),) if by == "folder" else tuple(own), []).append(run)
    if not found:
        raise SettingError(
            "there is no run to compare" + (f" with {against}." if against else "."),
            "the folders of runs" + (", other than those of the baseline" if against else ""),
            "name them, as in runs/ppo runs/dqn.",
        )
    groups = [*found.values(), *([theirs] if theirs else [])]
    if by == "folder":
        paths = [Path(key) for (key,) in found] + ([against] if against else [])
        counts = Counter(path.name for path in paths)
        names = [path.name if path.name and counts[path.name] == 1 else str(path) for path in paths]
    else:
        several = len({run.config.get("framework") for runs in groups for run in runs}) > 1
        keys = ["algorithm", "framework"] if several else ["algorithm"]
        names = [describe(runs[0], keys) for runs in groups]
        if against is not None and names[-1] in names[:-1]:
            names[-1] += f" ({against.name or against})"
    named = dict(zip(names, groups, strict=True))
    for name, runs in named.items():
        _expect_alike(name, runs)
    return named


def _expect_alike(name: str, runs: list[Run]) -> None:
    """Raise SettingError if runs of a group in one environment differ in more than their seeds, or
    have the same seed."""
    first: dict[str, Run] = {}
    for run in runs:
        other = first.setdefault(run.config["env"], run)
        if words := differing(comparable(run.config), comparable(other.config)):
            raise SettingError(
                f"{run.folder} and {other.folder} would count as runs of {name}, but differ: "
                f"{', '.join(words[:4])}.",
                "runs of a group that differ only in their seeds",
                "compare the folders instead: by='folder' (--by folder).",
            )
    seeds = Counter((run.config["env"], run.config.get("seed")) for run in runs)
    for (env, seed), count in seeds.items():
        if count > 1:
            raise SettingError(
                f"{name} has {count} runs of seed {seed} in {env}, which are identical.",
                "runs of different seeds",
                "leave out all but one of them, or train with other seeds.",
            )


def comparable(config: JSONDict) -> JSONDict:
    """Return the part of a run's config that defines the experiment."""
    options = config.get("options", {})
    beside = {"env_kwargs": config.get("env_kwargs") or {}}
    beside["optimizer_class"] = config.get("optimizer_class", "")
    settings = {**config.get("settings", {}), **beside}
    before = {f.name: options.get(f.name) for f in fields(Preprocessing)}
    kept = {name: config.get(name) for name in ("algorithm", "framework", "env")}
    return {**kept, "settings": settings, "options": before}


def environments_of(groups: Groups) -> tuple[str, ...]:
    """Return the environments of all groups. Raises SettingError if a group's number of runs
    differs between them."""
    counts = {name: Counter(run.config["env"] for run in runs) for name, runs in groups.items()}
    environments = tuple(dict.fromkeys(env for each in counts.values() for env in each))
    for name, each in counts.items():
        if len({each[env] for env in environments}) > 1:
            shown = ", ".join(f"{each[env]} in {env}" for env in environments)
            raise SettingError(
                f"{name} does not have the same number of runs in each environment: {shown}.",
                "the same environments for all groups, and in each as many runs of a group",
                "train the missing runs (--seeds), or leave out the extra ones.",
            )
    return environments


def scores(runs: list[Run], environments: Sequence[str], which: str) -> Array:
    """Return the final scores [R, M] of a group's best or last checkpoints, ordered by seed. Raises
    RunFolderError for a run without one."""
    ordered = sorted(runs, key=lambda run: run.config.get("seed", 0))
    columns = [
        [_score(run, which) for run in ordered if run.config["env"] == env] for env in environments
    ]
    return np.array(columns, np.float64).T


def _score(run: Run, which: str) -> float:
    score = run.result.get(WHICH[which])
    if score is None:
        raise RunFolderError(
            f"{run.folder} has no score of its {which} checkpoint.",
            "a run that was finished and evaluated",
            "train it again with eval_env=, an environment to evaluate in."
            if run.result
            else f"train it to its end: tandem train --resume {shell_path(run.folder)}",
        )
    return float(score)
