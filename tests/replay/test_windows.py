"""n-step transitions of teams: sums of each agent's rewards, and windows that end where a limit
takes an agent alone."""

from __future__ import annotations

import numpy as np

from tandem.replay.buffer import Ring
from tandem.spaces import Leaf
from tests.replay.worlds import block

TEAM = {"at": Leaf("box", (1,), "float32"), "active": Leaf("box", (2,), "int8")}
CHOICES = Leaf("multidiscrete", (2,), "int64", (2, 2))
OWN = {"rewards": Leaf("box", (2,), "float32"), "other": Leaf("box", (2,), "float32")}


def stored(active: list[list[int]], limited: str = "active") -> Ring:
    """One environment that never ends; gamma = 1/2. In step t agents are paid 4^t and 2 · 4^t."""
    steps = len(active) - 1
    own = (4.0 ** np.arange(steps)[:, None, None] * [1, 2]).astype(np.float32)
    obs = {
        "at": np.arange(steps + 1, dtype=np.float32)[:, None, None],
        "active": np.array(active, np.int8)[:, None],
    }
    ring = Ring(10, 1, TEAM, CHOICES, extra=OWN, limited=limited)
    now, after = ({n: x[:-1] for n, x in obs.items()}, {n: x[-1] for n, x in obs.items()})
    paid = {"rewards": own, "other": own}
    ring.add(block(now, after, own.mean(-1), 0.5, action=np.zeros((steps, 1, 2), int), extra=paid))
    return ring


def test_each_agent_s_rewards_are_summed_and_what_is_no_reward_is_not() -> None:
    batch = stored([[1, 1]] * 5).transitions(np.arange(4), 3)
    assert batch.extra["rewards"].tolist() == [[7, 14], [28, 56], [48, 96], [64, 128]]
    assert batch.extra["other"].tolist() == [[1, 2], [4, 8], [16, 32], [64, 128]]
    assert batch.reward.tolist() == [10.5, 42, 72, 96]
    assert batch.discount.tolist() == [0.125, 0.125, 0.25, 0.5]
    assert batch.next_obs["at"][:, 0].tolist() == [3, 4, 4, 4]


def test_a_window_ends_where_a_limit_takes_an_agent() -> None:
    """What it saw then is what it is bootstrapped from."""
    active = [[1, 1], [1, 1], [1, 2], [1, 0], [0, 0]]
    batch = stored(active).transitions(np.arange(4), 3)
    assert batch.next_obs["at"][:, 0].tolist() == [2, 2, 4, 4]
    assert batch.next_obs["active"].tolist() == [[1, 2], [1, 2], [0, 0], [0, 0]]
    assert batch.extra["rewards"].tolist() == [[3, 6], [4, 8], [48, 96], [64, 128]]
    assert batch.discount.tolist() == [0.25, 0.5, 0.25, 0.5]
    # of one agent alone, an entry of that name says nothing
    plain = stored(active, limited="").transitions(np.arange(4), 3)
    assert plain.next_obs["at"][:, 0].tolist() == [3, 4, 4, 4]
