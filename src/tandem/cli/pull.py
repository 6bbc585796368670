"""`tandem pull`."""

from __future__ import annotations

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.hub import pull
from tandem.hub.pulling import MAX_GB
from tandem.settings import shell_path

ABOUT = """Download a run that was uploaded with `tandem push` from the Hugging Face Hub. Loading it
runs no code from it; downloads that are not a run, too large or unsafe are refused."""


def run(words: list[str]) -> int:
    """Download a run and print commands to use it."""
    args = make_parser().read(words)
    folder = pull(args.repo, args.out, revision=args.revision, max_gb=args.max_gb)
    where = shell_path(folder)
    echo(folder)
    echo(f"Next:\n  tandem evaluate {where}\n  tandem watch {where}")
    if (folder / "checkpoints" / "last.zip").is_file():
        echo(f"  tandem train --resume {where}")
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser("pull", ABOUT, ("tandem pull user/ppo-CartPole-v1 --out runs/theirs",))
    parser.add_argument("repo", metavar="REPO", help="user/name")
    parser.add_argument("--out", metavar="DIR", help="folder to create [runs/NAME]")
    parser.add_argument("--revision", metavar="NAME", help="branch, tag or commit [latest]")
    parser.add_argument(
        "--max-gb",
        type=float,
        default=MAX_GB,
        metavar="X",
        help=f"maximum total file size in gigabytes [{MAX_GB}]",
    )
    return parser
