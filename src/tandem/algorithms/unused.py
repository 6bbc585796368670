"""Settings that do nothing beside others: they are refused where a user gave them, not ignored, and
fall back to their defaults where nobody did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tandem.errors import SettingError
from tandem.settings import Declared, declared

if TYPE_CHECKING:
    from tandem.spaces import Leaf


class Need(NamedTuple):
    """Settings that do nothing unless one of others is as it says, or `every` one: `beside`, each
    with what tells whether it is. give: what makes them count. none: values that ask for nothing.
    apart: a setting whose owners have another need."""

    names: tuple[str, ...]
    beside: dict[str, Callable[[Any], bool]]
    give: dict[str, Any]
    none: tuple[Any, ...] = ()
    every: bool = False
    apart: str = ""

    def __str__(self) -> str:
        """What to give, as in "values='quantile'"."""
        return " and ".join(f"{n}={x!r}" for n, x in self.give.items())


Found = tuple[str, Need, dict[str, Any]]


def _of_values(names: tuple[str, ...], *kinds: str) -> Need:
    return Need(names, {"values": lambda x: x in kinds}, {"values": kinds[-1]})


GSDE: Any = {"action_noise": lambda x: x == "gsde"}

# of algorithms; those that a class does not have count for nothing there
SETTINGS = (
    Need(
        ("rms_decay", "rms_epsilon"),
        {"optimizer": lambda x: x == "rmsprop"},
        {"optimizer": "rmsprop"},
    ),
    Need(
        ("adam_epsilon", "adam_beta1"),
        {"optimizer": lambda x: "adam" in x},  # RAdam too
        {"optimizer": "adam"},
    ),
    Need(("weight_decay",), {"optimizer": lambda x: x == "adam"}, {"optimizer": "adam"}),
    Need(
        ("target_entropy", "initial_temperature"),
        {"temperature": lambda x: x == "auto"},
        {"temperature": "auto"},
    ),
    Need(("smoothing_clip",), {"smoothing": bool}, {"smoothing": 0.2}),
    Need(("average_tau",), {"kl": bool}, {"kl": 0.1}),
    Need(("embedding", "hyper"), {"mixer": bool}, {"mixer": True}),
    Need(
        ("replay_ratio", "replay_size", "replay_starts", "evict"),
        {"replay": lambda x: x != "none"},
        {"replay": "uniform"},
        (0, 0.0),
    ),
    Need(
        ("priority", "priority_alpha", "priority_beta"),
        {"replay": lambda x: x == "prioritized"},
        {"replay": "prioritized"},
    ),
    Need(("priority_alpha", "priority_beta"), {"prioritized": bool}, {"prioritized": True}),
    Need(
        ("priority_eta",),
        {"recurrent": bool, "prioritized": bool},
        {"recurrent": 64, "prioritized": True},
        every=True,
    ),
    Need(("sequence", "burn_in", "start_state", "memory"), {"recurrent": bool}, {"recurrent": 64}),
    Need(("log_std",), {"policy": lambda x: x == "gaussian"}, {"policy": "gaussian"}),
    Need(("log_std",), GSDE, {"action_noise": "gsde"}, apart="policy"),
    Need(("sde_sample_freq",), GSDE, {"action_noise": "gsde"}),
    _of_values(("atoms", "v_min", "v_max"), "categorical"),
    _of_values(("quantiles",), "quantile"),
    _of_values(("fractions", "target_fractions", "acting_fractions", "cosines"), "implicit"),
    _of_values(("kappa",), "quantile", "implicit"),
    Need(
        ("munchausen_alpha", "munchausen_temperature", "munchausen_clip"),
        {"munchausen": bool},
        {"munchausen": True},
    ),
    Need(
        ("intrinsic_weight", "extrinsic_weight", "intrinsic_gamma", "rnd_features", "rnd_share"),
        {"intrinsic": lambda x: x != "no"},
        {"intrinsic": "rnd"},
    ),
    Need(("relabel", "copy_info"), {"hindsight": lambda x: x != "no"}, {"hindsight": "future"}),
)
OPTIONS = (  # of a run
    Need(("ahead",), {"workers": bool, "runners": bool}, {"workers": 2}, (0,)),
    Need(("staleness",), {"learners": lambda x: x != 1}, {"learners": 2}),
    Need(("device_timeout",), {"devices": lambda x: x > 1}, {"devices": 2}),
    Need(("snapshot_every",), {"opponents": bool}, {"opponents": 1}),
    Need(("runner_cpus",), {"runners": bool, "cluster": bool}, {"runners": 2}),
    Need(
        ("worker_patience", "worker_restarts"),
        {"workers": bool, "runners": bool, "cluster": bool, "learners": lambda x: x != 1},
        {"workers": 2},
    ),
)


def idle(needs: Iterable[Need], settings: Any) -> Iterator[Found]:
    """The settings that do nothing beside the others: name, what it needs, and what is there."""
    known = _known(type(settings))
    for need in needs:
        beside = {n: getattr(settings, n) for n in need.beside if n in known}
        counts = (all if need.every else any)(need.beside[n](x) for n, x in beside.items())
        if beside and not counts and need.apart not in known:
            yield from ((name, need, beside) for name in need.names if name in known)


def never(kind: type) -> set[str]:
    """The settings of a class that can only be what they are: those that it `lacks`, which it has
    inherited and refuses, and those that count with these alone."""
    lacks, known = set(getattr(kind, "lacks", ())), _known(kind)
    found = set(lacks)
    for need in SETTINGS:
        beside = need.beside.keys() & known
        held = (any if need.every else all)(n in lacks for n in beside)
        if beside and held and need.apart not in known:
            found.update(n for n in need.names if n in known)
    return found


def offered(kind: type) -> list[Declared]:
    """The settings of a class, less those of `never`: what its pages and config files have."""
    held = never(kind)
    return [s for s in declared(kind) if s.name not in held]


def idle_names(needs: Iterable[Need], settings: Any) -> set[str]:
    """The names of those that `idle` finds."""
    return {name for name, *_ in idle(needs, settings)}


def told(beside: dict[str, Any]) -> str:
    """What is there, in words; no text is what nobody has asked for."""
    return " and ".join(f"{n}={x!r}" for n, x in beside.items() if x != "")


def _known(kind: type) -> set[str]:
    """The settings of a class that tandem has: a program's own may mean another thing."""
    own = (b for b in kind.__mro__ if b.__module__.partition(".")[0] == "tandem")
    return {name for b in own for name in getattr(b, "__dataclass_fields__", ())}


def without_idle(needs: Iterable[Need], settings: Any, given: Iterable[str]) -> Any:
    """The settings, with their defaults for those that do nothing and that nobody has `given`, such
    as those of an entry of the zoo's whose mode a user has changed."""
    usual, given = type(settings)(), set(given)
    names = idle_names(needs, settings) - given
    return replace(settings, **{name: getattr(usual, name) for name in names})


def refused(
    needs: Iterable[Need], settings: Any, before: Any, given: Iterable[str]
) -> Iterator[Found]:
    """Those of the settings that a user has `given`, by name, which do nothing beside the others.
    before: what they are without the user; one that says the same is nothing that is ignored, as in
    a file of all settings."""
    usual, given = type(settings)(), set(given)
    for name, need, beside in idle(needs, settings):
        own = getattr(settings, name)
        if name in given and own not in (*need.none, getattr(before, name), getattr(usual, name)):
            yield name, need, beside


def refuse_given(needs: Iterable[Need], settings: Any, before: Any, given: Iterable[str]) -> None:
    """SettingError for the first of those that `refused` finds."""
    for name, need, beside in refused(needs, settings, before, given):
        wanted = f"it together with {need}, say: else it does nothing"
        fix = f"give {need} too, or leave {name} out."
        if need.give.keys() & getattr(settings, "lacks", ()):  # which would be the next error
            wanted = f"it left out: it counts with {need} only, which this algorithm refuses"
            fix = f"leave {name} out."
        raise SettingError(f"{name}={getattr(settings, name)} with {told(beside)}.", wanted, fix)


def refuse_for_actions(action: Leaf, settings: Any, given: Iterable[str]) -> None:
    """SettingError for a deviation that a user has `given`, where no part of an action has one."""
    boxes = any(part.kind == "box" for _, part in action.parts or (("", action),))
    if not boxes and "log_std" in given and settings.log_std != type(settings)().log_std:
        raise SettingError(
            f"log_std={settings.log_std} with actions that are not a Box.",
            "it with a Box of actions, of which it is the deviation: else it does nothing",
            "leave log_std out.",
        )


# weight decay has its own refusal, which knows what an entry says (backends/backend.py)
OF_OPTIMIZERS = (
    "learning_rate",
    "actor_learning_rate",
    "learning_rate_warmup",
    "rms_decay",
    "rms_epsilon",
    "adam_epsilon",
    "adam_beta1",
)


def refuse_beside_own_optimizer(kind: type, given: dict[str, Any]) -> None:
    """SettingError for settings of named optimizers, where a program gives one of its own."""
    known, usual = _known(kind), kind()
    for name in OF_OPTIMIZERS:
        value = given.get(name)
        if name in known and value is not None and value != getattr(usual, name):
            raise SettingError(
                f"{name}={value} with an optimizer of your own.",
                "settings of optimizers that have a name: your optimizer has its own options",
                f"leave {name} out, and give it to your optimizer.",
            )
