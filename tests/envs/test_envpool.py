"""EnvPool's vectors by their ids: on a module with its interface, and on EnvPool itself."""

import sys
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.envs.vector_source import brought
from tandem.errors import SettingError
from tandem.learning.collect.collector import Collector
from tandem.replay.buffer import Ring
from tests.envs import pool
from tests.envs.made import always

QUICK: Any = {"framework": "torch", "plots": False, "tensorboard": False, "hidden": (8,)}
QUICK |= {"eval_episodes": 1, "final_episodes": 1}


@pytest.fixture
def envpool(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "envpool", pool)


def stored_as_seen(env: str, n: int, steps: int, life_loss_ends: bool) -> None:
    """A ring gives back every stack as it was acted on, and has each picture once."""
    game = {"frame_stack": 4, "life_loss_ends": life_loss_ends, "clip_rewards": True}
    envs = brought(env)[0].environments(n, 0, game)
    assert envs.observation.stack == 4 and envs.clips
    ring, blocks = Ring(400, n, envs.observation, envs.action), []
    collector = Collector(envs, 0.99)
    for _ in range(2):
        blocks.append(collector.collect(steps, always(0)))
        ring.add(blocks[-1])
    obs = np.concatenate([block.obs for block in blocks])
    batch = ring.transitions(ids := ring.rows())
    assert (batch.obs == obs[ids // n, ids % n]).all()
    held = (batch.discount > 0) & (ids < ids[-3 * n])
    assert (batch.next_obs == obs[(ids // n + 1) % len(obs), ids % n])[held].all()
    first = obs[0]
    assert (first[:, :-1] == 0).all() and (first[:, -1] != 0).any()
    assert np.abs(np.concatenate([block.reward for block in blocks])).max() <= 1
    envs.close()


@pytest.mark.parametrize("life_loss_ends", [True, False])
def test_stacks_are_kept_once_and_open_with_zeros(envpool: None, life_loss_ends: bool) -> None:
    stored_as_seen("envpool/Pong-v5", 3, 20, life_loss_ends)


def test_a_seed_gives_the_same_run_and_scores_are_whole(envpool: None) -> None:
    def run(seed: int) -> Any:
        session = tandem.session("ppo", "envpool/CartPole-v1", seed=seed, steps=300, **QUICK)
        list(session)
        return session.fingerprint()

    assert run(1) == run(1) != run(2)
    made = tandem.train("ppo", "envpool/Pong-v5", envs=2, steps=64, rollout=32, **QUICK)
    # evaluations play on after a lost life, and count whole rewards
    assert made.evaluation.mean == 4 and made.evaluation.lengths == [6]


def test_what_was_trained_there_goes_on_and_is_scored_there(envpool: None, tmp_path: Any) -> None:
    folder = tmp_path / "run"
    tandem.train("ppo", "envpool/CartPole-v1", steps=600, envs=4, stop_at=300, out=folder, **QUICK)
    result = tandem.train(resume=folder)
    assert [note for note in result.notes if "starts new episodes" in note]
    assert result.summary["env_steps"] >= 600
    assert tandem.evaluate(result.agent, "envpool/CartPole-v1", 3).lengths == [6, 6, 6]
    with pytest.raises(SettingError, match="requires an Atari environment"):
        tandem.session("ppo", "envpool/CartPole-v1", frame_stack=2)


@pytest.mark.thorough
def test_envpool_itself() -> None:
    pytest.importorskip("envpool")
    for life_loss_ends in (True, False):
        stored_as_seen("envpool/Breakout-v5", 4, 150, life_loss_ends)
    made = tandem.train("ppo", "envpool/CartPole-v1", steps=4000, **QUICK)
    assert made.evaluation.mean > 20
    made = tandem.train("sac", "envpool/HalfCheetah-v4", envs=4, train_every=4, steps=400, **QUICK)
    assert made.evaluation.lengths == [1000]
