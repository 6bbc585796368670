"""`tandem plot`."""

from __future__ import annotations

import os
from pathlib import Path

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.reports.plots import curve
from tandem.runs.folder import runs_in

ABOUT = """Plot learning curves. One run: its evaluations and training episodes. Several runs: the
interquartile mean per algorithm, environment, framework and choice of settings, with a 95 %
bootstrap band. A folder of runs stands for all of them."""


def run(words: list[str]) -> int:
    """Write a plot and print its path."""
    args = make_parser().read(words)
    runs = [run for folder in args.folders for run in runs_in(Path(folder))]
    folders = list({run.resolve(): run for run in runs}.values())  # without duplicates
    above = (
        Path(args.folders[0])
        if len(args.folders) == 1
        else Path(os.path.commonpath([f.resolve() for f in folders]))
    )
    out = Path(args.out) if args.out else above / "curve.png"
    echo(f"wrote {curve(folders, out, individual=args.individual)}")
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser(
        "plot",
        ABOUT,
        ("tandem plot runs/ppo-CartPole-v1-s*", "tandem plot runs --out all.svg --individual"),
    )
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run folders, or folders of runs")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="plot to write: .png, .svg or .pdf [curve.png in the common folder]",
    )
    parser.add_argument(
        "--individual", action="store_true", help="plot a line for each run instead of the mean"
    )
    return parser
