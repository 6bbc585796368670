"""Custom algorithms: classes that derive from `base.Algorithm`, their names in files, and the
checks before a run starts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from tandem import algorithms, plugins
from tandem.algorithms import name_of as name_of
from tandem.algorithms.base import Algorithm, ReplaySettings, RolloutSettings, Settings
from tandem.algorithms.on_sequences import SequenceSettings
from tandem.errors import SettingError, TandemError, misfit
from tandem.settings import Schedule, hints_of, named_here
from tandem.spaces import Leaf, Spec

PAGE = "docs/advanced/extending.md has one from beginning to end."
NEEDS: dict[str, type[Settings]] = {
    "transitions": ReplaySettings,
    "rollouts": RolloutSettings,
    "sequences": SequenceSettings,
}
PLAIN = (int, float, bool, str, Schedule)  # types that text and values convert to


def is_known(name: str) -> bool:
    """Return True for the name of a built-in algorithm or of one from an installed package. Other
    names are those of custom classes."""
    return name in algorithms.names()


def is_ours(name: str) -> bool:
    """Return True for the name of a built-in algorithm."""
    return name in algorithms.NAMES


def checked(algorithm: str | type | Algorithm, taken: frozenset[str] = frozenset()) -> Any:
    """Return the class of a name, or the custom class itself. Raise SettingError if the class has
    faults. taken: names that its own settings must not have."""
    if not isinstance(algorithm, type):
        if isinstance(algorithm, Algorithm):
            raise SettingError(
                f"the algorithm is an object of {type(algorithm).__name__}.",
                "the class, which a run instantiates with its networks",
                f"give {type(algorithm).__name__} itself.",
            )
        kind = algorithms.get(algorithm)
        if not is_ours(algorithm):
            plugin = plugins.found("algorithms")[algorithm]
            for happened, expected, fix in _faults(kind, taken):
                raise plugin.fault(f"{happened}.", expected, fix.rstrip("."))
        return kind
    if not issubclass(algorithm, Algorithm):
        raise SettingError(
            f"{algorithm.__name__} is not an algorithm.",
            "a name such as 'ppo', or a class that derives from tandem.Algorithm",
            f"write class {algorithm.__name__}(tandem.Algorithm); {PAGE}",
        )
    if is_ours(name_of(algorithm)):
        return algorithm
    for happened, expected, fix in _faults(algorithm, taken):
        raise SettingError(f"{algorithm.__name__} {happened}.", expected, f"{fix} {PAGE}")
    return algorithm


def _faults(kind: type[Algorithm], taken: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the faults that prevent a class from being trained, as (fault, expected, fix)."""
    if missing := sorted(kind.__abstractmethods__):
        yield (
            f"has no {', '.join(missing)}",
            "all abstract methods of tandem.Algorithm",
            f"write its method{'s' * (len(missing) > 1)} {', '.join(missing)}.",
        )
    needs = getattr(kind, "needs", None)
    if needs not in NEEDS:
        yield (
            f"has needs = {needs!r}",
            "what it learns from: 'transitions' of a replay buffer, whole 'rollouts', or "
            "'sequences'",
            'write needs = "transitions", for example, in the class.',
        )
    acting = getattr(kind, "acting", None)
    if not isinstance(acting, tuple) or not acting:
        yield (
            f"has acting = {acting!r}",
            "a tuple with the names of the roles that act uses",
            'write acting = ("actor",), for example, in the class.',
        )
    if needs != "transitions" and kind.prepare is Algorithm.prepare:
        yield (
            f"learns from {needs}, but has no prepare",
            "a method that makes a Batch from a trajectory",
            "write its method prepare(self, trajectory, networks).",
        )
    if why := misfit(kind, "backend", "networks", "observation", "action", "settings"):
        yield (
            f"cannot be created: {why}",
            "a class that is called with a backend, sources of networks by role, the spaces of "
            "observations and actions, and settings",
            "write __init__(self, backend, networks, observation, action, settings).",
        )
    yield from _faults_of_settings(kind, getattr(kind, "Settings", None), taken)


def _faults_of_settings(
    kind: type[Algorithm], own: Any, taken: frozenset[str]
) -> Iterator[tuple[str, str, str]]:
    base = NEEDS[kind.needs]
    if not isinstance(own, type) or not issubclass(own, base) or not is_dataclass(own):
        yield (
            f"learns from {kind.needs}, but has Settings = {getattr(own, '__name__', own)}",
            f"a dataclass that derives from {base.__name__}",
            f"write Settings = {base.__name__} in the class, or a class that derives from it.",
        )
    for part in own.__mro__:
        names = inspect.get_annotations(part)
        if names and "__dataclass_fields__" not in vars(part):
            yield (
                f"has settings that are not fields: {', '.join(names)} of {part.__name__}",
                "a dataclass, whose fields are the settings",
                f"write @dataclass(frozen=True) above class {part.__name__}.",
            )
    try:
        hints = hints_of(own)
    except NameError as error:
        yield (
            f"has a setting of unknown type in {own.__module__}: {error}",
            "types that the module of the settings imports",
            "import it at the top of the module.",
        )
    inherited = {f.name for f in fields(base)}
    for f in fields(own):
        name = f"setting {f.name!r}"
        if f.default is MISSING:
            yield (
                f"has a {name} without a default",
                "a default",
                f"write {f.name}: … = its default.",
            )
        if not _is_readable(hints[f.name]):
            yield (
                f"has a {name} of type {hints[f.name]!r}",
                "int, float, bool, str, Schedule, a Literal, a tuple of one of these, or several "
                "of them joined by |",
                f"give {f.name} one of these types.",
            )
        if f.name in taken - inherited:
            yield (
                f"has a {name}, which is an argument of tandem.train or an option of runs",
                "another name",
                f"rename it, for example, to own_{f.name}.",
            )


def _is_readable(hint: Any) -> bool:
    """Return True if `settings.convert` supports this type and JSON preserves its values."""
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return all(isinstance(value, (str, int, float)) for value in inner)
    if get_origin(hint) in (Union, UnionType):
        return all(_is_readable(part) for part in inner)
    if get_origin(hint) is tuple:
        return len(inner) == 2 and inner[1] is ... and inner[0] in (int, float, str)
    return hint in PLAIN


def check_roles(kind: type[Algorithm], observation: Spec, action: Leaf, settings: Settings) -> None:
    """Raise SettingError if an algorithm that is not built in acts with roles that have no
    networks."""
    if is_ours(name_of(kind)):
        return
    roles = kind.roles(observation, action, settings)
    if strangers := [r for r in kind.acting if r not in roles]:
        raise SettingError(
            f"{kind.__name__} acts with {', '.join(map(repr, strangers))}, but has the roles "
            f"{', '.join(map(repr, roles))}.",
            "acting to name only these roles",
            f"write acting = ({next(iter(roles))!r},), for example, in the class.",
        )


def named(path: str) -> type:
    """Return the class that "module:Class" names; the working directory is searched too. Raise
    UnknownNameError if there is none."""
    return named_here(
        path,
        "algorithm",
        "MODULE:CLASS",
        "the name of an algorithm, or module:Class of a custom one",
        accepts=lambda found: isinstance(found, type),
        offers=_is_complete,
    )


def _is_complete(found: object) -> bool:
    return (
        isinstance(found, type) and issubclass(found, Algorithm) and not inspect.isabstract(found)
    )


def of_file(
    name: Any,
    given: str | type | Algorithm | None,
    place: object,
    again: str,
    error: type[TandemError],
    package: str = "",
) -> tuple[Any, str]:
    """Return the class of the algorithm that the file at `place` names, and its current name.

    given: the class, if the caller passes one. It is required for names that are neither built in
    nor from an installed package, since a file must not trigger an import. package: the source of
    the algorithm according to the file (`plugins.to_install`). again: the call that passes the
    class, for the message. Raises `error` if the class is missing or a different one."""
    called = str(name).rpartition(".")[2].rpartition(":")[2]
    is_own = isinstance(name, str) and ":" in name and not is_known(name)
    if isinstance(name, str) and ":" not in name and not is_known(name):
        raise error(
            f"{place} was trained by {name!r}, an algorithm that no installed package provides.",
            f"one of {', '.join(algorithms.names())}, or the package that provides "
            f"{name!r}{package and f': {package}'}",
            f"{plugins.to_install(package)}; `tandem list` then shows it.",
        )
    if given is None:
        if not is_own:
            return algorithms.get(name), name
        raise error(
            f"{place} was trained by {name}, a custom class whose code is not saved.",
            f"the class {called}",
            f"import {called}, then {again.format(called)}",
        )
    kind = checked(given)
    now = name_of(kind)
    if now != name and not (is_own and kind.__name__ == called and not is_ours(now)):
        raise error(
            f"{place} was trained by {name}, not by {now}.",
            "the algorithm that it was trained by",
            f"import {called}, then {again.format(called)}"
            if is_own
            else "leave the algorithm out: the file names it.",
        )
    return kind, now
