"""One measurement in a process of its own: `python -m benchmarks.worker JOB` prints what it found
as JSON on its last line.

A job is a JSON object: `kind` (a name in KINDS), `spawned` (time.monotonic() when the process was
asked for) and `core` (the number of the core to stay on, or null), and what the kind needs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

Job = dict[str, Any]


class Watch:
    """Seconds since the process was asked for, and seconds that it computed."""

    def __init__(self, spawned: float) -> None:
        self.spawned = spawned
        self.first: float | None = None

    def now(self) -> float:
        return time.monotonic() - self.spawned

    def begin(self) -> None:
        """Construction is done, the run begins."""
        self.constructed, self._cpu = self.now(), time.process_time()

    def updated(self) -> None:
        """Updates were made; remembers the first ones, in which everything is compiled."""
        if self.first is None:
            self.first = self.now()

    def result(self, steps: int, updates: int) -> Job:
        loop, cpu = self.now() - self.constructed, time.process_time() - self._cpu
        first = None if self.first is None else self.first - self.constructed
        return {
            "startup": self.constructed,
            "first": first,
            "loop": loop,
            "cpu": cpu,
            "steps": steps,
            "updates": updates,
        }


def body(hidden: list[int], activation: str, space: Any) -> Any:
    """A user's network for observations of this space: the default one, in a class of its own."""
    import torch
    from torch import nn

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = pairwise([space.shape[0], *hidden])
            self.layers = nn.ModuleList(nn.Linear(m, n) for m, n in sizes)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = getattr(torch, activation)(layer(x))
            return x

    return Body()


def ours(job: Job, watch: Watch) -> Job:
    """A run of ours without evaluation and folder."""
    from tandem.learning.events import BatchEnd
    from tandem.trainer import session

    framework, _, custom = job["contestant"].partition("-")
    run = session(
        job["algorithm"],
        job["env"],
        framework=framework if custom == "custom" else job["contestant"],
        network=partial(body, *job["layers"]) if custom == "custom" else None,
        steps=job["steps"],
        seed=job["seed"],
        eval_episodes=0,
        **job["settings"],
    )
    watch.begin()
    for event in run:
        if watch.first is None and isinstance(event, BatchEnd) and event.metrics:
            watch.updated()
    return watch.result(run.loop.env_steps, run.loop.learner.updates)


def agent(job: Job, watch: Watch) -> Job:
    """A run of the agent door's documented DQN program, to the end of the episode in which the
    steps are done."""
    from benchmarks import door

    model, optimizer = door.program(job["contestant"], job["seed"], num_updates=1)
    watch.begin()
    door.run(model, optimizer, job["contestant"], job["steps"], job["jit"], watch.updated)
    return watch.result(model._assembly.loop.env_steps, model._assembly.learner.updates)


def agent_reach(job: Job, watch: Watch) -> Job:
    """Seconds until the agent door's documented DQN program meets its criterion, and after how
    much; null where it does not."""
    from benchmarks import door

    model, optimizer = door.program(
        job["contestant"], job["seed"], trial_count=door.TRIALS, criterion=door.CRITERION
    )
    door.run(model, optimizer, job["contestant"], job["steps"], True, lambda: None)
    reached = model.average_reward() is not None and model.average_reward() >= door.CRITERION
    report = {
        "seconds": watch.now(),
        "steps": model._assembly.loop.env_steps,
        "episodes": model.total_episode,
    }
    return report if reached else dict.fromkeys(report)


def peer(job: Job, watch: Watch) -> Job:
    """A run of a peer's without evaluation and logs."""
    from benchmarks import peers

    peers.hide_tensorflow()
    envs = peers.environments(job["env"], job["envs"], job["seed"])
    model = peers.agent(job["contestant"], job["algorithm"], job["keywords"], envs, job["seed"])
    train = model.train

    def first_train(*args: Any, **kwargs: Any) -> None:
        train(*args, **kwargs)
        watch.updated()
        del model.train  # from now on the method itself

    model.train = first_train
    watch.begin()
    model.learn(job["steps"], log_interval=None)
    return watch.result(int(model.num_timesteps), peers.made_updates(model))


def ours_reach(job: Job, watch: Watch) -> Job:
    """Seconds until an evaluation of ours reaches a score, and after how many steps; null where
    none does."""
    from tandem.learning.events import EvaluationEnd
    from tandem.trainer import session

    with tempfile.TemporaryDirectory() as folder:
        run = session(
            job["algorithm"],
            job["env"],
            framework=job["contestant"],
            steps=job["steps"],
            seed=job["seed"],
            out=Path(folder) / "run",
            eval_every=job["eval_every"],
            eval_episodes=10,
            **job["settings"],
        )
        watch.begin()
        for event in run:
            if isinstance(event, EvaluationEnd) and event.evaluation.mean >= job["score"]:
                return {"seconds": watch.now(), "steps": event.env_steps}
    return {"seconds": None, "steps": None}


def peer_reach(job: Job, watch: Watch) -> Job:
    """The same of a peer."""
    from benchmarks import peers

    peers.hide_tensorflow()
    from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold

    envs = peers.environments(job["env"], job["envs"], job["seed"])
    model = peers.agent(job["contestant"], job["algorithm"], job["keywords"], envs, job["seed"])
    watch.begin()
    callback = EvalCallback(
        peers.environments(job["env"], 10, job["seed"] + 1_000),
        callback_on_new_best=StopTrainingOnRewardThreshold(job["score"], verbose=0),
        n_eval_episodes=10,
        eval_freq=max(1, job["eval_every"] // job["envs"]),  # counted in calls of step
        deterministic=True,
        verbose=0,
    )
    model.learn(job["steps"], callback=callback, log_interval=None)
    if callback.best_mean_reward < job["score"]:
        return {"seconds": None, "steps": None}
    return {"seconds": watch.now(), "steps": int(model.num_timesteps)}


def limit(job: Job, watch: Watch) -> Job:
    from benchmarks.limits import bare

    return bare(job)


def ours_team(job: Job, watch: Watch) -> Job:
    """A run of ours on the environment of benchmarks.teams."""
    from benchmarks.teams_peer import WORLD

    return ours(
        {
            **job,
            "env": "mpe/simple_spread_v3",
            "settings": {**job["settings"], "env_kwargs": WORLD},
        },
        watch,
    )


def bare_team(job: Job, watch: Watch) -> Job:
    from benchmarks.teams_peer import bare

    return bare(job, watch)


def ours_cluster(job: Job, _: Watch) -> Job:
    from benchmarks.cluster_own import run

    return run(job)


def handing_over(job: Job, _: Watch) -> Job:
    from benchmarks.cluster_own import handing_over

    return handing_over(job)


KINDS = {
    "ours": ours,
    "agent": agent,
    "agent-reach": agent_reach,
    "peer": peer,
    "ours-reach": ours_reach,
    "peer-reach": peer_reach,
    "limit": limit,
    "ours-team": ours_team,
    "bare-team": bare_team,
    "ours-cluster": ours_cluster,
    "handing-over": handing_over,
}


def main() -> None:
    job: Job = json.loads(sys.argv[1])
    watch = Watch(job["spawned"])
    if job["core"] is not None:
        os.sched_setaffinity(0, {job["core"]})
    print(json.dumps(KINDS[job["kind"]](job, watch)))


if __name__ == "__main__":
    main()
