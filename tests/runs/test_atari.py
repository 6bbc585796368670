"""Pictures from the environment to the learner: a run on an Atari game."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

from tandem import trainer, zoo
from tandem.envs.atari import declared
from tandem.errors import SettingError
from tests.helpers import run_python

SNIPPETS = Path(__file__).parent / "snippets"


@pytest.mark.slow
def test_a_run_on_a_game_goes_on_exactly_and_scores_whole_games(tmp_path: Path) -> None:
    (found,) = run_python(SNIPPETS / "atari.py", str(tmp_path), engine="torch", timeout=280)
    for name in ("fingerprints", "rings"):
        assert found[name][0] == found[name][1]
    assert found["updates"] > 20
    assert found["observation"] == [3, 84, 84] and found["ring"] == [50 + 1 + 2, 2, 84, 84]
    assert found["reads"] == [True, "AtariVector"]
    given = {"frame_stack": 3, "frame_skip": 5, "noop_max": 5}
    assert found["env_kwargs"] == given | {"sticky_actions": -1.0, "press_fire": True}
    # a game has five lives
    assert len(found["lives"]) > 2 and min(found["game"]) > 2 * min(found["lives"])
    assert found["again"]


class Before(gymnasium.Env):
    """Shows a bright or a dark picture; the right action is the one that the picture before it
    named. Eight steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.then, self.now, self.t = 0, int(self.np_random.integers(2)), 0
        return np.full((36, 36), 40 + 200 * self.now, np.uint8), {}

    def step(self, action):
        reward = float(action == self.then)
        self.then, self.now, self.t = self.now, int(self.np_random.integers(2)), self.t + 1
        picture = np.full((36, 36), 40 + 200 * self.now, np.uint8)
        return picture, reward, self.t == 8, False, {}


@pytest.mark.slow
def test_dqn_learns_what_only_the_older_picture_says() -> None:
    pytest.importorskip("torch")
    settings = {"steps": 1600, "learning_rate": 3e-4, "batch_size": 32, "buffer_size": 800}
    settings |= {"learning_starts": 64, "train_every": 4, "target_every": 40, "gamma": 0.5}
    settings |= {"epsilon": "1:0.1:0.5", "eval_every": 400, "final_episodes": 20}

    def make() -> gymnasium.Env:
        return declared(FrameStackObservation(Before(), 2, padding_type="zero"), 2)

    run = trainer.session("dqn", make, framework="torch", seed=1, **settings)
    assert all(event is not None for event in run)
    assert run.loop.learner.ring._columns["obs"].shape == (802, 1, 36, 36)
    assert run.result()["eval_mean"] > 7.9  # 8 is all there is, 4.5 what the newest picture brings


def test_settings_of_games_are_refused_elsewhere() -> None:
    for env, given, said in (
        ("CartPole-v1", {"frame_skip": 2}, "=2 was given for an environment that is no Atari id"),
        ("ALE/Pong-v5", {"frame_stack": 0}, "=0"),
        ("ALE/Pong-v5", {"sticky_actions": 2}, "=2"),
    ):
        with pytest.raises(SettingError, match=f"{next(iter(given))}{said}"):
            trainer.session("dqn", env, **given)


@pytest.mark.parametrize("algorithm", ("ppo", "dqn"))
@pytest.mark.parametrize("game", ("Pong", "Breakout"))
def test_the_zoo_has_games(algorithm: str, game: str) -> None:
    entry = zoo.entry(algorithm, f"ALE/{game}-v5")
    assert entry is not None and "atari" in entry.source
    settings, options, _ = trainer.settle(algorithm, f"ALE/{game}-v5", {})
    assert settings.steps == 10_000_000 and options.frame_stack == 4
