"""Compiled runs by the APIs, on JAX: fails with what is wrong. Arguments: a folder, and which
functions."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import keras
import pytest

import tandem
from tandem.cli import main
from tandem.envs.jax.worlds import CartPole
from tandem.errors import TandemError
from tandem.learning.compiled.loop import CompiledLoop
from tandem.learning.events import BatchEnd, EpisodeEnd, EvaluationEnd
from tandem.runs import verification
from tandem.runs.callbacks import Callback
from tandem.runs.folder import Run
from tests.compiled.snippets.blocks import dropping

OUT = Path(sys.argv[1])
SMALL: dict[str, Any] = {"steps": 2_000, "envs": 4, "rollout": 25, "batch_size": 50, "epochs": 2}
SMALL |= {"hidden": (16,), "eval_episodes": 2, "final_episodes": 3}
SMALL |= {"plots": False, "tensorboard": False}
ENV, SWING = "tandem/CartPole-v1", "tandem/Pendulum-v1"


def prints(run: str) -> list[str]:
    return Run(OUT / run).table["fingerprint"]


def command(*words: object) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([*map(str, words)])
    return code, said.getvalue()


class Listens(Callback):
    def __init__(self, stop_at: int = 10**9) -> None:
        self.ends, self.batches, self.scores, self.stop_at = 0, 0, 0, stop_at

    def on_episode_end(self, event: EpisodeEnd) -> None:
        self.ends += 1

    def on_batch_end(self, event: BatchEnd) -> bool:
        self.batches += 1
        return event.env_steps >= self.stop_at

    def on_evaluation(self, event: EvaluationEnd) -> None:
        self.scores += 1


def whole_and_in_parts() -> None:
    heard = Listens()
    whole = tandem.train("ppo", ENV, framework="jax", out=OUT / "whole", callbacks=[heard], **SMALL)
    stop = Listens(700)
    part = tandem.train("ppo", ENV, framework="jax", out=OUT / "part", callbacks=[stop], **SMALL)
    tandem.train(resume=OUT / "part", callbacks=[Listens()])
    again = verification.verify(OUT / "whole")
    stepped = tandem.train("ppo", ENV, framework="jax", vectorization="plain", **SMALL)
    config = json.loads((OUT / "whole" / "config.json").read_text(encoding="utf-8"))
    loaded = tandem.load(OUT / "whole")
    assert config["settings"]["vectorization"] == "compiled" and part.reason == "callback"
    assert prints("part") == prints("whole") and len(prints("whole")) > 10
    assert again.difference is None
    assert heard.scores == 20 and heard.ends > 20 and stop.batches < heard.batches
    assert len(whole.evaluation.returns) == 3 and whole.evaluation.mean > 5
    assert tandem.evaluate(loaded, "CartPole-v1", 2).mean > 5 and stepped.evaluation.mean > 5
    columns = {"kl", "loss", "eval_mean", "return_mean", "episodes"}
    assert columns <= Run(OUT / "whole").table.keys()


def own_worlds_and_networks() -> None:
    """A class of one's own; a Keras network with batch norm and dropout; no folder; no
    evaluations; evaluations in another environment."""
    given = SMALL | {"hidden": (8,), "steps": 600}
    replay = {"steps": 400, "learning_starts": 100, "updates_per_call": 64}
    runs = [
        tandem.session("ppo", CartPole, framework="jax", network=dropping, **given),
        tandem.session("ppo", CartPole(), framework="jax", **given | {"eval_episodes": 0}),
        tandem.session("ppo", ENV, framework="jax", eval_env="CartPole-v1", **given),
        tandem.session("a2c", ENV, framework="jax", optimizer=keras.optimizers.SGD(), steps=400),
        tandem.session("dqn", ENV, framework="jax", **replay),
    ]
    for run in runs:
        events = list(run)
        # on a processor long calls of updates are not compiled
        assert isinstance(run.loop, CompiledLoop) is (run is not runs[-1])
        assert run.loop.learner.updates > 0 and len(events) > 5


def what_cannot_be() -> None:
    for name, env, given, what, fix in (
        ("dqn", ENV, {"prioritized": True}, "with prioritized=True", "give prioritized=False"),
        ("dqn", ENV, {"memmap": True, "out": OUT / "kept"}, "with memmap=True", "memmap=False"),
        ("ppo", SWING, {"action_noise": "gsde"}, "with action_noise='gsde'", "noise='gaussian'"),
        ("ppo", ENV, {"devices": 2}, "with devices=2", "leave devices out"),
    ):
        with pytest.raises(TandemError, match="^vectorization='compiled' ") as caught:
            tandem.session(name, env, vectorization="compiled", **given)
        assert what in caught.value.happened and fix in caught.value.fix


def left_within_a_call() -> None:
    run = tandem.session("ppo", ENV, framework="jax", out=OUT / "left", **SMALL)
    run.train_loop.saves_when_left = False  # as of a trial that is pruned
    next(event for event in run if isinstance(event, EpisodeEnd))
    with pytest.raises(TandemError, match="was left inside the call that starts at step 0"):
        list(run)
    again = tandem.session(resume=OUT / "left")
    next(event for event in again if isinstance(event, BatchEnd))
    assert [event.env_steps > 0 for event in again if isinstance(event, BatchEnd)][-1]


def a_signal_is_heard_within_a_second() -> None:
    words = ["train", "ppo", ENV, "--framework", "jax", "--steps", "100000000", "--quiet"]
    out = OUT / "signalled"
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem", *words, "--out", str(out)],
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (out / "progress.csv").exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(2)  # so that calls are long by now
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    code, text = command("train", "--resume", out, "--stop-at", 1, "--quiet")
    assert process.returncode == 128 + signal.SIGTERM and "Stopped by SIGTERM and saved" in said
    assert code == 0 and "Traceback" not in text


def cached() -> None:
    folder, found = OUT / "cache", list[Any]()
    for flag in ("--no-compile-cache", "--compile-cache", "--compile-cache"):
        environment = {n: x for n, x in os.environ.items() if not n.startswith("JAX_COMP")}
        out = OUT / f"run{len(found)}"
        subprocess.run(
            [sys.executable, "-m", "tandem", "train", "ppo", ENV, "--framework", "jax", flag]
            + ["--steps", "2000", "--no-plots", "--quiet", "--out", str(out)],
            env=environment | {"XDG_CACHE_HOME": str(folder)},
            check=True,
            capture_output=True,
        )
        files = sorted(x.name for x in folder.rglob("*-cache"))
        found.append((len(files), prints(out.name)[-1]))
    (none, alone), (some, first), (same, second) = found
    assert none == 0 and some == same > 0 and alone == first == second


if __name__ == "__main__":
    for which in sys.argv[2:]:
        globals()[which]()
