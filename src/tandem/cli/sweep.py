"""`tandem sweep`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tandem import algorithms
from tandem.cli import train_arguments
from tandem.cli.output import echo, stream
from tandem.cli.parser import (
    Parser,
    env_kwargs_argument,
    expect_both,
    import_argument,
    network_argument,
    trust_argument,
    with_import,
)
from tandem.learning.figures import figures
from tandem.runs.signals import exit_code
from tandem.settings import shell_path
from tandem.streams import Display
from tandem.tuning import sweep as sweeps
from tandem.tuning.sweep_report import ENTRY, Swept, few
from tandem.tuning.sweep_study import (
    COMPLETE,
    JOURNAL,
    PRUNERS,
    REFUSED,
    SAMPLERS,
    STATES,
    SweepTrial,
)
from tandem.zoo import user

ABOUT = """Tune the settings of an algorithm for an environment with Optuna. Each trial is a run of
--steps environment steps with ten evaluations; its score is the mean return of the second half.
Trials that do worse than others are stopped early. Results go into a new folder: runs/sweep-…, or
--out; --resume continues an interrupted sweep."""
EXAMPLES = (
    "tandem sweep ppo Pendulum-v1 --trials 40",
    "tandem sweep dqn CartPole-v1 --pruner asha --parallel 4 --space space.toml",
    "tandem sweep sac Pendulum-v1 --gamma 0.98 --steps 20000    with gamma fixed",
    "tandem sweep ppo Hopper-v5 --cluster --parallel 40    trials on a Ray cluster",
    "tandem sweep --resume runs/sweep-ppo-Pendulum-v1-20250131-120000 --trials 80",
)
BEST = 5  # trials in the final table
FULL_WIDTH = 10_000  # characters per line of a table in a file
WIDTHS = {"trial": 5, "return": 8, "state": 10, "steps": 9, "time": 7}  # minimum
OWN = (
    "trials",
    "parallel",
    "pruner",
    "sampler",
    "space",
    "steps",
    "seed",
    "framework",
    "device",
    "env_kwargs",
    "network",
)


def run(words: list[str]) -> int:
    """Run trials, and print a line for each and the results."""
    args = _arguments(train_arguments.with_address(words))
    show = _TrialsDisplay(args.quiet)
    asked: dict[str, Any] = {n: getattr(args, n) for n in OWN if getattr(args, n) is not None}
    for name in ("trials", "parallel", "steps", "seed"):
        if name in asked:
            asked[name] = train_arguments.whole(name, asked[name], int(name != "seed"))
    told: dict[str, Any] = {"begun": show.begun, "heard": show.heard, "told": show.told}
    made = sweeps.Sweep(
        args.algorithm,
        args.env,
        **asked,
        **train_arguments.given(args),
        **told,
        out=args.out,
        resume=args.resume,
        trust=args.trust,
    )
    with show:
        came = made.train()
    if came is not None:
        again = f"tandem sweep --resume {shell_path(made.folder)}{with_import(args.imported)}"
        echo(f"Stopped by {came}; trials under way are saved. To resume:\n  {again}")
        return exit_code(came)
    _conclude(made, made.result(), args.imported, args.quiet)
    return 0


class _TrialsDisplay:
    """Display during a sweep: a line for each finished trial and, in a terminal, one for each
    running trial."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.console = quiet, _console()
        self.live: Live | None = None
        self.evaluations, self.latest, self.names = 0, dict[int, str](), dict[str, int]()

    def __enter__(self) -> None:
        if not self.quiet and sys.stderr.isatty():
            self.console = _console(sys.stderr)
            self.live = Live(console=self.console, auto_refresh=False)
            self.live.start()

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.update("", refresh=True)
            self.live.stop()

    def begun(self, made: sweeps.Sweep) -> None:
        """Print a description of the sweep."""
        plan = made.plan
        self.evaluations = plan.evaluations
        if self.quiet:
            return
        went = f", {len(made.done)} of them completed before" if made.resumes else ""
        echo(
            f"{plan.algorithm} on {plan.env}, {plan.framework}: {plan.trials} trials of "
            f"{plan.given['steps']:,} steps{went}, {made.parallel} at a time; settings: "
            f"{made.source}"
        )
        lines = made.space.lines()
        width = max(map(len, lines))
        for name, text in lines.items():
            echo(f"  {name:<{width}}  {text}")
        if made.outside:
            echo(
                f"No trial has the unchanged settings: {', '.join(made.outside)} is outside of "
                "the search ranges, which are narrower for few --steps; --space sets others."
            )
        else:
            echo("Trial 0 has the unchanged settings.")
        echo(f"sweep: {made.folder}", flush=True)
        self.names = _names(made)
        self.console.print(_table(self.console, self.names, ()))

    def heard(self, number: int, evaluations: int, mean: float) -> None:
        """Show an evaluation of a trial."""
        self.latest[number] = (
            f"{evaluations} of {self.evaluations} evaluations, return {figures(mean)}"
        )
        self._refresh()

    def told(self, trial: SweepTrial) -> None:
        """Print a finished trial."""
        self.latest.pop(trial.number, None)
        if not self.quiet:
            self.console.print(_table(self.console, self.names, [trial], show_header=False))
            if trial.why:
                self.console.print(f"       {trial.why.splitlines()[0]}", soft_wrap=True)
        self._refresh()

    def _refresh(self) -> None:
        if self.live is not None:
            lines = "\n".join(f"trial {n}  {said}" for n, said in sorted(self.latest.items()))
            self.live.update(Text(lines, overflow="ellipsis", no_wrap=True), refresh=True)


def _conclude(made: sweeps.Sweep, swept: Swept, imported: str | None, quiet: bool) -> None:
    """Print the best trials (unless a few rows already show all), the paths of the files, the zoo
    entry, and how to use it. quiet: no rows were printed."""
    complete, console = [t for t in swept.ranked if t.state == COMPLETE], _console()
    echo()
    if quiet or made.done or len(swept.trials) > BEST:
        echo(
            f"best trials{', with the settings that matter most first' * bool(swept.importances)}:"
        )
        console.print(_table(console, _names(made, swept.importances), complete[:BEST]))
    ties = [str(t.number) for t in complete if t.score == swept.best.score]
    if len(ties) > 1:
        echo(f"Trials {', '.join(ties)} tie; trial {swept.best.number}, the first one, is chosen.")
    counts = dict.fromkeys(STATES, 0)
    for trial in swept.trials:
        counts[trial.state] += 1
    ends = [f"{n} {state}" for state, n in counts.items() if n and state != REFUSED]
    echo(f"{', '.join(ends)}: {swept.folder / 'trials.csv'}")
    if counts[REFUSED]:
        echo(f"{counts[REFUSED]} combinations that cannot be trained with were resampled.")
    if swept.picture is not None:
        echo(f"what mattered{few(len(complete))}: {swept.picture}")
    file = shell_path(swept.folder / ENTRY)
    echo(f"\nThe best settings ({file}):\n\n{swept.entry}")
    if "algorithm" not in made.plan.own:
        append = f"append {file} to {path}, or " if (path := user.home()) else ""
        echo(f"To use them in every later run, {append}give --zoo {file}.")
    if swept.best.number == 0 and not made.outside:
        echo("No trial was better than the one with the unchanged settings.")
    name = f"{made.plan.algorithm} " if "algorithm" in made.plan.own else ""
    command = f"tandem train {name}--from-sweep {shell_path(swept.folder)} --seeds 5"
    echo("Next, on seeds that no trial has seen:")
    echo(f"  {command}{with_import(imported)}")
    echo("All trials in a browser (pip install optuna-dashboard):")
    echo(f"  optuna-dashboard {shell_path(swept.folder / JOURNAL)}")


def _names(made: sweeps.Sweep, shares: Iterable[str] = ()) -> dict[str, int]:
    """Return the settings of the search space, the most important first, with column widths."""
    labels = [*shares, *(d.setting for d in made.space.dimensions)]
    names = dict.fromkeys(label.partition(".")[0] for label in labels)
    return {n: max(len(n), len(str(getattr(made.base, n))) + 4) for n in names}


def _console(file: TextIO | Display | None = None) -> Console:
    """Return a console for tables on the stdout of the command or another terminal; full width for
    a file."""
    file = file or Display(stream())
    width = None if file.isatty() else FULL_WIDTH
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def _table(
    console: Console, names: dict[str, int], trials: Sequence[SweepTrial], show_header: bool = True
) -> Table:
    """Return a table with a row for each trial, and as many of the settings in `names` as fit."""
    roomy = console.options.update(width=FULL_WIDTH)
    for count in range(len(names), -1, -1):
        table = Table(box=None, pad_edge=False, header_style="", show_header=show_header)
        cut, chosen = ["…"] * (count < len(names)), list(names)[:count]
        for name in (*WIDTHS, *chosen, *cut):
            width = (WIDTHS | names).get(name, 1)
            table.add_column(name, justify="right", no_wrap=True, min_width=width)
        for t in trials:
            score = "" if t.score != t.score else figures(t.score)
            found = [str(t.number), score, t.state, f"{t.steps:,}", f"{t.seconds:,.1f} s"]
            table.add_row(*found, *(str(t.settings.get(n, "")) for n in chosen), *cut)
        if Measurement.get(console, roomy, table).maximum <= console.width:
            break
    return table


def _arguments(words: list[str]) -> argparse.Namespace:
    """Parse and return the arguments."""
    parser = make_parser()
    title = "settings of {} in all trials [default]"
    train_arguments.settings_flags(parser, words, title, "run options")
    args = parser.read(words)
    if args.resume is None:
        expect_both("sweep", args.algorithm, args.env, ", or --resume DIR")
    return args


def make_parser() -> Parser:
    """Return the parser of this command, without the flags that depend on the algorithm."""
    parser = Parser("sweep", ABOUT, EXAMPLES)
    known = ", ".join(algorithms.names())
    parser.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help=f"one of {known}")
    parser.add_argument(
        "env", nargs="?", metavar="ENV", help="environment id, such as CartPole-v1, or module:Name"
    )
    parser.add_argument("--trials", metavar="N", help=f"number of trials [{sweeps.TRIALS_UNTOLD}]")
    parser.add_argument(
        "--parallel", metavar="K", help="parallel trials [number of cores; 1 with a GPU]"
    )
    parser.add_argument(
        "--pruner",
        metavar="NAME",
        help=f"how trials are stopped early: {', '.join(PRUNERS)} [median]",
    )
    parser.add_argument(
        "--sampler", metavar="NAME", help=f"how settings are proposed: {', '.join(SAMPLERS)} [tpe]"
    )
    parser.add_argument(
        "--space",
        metavar="FILE",
        help="TOML file of search ranges that override the defaults, with lines such as "
        "gamma = { low = 0.9, high = 0.999 } (docs/howto/sweeps.md)",
    )
    parser.add_argument(
        "--steps", metavar="N", help="environment steps per trial [as in the settings]"
    )
    parser.add_argument("--seed", metavar="N", help="random seed of the sweep [0]")
    env_kwargs_argument(parser)
    network_argument(parser)
    import_argument(parser)
    trust_argument(parser)
    names = "torch, tensorflow, jax or keras-torch"
    parser.add_argument("--framework", metavar="NAME", help=f"{names} [fastest installed]")
    parser.add_argument("--device", metavar="NAME", help="auto, cpu or cuda [auto]")
    parser.add_argument("--out", metavar="DIR", help="folder to create [runs/sweep-…]")
    parser.add_argument(
        "--resume", metavar="DIR", help="resume the sweep in DIR; --trials can be larger"
    )
    parser.add_argument("--quiet", action="store_true", help="print only the final result")
    return parser
