"""Pictures from the environment to the learner: a run on an Atari game."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

import tandem
from tandem import trainer, zoo
from tandem.envs.atari import declared
from tandem.envs.atari_vector import AtariVector
from tandem.learning.collect.evaluation import evaluate as play
from tandem.runs.callbacks import LambdaCallback
from tandem.testing.environments import Game
from tests.runs.shared import QUICK, finished

GAME = "ALE/Breakout-v5"
SETTINGS = QUICK | {"hidden": (512,), "steps": 240, "envs": 2, "train_every": 8, "batch_size": 4}
SETTINGS |= {"learning_starts": 40, "buffer_size": 100, "eval_every": 120, "seed": 2}


@pytest.mark.slow
def test_a_run_on_a_game_goes_on_exactly_and_scores_whole_games(tmp_path: Path) -> None:
    given = {"frame_stack": 3, "frame_skip": 5, "noop_max": 5}
    lives: list[int] = []
    heard = LambdaCallback(on_episode_end=lambda event: lives.append(event.episode.length))
    begun = partial(trainer.session, "dqn", GAME, **SETTINGS, **given)
    whole = finished(begun(out=tmp_path / "whole", callbacks=[heard]))
    finished(begun(out=tmp_path / "parts"), 90)
    parts = finished(trainer.session(resume=tmp_path / "parts"))
    assert whole.fingerprint() == parts.fingerprint() and whole.loop.learner.updates > 20
    one, other = (run.loop.learner.ring for run in (whole, parts))
    assert all(np.array_equal(x, other.state()[1][n]) for n, x in one.state()[1].items())
    assert whole.observation.shape == (3, 84, 84)
    assert one._columns["obs"].shape == (50 + 1 + 2, 2, 84, 84)
    assert isinstance(whole.vector, AtariVector) and whole.vector.clips
    config = json.loads((tmp_path / "whole" / "config.json").read_text(encoding="utf-8"))
    assert config["env_kwargs"] == given | {"sticky_actions": -1.0, "press_fire": True}
    # a game has five lives
    assert len(lives) > 2 and min(whole.last_evaluation.lengths) > 2 * min(lives)
    agent = tandem.load(tmp_path / "whole", which="last")
    game, _ = play(agent.actor, GAME, 1, 3, kwargs=agent.env_kwargs)[:2]
    assert game == tandem.evaluate(agent, GAME, episodes=1, seed=3).returns


class Before(Game):
    """Shows a bright or a dark picture; the picture before it named the right action."""

    observation_space = spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = spaces.Discrete(2)
    now = 0

    def begin(self) -> None:
        self.then, self.now = 0, int(self.np_random.integers(2))

    def observe(self) -> Any:
        return np.full((36, 36), 40 + 200 * self.now, np.uint8)

    def play(self, action: Any) -> tuple[float, bool]:
        reward = float(action == self.then)
        self.then, self.now = self.now, int(self.np_random.integers(2))
        return reward, self.t == 8


@pytest.mark.slow
def test_dqn_learns_what_only_the_older_picture_says() -> None:
    settings = {"steps": 1600, "learning_rate": 3e-4, "batch_size": 32, "buffer_size": 800}
    settings |= {"learning_starts": 64, "train_every": 4, "target_every": 40, "gamma": 0.5}
    settings |= {"epsilon": "1:0.1:0.5", "eval_every": 400, "final_episodes": 20, "seed": 1}

    def make() -> Any:
        return declared(FrameStackObservation(Before(), 2, padding_type="zero"), 2)

    run = finished(trainer.session("dqn", make, framework="torch", **settings))
    assert run.loop.learner.ring._columns["obs"].shape == (802, 1, 36, 36)
    assert run.result()["eval_mean"] > 7.9  # 8 is all there is, 4.5 what the newest picture brings


@pytest.mark.parametrize("algorithm", ("ppo", "dqn"))
@pytest.mark.parametrize("game", ("Pong", "Breakout"))
def test_the_zoo_has_games(algorithm: str, game: str) -> None:
    entry = zoo.entry(algorithm, f"ALE/{game}-v5")
    assert entry is not None and "atari" in entry.source
    settings, options, *_ = trainer.resolve(algorithm, f"ALE/{game}-v5", {})
    assert settings.steps == 10_000_000 and options.frame_stack == 4
