"""The coordinator of TF_CONFIG's cluster, or one of its servers: prints one JSON object."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf


def serve() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    kind, i = resolver.task_type, resolver.task_id
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=kind, task_index=i, protocol="grpc"
    ).join()


def coordinate(folder: Path) -> dict[str, Any]:
    import keras
    import numpy as np

    import tandem
    from tandem.examples.keras.DQN import DQN
    from tandem.exploration import EpsGreedyQPolicy

    strategy = tandem.parameter_server_strategy()
    choices: dict[str, Any] = {"pool_size": 200, "batch": 8, "update_steps": 3, "PR": True}

    def made() -> Any:
        with strategy.scope():
            agent = DQN(4, 8, 2)
            agent.optimizer = keras.optimizers.Adam(0.01)
        agent.set(policy=EpsGreedyQPolicy(0.5, seed=1), **choices)
        return agent

    def total(agent: Any) -> float:
        return float(sum(np.abs(v.numpy()).sum() for v in agent.param))

    agent = made()
    before = total(agent)
    agent.distributed_training(strategy=strategy, episodes=4, p=0)
    TD = agent.prioritized_replay.TD
    found = {
        "updates": agent._assembly.learner.updates,
        "moved": total(agent) != before,
        "losses": bool(np.isfinite(agent.loss_list).all()) and agent.loss_list[-1] > 0,
        "reported": bool((TD[:8] != 7.0).any()),
        "coordinator": type(agent.coordinator).__name__,
    }
    agent.save(folder / "agent.dat")
    other = made()
    with strategy.scope():
        other.restore(folder / "agent.dat")
    found["restored"] = total(other) == total(agent)
    other.distributed_training(strategy=strategy, episodes=2, p=0)
    found["episodes"] = other.total_episode
    stopped = made()
    stopped.stop_training = True
    found["stopped"] = float(stopped.distributed_training(strategy=strategy, episodes=2, p=0))
    bad = made()
    with strategy.scope():
        bad.q_scale = keras.Variable(1.0)
    known, bad.gamma = total(bad), float("nan")
    try:
        bad.distributed_training(strategy=strategy, episodes=3, p=0)
    except tandem.errors.NonFiniteError:
        found["not finite"] = total(bad) == known
    return found


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    print(json.dumps(coordinate(Path(sys.argv[1]))), flush=True)
    os._exit(0)  # TensorFlow's own end waits for the servers
