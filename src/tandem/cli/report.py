"""`tandem report`."""

from __future__ import annotations

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.run_report import report

ABOUT = """Write a self-contained HTML report of a run: result, curve, animation, evaluations, time
profile, settings, versions, and the command that reproduces it."""


def run(words: list[str]) -> int:
    """Writes the file and says where."""
    args = make_parser().read(words)
    echo(f"wrote {report(args.folder, args.out)}")
    return 0


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "report", ABOUT, ("tandem report runs/ppo", "tandem report runs/ppo --out a.html")
    )
    parser.add_argument("folder", metavar="DIR", help="run folder")
    parser.add_argument("--out", metavar="FILE", help="file to write [report.html in DIR]")
    return parser
