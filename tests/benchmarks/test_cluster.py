"""The rows of benchmarks.cluster say the same to both sides, and reports what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import cluster, measure
from benchmarks.cluster_own import AT_ONCE, POOL
from benchmarks.cluster_rows import ROWS, RUNNERS, ClusterRow, find


def runs(*speeds: float, rate: float = 0.5) -> list[dict[str, Any]]:
    return [{"seconds": 1_000 / speed, "steps": 1_000, "updates": 1_000 * rate} for speed in speeds]


ORIGIN: dict[str, Any] = {"date": "today", "commit": "0123456789abcdef", "seed": 0, "load": 0.25}
ORIGIN |= {"machine": {"processor": "one", "cores": 2}, "versions": {"numpy": "2"}}
ORIGIN["their_versions"] = {"ray": "2.60.0"}
ALIKE = {  # of training, of the model: their name -> ours
    "training": {"lr": "learning_rate", "gamma": "gamma", "grad_clip": "max_grad_norm"},
    "model": {"fcnet_activation": "activation"},
}
OF_PPO = {
    "training": {"num_epochs": "epochs", "minibatch_size": "batch_size"},
    "model": {"vf_share_layers": "shared"},
}
OF_DQN = {
    "training": {
        "train_batch_size_per_learner": "batch_size",
        "num_steps_sampled_before_learning_starts": "learning_starts",
    }
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_sides_are_asked_for_the_same_work(row: ClusterRow) -> None:
    ours, theirs = row.ours, row.theirs
    for table in (ALIKE, OF_PPO if row.algorithm == "ppo" else OF_DQN):
        for part, names in table.items():
            for name, here in names.items():
                assert theirs[part][name] == ours[here], name
    training, collect = theirs["training"], theirs["env_runners"]
    each = collect["num_envs_per_env_runner"]
    assert collect["num_env_runners"] == RUNNERS and RUNNERS * each == ours["envs"]
    assert collect["rollout_fragment_length"] * ours["envs"] == row.block
    assert tuple(theirs["model"]["fcnet_hiddens"]) == ours["hidden"]
    if row.algorithm == "ppo":
        assert training["train_batch_size_per_learner"] == row.block
    else:
        assert training["replay_buffer_config"]["capacity"] == ours["buffer_size"]
        # As RLlib 2.60.0 computes its rounds of updates, in calculate_rr_weights: by one runner
        # more than there is.
        steps = collect["rollout_fragment_length"] * each * (RUNNERS + 1)
        rounds = round(training["training_intensity"] * steps / ours["batch_size"])
        assert rounds == ours["updates_per_call"]
    # whole blocks are measured, and the first updates, for which everything is compiled, are not
    for told in ({"warm": row.warm, "steps": row.steps}, cluster.QUICK):
        assert told["warm"] % row.block == told["steps"] % row.block == 0
        assert told["warm"] >= ours.get("learning_starts", 0) + row.block


def test_different_work_is_not_compared() -> None:
    cluster.check_updates(find("dqn"), "rllib", runs(80.0, rate=0.49)[0])
    with pytest.raises(RuntimeError, match="asked for are 0.5"):
        cluster.check_updates(find("dqn"), "rllib", runs(80.0, rate=0.75)[0])
    assert not cluster.here("rllib", None) and cluster.here("rllib", "python3")


def test_the_report_has_both_factors() -> None:
    speeds = {"jax-runners": (700.0, 720.0, 2.0), "jax-pool": (1_000.0,)}
    speeds |= {"torch-runners": (500.0,), "rllib": (100.0,)}
    contestants = {name: runs(*of_one) for name, of_one in speeds.items()}
    handing = {AT_ONCE: [1.0, 2.0, 30.0], POOL: [0.1]}
    rows = {"dqn": {"contestants": contestants, **ORIGIN}}
    rows[cluster.HANDING] = {"milliseconds": handing, **ORIGIN}
    said = cluster.markdown({"rows": rows})
    for text in (
        "| tandem, jax, 2 runners on Ray | 700 | 103 % | 500.0 | 0.70 | 7.00 |",
        "| tandem, jax, worker pool, 2 workers | 1,000 | 0 % | 500.0 |  | 10.00 |",
        "| tandem, torch, 2 runners on Ray | 500 | 0 % | 500.0 |  | 5.00 |",
        "| RLlib, 2 environment runners | 100 | 0 % | 500.0 |  |  |",
        f"| {AT_ONCE} | 2.000 |",
        "| 3 |",
        "load of 0.2 before",
        "on RLlib's side ray 2.60.0",
    ):
        assert text in said
    assert "## ppo" not in said


@pytest.mark.slow
@pytest.mark.parametrize(("name", "env"), [("dqn", "CartPole-v1"), ("ppo", "Pendulum-v1")])
def test_a_run_of_ours_makes_the_updates_that_are_asked_for(name: str, env: str) -> None:
    """With workers, of which the machine needs nothing else."""
    pytest.importorskip("torch")
    row = find(name)
    settings = {**row.ours, "hidden": (8,), "workers": RUNNERS}
    job = {"algorithm": row.algorithm, "env": env, "warm": 1_536, "steps": 1_024, "seed": 0}
    job |= {"kind": "ours-cluster", "contestant": "torch", "settings": settings}
    found = measure.spawn(job, None)
    assert found["steps"] >= 1_024 - row.block and found["seconds"] > 0
    cluster.check_updates(row, name, found)
