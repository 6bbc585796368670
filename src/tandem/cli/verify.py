"""`tandem verify`."""

from __future__ import annotations

from pathlib import Path

from tandem.cli import agents
from tandem.cli.output import echo
from tandem.cli.parser import Parser, import_argument, network_argument
from tandem.envs.vector_source import named
from tandem.errors import SettingError
from tandem.runs.folder import run_folder
from tandem.runs.progress_line import Progress
from tandem.runs.verification import verify

ABOUT = """Repeat a training run from its config.json in a temporary folder, and compare the weight
fingerprints in its progress.csv. The exit code is 0 if all are equal, 1 if not. Identical results
require the same machine and the same versions."""


def run(words: list[str]) -> int:
    """Print the first row that differs."""
    args = make_parser().read(words)
    if args.steps is not None and args.steps < 1:
        raise SettingError(
            f"--steps {args.steps}.", "at least 1", "give --steps 10000, or leave it out."
        )
    folder = run_folder(Path(args.folder))
    algorithm = agents.own_class(args.algorithm)
    told = [Progress(0, args.quiet)]
    names = agents.names_of(args)
    env = args.env if args.vector is None else named(args.vector, names.env_kwargs)
    given = {"env_kwargs": names.env_kwargs, "trust": args.trust, "algorithm": algorithm}
    given |= {"network": args.network, "wrappers": args.wrappers}
    verification = verify(folder, args.steps, env, callbacks=told, **given)
    for name, (then, now) in verification.versions.items():
        echo(f"note: {name} was {then} and is {now}")
    if verification.difference is None:
        echo(f"equal: {verification.rows} rows, to step {verification.env_steps:,}")
        return 0
    d = verification.difference
    echo(
        f"different: row {d.row} of {folder / 'progress.csv'} (step {d.env_steps:,}) has the "
        f"fingerprint {d.expected}; "
        f"training again gave {d.found}."
    )
    return 1


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser("verify", ABOUT, ("tandem verify runs/… --steps 10000",))
    parser.add_argument("folder", metavar="DIR", help="run folder")
    agents.own_argument(parser)
    network_argument(parser)
    agents.env_arguments(parser)
    import_argument(parser)
    parser.add_argument(
        "--steps", type=int, metavar="N", help="check only the first N environment steps [all]"
    )
    parser.add_argument("--quiet", action="store_true", help="print only the result")
    return parser
