"""The advice of curves, pictures and exported agents."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

import tandem
from tandem import animation
from tandem.networks import onnx
from tandem.onnx_export import to_onnx
from tests.advice.conftest import body
from tests.advice.net import follows
from tests.test_animation import Blinking
from tests.test_onnx_export import Team, team_games


def film(env: Any, out: Any = "a.gif") -> None:
    animation.animate(lambda obs: 0, env, out)


class Other(Blinking):
    """`render` gives something else, or fails until what it needs is installed."""

    def __init__(self, picture: Any = None, needs: str = "") -> None:
        super().__init__()
        self.picture, self.needs = picture, needs

    def render(self) -> Any:
        if self.needs:
            __import__(self.needs)
        return super().render() if self.picture is None else self.picture


def test_agents_that_no_file_can_hold(tmp_path) -> None:
    small = {"steps": 40, "hidden": (4,), "framework": "torch", "eval_episodes": 0, "plots": False}
    small |= {"final_episodes": 1, "eval_max_steps": 20}

    def team() -> Any:
        return Team(team_games.TwoStep())

    few = {"rollout": 20, "envs": 2, "batch_size": 40, "epochs": 1}
    memory = few | {"recurrent": 4, "sequence": 20, "network": body()}
    for key, algorithm, env, more in (
        ("onnx_export.py:_network", "vdn", team, {}),
        ("onnx_export.py:_network 2", "ppo", "CartPole-v1", memory),
    ):
        made = tandem.train(algorithm, env, out=tmp_path / algorithm, **small, **more).agent
        with follows(key) as advice:
            to_onnx(made, tmp_path / "a.onnx")
        assert "use tandem.load where the agent acts" in advice.fix
        loaded = tandem.load(tmp_path / algorithm, network=more.get("network"))
        assert loaded.algorithm is made.algorithm


def test_a_graph_of_a_later_opset(runs, tmp_path) -> None:
    own = tandem.load(runs / "own", network=body())
    newer = helper.make_model(
        helper.make_graph([], "later", [], []), opset_imports=[helper.make_opsetid("", 21)]
    )
    with follows("networks/onnx.py:Graph.merge") as advice:
        onnx.Graph().merge(newer.SerializeToString(), {})
    assert advice.fix == "use tandem.load where the agent acts."
    assert own.act(np.zeros(4)) in (0, 1)
