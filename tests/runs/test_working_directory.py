"""An environment that changes the working directory: the files of a run stay together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.animation import film
from tandem.drlbox.makers import make_trainer
from tandem.testing.environments import TerminatedTruncatedPair
from tests.agents.agents import Probe, trained
from tests.runs.shared import QUICK

SMALL = QUICK | {"steps": 64, "envs": 2, "rollout": 16, "batch_size": 16, "epochs": 1}
SMALL |= {"tensorboard": True}


class Moves(TerminatedTruncatedPair):
    """Changes into a folder of its own when it is made, and at each reset."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"
    away = ""

    def __init__(self) -> None:
        super().__init__()
        os.chdir(self.away)

    def reset(self, **given: Any) -> Any:
        os.chdir(self.away)
        return super().reset(**given)

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


def by_trainer() -> None:
    here = Path.cwd()
    tandem.train("ppo", Moves, out="run", stop_at=32, **SMALL)
    os.chdir(here)
    result = tandem.train(env=Moves, resume="run")
    assert result.folder == here / "run" and result.summary["env_steps"] == 64


def by_agent() -> None:
    agent = Probe(Moves())
    os.chdir(Path(Moves.away).parent / "here")
    agent.path, agent.save_freq = "run/agent.dat", 1
    for _ in range(2):
        trained(agent, 2)


def by_film() -> None:
    film(lambda obs: 0, Moves, Path("run/play.gif"))


def by_drlbox() -> None:
    given: dict[str, Any] = {"framework": "torch", "steps": 32, "envs": 2, "rollout": 8}
    given |= {"env_maker": Moves, "save_dir": "run", "state_to_input": lambda state: state}
    make_trainer("a2c", **given).run()


@pytest.mark.parametrize("door", [by_trainer, by_agent, by_film, by_drlbox])
def test_files_of_a_run_stay_where_they_were_to_be(door, tmp_path, monkeypatch) -> None:
    here, away = tmp_path / "here", tmp_path / "away"
    here.mkdir()
    away.mkdir()
    monkeypatch.setattr(Moves, "away", str(away))
    monkeypatch.chdir(here)
    door()
    assert [f.name for f in away.iterdir()] == []
    assert [f.name.partition("-")[0] for f in here.iterdir()] == ["run"]
