"""Which rows of a batch each device takes."""

import numpy as np
import pytest

from tandem.backends.sharding import divides, shard, spread
from tandem.types import Batch


def batch(rows: int, **more) -> Batch:
    return Batch({"x": np.arange(rows)[:, None]}, np.arange(rows), extra=more, settings={"lr": 1.0})


@pytest.mark.parametrize(("rank", "expected"), [(0, [0, 3]), (1, [1, 4]), (2, [2, 5])])
def test_every_nth_row(rank, expected) -> None:
    own = shard(batch(6), rank, 3)
    assert own.action.tolist() == own.obs["x"][:, 0].tolist() == expected
    assert own.settings == {"lr": 1.0}


def test_whole_sequences_with_their_states_and_whole_teams() -> None:
    """Three steps of four sequences, time first: the second of two devices has sequences 1, 3."""
    own = shard(batch(12, start_state=np.arange(4)), 1, 2)
    assert own.action.reshape(3, 2).tolist() == [[1, 3], [5, 7], [9, 11]]
    assert own.extra["start_state"].tolist() == [1, 3]
    # agents of a step stay together
    assert shard(batch(12), 1, 2, together=3).action.tolist() == [3, 4, 5, 9, 10, 11]


@pytest.mark.parametrize("together", [1, 2])
def test_what_parts_say_of_rows_is_put_at_their_places(together) -> None:
    here = np.eye(2, dtype=np.float32)
    values = np.arange(8, dtype=np.float32)
    each = batch(8, v=values)
    parts = [shard(each, r, 2, together).extra["v"] for r in range(2)]
    whole = sum(spread(x, here[r], together) for r, x in enumerate(parts))
    np.testing.assert_array_equal(whole, values)
    over_time = sum(spread(x.reshape(2, 2), here[r], together) for r, x in enumerate(parts))
    np.testing.assert_array_equal(over_time, values.reshape(2, 4))
    # what is not finite stays at its places
    at = spread(np.array([np.nan, 1.0], np.float32), np.array([1.0, 0.0], np.float32))
    assert np.isnan(at).tolist() == [True, False, False, False]
    assert at[1:].tolist() == [0.0, 1.0, 0.0]


def test_what_does_not_divide() -> None:
    assert divides(batch(8), 2) and divides(batch(8, start_state=np.zeros(4)), 2)
    assert not divides(batch(7), 2) and not divides(batch(6), 2, together=2)
    assert not divides(batch(6, start_state=np.zeros(3)), 2)
