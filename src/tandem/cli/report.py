"""`tandem report`."""

from __future__ import annotations

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.run_report import report

ABOUT = """Writes one HTML file of a run that needs no network and no other file: what it came to,
curve, animation, evaluations, where the time went, settings, versions, and the command that makes
it again."""


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
    parser.add_argument("folder", metavar="DIR", help="a run's folder")
    parser.add_argument("--out", metavar="FILE", help="the file [report.html in the folder]")
    return parser
