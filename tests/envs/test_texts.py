"""Dict observations with a text, as MiniGrid's: the text is left out, the rest is learned from."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import tandem
from tandem.cli import main
from tandem.envs.factory import vectorize
from tandem.envs.vector_source import brought

NOTE = "Observations have text under 'mission', which the agent does not see."


class Rooms(gymnasium.Env):
    """Three actions; right is the number of the bright row, shifted by one in direction 1: image
    and direction alone earn 5.3 of 10 at most. The mission changes, and says nothing."""

    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (3, 3, 3), np.uint8),
        direction=spaces.Discrete(2),
        mission=spaces.Text(20),
    )
    action_space = spaces.Discrete(3)

    def _shown(self):
        self.row, self.turn = (int(self.np_random.integers(n)) for n in (3, 2))
        image = np.zeros((3, 3, 3), np.uint8)
        image[self.row] = 255
        return {
            "image": image,
            "direction": self.turn,
            "mission": f"go{self.np_random.integers(9)}",
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._shown(), {}

    def step(self, action):
        reward, self.t = float(action == (self.row + self.turn) % 3), self.t + 1
        return self._shown(), reward, False, self.t == 10, {}


def test_a_game_with_a_text_is_solved_and_the_agent_takes_what_it_shows() -> None:
    small = {"envs": 4, "rollout": 32, "batch_size": 64, "learning_rate": 3e-3, "hidden": (32,)}
    quick = {"plots": False, "tensorboard": False, "progress": False, "compile": "no"}
    quick |= {"framework": "torch", "eval_every": 6_000}
    run = tandem.train("ppo", Rooms, steps=6_000, seed=1, **small, **quick)
    assert run.evaluation.mean > 9.5 and run.notes.count(NOTE) == 1
    seen, _ = Rooms().reset(seed=3)
    assert run.agent.act(seen) == run.agent.act(seen | {"mission": "another"})


def test_texts_are_noted_by_check_once_and_are_no_part_of_what_is_stored(capfd, caplog) -> None:
    source, _ = brought(SyncVectorEnv([Rooms] * 2))
    for envs in (vectorize(Rooms, 2), source.environments(2, 0)):
        assert set(envs.reset()) == set(envs.observation) == {"image", "direction"}
    caplog.clear()
    assert main(["check", "tests.envs.test_texts:Rooms", "--steps", "50"]) == 0
    assert [r.getMessage() for r in caplog.records].count(f"Note: {NOTE}") == 1
