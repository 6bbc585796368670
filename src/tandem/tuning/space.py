"""Search space of a sweep: ranges and choices for an algorithm's settings, converted to and from
Optuna's distributions."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from tandem.algorithms.base import Settings
from tandem.errors import SettingError, UnknownNameError, needs
from tandem.settings import (
    PARTS,
    SCALES,
    Declared,
    Schedule,
    Search,
    apply,
    check_ranges,
    declared,
    hints_of,
    idle,
)
from tandem.types import JSONDict

Drawn = bool | int | float | str

EXAMPLE = 'learning_rate = { low = 1e-4, high = 1e-2, scale = "log" }'
FORMS = (
    "values, [32, 64]; a range, { low = 0.9, high = 0.99 }; true: its default range; false: none"
)
# upper limits of default ranges as a share of a trial's steps, so that a trial makes updates
SHARES = {"learning_starts": 0.2, "target_every": 0.1, "rollout": 0.05}
SHOWN = {"log": ", logarithmic", "near one": ", logarithmic in the distance from 1"}


def optuna() -> Any:
    """Import Optuna and return it. Raises EngineError if it is not installed."""
    with needs("Optuna", "to propose settings", "pip install 'tandem-rl[sweep]'"):
        import optuna  # an optional package
    return optuna


@dataclass(frozen=True)
class Dimension:
    """One number or choice of a space. whole: an integer."""

    setting: str
    search: Search
    whole: bool = False

    @property
    def label(self) -> str:
        """The setting and the part of its schedule: "epsilon.end"."""
        part = self.search.part
        return self.setting if part == "start" else f"{self.setting}.{part}"

    @property
    def name(self) -> str:
        """The name in Optuna, which shows what is sampled: "1 - gamma"."""
        before = {"near one": "1 - ", "powers of two": "log2 "}
        return f"{before.get(self.search.scale, '')}{self.label}"

    def distribution(self) -> Any:
        """Return Optuna's distribution."""
        kinds, s = optuna().distributions, self.search
        if s.choices:
            return kinds.CategoricalDistribution(s.choices)
        if s.scale == "powers of two":
            return kinds.IntDistribution(*map(_exponent, (s.low, s.high)))
        if self.whole:
            return kinds.IntDistribution(int(s.low), int(s.high), log=s.scale == "log")
        return kinds.FloatDistribution(s.low, s.high, log=s.scale != "linear")

    def suggest(self, trial: Any) -> Drawn:
        """Return Optuna's sample for a trial, or its earlier sample if there is one."""
        kinds, d = optuna().distributions, self.distribution()
        if isinstance(d, kinds.CategoricalDistribution):
            return trial.suggest_categorical(self.name, d.choices)
        whole = isinstance(d, kinds.IntDistribution)
        suggest = trial.suggest_int if whole else trial.suggest_float
        return suggest(self.name, d.low, d.high, log=d.log)

    def lowest(self) -> Drawn:
        """Return the first value that Optuna can sample."""
        return self.search.choices[0] if self.search.choices else self.distribution().low

    def value(self, drawn: Any) -> Any:
        """Convert a sample to a value of the setting; numbers have three digits."""
        if self.search.choices:
            return drawn
        if self.search.scale == "powers of two":
            return 2**drawn
        rounded = float(f"{drawn:.3g}")
        if self.search.scale == "near one":
            return float(f"{1 - rounded:.9g}")
        return int(rounded) if self.whole else rounded

    def drawn(self, value: Any) -> Drawn | None:
        """Convert a value of the setting to a sample; None if outside the range. On a logarithmic
        scale 0 counts as the lowest number."""
        s = self.search
        if s.choices:
            return next((c for c in s.choices if _same(c, value)), None)
        if isinstance(value, str):
            return None
        if s.scale == "powers of two":
            exponent = math.log2(value) if value > 0 else -1.0
            fits = exponent.is_integer() and s.low <= value <= s.high
            return int(exponent) if fits else None
        number = 1 - value if s.scale == "near one" else value
        if s.scale != "linear" and number == 0:
            number = s.low
        # 1 - 0.9 is slightly less than 0.1
        slack = 1e-9 * (s.high - s.low)
        if not s.low - slack <= number <= s.high + slack:
            return None
        return type(value)(min(max(number, s.low), s.high))

    def __str__(self) -> str:
        """Return for example "1e-05 to 0.01, logarithmic"."""
        s = self.search
        if s.choices:
            return ", ".join(f"'{c}'" if "," in str(c) else str(c) for c in s.choices)
        if s.scale == "powers of two":
            low, high = (_exponent(x) for x in (s.low, s.high))
            return ", ".join(str(2**k) for k in range(low, high + 1))
        ends = (1 - s.high, 1 - s.low) if s.scale == "near one" else (s.low, s.high)
        return f"{ends[0]:.9g} to {ends[1]:.9g}{SHOWN.get(s.scale, '')}"


def sequence_of(settings: Any) -> int:
    """Return the number of consecutive rows in batches from a replay buffer: the sequence length
    for recurrent networks, else 1."""
    replays = hasattr(settings, "buffer_size") and hasattr(settings, "sequence")
    return settings.sequence if replays and settings.recurrent else 1


def _exponent(power: float) -> int:
    return round(math.log2(power))


def _same(choice: object, value: object) -> bool:
    """Return True if a choice equals this value of a setting; layer widths are written as text."""
    if isinstance(value, tuple):
        return [int(n) for n in str(choice).replace(",", " ").split()] == list(value)
    return bool(choice == value)


class Space:
    """Dimensions for the settings of an algorithm. base: the settings of a run that the space does
    not override."""

    def __init__(self, dimensions: Iterable[Dimension], base: Settings) -> None:
        self.dimensions, self.base = tuple(dimensions), base

    def suggest(self, trial: Any) -> dict[str, Drawn]:
        """Return Optuna's samples for a trial, by dimension name."""
        return {d.name: d.suggest(trial) for d in self.dimensions}

    def settings(self, drawn: Mapping[str, object]) -> JSONDict:
        """Convert samples to settings, in the form of Python or command-line arguments."""
        found: JSONDict = {}
        for d in self.dimensions:
            value, now = d.value(drawn[d.name]), getattr(self.base, d.setting)
            if isinstance(now, Schedule):
                now = Schedule.parse(found.get(d.setting, now))
                if d.search.choices:
                    value = str(value)
                elif d.search.part == "start":
                    value = str(now.moved(value))
                else:
                    value = str(replace(now, **{d.search.part: value}))
            found[d.setting] = value
        return found

    def trial(self, drawn: Mapping[str, object]) -> JSONDict:
        """Convert samples to the settings of a trial: without those that have no effect in
        combination, and with the batch size rounded to whole sequences."""
        found = self.settings(drawn)
        chosen = apply(self.base, found)
        nothing = idle(chosen)
        found = {name: value for name, value in found.items() if name not in nothing}
        if (of := sequence_of(chosen)) > 1 and "batch_size" in found:
            found["batch_size"] = max(1, round(chosen.batch_size / of)) * of
        return found

    def as_they_are(self) -> tuple[JSONDict, list[str]]:
        """Return the samples that keep the settings unchanged, and descriptions of the settings
        that lie outside the space."""
        drawn, outside = {}, []
        nothing = idle(self.base)
        for d in self.dimensions:
            value = whole = getattr(self.base, d.setting)
            if isinstance(value, Schedule):
                constant = value.start if value.end is None else value.end
                parts = {"start": value.start, "end": constant, "fraction": value.fraction}
                value = str(value) if d.search.choices else parts[d.search.part]
            drawn[d.name] = d.drawn(value)
            any_does = d.setting in nothing or len(d.search.choices) == 1
            if drawn[d.name] is None and any_does:
                drawn[d.name] = d.lowest()
            elif drawn[d.name] is None:
                outside.append(f"{d.setting}={whole}")
        return drawn, outside

    def lines(self) -> dict[str, str]:
        """Return each setting's range as text."""
        lines, of = {d.label: str(d) for d in self.dimensions}, sequence_of(self.base)
        if of > 1 and "batch_size" in lines:
            lines["batch_size"] += f"; each as the nearest multiple of sequence={of}"
        return lines

    def to_json(self) -> list[JSONDict]:
        """Return JSON data for `from_json`."""
        plain = [asdict(d) for d in self.dimensions]
        return [p | {"search": {k: v for k, v in p["search"].items() if v == v}} for p in plain]

    @classmethod
    def from_json(cls, data: Sequence[JSONDict], base: Settings) -> Space:
        """Return the space from the result of `to_json`. Raises UnknownNameError for an unknown
        setting."""
        for name in (d["setting"] for d in data):
            if name not in hints_of(type(base)):
                raise UnknownNameError("searchable setting", name, hints_of(type(base)))
        searches = [{**d["search"], "choices": tuple(d["search"]["choices"])} for d in data]
        dimensions = [
            Dimension(d["setting"], Search(**s), d["whole"])
            for d, s in zip(data, searches, strict=True)
        ]
        return cls(dimensions, base)


def space_of(
    base: Settings, given: Mapping[str, object], told: Mapping[str, object] | None = None
) -> Space:
    """Return the search space of an algorithm with settings `base`: the ranges declared by its
    settings, except those that are `given`. told: overrides, as in a file (`read`).

    Raises UnknownNameError for an unknown setting, SettingError for an invalid range.
    """
    told = dict(told or {})
    only = told.pop("only", False)
    if not isinstance(only, bool):
        raise _odd("only", only, "true, to search only the settings listed here, or false")
    known = {s.name: s for s in declared(type(base))}
    for name in told:
        if name not in known:
            raise UnknownNameError("searchable setting", name, known)
        if name in given:
            raise SettingError(
                f"{name}={given[name]} was given, but the space has a range for it.",
                "only one of the two",
                f"leave {name} out, or remove it from the space.",
            )
    hints, dimensions = hints_of(type(base)), list[Dimension]()
    for name, setting in known.items():
        searches = () if only or name in given else _within(name, setting.search, base)
        if name in told:
            searches = _searches(setting, told[name], hints[name])
        for search in searches:
            dimension = Dimension(name, search, hints[name] is int)
            _check(dimension, base)
            dimensions.append(dimension)
    _refuse_idle(dimensions, base, told)
    if not dimensions:
        raise SettingError(
            "there is nothing to search.",
            "at least one setting that has a range and is not given",
            f"leave out a setting that is given, or add one to the space: {EXAMPLE}",
        )
    return Space(dimensions, base)


def fixed_beside(
    kind: type, given: Mapping[str, object], told: Mapping[str, object]
) -> dict[str, list[object]]:
    """Return those of the settings `given` that have an effect only in some trials, depending on
    other settings in the space. Each becomes a dimension with a single choice, which only such
    trials get. kind: the algorithm's settings class. told: the overrides of a space (`read`)."""
    varied = {name for name, said in told.items() if said is not False}
    if not told.get("only"):
        varied |= {s.name for s in declared(kind) if s.search and s.name not in told}
    varied -= given.keys()
    gated = {s.name for s in declared(kind) if s.needs and s.needs.values.keys() & varied}
    plain = (bool, int, float, str, list, tuple)
    return {
        name: [value if isinstance(value, plain) else str(value)]
        for name, value in given.items()
        if name in gated and name not in told
    }


def _refuse_idle(dimensions: list[Dimension], base: Settings, told: Mapping[str, object]) -> None:
    """Raise SettingError for an override that has no effect in any trial."""
    varied = {d.setting for d in dimensions}
    for name, need in idle(base).items():
        if name in varied and name in told and not varied & need.values.keys():
            raise SettingError(
                f"the space has a range for {name}, which has no effect without {need}.",
                f"{need}, or a range for {' or '.join(need.values)} in the space",
                f"give {need}, or leave {name} out of the space.",
            )


def read(path: str | Path) -> JSONDict:
    """Return a space from a TOML file. Raises SettingError if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingError(
            f"cannot read the space {path}: {error}.",
            f"a TOML file with a line for each setting: {FORMS}",
            f"for example, write: {EXAMPLE}",
        ) from error


def _within(name: str, searches: tuple[Search, ...], base: Settings) -> tuple[Search, ...]:
    """Return a setting's default ranges, limited to values that leave room for updates in a trial
    of base's steps."""
    if name not in SHARES:
        return searches
    most = SHARES[name] * base.steps / (base.envs if name == "rollout" else 1)

    def rounded(number: float, scale: str) -> int:
        number = max(1, int(number))
        return 1 << (number.bit_length() - 1) if scale == "powers of two" else number

    return tuple(
        replace(s, low=min(s.low, rounded(most / 10, s.scale)), high=rounded(most, s.scale))
        if s.high > most
        else s
        for s in searches
    )


def _searches(setting: Declared, told: object, hint: object) -> tuple[Search, ...]:
    """Return the ranges of a setting for its entry in a space."""
    if told is False:
        return ()
    if told is True:
        return setting.search or (_by_type(setting, hint),)
    if isinstance(told, list | tuple) and told:
        return (_chosen(told, setting.name),)
    if isinstance(told, dict) and told and set(told) <= set(PARTS) and hint is Schedule:
        return tuple(_range(setting.name, told[p], p) for p in PARTS if p in told)
    return (_range(setting.name, told),)


def _chosen(values: Iterable[object], name: str) -> Search:
    texts = [",".join(map(str, v)) if isinstance(v, list | tuple) else v for v in values]
    choices = tuple(v for v in texts if isinstance(v, bool | int | float | str))
    if len(choices) < len(texts):
        raise _odd(name, values, FORMS)
    return Search(choices=choices)


def _range(name: str, told: object, part: str = "start") -> Search:
    """Return the range from a table with low, high and optionally scale."""
    wrong = _odd(name, told, FORMS)
    if not isinstance(told, dict) or not {"low", "high"} <= set(told) <= {"low", "high", "scale"}:
        raise wrong
    low, high, scale = told["low"], told["high"], told.get("scale", "linear")
    if not all(isinstance(x, int | float) and math.isfinite(x) for x in (low, high)):
        raise wrong
    if scale not in SCALES:
        raise UnknownNameError(f"scale of {name}", scale, SCALES)
    if scale == "near one":  # given as values of the setting
        low, high = float(f"{1 - high:.9g}"), float(f"{1 - low:.9g}")
    if not low < high or (scale != "linear" and low <= 0):
        raise wrong
    if scale == "powers of two" and not all(math.log2(x).is_integer() for x in (low, high)):
        raise wrong
    return Search(low, high, scale, part=part)


def _by_type(setting: Declared, hint: object) -> Search:
    """Return the range from a setting's type and limits. Raises SettingError if they define
    none."""
    if hint is bool:
        return Search(choices=(False, True))
    if get_origin(hint) is Literal:
        return Search(choices=get_args(hint))
    limits = setting.limits
    if limits is None or not math.isfinite(limits.minimum) or not math.isfinite(limits.maximum):
        expected = "low and high, since the setting has no default range"
        raise _odd(setting.name, True, expected)
    return Search(limits.minimum, limits.maximum)


def _check(dimension: Dimension, base: Settings) -> None:
    """Raise SettingError if an end of a range, or a choice, is not a valid value of the setting."""
    s, space = dimension.search, Space([dimension], base)
    ends: Iterable[Drawn] = s.choices
    if not s.choices:
        distribution = dimension.distribution()
        ends = (distribution.low, distribution.high)
    for end in ends:
        values = space.settings({dimension.name: end})
        check_ranges(apply(base, values))


def _odd(name: str, said: object, expected: str) -> SettingError:
    return SettingError(
        f"the space has {name} = {said!r}.", expected, f"write it like this: {EXAMPLE}"
    )
