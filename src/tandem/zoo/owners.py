"""What is said of a setting that an algorithm does not have, to a program and to a command alike:
which algorithms have it, and would train with it as all else was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, NamedTuple, get_args, get_origin

from tandem import algorithms, spaces
from tandem.algorithms import name_of
from tandem.algorithms.critics import CriticSettings, Values
from tandem.errors import SettingError, SpaceError, TandemError, UnknownNameError, nearest
from tandem.learning.config import Options
from tandem.settings import hints_of
from tandem.zoo.other_names import CHOICES, COUNTS, FORMS, INSTEAD, OTHER_NAMES

CLOSE = 0.8  # how alike another algorithm's setting is that may have been meant


class Fault(NamedTuple):
    """What keeps an algorithm from a run, and how far away it is: actions never fit, where settings
    may."""

    what: str
    rank: int = 0


def refuse(
    algorithm: str | type,
    env: Any,
    values: Mapping[str, Any],
    kwargs: Mapping[str, Any] | None = None,
    taken: Iterable[str] = (),
    command: str = "",
) -> None:
    """UnknownNameError for the first of `values` that is a setting neither of the algorithm nor of
    a run. env, kwargs: what is to be trained in, as far as it is known. taken: arguments that may
    have been meant. command: the one that has it as a flag, as in "find lr"; "": a program."""
    kind = algorithms.get(algorithm).Settings
    own, options = _names(kind), _names(Options)
    _refuse_quantiles(name_of(algorithm), kind, values)
    odd = next((n for n in values if n not in own | options), None)
    if odd is None:
        return
    name, known = name_of(algorithm), {*own, *options, *taken}
    others = {n: _names(k.Settings) for n, k in algorithms.built_in().items()}
    help = f"`tandem {command or 'train'} {name} --help` shows those of {name}."
    close = nearest(odd, known.union(*others.values()), 1)
    if close and close[0] not in known:
        close = nearest(odd, close, 1, CLOSE) or nearest(odd, known, 1)
    fix = ""
    if having := [n for n, names in others.items() if odd in names]:
        fix = f"leave it out: {_owned(having, env, values, kwargs)} {help}"
    elif odd in INSTEAD and not command:
        fix = f"{INSTEAD[odd].format(odd=odd, algorithm=name)} {help}"
    elif odd in OTHER_NAMES:
        fix = f"{_renamed(odd, known, others, command)} {help}"
    elif chosen := _choice(odd, kind, command):
        fix = f"{chosen} {help}"
    elif not close:
        fix = f"leave it out. {help}"
    elif close[0] not in known:
        where = ", ".join(n for n, names in others.items() if close[0] in names)
        fix = f"leave it out: {_spelled(close[0], command)!r} is a setting of {where}. {help}"
    what = f"{'flag' if command else 'setting'} of {name}"
    shown = [_spelled(n, command) for n in known]
    raise UnknownNameError(what, _spelled(odd, command), shown, fix)


def _refuse_quantiles(name: str, kind: type, values: Mapping[str, Any]) -> None:
    """Critics of actor-critics that learn quantiles are another algorithm's."""
    asked = values.get("values")
    if asked == "quantile" and issubclass(kind, CriticSettings):
        raise SettingError(
            f"values={asked!r} with {name}.",
            f"one of {', '.join(map(repr, get_args(Values)))}: critics that learn quantiles are "
            "those of tqc",
            "train tqc instead, and leave values out.",
        )


def _names(kind: type) -> set[str]:
    return {f.name for f in fields(kind)}


def _spelled(name: str, command: str) -> str:
    return "--" + name.replace("_", "-") if command else name


def _renamed(odd: str, known: set[str], others: Mapping[str, set[str]], command: str) -> str:
    """What a name of other libraries is here, as advice."""
    if odd == "verbose" and command:
        return "leave it out: progress is shown, unless --quiet is given."
    names = OTHER_NAMES[odd]
    here = next((name for name in names if name in known), None)
    if here is None:
        owners = ", ".join(n for n, own in others.items() if names[0] in own)
        if not owners:  # nor of a run
            return f"leave it out: it is {names[0]!r} of tandem.train, in a program."
        return f"leave it out: it is {_spelled(names[0], command)!r} here, a setting of {owners}."
    said = f"{_spelled(odd, command)!r} is {_spelled(here, command)!r} here"
    if counts := COUNTS.get(odd):
        return f"{said}: {counts}."
    if value := FORMS.get(odd, FORMS.get(here)):
        shown = f"{_spelled(here, command)} {value}" if command else f"{here}={value!r}"
        return f"{said}, as in {shown}."
    return f"{said}."


def _choice(odd: str, kind: type, command: str) -> str:
    """What is a choice of a setting, as advice: of the algorithm or a run, else of others."""
    others = {n: k.Settings for n, k in algorithms.built_in().items()}
    places = [("", kind), ("", Options), *others.items()]
    name, choice = CHOICES.get(odd, ("", odd))
    found = [(n, name if name in _names(k) else _choosing(odd, k)) for n, k in places]
    name = name or next((setting for _, setting in found if setting), "")
    if not name:
        return ""
    owners = [n for n, setting in found if setting == name]
    shown = f"{_spelled(name, command)} {choice}" if command else f"{name}={choice!r}"
    if "" in owners or not owners:  # those of none are of every run
        return f"{_spelled(odd, command)!r} is a choice of a setting here: {shown}."
    return f"leave it out: {shown} is a setting of {', '.join(owners)}."


def _choosing(odd: str, kind: type) -> str:
    """The one setting that this may be a choice of; "" where there is none, or several."""
    found = [
        name
        for name, hint in hints_of(kind).items()
        if any(odd in get_args(t) for t in (hint, *get_args(hint)) if get_origin(t) is Literal)
    ]
    return found[0] if len(found) == 1 and odd not in ("auto", "no") else ""


def _owned(
    having: list[str], env: Any, values: Mapping[str, Any], kwargs: Mapping[str, Any] | None
) -> str:
    """Which of those who have a setting take all that was given, some of them with another setting
    beside it; or why one of them does not."""
    seen, found, takes = _seen(env, kwargs), dict[str, Fault](), dict[str, list[str]]()
    for name in having:
        given = _fault(algorithms.get(name), env, kwargs, seen, values)
        if isinstance(given, Fault):
            found[name] = given
        else:
            beside = " and ".join(f"{n}={x!r}" for n, x in given.items())
            takes.setdefault(beside, []).append(name)
    if takes:  # as they are, if there are such; else what most of them need
        beside = max(takes, key=lambda n: (n == "", len(takes[n])))
        return f"it is a setting of {', '.join(takes[beside])}{beside and ', with '}{beside}."
    name, fault = min(found.items(), key=lambda one: one[1].rank)
    return f"no algorithm takes it with all else as given ({name}: {fault.what[:-1]})."


def _seen(env: Any, kwargs: Mapping[str, Any] | None) -> tuple[Any, Any] | None:
    """Gymnasium's spaces of an environment; None where they are not to be had."""
    from tandem.envs import atari
    from tandem.envs.factory import spaces_of
    from tandem.envs.vector_source import VectorSource

    if env is None or isinstance(env, VectorSource):  # a simulator may not be made twice
        return None
    try:
        made: tuple[Any, Any] = spaces_of(
            env, {**(kwargs or {}), **atari.arguments(env, Options())}
        )
        return made
    except Exception:  # whatever the environment's code comes to: the run will tell of it
        return None


def _fault(
    kind: Any,
    env: Any,
    kwargs: Mapping[str, Any] | None,
    seen: tuple[Any, Any] | None,
    values: Mapping[str, Any],
) -> Fault | dict[str, Any]:
    """Why an algorithm does not take all that was given, as its door would say; else what else has
    to be given."""
    # what no command needs before somebody errs takes a while to be imported
    from tandem.compiled import choice
    from tandem.envs.factory import environment_name
    from tandem.learning import asynchronous, fits, selfplay
    from tandem.learning.goals import goals_of
    from tandem.learning.seeds import Generators
    from tandem.zoo import lacking, settle  # which asks here

    name, known = name_of(kind), _names(kind.Settings) | _names(Options)
    try:
        if odd := [n for n in values if n not in known]:
            return Fault(f"{name} has no {odd[0]}.")
        place = environment_name(env) if env else ""
        beside = lacking(kind, place, dict(values))
        settings, options, _ = settle(kind, place, {**values, **beside})
        fits.check(kind.needs, settings, options.devices)
        if options.learners != "auto":
            asynchronous.refuse(name, kind.needs, env, options)
            asynchronous.refuse_statistics(options.learners, settings)
        if options.opponents:
            selfplay.refuse(name, kind.needs, env, options)
        if settings.vectorization == choice.MODE:
            for what, _ in choice.obstacles(kind, settings, options):
                return Fault(f"vectorization='compiled' with {what}.")
        if seen is not None:
            observation = spaces.observation_spec(seen[0])
            action = spaces.action_leaf(seen[1], observation)
            chosen = algorithms.for_actions(kind, action)
            chosen.check(observation, action, settings)
            chosen.sources(observation, action, settings, None, seen[0], Generators(0))
            if settings.hindsight != "no":
                goals_of(env, kwargs, observation, settings.copy_info).close()
    except TandemError as error:
        return Fault(error.happened, isinstance(error, SpaceError))
    return beside
