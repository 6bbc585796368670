"""The rows of benchmarks.cluster say the same to both sides, and reports what was measured."""

from typing import Any

import pytest

from benchmarks import cluster
from benchmarks.cluster_own import AT_ONCE
from benchmarks.cluster_rows import ROWS, RUNNERS, ClusterRow, find


def runs(*speeds: float, rate: float = 0.5) -> list[dict[str, Any]]:
    return [{"seconds": 1_000 / speed, "steps": 1_000, "updates": 1_000 * rate} for speed in speeds]


MACHINE: dict[str, Any] = {"date": "today", "commit": "0123456789abcdef", "seed": 0, "load": 0.25}
MACHINE |= {"machine": {"processor": "one", "cores": 2}, "versions": {"numpy": "2"}}
ORIGIN = MACHINE | {"their_versions": {"ray": "2.60.0"}}
# of RLlib's "training" and of its "model": their name is our name
TRAINING = "lr learning_rate, gamma gamma, grad_clip max_grad_norm"
OF_PPO = "num_epochs epochs, minibatch_size batch_size"
OF_DQN = "train_batch_size_per_learner batch_size"
OF_DQN += ", num_steps_sampled_before_learning_starts learning_starts"
MODEL = "fcnet_activation activation"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_sides_are_asked_for_the_same_work(row: ClusterRow) -> None:
    ours, theirs, on_policy = row.ours, row.theirs, row.algorithm == "ppo"
    training, collect = theirs["training"], theirs["env_runners"]
    model = f"{MODEL}, vf_share_layers shared" if on_policy else MODEL
    alike = f"{TRAINING}, {OF_PPO if on_policy else OF_DQN}"
    for part, names in ((training, alike), (theirs["model"], model)):
        for name, here in map(str.split, names.split(", ")):
            assert part[name] == ours[here], name
    each = collect["num_envs_per_env_runner"]
    assert collect["num_env_runners"] == RUNNERS and RUNNERS * each == ours["envs"]
    assert collect["rollout_fragment_length"] * ours["envs"] == row.block
    assert tuple(theirs["model"]["fcnet_hiddens"]) == ours["hidden"]
    if on_policy:
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
    entry = {"contestants": {name: runs(*of_one) for name, of_one in speeds.items()}}
    said = cluster.markdown({"rows": {"dqn": ORIGIN | entry}})
    for text in (
        "| tandem, jax, 2 runners on Ray | 700 | 103 % | 500.0 | 0.70 | 7.00 |",
        "| tandem, jax, worker pool, 2 workers | 1,000 | 0 % | 500.0 |  | 10.00 |",
        "| tandem, torch, 2 runners on Ray | 500 | 0 % | 500.0 |  | 5.00 |",
        "| RLlib, 2 environment runners | 100 | 0 % | 500.0 |  |  |",
        "on RLlib's side ray 2.60.0",
    ):
        assert text in said
    handing = {cluster.HANDING: ORIGIN | {"milliseconds": {AT_ONCE: [1.0, 2.0, 30.0]}}}
    assert f"| {AT_ONCE} | 2.000 |" in cluster.markdown({"rows": handing})
