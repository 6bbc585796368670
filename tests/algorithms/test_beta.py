"""What a Beta policy refuses, and that its actions are never clipped."""

from __future__ import annotations

import numpy as np
import pytest

from tandem import trainer
from tandem.errors import SpaceError
from tandem.math.distributions import Beta
from tandem.testing import environments as games

QUIET = {"plots": False, "tensorboard": False, "eval_episodes": 0, "final_episodes": 1}
QUIET |= {"hidden": (8,), "policy": "beta"}


@pytest.mark.parametrize("name", ["ppo", "a2c", "trpo"])
def test_a_run_acts_by_a_beta_distribution_and_so_does_what_is_loaded(name, tmp_path) -> None:
    given = {"steps": 128, "rollout": 32, "envs": 2, "out": tmp_path / "run", **QUIET}
    given |= {"batch_size": 32} if name == "ppo" else {}
    run = trainer.session(name, "Pendulum-v1", framework="torch", **given)
    seen = []
    real = run.loop.learner.learn
    run.loop.learner.learn = lambda t, span: (seen.append(t.action), real(t, span))[1]  # type: ignore[func-returns-value]
    list(run.events())
    assert isinstance(run.algorithm.policy, Beta) and np.abs(seen).max() < 1
    loaded = trainer.load(tmp_path / "run", which="last")
    policy = loaded.algorithm.distribution(loaded.settings, loaded.action)
    assert isinstance(policy, Beta) and policy.action_mode == "unit"
    obs = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -3.0]], np.float32)
    np.testing.assert_array_equal(loaded.act(obs), run.agent().act(obs))
    loaded.seed(1)
    # Pendulum's bounds are 2
    assert np.abs(loaded.act(np.tile(obs, (500, 1)), deterministic=False)).max() > 1.5


@pytest.mark.parametrize(
    "env, said", [(games.Identity, "Discrete"), (games.IdentityMultiDiscrete, "MultiDiscrete")]
)
def test_choices_have_no_beta_policy(env, said) -> None:
    match = f"ppo with policy='beta' cannot act in a {said} action space"
    with pytest.raises(SpaceError, match=match):
        trainer.session("ppo", env, framework="torch", **QUIET)
