"""Runs with networks of known layers, and the same runs where they are taken for unknown ones; as a
script, on Keras.

python tests/networks/known_runs.py FRAMEWORK FOLDER CASE...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tandem
from tandem import spaces
from tandem.testing.environments import Game
from tests.networks.layer_cases import CASES, observations

SHORT: dict[str, Any] = {
    "steps": 64,
    "envs": 2,
    "seed": 3,
    "learning_starts": 16,
    "train_every": 4,
    "batch_size": 8,
    "target_every": 16,
    "learning_rate": 0.01,
    "eval_every": 0,
    "eval_episodes": 0,
    "plots": False,
    "progress": False,
}


class Numbers(Game):
    """Observations without sense, of any kind; the second of two choices is the better one."""

    length = 7

    def __init__(self, leaf: spaces.Leaf) -> None:
        import gymnasium

        self.observation_space = spaces.gymnasium_space(leaf)
        self.action_space = gymnasium.spaces.Discrete(2)

    def observe(self) -> Any:
        x = self.observation_space
        if x.dtype.kind in "iu":
            top = getattr(x, "nvec", getattr(x, "n", 9))
            return self.np_random.integers(top, size=x.shape).astype(x.dtype)
        return self.np_random.uniform(0, 4, x.shape).astype(np.float32)

    def play(self, action: Any) -> tuple[float, bool]:
        return float(action), False


def ends(framework: str, name: str, folder: Path) -> dict[str, Any]:
    """What a run with the layers of a case comes to."""
    case = CASES[name]
    leaf = case.leaf
    if framework == "torch":
        import torch
        from torch import nn

        from tandem.networks import torch_bodies as bodies

        def body(space: Any) -> Any:
            torch.manual_seed(5)
            return nn.Sequential(*case.torch(nn))
    else:
        import keras

        from tandem.networks import keras_bodies as bodies  # type: ignore[no-redef]

        leaf = case.keras_leaf or leaf

        def body(space: Any) -> Any:
            return keras.Sequential(case.keras(keras.layers))

    def env() -> Any:
        return Numbers(leaf)

    def run(out: str, stop_at: int | None = None) -> Any:
        session = tandem.session(
            "dqn", env, framework=framework, network=body, out=folder / out, **SHORT
        )
        first = session.backend.networks["q"].read()
        for _ in session.events(stop_at):
            pass
        return session, first

    known, first = run("known")
    q = known.backend.networks["q"]
    with mock.patch.object(bodies, "recognise", return_value=None):
        unknown, _ = run("unknown")
    state, other = known.backend.state(), unknown.backend.state()
    assert state.keys() == other.keys()
    x = observations(leaf)
    expected = q.predict(x)
    loaded = tandem.load(folder / "known", which="last")
    old = tandem.load(folder / "unknown", which="last", network=body)
    run("stopped", stop_at=32)
    resumed = tandem.session(resume=folder / "stopped", env=env, network=body)
    began = resumed.loop.env_steps
    for _ in resumed:
        pass
    exported = tandem.export(loaded, folder / "agent.onnx")
    last = q.read()
    return {
        "known": q.plan is not None and unknown.backend.networks["q"].plan is None,
        "updates": known.loop.learner.updates,
        "apart": max(
            float(np.abs(x.astype(np.float64) - other[n]).max()) for n, x in state.items() if x.size
        ),
        "loaded": float(np.abs(loaded.networks["q"](x) - expected).max()),
        "twin": type(loaded.networks["q"]).__name__,
        "old": float(np.abs(old.networks["q"](x) - expected).max()),
        "resumed": 0 < began < 64 and resumed.fingerprint() == known.fingerprint(),
        "verified": exported.verified,
        "still": [n for n in last if np.array_equal(last[n], first[n])],
    }


def main(framework: str, folder: str, *names: str) -> None:
    for i, name in enumerate(names):
        print(json.dumps([name, ends(framework, name, Path(folder) / str(i))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
