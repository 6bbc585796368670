"""The rows of benchmarks.cluster say the same to both sides, and what is reported is what was
measured."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import cluster, measure
from benchmarks.cluster_own import AT_ONCE, POOL
from benchmarks.cluster_rows import ROWS, RUNNERS, ClusterRow, find


def runs(*speeds: float, rate: float = 0.5) -> list[dict[str, Any]]:
    return [{"seconds": 1_000 / speed, "steps": 1_000, "updates": 1_000 * rate} for speed in speeds]


ORIGIN: dict[str, Any] = {
    "date": "today",
    "commit": "0123456789abcdef",
    "seed": 0,
    "load": 0.25,
    "machine": {"processor": "one", "cores": 2},
    "versions": {"numpy": "2"},
    "their_versions": {"ray": "2.60.0"},
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_sides_are_asked_for_the_same_work(row: ClusterRow) -> None:
    ours = row.ours
    training = row.theirs["training"]
    collect = row.theirs["env_runners"]
    model = row.theirs["model"]
    assert (
        collect["num_env_runners"] == RUNNERS
        and RUNNERS * collect["num_envs_per_env_runner"] == ours["envs"]
    )
    assert collect["rollout_fragment_length"] * ours["envs"] == row.block
    assert (
        tuple(model["fcnet_hiddens"]) == ours["hidden"]
        and model["fcnet_activation"] == ours["activation"]
    )
    assert (training["lr"], training["gamma"], training["grad_clip"]) == tuple(
        ours[name] for name in ("learning_rate", "gamma", "max_grad_norm")
    )
    if row.algorithm == "ppo":
        assert (
            training["train_batch_size_per_learner"] == row.block
            and training["num_epochs"] == ours["epochs"]
        )
        assert (
            training["minibatch_size"] == ours["batch_size"]
            and model["vf_share_layers"] == ours["shared"]
        )
    else:
        assert training["train_batch_size_per_learner"] == ours["batch_size"]
        assert training["replay_buffer_config"]["capacity"] == ours["buffer_size"]
        assert training["num_steps_sampled_before_learning_starts"] == ours["learning_starts"]
        # As RLlib 2.60.0 computes its rounds of updates, in calculate_rr_weights: by one runner
        # more than there is.
        round_of_theirs = (
            collect["rollout_fragment_length"] * collect["num_envs_per_env_runner"] * (RUNNERS + 1)
        )
        assert (
            round(training["training_intensity"] * round_of_theirs / ours["batch_size"])
            == ours["updates_per_call"]
        )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_whole_blocks_are_measured(row: ClusterRow) -> None:
    """And the first updates, for which everything is compiled, are not."""
    for told in ({"warm": row.warm, "steps": row.steps}, cluster.QUICK):
        assert told["warm"] % row.block == told["steps"] % row.block == 0
        assert told["warm"] >= row.ours.get("learning_starts", 0) + row.block


def test_different_work_is_not_compared() -> None:
    cluster.check_updates(find("dqn"), "rllib", runs(80.0, rate=0.49)[0])
    with pytest.raises(RuntimeError, match="asked for are 0.5"):
        cluster.check_updates(find("dqn"), "rllib", runs(80.0, rate=0.75)[0])


def test_the_report_has_both_factors() -> None:
    contestants = {
        "jax-runners": runs(700.0, 720.0, 2.0),
        "jax-pool": runs(1_000.0),
        "torch-runners": runs(500.0),
        "rllib": runs(100.0),
    }
    handing = {AT_ONCE: [1.0, 2.0, 30.0], POOL: [0.1]}
    said = cluster.markdown(
        {
            "rows": {
                "dqn": {"contestants": contestants, **ORIGIN},
                cluster.HANDING: {"milliseconds": handing, **ORIGIN},
            }
        }
    )
    assert "| tandem, jax, 2 runners on Ray | 700 | 103 % | 500.0 | 0.70 | 7.00 |" in said
    assert "| tandem, jax, worker pool, 2 workers | 1,000 | 0 % | 500.0 |  | 10.00 |" in said
    assert "| tandem, torch, 2 runners on Ray | 500 | 0 % | 500.0 |  | 5.00 |" in said
    assert "| RLlib, 2 environment runners | 100 | 0 % | 500.0 |  |  |" in said
    assert f"| {AT_ONCE} | 2.000 |" in said and "| 3 |" in said
    assert (
        "load of 0.2 before" in said
        and "on RLlib's side ray 2.60.0" in said
        and "## ppo" not in said
    )


def test_who_is_not_installed_is_left_out() -> None:
    assert not cluster.here("rllib", None) and cluster.here("rllib", "python3")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_a_run_of_ours_makes_the_updates_that_are_asked_for(name: str) -> None:
    """With workers, of which the machine needs nothing else."""
    pytest.importorskip("torch")
    row = find(name)
    settings = {**row.ours, "hidden": (8,), "workers": RUNNERS}
    job = {
        "algorithm": row.algorithm,
        "env": "CartPole-v1" if name == "dqn" else "Pendulum-v1",
        "warm": 1_536,
        "steps": 1_024,
    }
    found = measure.spawn(
        {**job, "kind": "ours-cluster", "contestant": "torch", "seed": 0, "settings": settings},
        None,
    )
    assert found["steps"] >= 1_024 - row.block and found["seconds"] > 0
    cluster.check_updates(row, name, found)
