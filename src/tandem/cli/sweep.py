"""`tandem sweep`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tandem import algorithms, plugins
from tandem.cli import train
from tandem.cli.output import echo, say
from tandem.cli.parser import (
    Parser,
    env_kwargs_argument,
    expect_both,
    import_argument,
    trust_argument,
    with_import,
)
from tandem.envs import ids
from tandem.learning.figures import figures
from tandem.runs.progress import duration
from tandem.runs.signals import exit_code
from tandem.settings import shell_path
from tandem.tuning import sweep as sweeps
from tandem.tuning.sweep_report import Swept
from tandem.tuning.sweep_study import (
    COMPLETE,
    JOURNAL,
    PRUNED,
    PRUNERS,
    REFUSED,
    SAMPLERS,
    STATES,
    SweepTrial,
)
from tandem.zoo import files

ABOUT = """Looks for the best settings of an algorithm in an environment, by trials of what Optuna
proposes. Each is a run of --steps environment steps, evaluated ten times; what counts is the mean
return of the second half. One that is worse than others were is ended early. Everything goes into a
new folder, runs/sweep-… unless --out names another; --resume goes on with it after any end."""
EXAMPLES = (
    "tandem sweep ppo Pendulum-v1 --trials 40",
    "tandem sweep dqn CartPole-v1 --pruner asha --parallel 4 --space space.toml",
    "tandem sweep sac Pendulum-v1 --gamma 0.98 --steps 20000    gamma is not looked for",
    "tandem sweep ppo Hopper-v5 --cluster --parallel 40    trials on a Ray cluster",
    "tandem sweep --resume runs/sweep-ppo-Pendulum-v1-20250131-120000 --trials 80",
)
ROWS = 10  # of the table that is printed
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
)


def run(words: list[str]) -> int:
    """Makes trials, prints a line for each, and what came of them all."""
    args = _arguments(train.with_address(words))
    show = _Show(args.quiet)
    asked: dict[str, Any] = {n: getattr(args, n) for n in OWN if getattr(args, n) is not None}
    for name in ("trials", "parallel", "steps", "seed"):
        if name in asked:
            asked[name] = train._whole(name, asked[name], int(name != "seed"))
    told: dict[str, Any] = {"begun": show.begun, "heard": show.heard, "told": show.told}
    made = sweeps.Sweep(
        args.algorithm,
        args.env,
        **asked,
        **train.given(args),
        **told,
        out=args.out,
        resume=args.resume,
        trust=args.trust,
    )
    with show:
        came = made.train()
    if came is not None:
        again = f"tandem sweep --resume {shell_path(made.folder)}{with_import(args.imported)}"
        echo(f"Stopped by {came}; trials under way are saved. To go on:\n  {again}")
        return exit_code(came)
    _conclude(made, made.result(), args.imported)
    return 0


class _Show:
    """What is shown while trials are made: a line for each that is over and, in a terminal, one for
    each that is under way."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.live, self.best = quiet, None, float("-inf")
        self.evaluations, self.latest = 0, dict[int, str]()

    live: Any

    def __enter__(self) -> None:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stderr, force_terminal=True)
            self.live = Live(console=console, auto_refresh=False)
            self.live.start()

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.update("", refresh=True)
            self.live.stop()

    def begun(self, made: sweeps.Sweep) -> None:
        """Says what is to come."""
        plan = made.plan
        self.evaluations = plan.evaluations
        if self.quiet:
            return
        whole = [t.score for t in made.done if t.state == COMPLETE]
        self.best = max(whole, default=self.best)
        went = f", {len(made.done)} of them begun before" if made.resumes else ""
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
                f"No trial has the settings as they are: {', '.join(made.outside)} is outside "
                "of that."
            )
        else:
            echo("Trial 0 has the settings as they are.")
        echo(f"sweep: {made.folder}", flush=True)

    def heard(self, number: int, evaluations: int, mean: float) -> None:
        """A trial was evaluated."""
        self.latest[number] = (
            f"{evaluations} of {self.evaluations} evaluations, return {figures(mean)}"
        )
        self._refresh()

    def told(self, trial: SweepTrial) -> None:
        """A trial is over."""
        self.latest.pop(trial.number, None)
        if not self.quiet:
            best = ""
            if trial.state == COMPLETE and trial.score > self.best:
                self.best, best = trial.score, "   the best so far"
            line = f"trial {trial.number:<4}{_outcome(trial):<28}{duration(trial.seconds)}{best}"
            if self.live is not None:
                self.live.console.print(line, highlight=False, markup=False)
            else:
                say(line)
        self._refresh()

    def _refresh(self) -> None:
        if self.live is not None:
            from rich.text import Text

            lines = "\n".join(f"trial {n}  {said}" for n, said in sorted(self.latest.items()))
            self.live.update(Text(lines, overflow="ellipsis", no_wrap=True), refresh=True)


def _outcome(trial: SweepTrial) -> str:
    """What a trial came to, in words."""
    if trial.state == COMPLETE:
        return f"return {figures(trial.score)}"
    if trial.state == PRUNED:
        return f"pruned at return {figures(trial.score)}"
    return f"{trial.state}: {trial.why.splitlines()[0] if trial.why else ''}  "


def _conclude(made: sweeps.Sweep, swept: Swept, imported: str | None) -> None:
    """Prints the table, where the files are, the entry for the zoo, and what to do with it."""
    complete = [t for t in swept.ranked if t.state == COMPLETE]
    echo("\n" + "\n".join(_table(complete[:ROWS])))
    ties = [str(t.number) for t in complete if t.score == swept.best.score]
    if len(ties) > 1:
        echo(f"Trials {', '.join(ties)} tie; trial {swept.best.number}, the first one, is chosen.")
    counts = dict.fromkeys(STATES, 0)
    for trial in swept.trials:
        counts[trial.state] += 1
    ends = [f"{n} {state}" for state, n in counts.items() if n and state != REFUSED]
    echo(f"{', '.join(ends)}: {swept.folder / 'trials.csv'}")
    if counts[REFUSED]:
        echo(f"{counts[REFUSED]} combinations that cannot be trained with were drawn anew.")
    if swept.picture is not None:
        echo(f"what mattered: {swept.picture}")
    algorithm, env = made.plan.algorithm, made.plan.env
    source = plugins.source_of("algorithms", algorithm) or ids.origin(env).get("env", "")
    echo(f"\nFor {files.home(algorithm, source)} ({swept.folder / 'entry.toml'}):\n")
    echo(swept.entry)
    if swept.best.number == 0 and not made.outside:
        echo("No trial was better than the one with the settings as they are.")
    name = f"{algorithm} " if "algorithm" in made.plan.own else ""
    command = f"tandem train {name}--from-sweep {shell_path(swept.folder)} --seeds 5"
    echo("Next, on seeds that no trial has seen:")
    echo(f"  {command}{with_import(imported)}")
    echo("All trials in a browser (pip install optuna-dashboard):")
    echo(f"  optuna-dashboard {shell_path(swept.folder / JOURNAL)}")


def _table(trials: Sequence[SweepTrial]) -> Iterator[str]:
    """Lines, with a column for each setting."""
    names = list(dict.fromkeys(name for t in trials for name in t.settings))
    rows = [["trial", "return", *names]]
    rows += [
        [str(t.number), figures(t.score), *(str(t.settings.get(n, "")) for n in names)]
        for t in trials
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))


def _arguments(words: list[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = make_parser()
    title = "settings of {}, for all trials [default]"
    train.settings_flags(parser, words, title, "options of the runs")
    args = parser.read(words)
    if args.resume is None:
        expect_both("sweep", args.algorithm, args.env, ", or --resume DIR")
    return args


def make_parser() -> Parser:
    """The arguments of the command, without those that go by the algorithm."""
    parser = Parser("sweep", ABOUT, EXAMPLES)
    known = ", ".join(algorithms.names())
    parser.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help=f"one of {known}")
    parser.add_argument(
        "env", nargs="?", metavar="ENV", help="an id, as in CartPole-v1, or module:Name"
    )
    parser.add_argument("--trials", metavar="N", help=f"how many trials [{sweeps.TRIALS_UNTOLD}]")
    parser.add_argument(
        "--parallel", metavar="K", help="how many at a time [as many as cores; with a GPU 1]"
    )
    parser.add_argument(
        "--pruner", metavar="NAME", help=f"what ends trials early: {', '.join(PRUNERS)} [median]"
    )
    parser.add_argument(
        "--sampler", metavar="NAME", help=f"what proposes settings: {', '.join(SAMPLERS)} [tpe]"
    )
    parser.add_argument(
        "--space",
        metavar="FILE",
        help="ranges over those that settings have (docs/howto/sweeps.md)",
    )
    parser.add_argument(
        "--steps", metavar="N", help="environment steps of each trial [as the settings say]"
    )
    parser.add_argument("--seed", metavar="N", help="which the seeds of trials follow from [0]")
    env_kwargs_argument(parser)
    import_argument(parser)
    trust_argument(parser)
    names = "torch, tensorflow, jax or keras-torch"
    parser.add_argument("--framework", metavar="NAME", help=f"{names} [the quickest installed]")
    parser.add_argument("--device", metavar="NAME", help="auto, cpu or cuda [auto]")
    parser.add_argument("--out", metavar="DIR", help="the folder to make [runs/sweep-…]")
    parser.add_argument(
        "--resume", metavar="DIR", help="go on with this sweep; --trials may be more then"
    )
    parser.add_argument("--quiet", action="store_true", help="only what comes of it")
    return parser
