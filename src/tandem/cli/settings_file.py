"""Settings files for commands: `tandem train --config`."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from shlex import quote
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from tandem import algorithms
from tandem.algorithms import own
from tandem.errors import SettingError, UnknownNameError
from tandem.learning.config import Options
from tandem.runs import trust
from tandem.settings import Schedule, convert, declared, describe_type, hints_of, shell_path
from tandem.zoo.other_names import OTHER_NAMES

PLACES = {
    "algorithm": str,
    "env": str,
    "framework": str,
    "network": str,
    "device": str,
    "seed": int,
    "env_kwargs": dict,
    "wrappers": list,
}
TYPES = {str: "text in quotes", int: "a whole number", dict: "names and values"}
TYPES[list] = "a list of texts"
PARTS = ("settings", "options")
# entries of a run's config.json that describe it but do not configure another run
NOTES = (
    "start",  # except that the new run has the same start
    "source",
    "versions",
    "commit",
    "origin",
    "signature",
    "optimizer_class",
    "device_used",
    "compiled",
    "extended_from",
    "devices_before",  # from older runs
    "inexact",
    "restarted_at",
)
# entries for objects passed from Python, whose code is in no file
CODE = ("own_network", "own_env", "own_eval_env", "own_optimizer", "vector")


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a settings file: TOML, or JSON as in a run's config.json. Raises
    SettingError if it is unreadable, or needs code of a program."""
    try:
        text = path.read_text(encoding="utf-8")
        data: dict[str, Any] = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise SettingError(
            f"cannot read the settings in {path}: {error}.",
            "a TOML file, or the config.json of a run",
            "write one: tandem config ppo CartPole-v1 --out FILE",
        ) from error
    parts = (data.get(part, {}) for part in (*PARTS, "start")) if isinstance(data, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        raise SettingError(
            f"{path} does not hold tables of settings and options.",
            "names and values under [settings] and [options]",
            "see an example: tandem config ppo CartPole-v1",
        )
    known = (*PLACES, *PARTS, *NOTES, *CODE)
    for name in data:
        if name not in known:
            raise UnknownNameError(f"entry of {path}", name, known, _place_of(name, data))
    for name, kind in PLACES.items():
        said = data.get(name, kind())
        if not isinstance(said, kind) or isinstance(said, bool):
            raise SettingError(
                f"{path} has {name} = {data[name]!r}.",
                TYPES[kind],
                "see an example: tandem config ppo CartPole-v1",
            )
    start = data.get("start") or {}
    if code := [n for n in CODE if data.get(n)] + ["start"] * (
        bool(start) and not start.get("from")
    ):
        raise SettingError(
            f"{path} is from a run with {', '.join(code)}, passed from Python or by --vector.",
            "settings without code",
            f"remove {', '.join(code)} from a copy; name the environment by its id, or --vector.",
        )
    return data


def expect(args: argparse.Namespace, path: Path, data: dict[str, Any]) -> None:
    """Raise SettingError if a file names an environment that may run code, and neither this user
    wrote the file nor the command vouches for it."""
    names = trust.Names(cluster=getattr(args, "cluster", None), trust=args.trust)
    has_env = args.env is not None or args.vector is not None
    given = {"env": has_env, "env_kwargs": args.env_kwargs is not None}
    given |= {name: getattr(args, name) is not None for name in ("network", "wrappers")}
    used = {name: value for name, value in data.items() if not given.get(name)}
    algorithm = quote(str(data.get("algorithm", args.algorithm)))
    command = f"tandem train {algorithm} {{}}--config {shell_path(path)}"
    trust.expect(data, path, data.get("signature"), names, command, SettingError, used=used)


def fill(args: argparse.Namespace, path: Path, data: dict[str, Any]) -> dict[str, Any]:
    """Fill arguments that a command does not give from the `data` of a file; return the file's
    settings and options. A schedule that ends after the file's run keeps its horizon if the command
    has other steps. Raises SettingError if the algorithms differ; UnknownNameError for unknown
    settings."""
    named = data.get("algorithm")
    if args.algorithm is None and isinstance(named, str):
        if ":" in named:
            raise SettingError(
                f"{path} is for {named}, a custom class.",
                "its name in the command, since a file may not import code",
                f"tandem train {quote(named)} --config {shell_path(path)}",
            )
        args.algorithm = named
    algorithm = args.algorithm
    if named not in (None, algorithm, own.name_of(algorithm) if algorithm else None):
        raise SettingError(
            f"{path} is for {named}, but the command names {own.name_of(algorithm)}.",
            "the same algorithm in both",
            f"leave {own.name_of(algorithm)} out, or write a file for it: tandem config "
            f"{own.name_of(algorithm)} ENV.",
        )
    if (start := data.get("start")) and args.start_from is None:
        args.start_from = str(start["from"])
        args.which = args.which or str(start.get("which", "best"))
        args.load = args.load or ",".join(map(str, start.get("load", ())))
    for name in list(PLACES)[1:]:
        here = name != "env" or args.vector is None
        if here and data.get(name, "") != "" and getattr(args, name) is None:
            setattr(args, name, data[name])
    said: dict[str, Any] = {}
    if algorithm is None:
        return said
    before = data.get("settings", {}).get("steps") if hasattr(args, "steps") else None
    kinds = {"settings": algorithms.get(algorithm).Settings, "options": Options}
    for part, kind in kinds.items():
        known = {s.name: s.default for s in declared(kind)}
        for name, value in data.get(part, {}).items():
            if name not in known:
                place = _place_of(name, data, kinds["settings"])
                raise UnknownNameError(f"entry of [{part}] of {path}", name, known, place)
            if not _is_a(value, hint := hints_of(kind)[name]):
                raise SettingError(
                    f"{path} has {name} = {literal(value)} in [{part}].",
                    describe_type(hint) + (", without quotes" if isinstance(value, str) else ""),
                    f"write {name} = {literal(known[name])}.",
                )
            said[name] = tuple(value) if isinstance(value, list) else value
            if not hasattr(args, name):
                setattr(args, name, said[name])
                if hint is Schedule and _is_a(before, int):
                    ratio = before / max(1, convert("steps", args.steps, int, before))
                    if (schedule := convert(name, value, hint, known[name])).fraction > 1:
                        setattr(args, name, str(schedule.stretched(ratio)))
    return said


def _place_of(name: str, data: dict[str, Any], settings: Any = None) -> str:
    """Return advice on where a misplaced entry of a file belongs; "" if unknown. settings: those of
    the algorithm."""
    if settings is None and data.get("algorithm") in algorithms.names():
        settings = algorithms.get(data["algorithm"]).Settings
    for one in (name, *OTHER_NAMES.get(name, ())):
        if one in PLACES:
            return f"write {one} = … at the top of the file, above [settings]."
        for part, kind in (("settings", settings), ("options", Options)):
            if kind is not None and one in hints_of(kind):
                return f"write {one} = … under [{part}]."
    return ""


def _is_a(value: Any, hint: Any) -> bool:
    """Return True if a file's value has the type of a setting without conversion: a number in
    quotes is text."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:  # the choice itself is checked later
        return isinstance(value, type(inner[0]))
    if origin in (Union, UnionType):
        return any(
            value in get_args(one) if get_origin(one) is Literal else _is_a(value, one)
            for one in inner
        )
    if origin is tuple:
        each = value if isinstance(value, list) else [value]
        return all(_is_a(x, inner[0]) for x in each)
    if hint is int and isinstance(value, float):
        return value.is_integer()  # 1e6
    taken: Any = {float: (int, float), Schedule: (int, float, str)}.get(hint, hint)
    return isinstance(value, taken) and (hint is bool or not isinstance(value, bool))


def literal(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return json.dumps(str(value)) if isinstance(value, (str, Schedule)) else repr(value)
