"""Writes the command-line reference, from the parsers of the commands themselves."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from typing import Any

from mkdocs.structure.files import File, Files

from tandem import algorithms
from tandem.cli import COMMANDS
from tandem.cli.find import KINDS
from tandem.cli.parser import Parser, flags
from tandem.learning.config import Options

FLAG = re.compile(r"(`[^`]*`)|(?<![\w-])(--[a-z][\w-]*)")
HEAD = """\
# Command line

Every command and every flag. `tandem COMMAND --help` prints the same for one command, and
`tandem train ALGORITHM ENV --help all` adds the settings of that algorithm, with the values that
this environment has in the [zoo](../howto/zoo.md).

| command | purpose |
|---|---|
"""
SETTINGS = """\
## Settings of algorithms { #settings }

Commands that train (`train`, `config`, `sweep`, `find`) accept the settings of the chosen
algorithm as flags. Each algorithm's page lists its defaults and their sources. A value written
`start:end` is a schedule.

| flag | meaning | algorithms |
|---|---|---|
"""
OPTIONS = """\
## Run options { #options }

The same commands accept these flags for every algorithm.

"""
EXIT_CODES = """\
## Exit codes

| code | meaning |
|--:|---|
| 0 | success |
| 1 | an error while running, or `check` or `verify` found a difference |
| 2 | invalid arguments |
| 129, 130, 143 | ended by SIGHUP, SIGINT or SIGTERM, after saving a checkpoint |
| 141 | the reader of standard output closed the pipe |
"""


def reference() -> str:
    """The whole page."""
    text = HEAD + "".join(
        f"| [`tandem {c}`](#{c}) | {about} |\n" for c, (_, about) in COMMANDS.items()
    )
    for command, (module, about) in COMMANDS.items():
        make = import_module(f"tandem.cli.{module}").make_parser
        text += f"\n## tandem {command} {{ #{command} }}\n\n"
        if command != "find":
            text += section(make())
            continue
        text += f"{about[0].upper()}{about[1:]}.\n"
        for kind in KINDS:
            text += f"\n### tandem find {kind} {{ #find-{kind} }}\n\n{section(make(kind))}"
    options = Parser("", "", add_help=False)
    flags(options, Options())
    return "\n".join([text, SETTINGS + settings(), OPTIONS + table(options), EXIT_CODES])


def section(parser: argparse.ArgumentParser) -> str:
    """What a command does, how it is called, and its arguments."""
    about = " ".join((parser.description or "").split())
    examples = "\n".join(x.strip() for x in (parser.epilog or "").splitlines()[1:])
    shown = f"\n```console\n{examples}\n```\n" if examples else ""
    return f"{_escaped(about)}\n{shown}\n{table(parser)}"


def table(parser: argparse.ArgumentParser) -> str:
    """The arguments of a parser that its help shows."""
    rows = [
        f"| {_names(action)} | {_meaning(action)} |"
        for action in parser._actions
        if action.help not in (None, argparse.SUPPRESS) and action.dest != "help"
    ]
    return "\n".join(["| argument | meaning |", "|---|---|", *rows]) + "\n"


def settings() -> str:
    """Each flag of the algorithms' settings, with the algorithms that have it."""
    found: dict[str, tuple[argparse.Action, list[str]]] = {}
    for name in algorithms.NAMES:
        parser = Parser("", "", add_help=False)
        flags(parser, algorithms.get(name).Settings())
        for action in parser._actions:
            if action.help != argparse.SUPPRESS:
                found.setdefault(action.dest, (action, []))[1].append(name)
    rows = []
    for action, names in found.values():
        meaning = _escaped(str(action.help).partition(" [")[0].replace("%%", "%"))
        rows.append(f"| {_names(action)} | {meaning} | {_those(names)} |")
    return "\n".join(rows) + "\n"


def _those(names: list[str]) -> str:
    """Algorithms, with links; `all but` the few that lack it."""
    lacking = [name for name in algorithms.NAMES if name not in names]
    if not lacking:
        return "all"
    fewer = names if len(names) <= len(lacking) else lacking
    links = ", ".join(f"[{name}](../algorithms/{name}.md#settings)" for name in fewer)
    return links if fewer is names else f"all but {links}"


def _names(action: argparse.Action) -> str:
    """The spellings of a flag, with its value; the name of a positional argument."""
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    long = [flag for flag in action.option_strings if flag.startswith("--")]
    if "|" in value:  # a code span would show the backslash that a cell needs
        return ", ".join(f"<code>{flag}{value.replace('|', '&#124;')}</code>" for flag in long)
    return ", ".join(f"`{flag}{value}`" for flag in long)


def _meaning(action: argparse.Action) -> str:
    text = " ".join(str(action.help).replace("%%", "%").split())
    return _escaped(
        re.sub(r" \[(.*)\]$", r" (default: \1)", text).replace("(default: default ", "(")
    )


def _escaped(text: str) -> str:
    """Plain text within a cell of a table, with its flags as code."""
    text = re.sub(r"([|<*])", r"\\\1", text)
    return FLAG.sub(lambda found: found[1] or f"`{found[2]}`", text)


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "reference/commands.md", content=reference()))
    return files
