"""One run of RLlib's, by the Python that it is installed for: `PYTHON -m benchmarks.cluster_peer
JOB` prints what it found as JSON on its last line, as benchmarks.worker does.

A job is a JSON object: `kind` ("run" or "versions"), and for a run `algorithm`, `env`, `seed`,
`warm`, `steps`, `report` (steps between two of RLlib's reports), `threads` (of torch, where it
learns) and `settings`, which its configuration is told method by
method: see benchmarks.cluster_rows.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import sys
import time
from typing import Any

Job = dict[str, Any]

PACKAGES = ("ray", "torch", "numpy", "gymnasium", "mujoco")
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


def configuration(job: Job) -> Any:
    """RLlib's, of its present interface (modules, learners and environment runners), on the
    processor and with torch."""
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    told = job["settings"]
    config = {"dqn": DQNConfig, "ppo": PPOConfig}[job["algorithm"]]()
    return (
        config.api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
        .environment(job["env"])
        .framework("torch", **told.get("framework", {}))
        .training(**told["training"])
        .env_runners(**told["env_runners"])
        # it learns in this process, as we do: nothing to send there
        .learners(num_learners=0, num_gpus_per_learner=0)
        .rl_module(model_config=DefaultModelConfig(**told["model"]))
        .reporting(
            min_sample_timesteps_per_iteration=job["report"],
            min_time_s_per_iteration=0,
            min_train_timesteps_per_iteration=0,
        )
        .evaluation(evaluation_interval=None)
        .debugging(seed=job["seed"], log_level="ERROR")
    )


def run(job: Job) -> Job:
    """Trains, and measures from the report on in which the warm-up is over."""
    os.environ.update(QUIET)
    import ray
    import torch

    torch.set_num_threads(job["threads"])
    ray.init(
        address="local", include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False
    )
    try:
        algorithm = configuration(job).build_algo()
        began: tuple[float, int, int] | None = None
        while True:
            steps, rows = counted(algorithm.train())
            now = time.perf_counter()
            if began is None and steps >= job["warm"]:
                began = now, steps, rows
            elif began is not None and steps - began[1] >= job["steps"]:
                break
        algorithm.stop()
    finally:
        ray.shutdown()
    batch = job["settings"]["training"].get(
        "minibatch_size", job["settings"]["training"]["train_batch_size_per_learner"]
    )
    return {
        "seconds": now - began[0],
        "steps": steps - began[1],
        "updates": (rows - began[2]) / batch,
    }


def counted(result: Job) -> tuple[int, int]:
    """Environment steps and rows learned from, since the beginning."""
    return (
        int(result["env_runners"]["num_env_steps_sampled_lifetime"]),
        int(result["learners"]["default_policy"]["num_module_steps_trained_lifetime"])
        if result.get("learners")
        else 0,
    )


def versions(_: Job) -> Job:
    """Of what takes part on the peer's side."""
    return {
        "python": sys.version.split()[0],
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


KINDS = {"run": run, "versions": versions}


def main() -> None:
    job: Job = json.loads(sys.argv[1])
    print("\n" + json.dumps(KINDS[job["kind"]](job)))


if __name__ == "__main__":
    main()
