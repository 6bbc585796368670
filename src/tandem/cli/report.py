"""`tandem report`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tandem.cli import seeds_command
from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.errors import RunFolderError, SettingError
from tandem.learning.figures import figures, mean_and_std
from tandem.platforms import is_held
from tandem.run_report import report
from tandem.runs.folder import LOCK, Run, describe, result_of
from tandem.settings import shell_path

ABOUT = """Writes one HTML file of a run that needs no network and no other file: what it came to,
curve, animation, evaluations, where the time went, settings, versions, and the command that makes
it again. Of the seeds of one command, it prints a line each and their mean."""


def run(words: list[str]) -> int:
    """Writes the file and says where; or prints what several seeds came to."""
    args = make_parser().read(words)
    if not seeds_command.is_in(args.folder):
        echo(f"wrote {report(args.folder, args.out)}")
        return 0
    if args.out is not None:
        raise SettingError(
            f"--out was given for {args.folder}, which holds several seeds.",
            "--out with the folder of a single run",
            "leave --out out, or give the folder of one seed.",
        )
    _several(Path(args.folder))
    return 0


def _several(parent: Path) -> None:
    """Prints the seeds of one command: a line each, and the mean."""
    scores, lines = dict[str, list[float]](best=[], last=[]), list[str]()
    trained = ""
    for seed in seeds_command.read(parent).seeds:
        folder = parent / f"s{seed}"
        try:
            one = Run(folder)
        except RunFolderError:
            lines.append(f"seed {seed}: not started")
            continue
        trained = describe(one, ["algorithm", "env", "framework"])
        steps, result = int(one.column("env_steps")[-1]), result_of(folder, 0)
        status = "complete" if result else "running" if is_held(folder / LOCK) else "interrupted"
        line = f"seed {seed}: {int(result.get('env_steps', steps)):,} steps, "
        for name, key in (("best", "eval_mean"), ("last", "last_eval_mean")):
            if (score := result.get(key)) is not None:
                scores[name].append(score)
                line += f"{name} {figures(score)}, "
        lines.append(f"{line}{status}, tandem report {shell_path(folder)}")
    echo("\n".join([trained or f"{parent}: no seed has started", *lines]))
    for name, each in scores.items():
        if each:
            spread = mean_and_std(float(np.mean(each)), float(np.std(each)))
            echo(f"{name} checkpoints, mean over {len(each)} seeds: {spread}")
    if (curve := parent / "curve.png").is_file():
        echo(f"curve: {curve}")


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "report", ABOUT, ("tandem report runs/ppo", "tandem report runs/ppo --out a.html")
    )
    parser.add_argument("folder", metavar="DIR", help="a run's folder, or one of --seeds")
    parser.add_argument("--out", metavar="FILE", help="the file [report.html in the folder]")
    return parser
