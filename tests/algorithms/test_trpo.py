from __future__ import annotations

import numpy as np
import pytest

from tandem.errors import SettingError
from tandem.learning.events import BatchEnd
from tandem.trainer import session

GIVEN = {
    "framework": "torch",
    "envs": 1,
    "rollout": 64,
    "epochs": 3,
    "hidden": (8,),
    "eval_episodes": 0,
}


def learned(steps: int = 64, **given):
    """The run, and what each call of updates measured."""
    run = session("trpo", "CartPole-v1", steps=steps, **GIVEN, **given)
    return run, [e.metrics for e in run if isinstance(e, BatchEnd) and e.metrics]


@pytest.mark.parametrize("batch_size, updates", [(16, 1 + 3 * 4), (64, 1 + 3), (0, 3)])
def test_one_step_of_the_policy_and_batches_of_the_critic(batch_size: int, updates: int) -> None:
    run, (metrics,) = learned(batch_size=batch_size)
    assert run.loop.learner.updates == updates
    assert {"improvement", "divergence", "value_loss"} <= metrics.keys()
    assert metrics["improvement"] > 0


def test_the_policy_does_not_depend_on_the_batches_of_the_critic() -> None:
    """In its first rollout: its step is by all rows, before the critic's."""
    actors = [learned(batch_size=n)[0].loop.backend.networks["actor"].read() for n in (16, 32, 0)]
    for name, weights in actors[0].items():
        for other in actors[1:]:
            np.testing.assert_allclose(weights, other[name], atol=1e-5)


def test_batches_that_do_not_divide_a_rollout_are_refused_with_one_that_does() -> None:
    with pytest.raises(SettingError, match=r"64 rows, batches have 48(.|\n)*batch_size=32"):
        learned(batch_size=48)
    learned(batch_size=32)
