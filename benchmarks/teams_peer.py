"""One run of XuanCe's on simple_spread, by the Python that it is installed for: `PYTHON -m
benchmarks.teams_peer JOB` prints what it found as JSON on its last line, as benchmarks.worker does.

A job is a JSON object: `kind` ("run", "bare" or "versions"), `spawned`, `core`, and for a run
`algorithm`, `steps`, `seed` and `settings`, which go on top of XuanCe's own file for the algorithm
and simple_spread_v3; null takes a setting away.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.worker import Job, Watch

# In this process and without pictures: what tandem's runs beside it do.
ALWAYS = {
    "vectorize": "DummyVecMultiAgentEnv",
    "render": False,
    "render_mode": None,
    "device": "cpu",
    "logger": "tensorboard",
}
PACKAGES = ("xuance", "torch", "numpy", "mpe2", "pettingzoo", "gymnasium")
WORLD = {"N": 3, "local_ratio": 0.5, "max_cycles": 25, "continuous_actions": True}
WINDOWS, WINDOW = 5, 2_000  # of the bare environment: how many, and steps of each


def configuration(job: Job) -> dict[str, Any]:
    """XuanCe's settings: its basic file, the one for the algorithm and environment, and the
    job's."""
    import xuance
    from xuance.common import load_yaml

    folder = Path(xuance.__file__).parent / "configs"
    options = load_yaml(folder / "basic.yaml") | load_yaml(
        folder / job["algorithm"] / "mpe" / "simple_spread_v3.yaml"
    )
    options |= (
        ALWAYS
        | {"seed": job["seed"], "env_seed": job["seed"], "running_steps": job["steps"]}
        | job["settings"]
    )
    return {
        name: value for name, value in options.items() if value is not None or name == "render_mode"
    }


def run(job: Job, watch: Watch) -> Job:
    """Trains for so many environment steps, one being that of the whole team; nothing is evaluated
    or logged."""
    os.environ["TQDM_DISABLE"] = "1"
    import mpe2

    sys.modules["pettingzoo.mpe"] = (
        mpe2  # where XuanCe looks for it, and where it was before it had a package of its own
    )
    from xuance.environment import make_envs
    from xuance.torch.agents import REGISTRY_Agents

    settings = configuration(job)
    config = Namespace(**settings)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it makes folders for logs and models wherever it is
        agent = REGISTRY_Agents[config.agent](config, make_envs(config))
        agent.log_infos = lambda *_: None
        learner, update = agent.learner, agent.learner.update

        def first_update(sample: Any) -> Any:
            outcome = update(sample)
            watch.updated()
            del learner.update  # from now on the method itself
            return outcome

        learner.update = first_update
        watch.begin()
        agent.train(-(-job["steps"] // config.parallels))
        report = watch.result(int(agent.current_step), int(learner.iterations))
        agent.finish()
        os.chdir("/")
    return {**report, "settings": settings}


def environment() -> Any:
    """The environment that everyone steps: XuanCe asks for it with continuous actions, and else as
    it is by default."""
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env(**WORLD)


def bare(job: Job, _: Watch) -> Job:
    """Steps a second of the environment alone, with random actions, its resets included: the median
    of several windows."""
    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter
    env = environment()
    env.reset(seed=0)
    for name in env.possible_agents:
        env.action_space(name).seed(0)
    actions = [
        {name: env.action_space(name).sample() for name in env.possible_agents} for _ in range(256)
    ]

    def window(steps: int) -> float:
        began = clock()
        for i in range(steps):
            env.step(actions[i % 256])
            if not env.agents:
                env.reset()
        return steps / (clock() - began)

    window(WINDOW // 4)
    return {"steps_per_second": median(window(WINDOW) for _ in range(WINDOWS))}


def versions(_: Job, __: Watch) -> Job:
    """Of what takes part on the peer's side."""
    return {
        "python": sys.version.split()[0],
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


KINDS = {"run": run, "bare": bare, "versions": versions}


def main() -> None:
    job: Job = json.loads(sys.argv[1])
    if job["core"] is not None:
        os.sched_setaffinity(0, {job["core"]})
    print("\n" + json.dumps(KINDS[job["kind"]](job, Watch(job["spawned"]))))


if __name__ == "__main__":
    main()
