"""Settings that do nothing beside others are refused where a user gave them, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from tandem import algorithms, trainer
from tandem.algorithms import unused
from tandem.errors import SettingError
from tandem.learning.config import Options
from tandem.settings import Schedule, declared
from tests.advice.net import assigned

OFF: dict[str, Any] = {  # what turns off what others need, where the default does not
    "optimizer": "sgd",
    "temperature": 0.1,
    "smoothing": 0.0,
    "kl": 0.0,
    "mixer": False,
    "replay": "none",
    "policy": "beta",
}


def another(kind: Any, name: str) -> Any:
    """A value of a setting that is not its default."""
    (usual,) = (s.default for s in declared(kind) if s.name == name)
    words: dict[str, Any] = {
        "ahead": 1,
        "evict": "sample",
        "priority": "error",
        "target_entropy": -1.0,
    }
    if name in words:
        return words[name]
    if isinstance(usual, Schedule):
        return Schedule(usual.start / 2)
    return usual / 2 if isinstance(usual, float) and usual else usual + 1


def rows() -> Any:
    kinds = {**{n: k.Settings for n, k in algorithms.built_in().items()}, "run": Options}
    for name, kind in kinds.items():
        fields = kind.__dataclass_fields__
        for need in unused.OPTIONS if kind is Options else unused.SETTINGS:
            for one in need.names:
                if one in fields and any(n in fields for n in need.beside):
                    yield pytest.param(name, kind, need, one, id=f"{name}-{one}")


def settled(name: str, **given: Any) -> Any:
    return trainer.settle("ppo" if name == "run" else name, "Nowhere-v0", given)


@pytest.mark.parametrize(("name", "kind", "need", "setting"), list(rows()))
def test_what_does_nothing_is_refused_and_the_advice_works(name, kind, need, setting) -> None:
    off = {n: OFF[n] for n in need.beside if n in kind.__dataclass_fields__ and n in OFF}
    value = another(kind, setting)
    with pytest.raises(SettingError, match=f"{setting}=.* with ") as caught:
        settled(name, **{setting: value}, **off)
    assert f"or leave {setting} out" in caught.value.fix
    settled(name, **off)
    (fix,) = assigned(caught.value)
    assert fix
    settled(name, **{**off, setting: value, **fix})


def test_only_what_the_user_gave_and_what_is_not_so_anyway_counts() -> None:
    zoo = trainer.settle("a2c", "Pendulum-v1", {})[0]
    assert trainer.settle("a2c", "Pendulum-v1", {"optimizer": "adam"})[0].rms_decay == zoo.rms_decay
    usual = algorithms.get("a2c").Settings()
    settled("a2c", optimizer="adam", rms_decay=usual.rms_decay)
    settled("td3", **{s.name: s.default for s in declared(algorithms.get("td3").Settings)})
    settled("run", ahead=0)
    settled("run", **{s.name: s.default for s in declared(Options)})
