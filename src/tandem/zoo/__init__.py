"""Tuned settings for algorithms and environments, with their sources.

There is one TOML file per algorithm, with a table per environment or family of environments
(families.toml); an environment's own table takes precedence. "Env-v1:name" holds alternative
settings for it, selected by `--entry name`; "Family:name" those for its family, and ":name" those
for environments without an entry of this name. `like` names one or more tables of the same file to
inherit settings from; later ones take precedence. `resolve` applies the settings after an
algorithm's defaults and before the values given to a run.

An installed package adds files of the same form: its entry points of the group `tandem.zoo` name
folders of them, as MODULE or MODULE.FOLDER. Reading these runs no code of the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tandem import algorithms
from tandem.algorithms import name_of
from tandem.errors import PluginError, SettingError, UnknownNameError, note, warn
from tandem.learning import fits
from tandem.learning.config import Options
from tandem.plugins import Plugin
from tandem.settings import Needs, Schedule, apply, check_ranges, effective, idle
from tandem.zoo import files, owners, user

RANGES = {"clip": "clip range", "radius": "trust-region radius"}


@dataclass(frozen=True)
class Entry:
    """Tuned settings, with their source and the differences from it. plugin: the package that
    provides them, if not tandem."""

    settings: dict[str, Any]
    source: str
    plugin: Plugin | None = None


def entry(algorithm: str, env: str, name: str = "") -> Entry | None:
    """Return the entry for this algorithm and environment, or None; with a `name`, the entry of
    that name. Raises UnknownNameError for an unknown name, PluginError if two packages provide the
    entry. If there is none, warns of packages whose unreadable files might contain it."""
    tables, key = entries(algorithm), _key(algorithm, env, name)
    if key is None and algorithm in algorithms.names():
        for fault in faults(algorithm):
            warn(str(fault))
    if name and key is None:
        kind, known = f"entry of {algorithm} for {env or 'any environment'}", named(algorithm, env)
        having = [n for n in algorithms.names() if name in named(n, env)]
        fix = "" if known else "leave entry out."
        if having:
            fix = f"leave entry out, or train {' or '.join(having)}, which has it."
        expected = "" if known else "no entry name, since there are no entries"
        raise UnknownNameError(kind, name, known, fix, expected)
    if key is None:
        return None
    if (clash := files.read(algorithm).clashes.get(key)) is not None:
        raise clash
    return tables[key]


def _key(algorithm: str, env: str, name: str) -> str | None:
    """Return the name of the table that applies to this pair; None if there is none."""
    tables, suffix = entries(algorithm), f":{name}" if name else ""
    return next((of + suffix for of in _reached(env) if of + suffix in tables), None)


def note_short(
    algorithm: str | type, env: str, entry: str, settings: Any, given: dict[str, Any]
) -> None:
    """Note that a run uses schedules of its entry but has less than half of the steps that the
    entry was tuned for. settings: the result of `resolve`."""
    name = name_of(algorithm)
    key = _key(name, env, entry)
    said = {} if key is None else entries(name)[key].settings
    scheduled = _schedules(settings, said.keys() - given.keys())
    if scheduled and 2 * settings.steps < said.get("steps", 0):
        names = sorted({RANGES.get(n, "learning rate") for n in scheduled}, reverse=True)
        note(
            f"The zoo's settings for {name} in {key} are tuned for {said['steps']:,} steps, but "
            f"this run has {settings.steps:,}: it decays the "
            f"{' and '.join(names)} as slowly as the longer run."
        )


def _schedules(settings: Any, names: Iterable[str]) -> dict[str, Schedule]:
    """Return those of the settings `names` whose schedules span the steps of their entry: learning
    rates and RANGES."""
    found = {n: getattr(settings, n) for n in names if n.endswith("learning_rate") or n in RANGES}
    return {n: x for n, x in found.items() if isinstance(x, Schedule) and x.end is not None}


def use(path: Path | None) -> None:
    """Read a user's own settings from this file; None: from the file in the configuration
    folder."""
    if user.choose(path):
        files.read.cache_clear()
        entries.cache_clear()


def environments(algorithm: str) -> list[str]:
    """Return the environments and families for which an algorithm has entries."""
    return [table for table in entries(algorithm) if ":" not in table]


def named(algorithm: str, env: str | None = None) -> list[str]:
    """Return the names of alternative entries for this pair, or for the algorithm in any
    environment."""
    split = [table.rpartition(":") for table in entries(algorithm)]
    mine = (name for of, colon, name in split if colon and (env is None or of in _reached(env)))
    return list(dict.fromkeys(mine))


@cache
def families() -> dict[str, tuple[str, ...]]:
    """Return the environments of each family, as ids or patterns; tandem's families first."""
    found = files.read(files.FAMILIES).tables
    return {name: tuple(one.content) for name, one in found.items()}


def _reached(env: str) -> list[str]:
    """Return the names of the tables that apply to an environment, the most specific first.
    module:Id also has those of the id."""
    ids = list(dict.fromkeys((env, env.rpartition(":")[2])))
    of = [n for n, some in families().items() if any(fnmatchcase(i, s) for i in ids for s in some)]
    # a class or function with the name of a family does not belong to it
    return [*(i for i in ids if i not in families()), *of, ""]


@cache
def entries(algorithm: str) -> dict[str, Entry]:
    """Return all entries of an algorithm by environment, tandem's first; {} for an unknown
    algorithm."""
    if algorithm not in algorithms.names():
        return {}
    tables = files.read(algorithm).tables

    def settings(env: str) -> dict[str, Any]:
        table = tables[env].content
        own = {name: _value(x) for name, x in table.items() if name not in ("source", "like")}
        like = table.get("like", ())
        for other in reversed((like,) if isinstance(like, str) else like):
            own = settings(other) | own
        return own

    return {
        env: Entry(settings(env), one.content["source"], one.plugin) for env, one in tables.items()
    }


def faults(algorithm: str) -> list[PluginError]:
    """Return the errors in installed packages' entries of an algorithm, or in their families."""
    shared = files.read(files.FAMILIES)
    mine = files.read(algorithm).faults
    return list({str(f): f for f in (*shared.faults, *shared.clashes.values(), *mine)}.values())


def _value(value: object) -> Any:
    """Convert a TOML list to a tuple, as in settings."""
    return tuple(value) if isinstance(value, list) else value


class Resolved(NamedTuple):
    """Result of `resolve`. source: the source of the settings. notes: on given values without
    effect, and on numbers adjusted to fit others."""

    settings: Any
    options: Options
    source: str
    notes: list[str]


def resolve(algorithm: str | type, env: str, given: dict[str, Any]) -> Resolved:
    """Return the settings and options of a run: the defaults, then the zoo's entry for the
    algorithm and environment, then the given values, then their implications. Raises
    UnknownNameError for a name that is neither a setting of the algorithm nor an option,
    SettingError for a value outside its range."""
    kind = algorithms.get(algorithm)
    owners.refuse(kind, given)
    chosen, options, tuned = _chosen(algorithm, env, given)
    for part in (chosen, options):  # also check values without effect
        check_ranges(part)
    (chosen, idle_here), (options, idle_there) = effective(chosen, given), effective(options, given)
    chosen, changed = fits.fitted(kind.needs, chosen, options.devices, given)
    source = tuned.source if tuned else f"defaults of {name_of(algorithm)}"
    return Resolved(chosen, options, source, [*idle_here, *idle_there, *changed])


def without_effect(algorithm: str | type, env: str, values: dict[str, Any]) -> dict[str, Needs]:
    """Return the settings and options that have no effect in a run with these `values`, with the
    values that they require."""
    chosen, options, _ = _chosen(algorithm, env, values)
    return idle(chosen) | idle(options)


def usual_in(algorithm: str | type, env: str, file: dict[str, Any]) -> set[str]:
    """Return the settings in a config file that are the same without it, so that command-line flags
    may imply other values for them."""
    names = {f.name for f in fields(algorithms.get(algorithm).Settings)}
    asked = {n: x for n, x in file.items() if n in ("entry", "steps")}
    usual, told = (_chosen(algorithm, env, x)[0] for x in (asked, file))
    same = {n for n in file.keys() & names if getattr(told, n) == getattr(usual, n)} - {"steps"}
    rest = {n: x for n, x in file.items() if n not in same}
    return same if _chosen(algorithm, env, rest)[0] == told else set()


def _chosen(
    algorithm: str | type, env: str, values: dict[str, Any]
) -> tuple[Any, Options, Entry | None]:
    """Return settings and options with the given values, and the entry that applies."""
    kind = algorithms.get(algorithm)
    own, others = {f.name for f in fields(kind.Settings)}, {f.name for f in fields(Options)}
    options = apply(Options(), {n: v for n, v in values.items() if n in others})
    tuned = entry(name_of(algorithm), env, options.entry)
    said = tuned.settings if tuned else {}
    given = {n: v for n, v in values.items() if n in own}
    base = _applied(kind.Settings(), tuned)
    steps = apply(base, {n: v for n, v in given.items() if n == "steps"}).steps
    # defaults depend on the length, which an entry may set
    base = _applied(fits.of_length(kind.Settings(), steps), tuned)
    # in a run shorter than its entry, schedules still span the entry's steps
    ratio = said.get("steps", steps) / max(1, steps)
    base = replace(base, **{n: x.stretched(ratio) for n, x in _schedules(base, said).items()})
    if "envs" not in given and isinstance(options.workers, int):  # at least one per process
        beside = not options.runners and (kind.needs == "rollouts" or options.ahead == 0)
        processes = options.runners or options.workers
        base = replace(base, envs=max(base.envs, processes + beside if processes else 0))
    return apply(base, given).settled(values), options, tuned


def _applied(settings: Any, tuned: Entry | None) -> Any:
    """Return the settings with those of an entry. Raises PluginError if a package's do not fit."""
    try:
        return settings if tuned is None else apply(settings, tuned.settings)
    except (SettingError, UnknownNameError) as error:
        if tuned is None or tuned.plugin is None:
            raise
        raise tuned.plugin.fault(
            f"has an entry ({tuned.source}) that does not fit: {error.happened}",
            error.expected,
            f"{error.fix.rstrip('.?')} in it",
        ) from error
