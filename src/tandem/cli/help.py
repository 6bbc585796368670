"""Output of `--help`. Commands that take an algorithm's settings have more flags than fit on a
screen: they show the most used ones, and the others by group."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text
from rich_argparse import RawDescriptionRichHelpFormatter

from tandem.cli import output

if TYPE_CHECKING:
    from tandem.cli.parser import Parser

# the most used flags, by destination, with short descriptions
SETTINGS = {
    "steps": "environment steps in total",
    "envs": "parallel environments",
    "learning_rate": "learning rate; 3e-4:0 decays to 0",
    "gamma": "discount factor",
    "rollout": "rollout steps per environment",
    "epochs": "epochs per rollout",
    "batch_size": "transitions per gradient step",
    "buffer_size": "replay buffer size",
    "learning_starts": "steps before the first update",
    "train_every": "environment steps per update",
    "entropy": "weight of the entropy bonus",
    "hidden": "widths of the hidden layers",
}
NAMED = {
    "ALGORITHM": "in `tandem list`, or module:Class",
    "ENV": "environment id, or module:Name",
    "ALGORITHM ENV": "such as ppo CartPole-v1",
}
HINTS = {
    "settings": "all settings of the algorithm",
    "run": "evaluation, checkpoints, workers, devices, logs",
    "all": "all flags, with the source of each default",
}


class CommandHelpFormatter(RawDescriptionRichHelpFormatter):
    """Layout of a command's help, in color if the terminal supports it."""

    text_markup = help_markup = False
    group_name_formatter = str


def show(parser: Parser, file: Any) -> None:
    """Print a command's help, or the part selected by the word after --help."""
    console = output.console(file)
    parser.description = " ".join((parser.description or "").split())
    words = [str(a.metavar or a.dest) for a in parser._actions if not a.option_strings]
    parser.usage = " ".join([parser.prog, *(f"[{w}]" for w in words), "[flags]"])
    if parser.settings and not parser.topic:
        _short(parser, console, words)
        return
    groups = parser._action_groups
    kept = {"settings": groups[2:3], "run": [*groups[:2], *groups[3:]]}.get(parser.topic, groups)
    parser._action_groups, actions = kept, parser._actions
    shown = {id(a) for group in kept for a in group._group_actions}
    parser._actions = [a for a in actions if id(a) in shown]
    parser.formatter_class = lambda prog: CommandHelpFormatter(prog, console=console)
    console.print(Text.from_ansi(parser.format_help()), end="")
    parser._action_groups, parser._actions = groups, actions


def _short(parser: Parser, console: Any, words: Sequence[str]) -> None:
    """Print the most used flags, on one screen."""
    actions = {a.dest: a for a in parser._actions if a.option_strings}
    console.print(Text(f"usage: {parser.usage}"))
    console.print(Text(f"\n{parser.description}\n"))
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    is_tuned = any(zoo for _, zoo in parser.values.values())
    table.add_column("", style="cyan", no_wrap=True)
    for name in ("", "default", *(["zoo"] if is_tuned else [])):
        table.add_column(name, overflow="fold", max_width=16 if name else None)
    for word in words:
        table.add_row(Text(word), Text(NAMED.get(word, "")))
    for dest, meaning in SETTINGS.items():
        action = actions.get(dest)
        if action is not None and action.help != argparse.SUPPRESS and dest in parser.values:
            _row(table, action, meaning, *parser.values[dest])
    own = {a.dest: a for a in parser._action_groups[1]._group_actions if a.dest != "help"}
    for dest in parser.usual or own:
        meaning, _, default = str(actions[dest].help).removesuffix("]").partition(" [")
        _row(table, actions[dest], *parser.usual.get(dest, (meaning.replace("%%", "%"), default)))
    console.print(table)
    console.print(Text("\nmore flags", "bold"))
    groups = parser._action_groups
    of = {"settings": groups[2:3], "run": [*groups[1:2], *groups[3:]], "all": groups[1:]}
    for topic, about in HINTS.items():
        count = sum(a.help != argparse.SUPPRESS for g in of[topic] for a in g._group_actions)
        if count:
            console.print(Text.assemble((f"  --help {topic:<10}", "cyan"), f"{about} ({count})"))
    console.print(Text("\nexamples", "bold"))
    for line in (parser.epilog or "").splitlines()[1:4]:
        console.print(Text(line))


def _row(table: Table, action: argparse.Action, meaning: str, *values: str) -> None:
    name = f"{action.option_strings[0]} {str(action.metavar or '').partition('[')[0]}".rstrip()
    table.add_row(*(Text(x) for x in (name, meaning, *values[: len(table.columns) - 2])))
