"""`tandem report`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tandem.cli import seeds_command
from tandem.cli.output import echo, table
from tandem.cli.parser import Parser
from tandem.cli.seeds import KINDS, means
from tandem.errors import RunFolderError, SettingError
from tandem.learning.figures import figures
from tandem.platforms import is_held
from tandem.reports.run_report import report
from tandem.runs.folder import Run, describe, result_of
from tandem.runs.new_folders import LOCK
from tandem.settings import shell_path

ABOUT = """Write a self-contained HTML report of a run: result, curve, animation, evaluations, time
profile, settings, versions, and the command that reproduces it. For a folder of --seeds, print a
row for each seed and their mean."""


def run(words: list[str]) -> int:
    """Write the report and print its path; or print the results of several seeds."""
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
    """Print a row for each seed of one command, and their mean."""
    trained, rows, results = f"{parent}: no seed has started", list[list[str]](), []
    for seed in seeds_command.read(parent).seeds:
        folder, steps, state = parent / f"s{seed}", "", "not started"
        result = result_of(folder, 0)
        with suppress(RunFolderError):
            one = Run(folder)
            trained = describe(one, ["algorithm", "env", "framework"])
            steps = f"{int(one.column('env_steps')[-1]):,}"
            held = "running" if is_held(folder / LOCK) else "interrupted"
            state = "complete" if result else held
        results.append(result)
        scores = [result.get(f"{kind}eval_mean") for kind in KINDS]
        shown = ["" if score is None else figures(score) for score in scores]
        rows.append([str(seed), steps, *shown, state])
    echo(trained)
    table(rows, ("seed", "steps", "best", "last", ""))
    for line in means(results):
        echo(line)
    if (curve := parent / "curve.png").is_file():
        echo(f"curve: {curve}")
    echo(f"Each seed: tandem report {shell_path(parent / 's…')}")


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser(
        "report", ABOUT, ("tandem report runs/ppo", "tandem report runs/ppo --out a.html")
    )
    parser.add_argument("folder", metavar="DIR", help="run folder, or folder of --seeds")
    parser.add_argument("--out", metavar="FILE", help="file to write [report.html in DIR]")
    return parser
