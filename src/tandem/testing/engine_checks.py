"""Self-test of one backend, in a separate process (`tandem.testing.self_test`): short runs of PPO
and DQN are trained, loaded, resumed, reproduced, and trained with workers.

    python -m tandem.testing.engine_checks jax FOLDER

prints one JSON object per line: {"check": name, "seconds": s} with the result in "said", or with
"fault" and, after an exception, "trace"."""

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
BY_CHANCE = 23.0  # mean return of random actions
# on the CPU, where runs are bit-for-bit reproducible
COMMON: dict[str, object] = {
    "device": "cpu",
    "plots": False,
    "tensorboard": False,
    "final_episodes": 10,
}


class Short(NamedTuple):
    """Run of a second or two: its settings, the minimum score of its best agent, and its settings
    with workers."""

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
        least=0.0,  # too short to learn much; it tests exact resumption
        with_workers={"steps": 768, "envs": 2, "workers": 2},
    ),
}


class Wrong(Exception):
    """Failure of a check, with the reason."""


class Checks:
    """Checks of one backend, with runs in a folder. Each returns its result as text, or raises."""

    def __init__(self, framework: str, folder: Path) -> None:
        self.framework, self.folder = framework, folder
        self._train = import_module("tandem.trainer").train
        self._results: dict[str, Result] = {}

    def each(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield names and checks, ordered by their dependencies."""
        for name in RUNS:
            yield f"{name} trains", partial(self.trains, name)
            yield f"{name} checkpoint", partial(self.loads, name)
            yield f"{name} resumes", partial(self.resumes, name)
            yield f"{name} verify", partial(self.verifies, name)
            yield f"{name} workers", partial(self.works, name)

    def trains(self, name: str) -> str:
        """Check that a run completes with the required score."""
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
        """Check that the best agent acts identically after loading."""
        loaded = import_module("tandem.trainer").load(self.folder / name)
        obs = np.random.default_rng(0).uniform(-0.2, 0.2, (256, 4)).astype(np.float32)
        if not np.array_equal(self._results[name].agent.act(obs), loaded.act(obs)):
            raise Wrong("the agent that was loaded acts otherwise than the one that was saved")
        return "loaded, it acts the same"

    def resumes(self, name: str) -> str:
        """Check that a run resumed at half is bit-for-bit identical to the whole run."""
        folder = self.folder / f"{name}-resumed"
        self._run(name, folder, stop_at=RUNS[name].settings["steps"] // 2)
        self._train(resume=folder)
        whole, resumed = (Run(f).table["fingerprint"] for f in (self.folder / name, folder))
        if whole != resumed:
            raise Wrong(f"fingerprints of weights differ: {whole} and, resumed, {resumed}")
        return f"stopped and resumed: equal to the bit in {len(whole)} rows"

    def verifies(self, name: str) -> str:
        """Check the first half of the run as `tandem verify` does."""
        found = verify(self.folder / name, RUNS[name].settings["steps"] // 2)
        if found.difference is not None:
            raise Wrong(f"made again, it differs: {found.difference}")
        return f"made again: equal to the bit in {found.rows} rows"

    def works(self, name: str) -> str:
        """Check that a run with worker processes completes."""
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
    """Run all checks, and print each result immediately."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep libraries' output out of the results
    for name, check in Checks(framework, folder).each():
        answer: dict[str, object] = {"check": name}
        began = time.perf_counter()
        try:
            answer["said"] = check()
        except Wrong as wrong:
            answer["fault"] = str(wrong)
        except Exception as error:  # any failure of this installation
            answer["fault"] = f"{type(error).__name__}: {error}"
            answer["trace"] = traceback.format_exc()
        answer["seconds"] = time.perf_counter() - began
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
