"""Wrappers whose statistics no evaluation shares are named before training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import wrappers
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from tandem import trainer
from tandem.testing.environments import InfiniteHorizon

QUIET: dict[str, Any] = {"framework": "torch", "plots": False, "steps": 64, "hidden": (4,)}
QUIET |= {"rollout": 4, "batch_size": 4}


def normalized() -> Any:
    return wrappers.TimeLimit(wrappers.NormalizeObservation(InfiniteHorizon()), 5)


def paid() -> Any:
    return wrappers.NormalizeReward(InfiniteHorizon())


def frozen() -> Any:
    env = wrappers.NormalizeObservation(InfiniteHorizon())
    env.update_running_mean = False  # of statistics that were loaded
    return env


def notes(algorithm: str, env: Any, **given: Any) -> str:
    run = trainer.session(algorithm, env, **{**QUIET, **given})
    run.close()
    run.environments.close()
    return "\n".join(run.notes)


VECTORS: list[Any] = [
    lambda: SyncVectorEnv([normalized] * 2),
    lambda: AsyncVectorEnv([normalized] * 2),
    lambda: wrappers.vector.NormalizeObservation(SyncVectorEnv([InfiniteHorizon] * 2)),
]


@pytest.mark.parametrize("env", [normalized, *VECTORS])
def test_a_wrapper_that_normalizes_observations_is_named_with_the_setting(env: Any) -> None:
    told = notes("ppo", env)
    assert "NormalizeObservation keeps its statistics in the environment: each evaluation" in told
    assert "remove NormalizeObservation and give normalize_observations=True." in told


def test_a_wrapper_that_normalizes_rewards_is_named_where_evaluations_have_it() -> None:
    fix = "Fix: remove NormalizeReward and give normalize_rewards=True."
    assert fix in notes("ppo", paid)
    assert "NormalizeReward" not in notes("ppo", paid, eval_env=InfiniteHorizon)


def test_a_wrapper_of_the_evaluation_environment_alone_is_named() -> None:
    for eval_env, name in ((normalized, "NormalizeObservation"), (paid, "NormalizeReward")):
        given = {**QUIET, "eval_env": eval_env, "eval_episodes": 1, "final_episodes": 1}
        assert f"remove {name}" in "\n".join(trainer.train("ppo", InfiniteHorizon, **given).notes)


def test_a_note_fits_objects_and_custom_networks_and_comes_only_with_statistics() -> None:
    told = notes("ppo", normalized())
    assert "in the environment: every loaded agent starts with empty ones" in told
    told = notes("ppo", normalized, network=lambda space: torch.nn.Linear(*space.shape, 4))
    assert "NormalizeObservation and scale by constants" in told
    for env in (InfiniteHorizon, frozen):
        assert "ormaliz" not in notes("ppo", env)
