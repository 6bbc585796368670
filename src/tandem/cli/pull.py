"""`tandem pull`."""

from __future__ import annotations

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.hub import pull
from tandem.hub.pulling import MAX_GB
from tandem.settings import shell_path

ABOUT = """Fetches a run that `tandem push` has put on the Hugging Face hub. Loading it runs no code
from it; what is no run, too large, or not safe is refused."""


def run(words: list[str]) -> int:
    """Fetches it and says what may be done with it."""
    args = make_parser().read(words)
    folder = pull(args.repo, args.out, revision=args.revision, max_gb=args.max_gb)
    where = shell_path(folder)
    echo(folder)
    echo(f"Next:\n  tandem evaluate {where}\n  tandem watch {where}")
    if (folder / "checkpoints" / "last.zip").is_file():
        echo(f"  tandem train --resume {where}")
    return 0


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser("pull", ABOUT, ("tandem pull user/ppo-CartPole-v1 --out runs/theirs",))
    parser.add_argument("repo", metavar="REPO", help="as user/name")
    parser.add_argument("--out", metavar="DIR", help="a new folder [runs/NAME]")
    parser.add_argument(
        "--revision", metavar="NAME", help="a branch, a tag or a commit [the newest]"
    )
    parser.add_argument(
        "--max-gb",
        type=float,
        default=MAX_GB,
        metavar="X",
        help=f"the most that its files may have, in gigabytes [{MAX_GB}]",
    )
    return parser
