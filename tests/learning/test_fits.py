"""Numbers that have to go into one another, judged by settings alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tandem import algorithms
from tandem.errors import SettingError
from tandem.learning import fits
from tests.advice.net import assigned

ROLLOUT = {"recurrent": 8, "rollout": 64, "envs": 2}


@pytest.mark.parametrize(
    ("name", "given", "proposed"),
    [
        ("ppo", {**ROLLOUT, "batch_size": 64, "sequence": 7}, [4, 8]),
        ("ppo", {**ROLLOUT, "batch_size": 64, "sequence": 33}, [32, 64]),
        ("ppo", {**ROLLOUT, "batch_size": 32, "sequence": 33}, [32]),  # no larger one is in both
        ("a2c", {**ROLLOUT, "rollout": 5, "sequence": 2}, [1, 5]),
        ("sac", {"recurrent": 8, "batch_size": 256, "sequence": 10}, [8, 16]),
    ],
)
def test_lengths_of_sequences_that_are_proposed_are_the_nearest(
    name: str, given: dict[str, Any], proposed: list[int]
) -> None:
    kind = algorithms.get(name)
    settings = replace(kind.Settings(), **given)
    with pytest.raises(SettingError) as caught:
        fits.check(kind.needs, settings)
    assert assigned(caught.value) == [{"sequence": n} for n in proposed]
    for n in proposed:
        fits.check(kind.needs, replace(settings, sequence=n))


@pytest.mark.parametrize("memory", [{}, {"recurrent": 8, "sequence": 16}])
def test_a_buffer_has_room_for_a_batch(memory: dict[str, Any]) -> None:
    kind = algorithms.get("sac")
    small = replace(kind.Settings(), batch_size=256, buffer_size=250, **memory)
    with pytest.raises(SettingError, match="buffer_size=250 with batch_size=256") as caught:
        fits.check(kind.needs, small)
    advised = assigned(caught.value)
    assert advised == [{"buffer_size": 256}, {"batch_size": 240 if memory else 250}]
    for one in advised:
        fits.check(kind.needs, replace(small, **one))
