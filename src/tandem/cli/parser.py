"""Argument parsing with argparse but tandem's errors, and flags generated from settings."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NoReturn, get_args, get_origin

from tandem import algorithms
from tandem.cli.output import stream
from tandem.errors import SettingError, UnknownNameError, nearest
from tandem.settings import IMPORTED, declared, expect_module, hints_of, module_here, offered

HELP = ("-h", "--help")
TOPICS = ("settings", "run", "all")
NUMBER = re.compile(r"-\.?\d")
NAMED = {"algorithm": "algorithm", "env": "environment"}  # positional arguments of commands
SAMPLES = {
    "algorithm": "ppo",
    "env": "CartPole-v1",
    "names": "ppo CartPole-v1",
    "folder": "runs/first",
}


class Parser(argparse.ArgumentParser):
    """Parser that requires complete flag names, allows them anywhere between the arguments, and
    suggests the nearest flag for an unknown one."""

    def __init__(self, command: str, about: str, examples: Sequence[str] = (), **more: Any) -> None:
        shown = "examples:\n" + "\n".join(f"  {e}" for e in examples) if examples else None
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(
            f"tandem {command}",
            description=about,
            epilog=shown,
            allow_abbrev=False,
            formatter_class=layout,
            **more,
        )
        self.values: dict[str, tuple[str, str]] = {}  # by setting: default, zoo's value

    def print_help(self, file: Any = None) -> None:
        from tandem.cli.help import show  # imports rich, which training does not need

        show(self, file or stream())

    def error(self, message: str) -> NoReturn:
        fix, extra = f"see `{self.prog} --help`.", message.removeprefix("unrecognized arguments: ")
        if extra in self.words:
            at, known = self.words.index(extra), self._option_string_actions
            begin, end = [*self.prog.split(), *self.words[:at]], self.words[at + 1 :]
            if isinstance(known.get(begin[-2]), argparse._ExtendAction):
                fix = shlex.join([*begin[:-1], f"{begin[-1]},{extra}", *end])
            elif "--env" in known and not os.path.exists(extra):  # not another run
                fix = shlex.join([*begin, "--env", extra, *end])
        raise SettingError(f"{self.prog}: {message}.", fix=fix)

    # raises a more specific error for an unknown flag, if the command has one
    unknown: Callable[[str], None] | None = None
    settings: frozenset[str] = frozenset()  # destinations of settings flags
    words: list[str] = []  # the given words
    topic = ""  # the requested part of the help
    usual: Mapping[str, tuple[str, str]] = {}  # description and default of flags in short help

    def algorithms(self, words: Sequence[str]) -> list[str]:
        """Return the words that name an algorithm, also as module:Class, and are not values of
        flags. After the first algorithm, module:Class is an environment."""
        found, names = list[str](), algorithms.names()
        for before, word in pairwise(("", *words)):
            flag = self._option_string_actions.get(before)
            own = algorithms.is_class(word) and not found
            if (flag is None or flag.nargs == 0) and (word in names or own):
                found.append(word)
        return found

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments and record which of them are `settings`. Raises UnknownNameError for
        an unknown flag, SettingError for any other error."""
        words, self.topic = topic_of(words)
        self.words = words
        known = self._option_string_actions
        for word in words[: words.index("--") if "--" in words else None]:
            flag = word.partition("=")[0]
            if (
                flag.startswith("-")
                and flag != "-"
                and flag not in known
                and not NUMBER.match(flag)
            ):
                if not (place := self._place(flag)) and self.unknown is not None:
                    self.unknown(flag)
                others = "" if nearest(flag, known) else f"see `{self.prog} --help`."
                raise UnknownNameError("flag", flag, known, place or others)
        args = self.parse_intermixed_args(words)
        args.settings = self.settings
        return args

    def _place(self, flag: str) -> str:
        """Return advice for a flag that is a positional argument here (--env CartPole-v1); "" for
        other flags."""
        from tandem.zoo.other_names import OTHER_NAMES  # slow to import: only on errors

        name = flag.removeprefix("--").replace("-", "_")
        what = next((n for n in (name, *OTHER_NAMES.get(name, ())) if n in NAMED), None)
        words = {a.dest: SAMPLES.get(a.dest) for a in self._actions if not a.option_strings}
        if what is None or not words.keys() & {what, "names", "folder"}:
            return ""
        usage = " ".join([self.prog, *filter(None, words.values())])
        if "folder" in words:
            return f"leave it out: the run folder names its {NAMED[what]}, as in `{usage}`."
        return f"name the {NAMED[what]} without a flag, as in `{usage}`."


def topic_of(words: Sequence[str]) -> tuple[list[str], str]:
    """Return the words of a command without the one after --help that names a part of the help, and
    that word or ""."""
    for i, (word, after) in enumerate(pairwise(words)):
        if word in HELP and after in TOPICS:
            return [*words[: i + 1], *words[i + 2 :]], after
    return list(words), ""


def flags(
    group: Any,
    settings: Any,
    tuned: dict[str, Any] | None = None,
    source: str = "",
    sourced: bool = True,
    hidden: Sequence[str] = (),
) -> dict[str, tuple[str, str]]:
    """Add a flag for each field of a settings dataclass that the command does not have yet, and
    return the default and the zoo's value of each.

    Values stay text for `settings.convert`; flags that are not given are not in the namespace.
    `tuned`: values of the zoo, with their `source`. Help omits settings that an algorithm always
    rejects and `hidden` ones, and shows sources if `sourced`.
    """
    hints, shown = hints_of(type(settings)), {s.name for s in offered(type(settings))}
    values: dict[str, tuple[str, str]] = {}
    for s in declared(type(settings)):
        several = hints[s.name] == tuple[str, ...]  # the flag may be repeated
        flag = f"--{s.name.replace('_', '-')}"
        default = "none" if several and not s.default else _shown(s.default)
        if flag in group._option_string_actions:
            continue
        tail = f"default {default}{f': {s.source}' if s.source and sourced else ''}"
        zoo = _shown(tuned[s.name]) if tuned and s.name in tuned else ""
        if zoo:
            tail = f"here {zoo}{f': {source}' if sourced else ''}; {tail}"
        values[s.name] = default, "" if _same(zoo, default) else zoo
        text = f"{s.help} [{tail}]".replace("%", "%%")
        text = text if s.name in shown and s.name not in hidden else argparse.SUPPRESS
        look: dict[str, Any] = {"dest": s.name, "default": argparse.SUPPRESS, "help": text}
        if several:
            look |= {"action": "extend", "nargs": 1}
        if hints[s.name] is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **look)
        else:
            group.add_argument(flag, metavar=_metavar(hints[s.name]), **look)
    return values


def expect_both(command: str, algorithm: str | None, env: str | None, instead: str = "") -> None:
    """Raise an error if the algorithm or the environment is missing, or the algorithm is unknown.
    instead: an alternative to them."""
    known = algorithms.names()
    if algorithm is not None and algorithm not in known and env in known:
        fix = f"write the algorithm first: tandem {command} {env} {algorithm}"
        raise UnknownNameError("algorithm", algorithm, known, fix)
    if algorithm is None or env is None:
        raise SettingError(
            f"`tandem {command}` needs an {'algorithm' if algorithm is None else 'environment'}.",
            f"tandem {command} ALGORITHM ENV{instead}",
            f"tandem {command} {algorithm or 'ppo'} CartPole-v1",
        )
    algorithms.get(algorithm)


def vector_arguments(parser: Any) -> None:
    """Add the arguments for a vector environment, the environment's arguments, and wrappers."""
    env_kwargs_argument(
        parser,
        "arguments of the environment or --vector function, such as '{\"max_cycles\": 50}'",
    )
    parser.add_argument(
        "--vector",
        metavar="MODULE:FUNCTION",
        help="function that returns a gymnasium.vector.VectorEnv, to use instead of ENV",
    )
    parser.add_argument(
        "--wrapper",
        dest="wrappers",
        action="append",
        metavar="MODULE:CLASS[:JSON]",
        help="a gymnasium.Wrapper around ENV, as in 'gymnasium.wrappers:TimeLimit:"
        '{"max_episode_steps": 50}\'; the last of several is outermost',
    )


def trust_argument(parser: Any) -> None:
    """Add the argument that vouches for a file written elsewhere."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="trust files from other machines or users that name code to run",
    )


def network_argument(parser: Any) -> None:
    """Add the argument for a custom network."""
    parser.add_argument(
        "--network",
        metavar="MODULE:FUNCTION",
        help="custom network: a function that builds it from the observation space",
    )


class _JSONObject(argparse.Action):
    """Parses a JSON object. It does not use `type`, because argparse replaces the errors of
    that."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        try:
            parsed = json.loads(values)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise SettingError(
                f"{option} {values}",
                "a JSON object",
                f"""write it in quotes: {option} '{{"continuous_actions": true}}'""",
            )
        setattr(namespace, self.dest, parsed)


def env_kwargs_argument(parser: Any, help: str = "arguments of the environment") -> None:
    """Add the argument for the environment's arguments."""
    parser.add_argument("--env-kwargs", action=_JSONObject, metavar="JSON", help=help)


class _Import(argparse.Action):
    """Imports a module when its name is read."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        expect_module(values, "")  # reject paths before any part of them is imported
        if module_here(values) is None:
            raise SettingError(
                f"--import {values}: module not found.",
                "an importable module that registers environment ids",
                f"run in the folder of {values.partition('.')[0]}.py, or add it to PYTHONPATH.",
            )
        if values not in IMPORTED:
            IMPORTED.append(values)
        setattr(namespace, self.dest, values)


def with_import(imported: str | None) -> str:
    """Return the --import flag to append to another command."""
    return f" --import {imported}" if imported else ""


def code_flags(args: argparse.Namespace) -> str:
    """Return the flags that name the user's network and import, to append to another command."""
    network = f" --network {shlex.quote(args.network)}" if args.network else ""
    return network + with_import(args.imported)


def import_argument(parser: Any) -> None:
    """Add the argument that imports a module to register ids, as a program does."""
    parser.add_argument(
        "--import",
        dest="imported",
        action=_Import,
        metavar="MODULE",
        help="import this module first, to register the environment's id",
    )


def zoo_argument(parser: Any) -> None:
    """Add the argument for a file of tuned settings, which `settings_flags` reads."""
    parser.add_argument(
        "--zoo",
        metavar="FILE",
        help="your own tuned settings, which override the zoo's (docs/howto/zoo.md)",
    )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "''"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(value) if value == "" else str(value)


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def _metavar(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return "N,N" if get_args(hint)[0] is int else "NAME"
    inner = [_metavar(t) for t in get_args(hint)]
    names = {int: "N", float: "X", str: "NAME"}
    return "|".join(inner) if inner else names.get(hint, "X[:END[:PART]]")
