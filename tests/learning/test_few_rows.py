"""Batches with one row that counts, or none."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import tandem
from tandem import trainer
from tandem.testing.environments import Game

QUICK: dict[str, Any] = {"plots": False, "tensorboard": False, "eval_episodes": 0, "hidden": (8,)}
QUICK |= {"final_episodes": 8, "gamma": 0.9}
ROLLOUTS = {"rollout": 4, "batch_size": 2, "epochs": 1}  # of two environments: half are resets
SAC = dict(recurrent=4, sequence=1, batch_size=2, learning_starts=16, steps=200, train_every=2)
SAC |= {"temperature": 0.1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {**ROLLOUTS}),
    "ppo of one row": ("ppo", {"learning_rate": 0.01, **ROLLOUTS, "batch_size": 1}),
    "ppo recurrent": ("ppo", {**ROLLOUTS, "recurrent": 4, "sequence": 1}),
    "ppo popart": ("ppo", {"rollout": 1, "batch_size": 2, "epochs": 2, "value_norm": "popart"}),
    "a2c": ("a2c", {"rollout": 1, "normalize_advantage": True}),
    "trpo": ("trpo", {"learning_rate": "1e-3", "rollout": 1, "batch_size": 1, "epochs": 1}),
    "pqn": ("pqn", {**ROLLOUTS, "bootstrap": "expected"}),
    "nstep_q": ("nstep_q", {"learning_rate": 0.03, "rollout": 1, "bootstrap": "expected"}),
    "impala": ("impala", {"rollout": 1}),
    "acer": ("acer", {"rollout": 1, "replay_ratio": 1.0}),
    "sac recurrent": ("sac", SAC),
}


class Right(Game):
    """One step, which pays 1 for the bit that is seen; nothing is allowed at its end."""

    observation_space = spaces.Dict(
        x=spaces.Box(-1, 1, (1,), np.float32), action_mask=spaces.MultiBinary(2)
    )
    action_space = spaces.Discrete(2)
    x = 0

    def begin(self) -> None:
        self.x = int(self.np_random.integers(2))

    def observe(self) -> Any:
        x, allowed = np.float32([2 * self.x - 1]), self.t == 0
        return {"x": x, "action_mask": np.full(2, allowed, np.int8)}

    def play(self, action: Any) -> tuple[float, bool]:
        return float(action == self.x), True


def both() -> Any:
    return SyncVectorEnv([Right, Right])  # resets in the step after an end: all at once


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_game_half_of_whose_rows_are_resets_is_learned(case: str) -> None:
    name, settings = CASES[case]
    given = QUICK | {"steps": 400, "framework": "torch", "learning_rate": 0.02} | settings
    session = tandem.session(name, both, eval_env=Right, **given)
    assert trainer.complete(session).evaluation.mean == 1.0
    updates, steps = session.loop.learner.updates, session.loop.env_steps
    if case in ("a2c", "nstep_q", "ppo of one row"):
        assert updates == steps // (1 if case == "ppo of one row" else 2)
