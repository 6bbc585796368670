"""Pictures from the environment to the learner: a run on an Atari game."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem import trainer, zoo
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
