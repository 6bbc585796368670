"""Replayed algorithms with a memory: what is stored, drawn and followed is what acted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import algorithms
from tandem.algorithms.remembering import Following
from tandem.backends.sharding import divides, shard, spread
from tandem.testing import contracts, fakes
from tandem.testing.memory_games import Recall
from tandem.types import Array, Batch, Tree, tree_map
from tests.runs.shared import in_parts

torch = pytest.importorskip("torch")
SMALL: dict[str, Any] = {"hidden": (8,), "recurrent": 6, "sequence": 4, "batch_size": 16}
SMALL |= {"buffer_size": 400, "learning_starts": 0, "train_every": 8, "envs": 2}


class Asked:
    """A network, asked about arrays of NumPy."""

    def __init__(self, loop: Any, name: str) -> None:
        self.name, self._network = name, loop.backend.networks[name]

    def __call__(self, x: Tree, training: bool = False) -> Array:
        return self._network.predict(x)


def collected(algorithm: str, env: Any, **settings: Any) -> tuple[Any, Batch, Array]:
    """A loop whose buffer is full of what its first weights did; all sequences of it, and their
    first rows."""
    given = {**SMALL, "steps": 160, "updates_per_step": 1e-9, **settings}
    loop = contracts.begin(algorithms.get(algorithm), env, "torch", **given)
    contracts.train(loop)
    assert loop.learner.updates == 0 and loop.learner.ring.time == 80
    ids = np.arange(40, 120)
    batch = loop.learner._batch(ids[None], ())
    return loop, Batch(*(x if i == 6 else first(x) for i, x in enumerate(batch))), ids


def first(x: Tree) -> Tree:
    """The one update of a call."""
    if isinstance(x, dict):
        return {n: first(v) for n, v in x.items()}
    return x if isinstance(x, tuple) else x[0]


def test_stored_states_are_those_that_acting_and_judging_had() -> None:
    """Of TD3 without noise the action is what its actor says, after the state stored with the first
    step; critics' states follow from the beginning of each episode."""
    from tandem.testing.environments import IdentityBox

    loop, batch, ids = collected("td3", lambda: IdentityBox(length=7), exploration=0.0, burn_in=3)
    algorithm, ring = loop.algorithm, loop.learner.ring
    rows = algorithm.steps(batch._replace(noise=()))
    assert rows.reward.shape == (4 * 80,) and rows.extra["burn_in"]["start"].shape == (3 * 80,)
    said = Following(rows).now(Asked(loop, "actor"), rows.obs)
    np.testing.assert_allclose(said, rows.action, atol=1e-5)
    assert 10 < rows.extra["start"].sum() < 100 and np.ptp(said) > 0.01

    every = np.arange(160)
    steps = ring.transitions(every)
    state, kept = np.zeros((2, 6), np.float32), []
    for t in range(80):
        kept.append(state)
        now = {"obs": steps.obs[2 * t : 2 * t + 2], "action": steps.action[2 * t : 2 * t + 2]}
        x = {**now, "state": state, "start": np.zeros(2, np.float32)}
        state = loop.backend.networks["q2"].predict(x)[:, -6:]
        state = np.where(ring.last[ring.position(every[2 * t : 2 * t + 2])][:, None], 0, state)
    kept = np.concatenate(kept)
    np.testing.assert_allclose(steps.extra["q2_state"], kept, atol=1e-6)
    np.testing.assert_array_equal(batch.extra["q2_state"], steps.extra["q2_state"][ids])
    assert np.abs(kept).max() > 0.1 and (kept == 0).all(1).sum() > 10


def test_what_followed_is_judged_after_the_steps_own_state() -> None:
    """Where an episode goes on it is what the next step is judged to be."""
    loop, batch, _ = collected("dqn", Recall, epsilon=0.5)
    rows = loop.algorithm.steps(batch)
    views = Following(rows)
    now = views.now(Asked(loop, "q"), rows.obs).reshape(4, 80, -1)
    then = views.then(Asked(loop, "q"), rows.next_obs).reshape(4, 80, -1)
    goes_on = rows.extra["start"].reshape(4, 80)[1:] == 0
    np.testing.assert_allclose(then[:-1][goes_on], now[1:][goes_on], atol=1e-6)
    assert 40 < goes_on.sum() < 200 and np.ptp(now) > 0.01


def test_zero_states_are_not_kept() -> None:
    loop, batch, _ = collected("dqn", Recall, start_state="zero", burn_in=2)
    assert not [n for n in loop.learner.ring.transitions(np.arange(4)).extra if "state" in n]
    assert batch.extra["q_state"].shape == (80, 6) and not batch.extra["q_state"].any()
    assert batch.reward.shape == (80, 6)


def test_importance_weighs_all_steps_of_a_sequence() -> None:
    loop, _, ids = collected("dqn", Recall, prioritized=True, burn_in=2)
    weight = np.linspace(0.1, 1, 80, dtype=np.float32)
    drawn = loop.learner._batch(ids[None], weight[None])
    learned = np.arange(6) >= 2  # the others are burn-in
    np.testing.assert_array_equal(drawn.weight[0], weight[:, None] * learned)
    error = np.arange(8, dtype=np.float32).reshape(4, 2)  # [steps, sequences]
    valid = np.array([[1, 1], [1, 1], [1, 1], [1, 0]], np.float32)
    rows = Batch((), (), weight=0.5 * valid.reshape(-1))
    found = loop.algorithm.priority(rows, {"error": -error.reshape(-1)})
    np.testing.assert_allclose(found, [0.9 * 6 + 0.1 * 3, 0.9 * 5 + 0.1 * 3], rtol=1e-6)


@pytest.mark.slow
def test_a_run_is_broken_off_and_resumed_with_workers(tmp_path: Path) -> None:
    """States of critics go on where they were."""
    given = {**SMALL, "learning_starts": 20, "steps": 200, "prioritized": True, "burn_in": 2}
    quiet = {"plots": False, "eval_episodes": 0, "framework": "torch", "workers": 1}
    given |= {"final_episodes": 2, **quiet}
    in_parts(tmp_path, "sac", "Pendulum-v1", 104, **given)
    agent = tandem.load(tmp_path / "whole")
    action, state = agent.predict(np.zeros((3, 3), np.float32), deterministic=True)
    assert action.shape == (3, 1) and state.shape == (3, 6)


@pytest.mark.parametrize("algorithm, action", [("dqn", fakes.DISCRETE), ("sac", fakes.BOX)])
def test_devices_divide_sequences_with_their_burn_in(algorithm: str, action: Any) -> None:
    """The losses of whole sequences on either of two devices are those of all of them together."""
    given = {"recurrent": 6, "sequence": 4, "burn_in": 3, "memory": "lstm"}
    given |= {"n_step": 2} if algorithm == "dqn" else {}
    made, _ = fakes.build(algorithm, "torch", action, hidden=(8,), **given)
    batch = fakes.batches(made, fakes.VECTOR, action, 1, 32)
    b = made.steps(tree_map(lambda x: torch.as_tensor(x[0]), batch._replace(settings={})))
    loss = made.loss if algorithm == "dqn" else made.critic_loss
    assert divides(b, 2) and not divides(b, 3)
    whole, parts = loss(b)[0], 0.0
    for rank in range(2):
        mine = shard(b, rank, 2)
        assert len(mine.reward) == 16 and mine.extra["burn_in"]["start"].shape == (12,)
        here = torch.as_tensor([float(rank == 0), float(rank == 1)])
        parts = parts + spread(loss(mine)[0], here)
    torch.testing.assert_close(parts, whole)
    assert whole.shape == (32,) and float(whole.detach().std()) > 1e-3
