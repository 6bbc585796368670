"""`tandem compare`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.reports.comparison import compare
from tandem.reports.plots import as_picture
from tandem.runs.groups import WAYS, WHICH

ABOUT = """Compare algorithms by the final scores of their runs: interquartile mean, mean, median,
optimality gap, performance profiles and probability of improvement, as defined by rliable (Agarwal
et al. 2021), with 95 % stratified bootstrap intervals. A folder of seeds stands for its runs.
Prints a table and writes a plot."""


def run(words: list[str]) -> int:
    """Print the tables and the path of the plot."""
    args = make_parser().read(words)
    every = [Path(f).resolve() for f in (*args.folders, *([args.against] if args.against else []))]
    above = every[0] if len(every) == 1 else Path(os.path.commonpath(every))
    out = as_picture(Path(args.out) if args.out else above / "comparison.png")
    found = compare(
        args.folders,
        args.against,
        scores=args.scores,
        which=args.which,
        by=args.by,
        samples=args.samples,
        seed=args.seed,
    )
    picture = found.draw(out)
    if args.json:
        echo(json.dumps({**found.to_json(), "picture": str(picture)}))
    else:
        echo(f"{found}\nwrote {picture}")
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser(
        "compare",
        ABOUT,
        (
            "tandem compare runs/ppo runs/dqn",
            "tandem compare runs/dqn runs/sac --against runs/ppo --scores scores.toml",
            "tandem compare runs/gamma-98 runs/gamma-99 --by folder",
        ),
    )
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run folders, or folders of runs")
    parser.add_argument(
        "--against",
        metavar="DIR",
        help="baseline runs to compare the others with [compare all pairs]",
    )
    parser.add_argument(
        "--scores",
        metavar="FILE",
        help="TOML file with a random and a reference score per environment, normalized to 0 and 1",
    )
    parser.add_argument(
        "--by",
        default="algorithm",
        metavar="|".join(WAYS),
        help="how to group runs: by algorithm (and framework), or by DIR [algorithm]",
    )
    parser.add_argument(
        "--which",
        default="best",
        metavar="|".join(WHICH),
        help="checkpoint whose final score is compared [best]",
    )
    parser.add_argument(
        "--samples", default="50000", metavar="N", help="bootstrap resamples per interval [50000]"
    )
    parser.add_argument("--seed", default="0", metavar="N", help="random seed of the resamples [0]")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="plot to write: .png, .svg or .pdf [comparison.png in the common folder]",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no tables")
    return parser
