"""`tandem check`."""

from __future__ import annotations

from tandem.cli.parser import Parser
from tandem.envs.factory import make
from tandem.testing.env_checker import check

ABOUT = (
    "Checks whether an environment can be trained in, resumed exactly, and how fast it is. "
    "Exit code 1 where it has a fault."
)
SIGNS = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


def run(words: list[str]) -> int:
    """Prints what was found, one line a check."""
    parser = Parser(
        "check",
        ABOUT,
        ("tandem check CartPole-v1", "tandem check my_module:MyEnv-v0 --steps 10000"),
    )
    parser.add_argument("env", metavar="ENV", help="a Gymnasium id")
    parser.add_argument(
        "--steps", type=int, default=1000, metavar="N", help="random steps to take [1000]"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of environment and actions [0]"
    )
    args = parser.read(words)
    make(args.env).close()  # an unknown name is answered before anything is said
    faults = 0
    for finding in check(args.env, args.steps, args.seed):
        faults += finding.verdict == "fault"
        print(f"{SIGNS[finding.verdict]}  {finding.what:<14}{finding.text}", flush=True)
    return int(faults > 0)
