"""Metrics that not every update has: NaN stands for "not measured" and takes no part in a mean."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.backends.backend import Outcome
from tandem.errors import NonFiniteError
from tandem.learning.events import BatchEnd
from tandem.learning.learners import checked
from tandem.runs.table import Averages


def outcome(applied: int, fault: str = "", **metrics: list[float]) -> Outcome:
    return Outcome(
        {n: np.array(v, np.float32) for n, v in metrics.items()}, (), applied, False, fault
    )


def test_a_mean_is_over_the_updates_that_have_the_metric() -> None:
    found = checked(
        outcome(4, critic=[1, 2, 3, 6], actor=[np.nan, 4, np.nan, 8], never=[np.nan] * 4), 4
    )
    assert found == {"critic": 3.0, "actor": 6.0}
    assert checked(outcome(1, critic=[2], actor=[np.nan]), 1) == {"critic": 2.0}
    assert checked(outcome(0, critic=[5]), 0) == {}  # the row of the update that asked to stop
    assert checked(outcome(2, critic=[1, 2, 99]), 2) == {"critic": 1.5}


def test_a_refused_update_is_an_error_whatever_its_metrics() -> None:
    with pytest.raises(NonFiniteError, match="'critic' was not finite in update 8"):
        checked(outcome(1, "critic", loss=[1, np.nan]), 7)


def test_a_row_averages_each_metric_over_the_calls_that_had_it() -> None:
    averages = Averages()
    for metrics in ({"critic": 1.0}, {"critic": 3.0, "actor": 5.0}, {}):
        averages.on_batch_end(BatchEnd(1, 2, 0, 0.5, metrics))
    resumed = Averages()
    resumed.load_state(averages.state())
    for each in (averages, resumed):
        assert each.of_metrics() == {"critic": 2.0, "actor": 5.0}
        assert each.of_metrics() == {}, "the next row begins at nothing"
