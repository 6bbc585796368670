"""What the self-test does on one engine, in a process of its own (`tandem.testing.self_test`): a
short run of PPO and one of DQN are trained, loaded, resumed, made again, and made with workers.

    python -m tandem.testing.engine_checks jax FOLDER

prints one JSON object a line: {"check": name, "seconds": s} with "said", what came of it, or
"fault" and, where something raised, "trace"."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem.learning.figures import figures
from tandem.runs.folder import Run
from tandem.runs.result import Result
from tandem.runs.verification import verify
from tandem.types import JSONDict

ENV = "CartPole-v1"
BY_CHANCE = 23.0  # the mean return of random actions there
# on the processor, where runs are promised to be equal to the bit
COMMON: dict[str, object] = {
    "device": "cpu",
    "plots": False,
    "tensorboard": False,
    "final_episodes": 10,
}


class Short(NamedTuple):
    """A run that takes a second or two: its settings, the least that its best agent has to score,
    and what it is given with workers."""

    settings: JSONDict
    least: float
    with_workers: JSONDict


RUNS = {
    "ppo": Short(
        {"steps": 4096, "log_every": 512, "eval_every": 2048, "eval_episodes": 5},
        least=40.0,
        with_workers={"steps": 1024, "workers": 2},
    ),
    "dqn": Short(
        {
            "steps": 1536,
            "log_every": 256,
            "eval_every": 768,
            "eval_episodes": 5,
            "learning_starts": 256,
            "hidden": (64,),
        },
        least=0.0,  # too short to learn much: that it goes on exactly is what is asked here
        with_workers={"steps": 768, "envs": 2, "workers": 2},
    ),
}


class Wrong(Exception):
    """A check that was not passed; says why."""


class Checks:
    """On one engine, with runs in a folder. Each check says in words what came of it, or raises."""

    def __init__(self, framework: str, folder: Path) -> None:
        self.framework, self.folder = framework, folder
        self._train = import_module("tandem.trainer").train
        self._results: dict[str, Result] = {}

    def each(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Names and checks, in the order in which they build on one another."""
        for name in RUNS:
            yield f"{name} trains", partial(self.trains, name)
            yield f"{name} checkpoint", partial(self.loads, name)
            yield f"{name} resumes", partial(self.resumes, name)
            yield f"{name} verify", partial(self.verifies, name)
            yield f"{name} workers", partial(self.works, name)

    def trains(self, name: str) -> str:
        """It comes to its end, and scores."""
        result = self._results[name] = self._run(name, self.folder / name)
        mean, steps = result.evaluation.mean, result.summary["env_steps"]
        if result.reason != "steps" or not mean >= RUNS[name].least:
            raise Wrong(
                f"it ended by {result.reason} after {steps} steps with a mean return of "
                f"{figures(mean)}; at least {RUNS[name].least:g} was expected "
                f"(by chance {BY_CHANCE:g})"
            )
        return f"{steps:,} steps of {ENV}, mean return {figures(mean)}"

    def loads(self, name: str) -> str:
        """The best agent acts from its file as it does here."""
        loaded = import_module("tandem.trainer").load(self.folder / name)
        obs = np.random.default_rng(0).uniform(-0.2, 0.2, (256, 4)).astype(np.float32)
        if not np.array_equal(self._results[name].agent.act(obs), loaded.act(obs)):
            raise Wrong("the agent that was loaded acts otherwise than the one that was saved")
        return "loaded, it acts the same"

    def resumes(self, name: str) -> str:
        """Half of the run, resumed, is the whole run, to the bit."""
        folder = self.folder / f"{name}-resumed"
        self._run(name, folder, stop_at=RUNS[name].settings["steps"] // 2)
        self._train(resume=folder)
        whole, resumed = (Run(f).table["fingerprint"] for f in (self.folder / name, folder))
        if whole != resumed:
            raise Wrong(f"fingerprints of weights differ: {whole} and, resumed, {resumed}")
        return f"stopped and resumed: equal to the bit in {len(whole)} rows"

    def verifies(self, name: str) -> str:
        """What `tandem verify` does, for half of the run."""
        found = verify(self.folder / name, RUNS[name].settings["steps"] // 2)
        if found.difference is not None:
            raise Wrong(f"made again, it differs: {found.difference}")
        return f"made again: equal to the bit in {found.rows} rows"

    def works(self, name: str) -> str:
        """With worker processes it comes to its end; none is left."""
        given = RUNS[name].with_workers
        result = self._run(name, None, vectorization="plain", **given)
        steps = result.summary["env_steps"]
        if result.reason != "steps" or steps < given["steps"]:
            raise Wrong(f"it ended by {result.reason} after {steps} of {given['steps']} steps")
        return f"{steps:,} steps in {given['workers']} processes"

    def _run(self, name: str, folder: Path | None, **more: object) -> Result:
        settings = {**COMMON, **RUNS[name].settings, **more}
        return self._train(name, ENV, framework=self.framework, out=folder, **settings)


def run(framework: str, folder: Path) -> None:
    """Makes all checks, and says what came of each as soon as it is known."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    for name, check in Checks(framework, folder).each():
        answer: dict[str, object] = {"check": name}
        began = time.perf_counter()
        try:
            answer["said"] = check()
        except Wrong as wrong:
            answer["fault"] = str(wrong)
        except Exception as error:  # whatever does not work here
            answer["fault"] = f"{type(error).__name__}: {error}"
            answer["trace"] = traceback.format_exc()
        answer["seconds"] = time.perf_counter() - began
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
