"""`tandem check`."""

from __future__ import annotations

from functools import partial

from tandem.cli.output import table
from tandem.cli.parser import Parser, import_argument, vector_arguments
from tandem.envs.envpool import is_id
from tandem.envs.factory import make
from tandem.envs.vector_source import named
from tandem.envs.wrapped import wrapped
from tandem.errors import SettingError, noting
from tandem.testing.env_checker import check

ABOUT = """Check an environment, or a vector of environments, before training: API, exact resume and
speed. The exit code is 1 if a check fails."""
SIGNS = {"ok": "ok", "note": "note", "fault": "FAULT"}


@noting()
def run(words: list[str]) -> int:
    """Print the findings, one line per check."""
    args = make_parser().read(words)
    if (args.env is None) == (args.vector is None):
        raise SettingError(
            f"`tandem check` got {'no environment' if args.env is None else 'two environments'}.",
            "an id or --vector MODULE:FUNCTION",
            "tandem check CartPole-v1",
        )
    kwargs = args.env_kwargs
    env = args.env if args.vector is None else named(args.vector, kwargs)
    env = wrapped(env, args.wrappers)
    if args.vector is None and not is_id(env):
        make(env, kwargs).close()  # fail on an unknown name before printing anything
        if kwargs:
            env, kwargs = partial(make, env, kwargs), None
    faults = 0
    for finding in check(env, args.steps, args.seed, kwargs):
        faults += finding.verdict == "fault"
        table([(SIGNS[finding.verdict], finding.what, finding.text)], widths=(5, 12))
    return int(faults > 0)


def make_parser() -> Parser:
    """Return the parser of this command."""
    examples = (
        "tandem check CartPole-v1",
        "tandem check my_module:MyEnv-v0 --steps 10000",
        "tandem check --vector my_module:make_vector",
    )
    parser = Parser("check", ABOUT, examples)
    parser.add_argument("env", nargs="?", metavar="ENV", help="environment id")
    vector_arguments(parser)
    import_argument(parser)
    parser.add_argument(
        "--steps", type=int, default=1000, metavar="N", help="number of random steps [1000]"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed [0]")
    return parser
