"""Mixed motives: in simple_adversary two good agents cover the place that only they know, and lead
the adversary astray."""

from typing import Any

import numpy as np
import pytest

import tandem
from tandem.learning.collect.evaluation import evaluate

pytest.importorskip("torch")
pytest.importorskip("mpe2")
WORLD = "mpe/simple_adversary_v3"


class AtRandom:
    """The agents of a team, but some of them act by chance."""

    def __init__(self, actor: Any, which: list[int]) -> None:
        self.actor, self.which, self.rng = actor, which, np.random.default_rng(0)
        self.initial_state = actor.initial_state

    def act(self, obs: Any, state: Any, noise: Any) -> Any:
        action, extra, state = self.actor.act(obs, state, noise)
        action[:, self.which] = self.rng.integers(5, size=(len(action), len(self.which)))
        return action, extra, state


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_good_agents_beat_random_ones(seed: int) -> None:
    quiet: dict[str, Any] = {"eval_episodes": 0, "final_episodes": 1, "plots": False}
    quiet["framework"] = "torch"
    agent = tandem.train("maddpg", WORLD, steps=60_000, seed=seed, **quiet).agent
    trained = np.mean(evaluate(agent.actor, WORLD, 200, 5).agents, 0)
    chance = np.mean(evaluate(AtRandom(agent.actor, [1, 2]), WORLD, 200, 5).agents, 0)
    blind = np.mean(evaluate(AtRandom(agent.actor, [0]), WORLD, 200, 5).agents, 0)
    print(
        f"seed {seed}: trained {trained.round(1)}, good ones at random {chance.round(1)}, "
        f"adversary at random {blind.round(1)}"
    )
    # against the same adversary; and it is no worse than chance
    assert trained[1] > chance[1] + 5 and trained[0] > blind[0]
