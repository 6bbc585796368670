"""`tandem completion`: a shell script that shtab generates from the parsers of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from typing import Any

import shtab

from tandem import algorithms, plugins, zoo
from tandem.algorithms import own
from tandem.backends import ENGINES
from tandem.cli import find
from tandem.cli.output import echo
from tandem.cli.parser import Parser, flags
from tandem.errors import UnknownNameError
from tandem.learning.config import Options
from tandem.networks.plan import ACTIVATIONS
from tandem.tuning.sweep_study import PRUNERS, SAMPLERS

ABOUT = """Print a script that completes tandem's commands, flags, values, algorithms, environments
with tuned settings, files and folders in bash, zsh or fish. The script does not run Python while
you type. Generate it again after updating tandem or installing a plug-in."""
EXAMPLES = (
    "tandem completion bash > ~/.local/share/bash-completion/completions/tandem",
    'tandem completion zsh > "${fpath[1]}/_tandem"',
    "tandem completion fish > ~/.config/fish/completions/tandem.fish",
)
SHELLS = ("bash", "zsh", "fish")


def run(words: list[str]) -> int:
    """Print the script."""
    shell = make_parser().read(words).shell
    if shell not in SHELLS:
        raise UnknownNameError("completion for shell", shell, SHELLS)
    echo(shtab.complete(all_commands(), shell))
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser("completion", ABOUT, EXAMPLES)
    parser.add_argument("shell", metavar="|".join(SHELLS), help="shell to complete commands in")
    return parser


def all_commands() -> argparse.ArgumentParser:
    """Return a parser of all commands; those that train accept the settings of every algorithm."""
    from tandem.cli import COMMANDS  # circular import

    names = [n for n in algorithms.names() if plugins.attempt(partial(own.checked, n)) is None]
    settings: list[argparse.Action] = []
    for fields in (*(algorithms.get(name).Settings() for name in names), Options()):
        group = Parser("", "", add_help=False)
        flags(group, fields)
        settings += group._actions
    values = _values(names)
    root = argparse.ArgumentParser("tandem")
    root.add_argument("--version", action="version", help="print the version")
    commands = root.add_subparsers()
    for command, (module, about) in COMMANDS.items():
        make = import_module(f"tandem.cli.{module}").make_parser
        parser = commands.add_parser(command, help=about, description=about)
        if command == "find":
            kinds = parser.add_subparsers()
            for kind, what in find.KINDS.items():
                each = kinds.add_parser(kind, help=what, description=what)
                _fill(each, [*make(kind)._actions, *settings], values)
        else:
            more = settings if command in ("train", "config", "sweep") else []
            _fill(parser, [*make()._actions, *more], values)
    return root


def _values(names: list[str]) -> dict[str, Sequence[str]]:
    """Return the possible values by flag, positional argument or metavar."""
    families = zoo.families()
    tables = [table for name in names for table in zoo.environments(name)]
    ids = {env for table in tables for env in families.get(table, (table,))}
    envs = sorted(env for env in ids if env and "*" not in env)
    return {
        "--activation": list(ACTIVATIONS),
        "--cluster": ["auto"],
        "--device": ["auto", "cpu", "cuda"],
        "--entry": sorted({entry for name in names for entry in zoo.named(name)}),
        "--framework": list(ENGINES),
        "--pruner": PRUNERS,
        "--sampler": SAMPLERS,
        "--to": ["numpy", "onnx"],
        "--which": ["best", "last"],
        "--writer": list(plugins.found("writers")),
        "ALGORITHM": names,
        "ENV": envs,
        "names": [*names, *envs],
    }


def _fill(
    parser: argparse.ArgumentParser,
    actions: Iterable[argparse.Action],
    values: dict[str, Sequence[str]],
) -> None:
    """Add arguments with the attributes that shtab reads, `choices` and `complete`."""
    for action in actions:
        if action.help == argparse.SUPPRESS:
            continue
        name, metavar = (action.option_strings or [action.dest])[0], str(action.metavar or "")
        added: Any = parser._option_string_actions.get(name) or parser._add_action(copy(action))
        added.help = str(action.help).partition(" [")[0]
        if metavar in ("DIR", "FILE"):  # evaluate and others accept a folder or a checkpoint
            directory = metavar == "DIR" and name != "folder"
            added.complete = shtab.DIRECTORY if directory else shtab.FILE
        literals = [word for word in metavar.split("|") if word.upper() != word]
        before = added.choices or ()  # from another algorithm
        words = values.get(name) or values.get(metavar) or literals
        added.choices = [*before, *(word for word in words if word not in before)]
