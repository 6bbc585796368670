"""`tandem completion`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from tandem import algorithms, plugins, zoo
from tandem.algorithms import own
from tandem.cli import find, shells
from tandem.cli.output import echo
from tandem.cli.parser import Parser, flags
from tandem.errors import SettingError, UnknownNameError
from tandem.learning.config import Options
from tandem.networks.plan import ACTIVATIONS
from tandem.runs import plugin_writers

ABOUT = """Prints a script with which a shell completes tandem's commands, flags, values,
algorithms, environments that have tuned settings, and folders. It is fixed: no Python runs while
you type. Make it anew where a package was installed that adds something."""
EXAMPLES = (
    "tandem completion bash > ~/.local/share/bash-completion/completions/tandem",
    'tandem completion zsh > "${fpath[1]}/_tandem"',
    "tandem completion fish > ~/.config/fish/completions/tandem.fish",
)
DIR, FILE, RUN = "@dir", "@file", "@run"  # values that are paths; a RUN: a folder or a checkpoint
ALGORITHM, ENV, ANY_ENV = "@algorithm", "@env", "@anyenv"
WITH_SETTINGS = ("train", "config", "sweep", *(f"find-{kind}" for kind in find.KINDS))
PLACES = {  # command -> what stands in each of its places; the last one may stand again
    "train": (ALGORITHM, ENV, ""),
    "config": (ALGORITHM, ENV, ""),
    "sweep": (ALGORITHM, ENV, ""),
    "find-lr": (ALGORITHM, ENV, ""),
    "find-optimizer": (ALGORITHM, ENV, ""),
    "find-best": (ALGORITHM, f"{ALGORITHM} {ENV}"),
    "evaluate": (RUN, ""),
    "watch": (RUN, ""),
    "export": (RUN, ""),
    "verify": (DIR, ""),
    "report": (DIR, ""),
    "plot": (DIR,),
    "compare": (DIR,),
    "check": (ANY_ENV, ""),
    "completion": (" ".join(shells.SHELLS), ""),
    "find": (" ".join(find.KINDS), ""),
    "list": ("",),
}
VALUES = {  # of flags whose metavar does not say them
    "--framework": "torch tensorflow jax keras-torch",
    "--device": "auto cpu cuda",
    "--which": "best last",
    "--to": "numpy onnx",
    "--cluster": "auto",
}


@dataclass
class Grammar:
    """What a shell has to know.

    about: of each command and flag. base: the flags of each command. shared: those that every
    algorithm's settings add, and a run's options; settings: those of one algorithm alone. values:
    what a flag may be, by "command/algorithm/flag", where * stands for any. bare: flags without a
    value. envs: by algorithm, * for all.
    """

    about: dict[str, str] = field(default_factory=dict)
    base: dict[str, list[str]] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)
    settings: dict[str, list[str]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    bare: set[str] = field(default_factory=set)
    envs: dict[str, list[str]] = field(default_factory=dict)


def run(words: list[str]) -> int:
    """Prints the script."""
    args = make_parser().read(words)
    if args.shell is None:
        raise SettingError(
            "`tandem completion` was given no shell.",
            f"one of {', '.join(shells.SHELLS)}",
            f"{EXAMPLES[0]}",
        )
    if args.shell not in shells.SHELLS:
        raise UnknownNameError("shell with completion:", args.shell, shells.SHELLS)
    echo(shells.SHELLS[args.shell](grammar()), end="")
    return 0


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser("completion", ABOUT, EXAMPLES)
    shown = "|".join(shells.SHELLS)
    parser.add_argument("shell", nargs="?", metavar=shown, help="which shell the script is for")
    return parser


def grammar() -> Grammar:
    """Out of the parsers of all commands."""
    from tandem.cli import COMMANDS

    known = Grammar()
    for command, (module, about) in COMMANDS.items():
        known.about[command] = about
        make = import_module(f"tandem.cli.{module}").make_parser
        if command == "find":
            known.about |= find.KINDS
            known.base[command] = ["--help"]
            for kind in find.KINDS:
                known.base[f"find-{kind}"] = list(_added(known, f"find-{kind}/*", make(kind)))
        else:
            known.base[command] = list(_added(known, f"{command}/*", make()))
    by_algorithm = {}
    for name, kind in _usable():
        parser = Parser("", "", add_help=False)
        flags(parser, kind.Settings())
        by_algorithm[name] = list(_added(known, f"*/{name}", parser))
        known.envs[name] = _ids(zoo.environments(name))
    parser = Parser("", "", add_help=False)
    flags(parser, Options())
    options = list(_added(known, "*/*", parser))
    everywhere = [n for n in next(iter(by_algorithm.values())) if _in_all(n, by_algorithm.values())]
    known.shared = [*everywhere, *options]
    known.settings = {
        name: [n for n in names if n not in everywhere] for name, names in by_algorithm.items()
    }
    known.envs["*"] = sorted({env for envs in known.envs.values() for env in envs})
    known.values["*/*/--writer"] = " ".join(_writers())
    for name in by_algorithm:
        known.values[f"*/{name}/--entry"] = " ".join(zoo.named(name))
    known.values = _merged({place: words for place, words in known.values.items() if words})
    return known


def _usable() -> Iterator[tuple[str, Any]]:
    """The algorithms by name, less those of packages that are broken."""
    for name in algorithms.names():
        if plugins.attempt(partial(own.checked, name)) is None:
            yield name, algorithms.get(name)


def _writers() -> list[str]:
    """Those of packages, less the broken ones."""
    names = plugins.found("writers")
    return [
        name for name in names if plugins.attempt(partial(plugin_writers.check, [name])) is None
    ]


def _in_all(name: str, lists: Iterable[list[str]]) -> bool:
    return all(name in names for names in lists)


def _added(known: Grammar, scope: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """The flags of a parser, of which the rest is put into `known`."""
    for action in parser._actions:
        for flag in action.option_strings:
            if not flag.startswith("--") or action.help == argparse.SUPPRESS:
                continue
            yield flag
            text = "" if flag.startswith("--no-") else (action.help or "")
            known.about.setdefault(flag, text.partition(" [")[0].replace("%%", "%"))
            if action.nargs == 0:
                known.bare.add(flag)
            elif words := _words(flag, action.metavar):
                known.values[f"{scope}/{flag}"] = words


def _words(flag: str, metavar: Any) -> str:
    """What a flag may be: words, or a kind of path; "" where nobody knows."""
    if metavar in ("DIR", "FILE"):
        return DIR if metavar == "DIR" else FILE
    if flag in VALUES:
        return VALUES[flag]
    if flag == "--activation":
        return " ".join(ACTIVATIONS)
    if flag in ("--pruner", "--sampler"):
        from tandem.tuning import sweep_study

        return " ".join(sweep_study.PRUNERS if flag == "--pruner" else sweep_study.SAMPLERS)
    return " ".join(word for word in str(metavar).split("|") if word.upper() != word)


def _merged(values: dict[str, str]) -> dict[str, str]:
    """The same, with * for the algorithm where all that have the flag agree."""
    by_flag: dict[str, set[str]] = {}
    for place, words in values.items():
        if place.startswith("*/"):
            by_flag.setdefault(place.rpartition("/")[2], set()).add(words)
    merged = {}
    for place, words in values.items():
        flag = place.rpartition("/")[2]
        alike = place.startswith("*/") and len(by_flag[flag]) == 1 and flag != "--entry"
        merged[f"*/*/{flag}" if alike else place] = words
    # the first that fits counts: those of a command, then of an algorithm, then the rest
    return dict(sorted(merged.items(), key=lambda one: one[0].count("*")))


def _ids(tables: Iterable[str]) -> list[str]:
    """The ids that tables of the zoo are for, those of their families among them."""
    families = zoo.families()
    each = [env for table in tables for env in families.get(table, (table,))]
    return sorted({env for env in each if env and "*" not in env})
