"""`tandem push`."""

from __future__ import annotations

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.hub import push

ABOUT = """Upload a run to the Hugging Face Hub: best checkpoint, curve, animation, settings,
versions and scores, and a model card with the commands to use and reproduce it. Paths and addresses
of this machine are left out."""


def run(words: list[str]) -> int:
    """Upload a run and print its address."""
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
        echo(f"without this machine's paths and addresses: {', '.join(pushed.changed)}")
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser(
        "push",
        ABOUT,
        ("tandem push runs/… user/ppo-CartPole-v1", "tandem push runs/… name --private"),
    )
    parser.add_argument("folder", metavar="DIR", help="run folder")
    parser.add_argument("repo", metavar="REPO", help="user/name; created if it does not exist")
    parser.add_argument("--private", action="store_true", help="create a private repository")
    parser.add_argument("--message", default="", metavar="TEXT", help="commit message")
    parser.add_argument(
        "--resumable",
        action="store_true",
        help="include last.zip with the replay buffer, so that others can resume the run",
    )
    return parser
