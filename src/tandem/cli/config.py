"""`tandem config`."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tandem import algorithms, zoo
from tandem.cli import train_arguments
from tandem.cli.output import echo
from tandem.cli.parser import (
    Parser,
    env_kwargs_argument,
    expect_both,
    import_argument,
    with_import,
    zoo_argument,
)
from tandem.cli.settings_file import literal
from tandem.errors import RunFolderError, note
from tandem.learning.config import Options, plain
from tandem.runs.atomic_files import writing
from tandem.settings import offered, shell_path

ABOUT = """Write all settings of a run, with their meanings, to a file for `tandem train --config`.
Settings come from the zoo if it has this algorithm and environment, otherwise from the algorithm's
defaults; flags override both."""
EXAMPLES = (
    "tandem config ppo CartPole-v1 --out cartpole.toml",
    "tandem config sac Pendulum-v1 --gamma 0.98",
    "tandem train --config cartpole.toml --seed 1",
)


def run(words: list[str]) -> int:
    """Print the file, or write it."""
    args = _arguments(train_arguments.with_address(words))
    given = train_arguments.given(args)
    settings, options, source, notes = zoo.resolve(args.algorithm, args.env, given)
    note(*notes)
    places = {
        "algorithm": args.algorithm,
        "env": args.env,
        "framework": args.framework,
        "device": args.device,
        "seed": args.seed,
        "env_kwargs": args.env_kwargs or None,
    }
    text = "\n".join(_lines(places, settings, options, source)) + "\n"
    if args.out is None:
        echo(text, end="")
        return 0
    out = Path(args.out)
    if out.exists():
        raise RunFolderError(
            f"{out} already exists.", "a new file", "name another file, or remove it first."
        )
    with writing(out):
        out.write_text(text, encoding="utf-8")
    more = with_import(args.imported)
    echo(f"wrote {out}. To train by it: tandem train --config {shell_path(out)}{more}")
    return 0


def _lines(places: dict[str, Any], settings: Any, options: Options, source: str) -> Iterator[str]:
    yield f"# A run of {places['algorithm']} on {places['env']}, for `tandem train --config`."
    yield f"# Settings: {source}. What is left out is as it is without this file."
    for name, value in places.items():
        yield f"# {name} = …" if value is None else f"{name} = {literal(value)}"
    for part, of, values in (
        ("settings", settings, plain(settings)),
        ("options", options, asdict(options)),
    ):
        yield f"\n[{part}]"
        for s in offered(type(of)):
            said = f"{s.help} [{s.source}]" if s.source else s.help
            yield from textwrap.wrap(said, 98, initial_indent="# ", subsequent_indent="# ")
            yield f"{s.name} = {literal(values[s.name])}"


def _arguments(words: list[str]) -> argparse.Namespace:
    """Parse and return the arguments."""
    parser = make_parser()
    title = "settings of {} [default]"
    train_arguments.settings_flags(parser, words, title)
    args = parser.read(words)
    expect_both("config", args.algorithm, args.env)
    return args


def make_parser() -> Parser:
    """Return the parser of this command, without the flags that depend on the algorithm."""
    parser = Parser("config", ABOUT, EXAMPLES)
    known = ", ".join(algorithms.names())
    parser.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help=f"one of {known}")
    parser.add_argument("env", nargs="?", metavar="ENV", help="environment id, such as CartPole-v1")
    env_kwargs_argument(parser)
    import_argument(parser)
    zoo_argument(parser)
    names = "torch, tensorflow, jax or keras-torch"
    parser.add_argument("--framework", metavar="NAME", help=f"{names} [fastest installed]")
    parser.add_argument("--device", metavar="NAME", default="auto", help="auto, cpu or cuda [auto]")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed [0]")
    parser.add_argument("--out", metavar="FILE", help="file to write [stdout]")
    return parser
