"""The advice of the room algorithms, followed: other algorithms, actions and settings."""

from __future__ import annotations

from typing import Any

import pytest

from tandem.testing.goal_games import BitFlip
from tests.advice.net import case
from tests.advice.upper import (
    acts,
    box,
    ran,
    toy,
)

torch = pytest.importorskip("torch")
TAKEN = {"taken": True}


def body(space: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(space.shape[0], 8), torch.nn.Tanh())


MAPPO = {"algorithm": "mappo", "env": toy(box(), team=True)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        # spaces of actions
        case(
            "algorithms/action_spaces.py:floats 2",
            acts,
            {**MAPPO, "algorithm": "ppo"},
            "mappo",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:floats 2",
            acts,
            {"algorithm": "td3", "env": toy(box(), team=True)},
            "mappo",
            TAKEN,
        ),
        # noise
        case(
            "algorithms/sac.py:SAC.check_settings",
            ran,
            {"algorithm": "sac", "env": toy(), "recurrent": 8, "sequence": 4, "n_step": 3},
            "give n_step=1",
            {"n_step": 1},
        ),
        # settings that contradict each other
        case(
            "algorithms/teams.py:check_replay",
            ran,
            {"algorithm": "qmix", "env": toy(team=True), "recurrent": 8, "prioritized": True},
            "give recurrent=0",
            {"recurrent": 0},
        ),
        case(
            "algorithms/teams.py:check_replay",
            ran,
            {"algorithm": "qmix", "env": toy(team=True), "recurrent": 8, "n_step": 3},
            "or n_step=1",
            {"n_step": 1},
        ),
        case(
            "algorithms/critics.py:check_values",
            ran,
            {"algorithm": "dqn", "values": "categorical", "v_min": 5.0, "v_max": 2.0},
            "such as v_min=-10 and v_max=10",
            {"v_min": -10.0, "v_max": 10.0},
        ),
        case(
            "algorithms/nstep_q.py:NStepQ.check",
            ran,
            {"algorithm": "nstep_q", "bootstrap": "sarsa", "replay": "uniform"},
        ),
        case(
            "algorithms/nstep_q.py:NStepQ.check 2",
            ran,
            {"algorithm": "nstep_q", "bootstrap": "sarsa", "replay": "none", "rollout": 1},
            "give rollout=2 or more",
            {"rollout": 2},
        ),
        case(
            "algorithms/nstep_q.py:NStepQ.check 3",
            ran,
            {"algorithm": "nstep_q", "bootstrap": "sarsa", "replay": "none", "double": False},
        ),
        case(
            "algorithms/dqn.py:_check_munchausen",
            ran,
            {"algorithm": "dqn", "munchausen": True, "values": "categorical"},
            "give values='implicit'",
            {"values": "implicit"},
        ),
        case(
            "algorithms/dqn.py:_check_munchausen 2",
            ran,
            {"algorithm": "dqn", "munchausen": True, "n_step": 3},
            "give n_step=1",
            {"n_step": 1},
        ),
        case(
            "algorithms/dqn.py:_check_munchausen 3",
            ran,
            {"algorithm": "dqn", "munchausen": True, "double": True},
            "give double=False",
            {"double": False},
        ),
        case(
            "algorithms/bodies.py:body",
            ran,
            {"algorithm": "dqn", "body": "simba", "layer_norm": True},
            "leave layer_norm out",
            {"layer_norm": False},
        ),
        case(
            "algorithms/trpo.py:TRPO.check 2",
            ran,
            {"algorithm": "trpo", "body": "simba", "normalize_observations": False, "hidden": (8,)},
            "give normalize_observations=True",
            {"normalize_observations": True},
        ),
        case(
            "algorithms/deterministic.py:Deterministic.check",
            ran,
            {
                "algorithm": "td3",
                "env": toy(box()),
                "action_noise": "gsde",
                "exploration": "0.3:0.1",
            },
            "give exploration=0.3",
            {"exploration": 0.3},
        ),
        case(
            "algorithms/tqc.py:TQC.check",
            ran,
            {"algorithm": "tqc", "env": toy(box()), "quantiles": 20, "dropped": 20},
            "give dropped=2",
            {"dropped": 2},
        ),
        case(
            "algorithms/mat.py:MAT.check 2",
            ran,
            {**MAPPO, "algorithm": "mat", "embedding": 10, "heads": 4},
            "give embedding=12",
            {"embedding": 12},
        ),
        case(
            "algorithms/mat.py:MAT.sources",
            ran,
            {**MAPPO, "algorithm": "mat", "network": body},
            "use mappo",
            {"algorithm": "mappo", "centralized": False},
        ),
        case(
            "algorithms/mat.py:MAT.sources",
            ran,
            {**MAPPO, "algorithm": "mat", "network": body},
            "leave network out",
            {"network": None},
        ),
        case(
            "algorithms/on_sequences.py:OnSequences.roles",
            ran,
            {"algorithm": "impala", "recurrent": 8, "shared": False},
        ),
        case(
            "algorithms/remembering.py:check",
            ran,
            {"algorithm": "dqn", "env": BitFlip, "hindsight": "final", "recurrent": 8},
            "give hindsight='no'",
            {"hindsight": "no"},
        ),
        case(
            "algorithms/remembering.py:check 2",
            ran,
            {"algorithm": "td3", "env": toy(box()), "action_noise": "ou", "recurrent": 8},
            "give action_noise='gaussian'",
            {"action_noise": "gaussian"},
        ),
        case(
            "algorithms/dqn.py:DQN.check",
            ran,
            {"algorithm": "dqn", "values": "implicit", "recurrent": 8},
            "give values='quantile'",
            {"values": "quantile"},
        ),
        case(
            "algorithms/crossq.py:CrossQ.check",
            ran,
            {
                "algorithm": "crossq",
                "env": toy(box()),
                "weight_projection": True,
                "weight_norm": True,
            },
            "leave weight_norm out",
            {"weight_norm": False},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()
