"""The advice of the room algorithms, followed: other algorithms, actions and settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces, wrappers

from tandem.envs.team import team
from tandem.testing.goal_games import BitFlip
from tests.advice.net import case
from tests.advice.upper import (
    FAR,
    PARTS,
    UNBOUNDED,
    WHOLE,
    Toy,
    ToyTeam,
    acts,
    box,
    made,
    ran,
    toy,
)

torch = pytest.importorskip("torch")
TAKEN = {"taken": True}


def body(space: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(space.shape[0], 8), torch.nn.Tanh())


def normed(space: Any, kind: Any) -> Any:
    return torch.nn.Sequential(kind(space.shape[0]), body(space))


def whole(**outputs: int) -> dict[str, Any]:
    """Whole networks of a Toy's three numbers, by role."""
    return {role: lambda _, n=n: torch.nn.Linear(3, n) for role, n in outputs.items()}


def rounded() -> Any:
    return wrappers.TransformAction(Toy(WHOLE), lambda a: np.rint(a).astype(np.int32), box(-3, 3))


def discretized() -> Any:
    return wrappers.DiscretizeAction(Toy(box()), 5)


PPO_WHOLE = {"env": toy(box()), "network": whole(actor=4, critic=1), "action_noise": "gsde"}
DQN_WHOLE = {"algorithm": "dqn", "env": toy(), "network": whole(q=3), "noisy": "factorised"}
PPO_BOX, PPO_GSDE = {"env": toy(box())}, {"env": toy(box()), "action_noise": "gsde"}
MAPPO = {"algorithm": "mappo", "env": toy(box(), team=True)}
BETA = {"policy": "beta"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        case(
            "algorithms/__init__.py:get", made, {"algorithm": "pp0"}, "'ppo'", {"algorithm": "ppo"}
        ),
        # spaces of actions
        case(
            "algorithms/action_spaces.py:floats",
            ran,
            {"env": toy(WHOLE)},
            "TransformAction",
            {"env": rounded},
        ),
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
        case(
            "algorithms/action_spaces.py:simple",
            acts,
            {"algorithm": "a3c", "env": toy(spaces.MultiBinary(3))},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:simple",
            acts,
            {"algorithm": "impala", "env": toy(PARTS)},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:discrete",
            acts,
            {"algorithm": "dqn", "env": toy(box())},
            "sac",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:discrete",
            ran,
            {"algorithm": "dqn", "env": toy(box())},
            "DiscretizeAction",
            {"env": discretized},
        ),
        case(
            "algorithms/action_spaces.py:discrete",
            acts,
            {"algorithm": "acer", "env": toy(UNBOUNDED)},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:discrete",
            acts,
            {"algorithm": "nstep_q", "env": toy(spaces.MultiDiscrete([2, 3]))},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:discrete",
            acts,
            {"algorithm": "dqn", "env": toy(PARTS)},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:discrete",
            acts,
            {"algorithm": "dqn", "env": toy(box(), team=True)},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:bounded_vector",
            acts,
            {"algorithm": "td3", "env": toy()},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:bounded_vector",
            acts,
            {"algorithm": "sac", "env": toy(UNBOUNDED)},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:bounded_vector",
            ran,
            {"algorithm": "sac", "env": toy(UNBOUNDED)},
            "finite bounds",
            {"env": toy(box())},
        ),
        case(
            "algorithms/action_spaces.py:bounded_vector",
            acts,
            {"algorithm": "maddpg", "env": toy(UNBOUNDED, team=True)},
            "",
            TAKEN,
        ),
        case("algorithms/action_spaces.py:bounded_vector", ran, {"env": toy(UNBOUNDED), **BETA}),
        case("algorithms/action_spaces.py:bounded_vector", ran, {"env": toy(PARTS), **BETA}),
        case(
            "algorithms/action_spaces.py:bounded_vector",
            ran,
            {**MAPPO, **BETA, "env": toy(UNBOUNDED, team=True)},
        ),
        case(
            "algorithms/action_spaces.py:bounded_vector",
            ran,
            {**MAPPO, **BETA, "env": toy(team=True)},
        ),
        case(
            "algorithms/action_spaces.py:bounded_vector 2",
            acts,
            {"algorithm": "ddpg", "env": toy(FAR)},
            "",
            TAKEN,
        ),
        case(
            "algorithms/action_spaces.py:bounded_vector 2",
            ran,
            {"algorithm": "sac", "env": toy(FAR)},
            "-1 and 1",
            {"env": toy(box())},
        ),
        case("algorithms/action_spaces.py:bounded_vector 2", ran, {"env": toy(FAR), **BETA}),
        case(
            "algorithms/teams.py:check",
            acts,
            {"algorithm": "qmix", "env": toy()},
            "ppo or dqn",
            TAKEN,
        ),
        case(
            "algorithms/teams.py:check",
            acts,
            {"algorithm": "maddpg", "env": toy(box())},
            "sac",
            TAKEN,
        ),
        case(
            "algorithms/teams.py:check",
            ran,
            {"algorithm": "vdn", "env": toy()},
            "tandem.envs.team.team",
            {"env": lambda: team(ToyTeam())},
        ),
        case(
            "algorithms/teams.py:check 2",
            acts,
            {"algorithm": "vdn", "env": toy(box(), team=True)},
            "",
            TAKEN,
        ),
        # noise
        case(
            "algorithms/base.py:Algorithm.sources",
            ran,
            DQN_WHOLE,
            "returns a body",
            {"network": body},
        ),
        case(
            "algorithms/base.py:Algorithm.sources",
            ran,
            DQN_WHOLE,
            "leave noisy out",
            {"noisy": "no"},
        ),
        case("algorithms/gsde.py:refuse", ran, PPO_WHOLE, "returns a body", {"network": body}),
        case("algorithms/gsde.py:refuse", ran, PPO_WHOLE),
        case(
            "algorithms/gsde.py:refuse 2",
            ran,
            {"algorithm": "td3", "env": toy(box()), "noisy": "factorised", "action_noise": "gsde"},
        ),
        case("algorithms/gsde.py:check", ran, {"env": toy(PARTS), "action_noise": "gsde"}),
        case(
            "algorithms/gsde.py:check",
            ran,
            {"algorithm": "sac", "env": toy(), "action_noise": "gsde"},
        ),
        case(
            "algorithms/gsde.py:check",
            ran,
            {**MAPPO, "env": toy(team=True), "action_noise": "gsde"},
        ),
        case("algorithms/gsde.py:check 2", ran, {**PPO_GSDE, **BETA}),
        case("algorithms/unused.py:refuse_given", ran, {**PPO_BOX, "sde_sample_freq": 4}),
        case("algorithms/unused.py:refuse_given", ran, {**MAPPO, "sde_sample_freq": 4}),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "sac", "env": toy(box()), "log_std": -1.0},
        ),
        case(
            "algorithms/sac.py:SAC.check_settings",
            ran,
            {"algorithm": "sac", "env": toy(), "recurrent": 8, "sequence": 4, "n_step": 3},
            "give n_step=1",
            {"n_step": 1},
        ),
        # settings that contradict each other
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "a2c", "rms_decay": 0.9, "optimizer": "adam"},
        ),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "a3c", "replay_size": 99},
            "leave replay_size out",
            {"replay_size": 1_000},
        ),
        case("algorithms/unused.py:refuse_given", ran, {"algorithm": "dqn", "atoms": 9}),
        case("algorithms/unused.py:refuse_given", ran, {"algorithm": "dqn", "priority_alpha": 0.5}),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "sac", "env": toy(box()), "priority_beta": "0.5:1"},
            "give prioritized=True too",
            {"prioritized": True},
        ),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "acer", "priority_alpha": 0.5},
            "give replay='prioritized' too",
            {"replay": "prioritized"},
        ),
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
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "dqn", "quantiles": 9},
            "give values='quantile' too",
            {"values": "quantile"},
        ),
        case(
            "algorithms/critics.py:check_values",
            ran,
            {"algorithm": "dqn", "values": "categorical", "v_min": 5.0, "v_max": 2.0},
            "such as v_min=-10 and v_max=10",
            {"v_min": -10.0, "v_max": 10.0},
        ),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "dqn", "weight_decay": 0.01, "optimizer": "sgd"},
            "give optimizer='adam'",
            {"optimizer": "adam"},
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
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "dqn", "values": "quantile", "fractions": 9, "quantiles": 9},
            "leave fractions out",
            {"fractions": 64},
        ),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "dqn", "kappa": 0.5},
            "give values='implicit' too",
            {"values": "implicit"},
        ),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "dqn", "munchausen_alpha": 0.5},
            "give munchausen=True too",
            {"munchausen": True},
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
            "algorithms/trpo.py:TRPO.__init__",
            ran,
            {"algorithm": "trpo", "network": lambda space: normed(space, torch.nn.BatchNorm1d)},
            "put a layer norm in its place",
            {"network": lambda space: normed(space, torch.nn.LayerNorm)},
        ),
        case(
            "networks/simba.py:on_standardized",
            ran,
            {"algorithm": "dqn", "body": "simba", "hidden": (8, 16)},
            "give hidden=(128,) for one block of 128",
            {"hidden": (128,)},
        ),
        case(
            "networks/simba.py:on_standardized",
            ran,
            {"algorithm": "dqn", "body": "simba", "hidden": (8, 16)},
            "hidden=(256, 256) for two of 256",
            {"hidden": (256, 256)},
        ),
        case(
            "algorithms/bodies.py:body",
            ran,
            {"algorithm": "dqn", "body": "simba", "layer_norm": True},
            "leave layer_norm out",
            {"layer_norm": False},
        ),
        case(
            "algorithms/bodies.py:refuse",
            ran,
            {"algorithm": "crossq", "env": toy(box()), "layer_norm": True},
            "give layer_norm=False",
            {"layer_norm": False},
        ),
        case(
            "algorithms/bodies.py:refuse",
            ran,
            {**MAPPO, "algorithm": "mat", "body": "simba", "layer_norm": True},
            "give body='mlp' and layer_norm=False",
            {"body": "mlp", "layer_norm": False},
        ),
        case(
            "algorithms/trpo.py:TRPO.check",
            ran,
            {"algorithm": "trpo", "body": "simbav2", "hidden": (8,)},
            "give body='simba'",
            {"body": "simba"},
        ),
        case(
            "networks/simba.py:on_standardized",
            ran,
            {"algorithm": "dqn", "body": "simbav2", "hidden": (8, 16)},
            "give hidden=(128,) for one block of 128",
            {"hidden": (128,)},
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
        case("algorithms/mappo.py:MAPPO.roles", ran, {**MAPPO, "shared": True}),
        case("algorithms/mappo.py:MAPPO.roles", ran, {**MAPPO, "normalize_observations": True}),
        case("algorithms/mat.py:MAT.check", ran, {**MAPPO, "algorithm": "mat", "recurrent": 8}),
        case(
            "algorithms/mat.py:MAT.check",
            ran,
            {**MAPPO, "algorithm": "mat", "action_noise": "gsde"},
            "give action_noise='gaussian'",
            {"action_noise": "gaussian"},
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
        case("algorithms/unused.py:refuse_given", ran, {"memory": "lstm"}, "64", {"recurrent": 64}),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"memory": "lstm"},
            "leave memory out",
            {"memory": "gru"},
        ),
        case("algorithms/on_policy.py:OnPolicy.roles", ran, {"recurrent": 8, "shared": True}),
        case(
            "algorithms/on_sequences.py:OnSequences.roles",
            ran,
            {"algorithm": "impala", "recurrent": 8, "shared": False},
        ),
        case("algorithms/ppo.py:PPO.roles", ran, {"value_norm": "norm", "shared": True}),
        case(
            "algorithms/remembering.py:check_sequence",
            ran,
            {"algorithm": "qmix", "env": toy(team=True), "recurrent": 8, "sequence": 0},
        ),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "vdn", "env": toy(team=True), "burn_in": 4, "batch_size": 16},
            "give recurrent=64 too",
            {"recurrent": 64},
        ),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "sac", "env": toy(box()), "priority_eta": 0.5, "prioritized": True},
            "recurrent=64",
            {"recurrent": 64, "prioritized": True},
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
        case(
            "algorithms/crossq.py:CrossQ.check 2",
            ran,
            {"algorithm": "crossq", "env": toy(box()), "recurrent": 8},
            "give recurrent=0",
            {"recurrent": 0},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()
