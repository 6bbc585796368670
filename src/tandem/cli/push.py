"""`tandem push`."""

from __future__ import annotations

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.hub import push

ABOUT = """Puts a run on the Hugging Face hub: its best checkpoint, curve, animation, settings,
versions and scores, and a model card with the commands to use it and to train it again. Paths and
addresses of this machine are left out."""


def run(words: list[str]) -> int:
    """Sends it and says where it is."""
    args = make_parser().read(words)
    pushed = push(
        args.folder,
        args.repo,
        private=args.private,
        message=args.message,
        resumable=args.resumable,
    )
    echo(f"{pushed.url}: {', '.join(pushed.files)}")
    if pushed.changed:
        echo(f"made shorter, as they told of this machine: {', '.join(pushed.changed)}")
    return 0


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "push",
        ABOUT,
        ("tandem push runs/… user/ppo-CartPole-v1", "tandem push runs/… name --private"),
    )
    parser.add_argument("folder", metavar="DIR", help="a run's folder")
    parser.add_argument("repo", metavar="REPO", help="as user/name; made where it is not there yet")
    parser.add_argument("--private", action="store_true", help="a repository for you alone")
    parser.add_argument("--message", default="", metavar="TEXT", help="of the commit")
    parser.add_argument(
        "--resumable",
        action="store_true",
        help="last.zip too, with the replay memory, so that others can go on with the run",
    )
    return parser
