"""The tuned settings: every entry can be used as it stands."""

from __future__ import annotations

import pytest

from tandem import algorithms, trainer, zoo
from tandem.errors import SettingError
from tandem.testing import fakes

PAIRS = [(name, env) for name in algorithms.NAMES for env in zoo.entries(name)]


@pytest.mark.parametrize(("algorithm", "env"), PAIRS)
def test_an_entry_holds_settings_in_their_ranges_and_says_its_source(algorithm, env) -> None:
    entry = zoo.entry(algorithm, env)
    assert entry.settings and len(entry.source) > 10
    chosen, _, source = trainer.settle(algorithm, env, {})
    assert source == entry.source
    own = {name for name in entry.settings if name in chosen.__dataclass_fields__}
    assert own == entry.settings.keys(), "settings that the algorithm does not have"


def test_every_algorithm_has_an_entry() -> None:
    assert {name for name, _ in PAIRS} == set(algorithms.NAMES)


def test_an_entry_like_another_adds_to_it() -> None:
    lander, acrobot = zoo.entry("dqn", "LunarLander-v3"), zoo.entry("dqn", "Acrobot-v1")
    assert lander.settings == acrobot.settings | {"steps": 300_000}
    assert acrobot.settings["hidden"] == (256, 256), "a tuple, as settings have it"


def test_what_has_no_entry_gives_none() -> None:
    assert zoo.entry("dqn", "Nowhere-v0") is None
    assert zoo.entries("../dqn") == {}


def test_an_entry_s_exponents_go_with_the_priorities_that_a_user_turns_off() -> None:
    """Rainbow without its prioritized replay is no contradiction; an exponent that is given is."""
    off = {"entry": "rainbow", "prioritized": False}
    kind, usual = algorithms.get("dqn"), algorithms.get("dqn").Settings()
    chosen, *_ = trainer.settle("dqn", "Nowhere-v0", off)
    assert (chosen.priority_alpha, chosen.values) == (usual.priority_alpha, "categorical")
    kind.check(fakes.VECTOR, fakes.DISCRETE, chosen)
    chosen, *_ = trainer.settle("dqn", "Nowhere-v0", off | {"priority_alpha": 0.3})
    with pytest.raises(SettingError, match=r"priority_alpha=0.3 without prioritized"):
        kind.check(fakes.VECTOR, fakes.DISCRETE, chosen)
