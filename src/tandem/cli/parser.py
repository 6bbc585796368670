"""Arguments as argparse reads them, with our errors instead of its own, and flags made from
settings."""

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
NAMED = {"algorithm": "algorithm", "env": "environment"}  # what commands take without a flag
SAMPLES = {
    "algorithm": "ppo",
    "env": "CartPole-v1",
    "names": "ppo CartPole-v1",
    "folder": "runs/first",
}


class Parser(argparse.ArgumentParser):
    """Flags are written out, may stand anywhere between the arguments, and an unknown one is
    answered with the nearest."""

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
        self.values: dict[str, tuple[str, str]] = {}  # of settings: their default, the zoo's value

    def print_help(self, file: Any = None) -> None:
        from tandem.cli.help import show  # rich: not for commands that train

        show(self, file or stream())

    def error(self, message: str) -> NoReturn:
        fix, extra = f"see `{self.prog} --help`.", message.removeprefix("unrecognized arguments: ")
        if extra in self.words:
            at, known = self.words.index(extra), self._option_string_actions
            begin, end = [*self.prog.split(), *self.words[:at]], self.words[at + 1 :]
            if isinstance(known.get(begin[-2]), argparse._ExtendAction):
                fix = shlex.join([*begin[:-1], f"{begin[-1]},{extra}", *end])
            elif "--env" in known and not os.path.exists(extra):  # no other run
                fix = shlex.join([*begin, "--env", extra, *end])
        raise SettingError(f"{self.prog}: {message}.", fix=fix)

    # says more of an unknown flag, by an error of its own, where the command knows more
    unknown: Callable[[str], None] | None = None
    settings: frozenset[str] = frozenset()  # what flags of settings are called
    words: list[str] = []  # that were given
    topic = ""  # the part of the help that was asked for
    usual: Mapping[str, tuple[str, str]] = {}  # what short help says of flags, and their defaults

    def algorithms(self, words: Sequence[str]) -> list[str]:
        """The words that name an algorithm, module:Class too, and are no values of flags. After
        one of them, module:Class is an environment."""
        found, names = list[str](), algorithms.names()
        for before, word in pairwise(("", *words)):
            flag = self._option_string_actions.get(before)
            own = algorithms.is_class(word) and not found
            if (flag is None or flag.nargs == 0) and (word in names or own):
                found.append(word)
        return found

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments, and which of them are `settings`. UnknownNameError for a flag that there
        is not, SettingError for whatever else is wrong with them."""
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
        """Where a command has what is a flag elsewhere (--env CartPole-v1), as advice; "" for other
        flags."""
        from tandem.zoo.other_names import (
            OTHER_NAMES,
        )  # not before somebody errs: a while to import

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
    """The words of a command without the one after --help that names a part of the help, and that
    one; "" where there is none."""
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
    """A flag for each field of a settings dataclass, but for those that the command has already.
    They are left as text for `settings.convert`; what is not given is not in the namespace.
    `tuned` are values of the zoo, with their `source`. Help has none of those that an algorithm
    always refuses, with its reason, and none `hidden`; sources if `sourced`. Gives the default and
    the zoo's value of each."""
    hints, shown = hints_of(type(settings)), {s.name for s in offered(type(settings))}
    values: dict[str, tuple[str, str]] = {}
    for s in declared(type(settings)):
        several = hints[s.name] == tuple[str, ...]  # the flag may stand several times
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
    """Refuses a command without an algorithm and an environment, or with an unknown algorithm.
    instead: what may stand there instead of them."""
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
    """How to name a vector of environments, instead of an id, and to say what it is made with."""
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
    """How to vouch for a file that was written elsewhere."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="trust files from other machines or users that name code to run",
    )


def network_argument(parser: Any) -> None:
    """How to name a custom network."""
    parser.add_argument(
        "--network",
        metavar="MODULE:FUNCTION",
        help="custom network: a function that builds it from the observation space",
    )


class _JSONObject(argparse.Action):
    """Reads names and values from JSON. Not by `type`, whose errors argparse replaces."""

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
    """What an environment is made with."""
    parser.add_argument("--env-kwargs", action=_JSONObject, metavar="JSON", help=help)


class _Import(argparse.Action):
    """Imports a module when its name is read."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        expect_module(values, "")  # no part of a path is imported by way of trying
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
    """The same for another command, to stand after its other words."""
    return f" --import {imported}" if imported else ""


def import_argument(parser: Any) -> None:
    """How to have ids registered: what a program does by importing its module."""
    parser.add_argument(
        "--import",
        dest="imported",
        action=_Import,
        metavar="MODULE",
        help="import this module first, to register the environment's id",
    )


def zoo_argument(parser: Any) -> None:
    """How to name a file of tuned settings, which `settings_flags` chooses."""
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
