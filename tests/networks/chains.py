"""Runs with chains of layers; fails with what is wrong. As a script: FRAMEWORK FOLDER with_a_plan
without_a_plan."""

import sys
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest

import tandem
from tandem import spaces
from tandem.errors import NetworkError
from tandem.runs.verification import verify
from tandem.spaces import Leaf
from tandem.testing.environments import Game, Identity

ON_KERAS = __name__ == "__main__"
SHORT: dict[str, Any] = {"steps": 64, "envs": 2, "seed": 3, "learning_starts": 16}
SHORT |= {"train_every": 4, "batch_size": 8, "target_every": 16, "learning_rate": 0.01}
SHORT |= {"eval_every": 0, "eval_episodes": 0, "plots": False, "progress": False}
LEARN = SHORT | {"steps": 900, "train_every": 2, "batch_size": 32, "gamma": 0.0}
LEARN["final_episodes"] = 2
DIGITS = Leaf("multidiscrete", (3,), "int64", (5, 4, 3))


def box(*shape: int, dtype: str = "float32") -> Leaf:
    size = prod(shape)
    return Leaf("box", shape, dtype, (), (0.0,) * size, (9.0,) * size)


class Numbers(Game):
    """Observations without sense, of any kind; the second of two choices is the better one."""

    length = 7

    def __init__(self, leaf: Leaf) -> None:
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


class Lights(Identity):
    """`Identity` with the symbol as the light that is on."""

    def __init__(self) -> None:
        super().__init__(n=3, length=6)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,))

    def observe(self) -> Any:
        return np.eye(3, dtype=np.float32)[self.symbol]


def planned(space: Any) -> Any:
    """A chain within a chain, of a plan's layers, with a frozen part."""
    if ON_KERAS:
        import keras
        from keras import layers

        frozen = layers.Dense(6)
        frozen.trainable = False
        inner = keras.Sequential([layers.Activation("gelu"), frozen])
        return keras.Sequential([layers.Dense(8, "tanh"), inner, layers.LayerNormalization()])
    import torch
    from torch import nn

    torch.manual_seed(5)
    frozen = nn.Linear(8, 6).requires_grad_(False)
    return nn.Sequential(
        nn.Linear(3, 8), nn.Tanh(), nn.Sequential(nn.GELU(), frozen), nn.LayerNorm(6)
    )


def other(space: Any) -> Any:
    if ON_KERAS:
        import keras
        from keras import layers

        norm = [layers.Dense(32, use_bias=False), layers.BatchNormalization(momentum=0.9)]
        return keras.Sequential([*norm, layers.LeakyReLU(0.1), layers.Dropout(0.05)])
    import torch
    from torch import nn

    torch.manual_seed(5)
    norm = [nn.Linear(3, 32, bias=False), nn.BatchNorm1d(32)]
    return nn.Sequential(*norm, nn.LeakyReLU(0.1), nn.Dropout(0.05))


def run(network: Any, stop_at: int | None = None, **given: Any) -> Any:
    session = tandem.session("dqn", Lights, network=network, **given)
    list(session.events(stop_at))
    return session


def with_a_plan(framework: str, folder: Path) -> None:
    if framework == "torch":
        from tandem.networks import torch_bodies as bodies
    else:
        from tandem.networks import keras_bodies as bodies  # type: ignore[no-redef]
    given = {"framework": framework, **SHORT}
    known = run(planned, out=folder / "known", **given)
    with mock.patch.object(bodies, "recognize", return_value=None):
        unknown = run(planned, out=folder / "unknown", **given)
    state, same = known.backend.state(), unknown.backend.state()
    x = np.random.default_rng(7).normal(size=(6, 3)).astype(np.float32)
    q = known.backend.networks["q"]
    loaded = tandem.load(folder / "known", which="last")
    old = tandem.load(folder / "unknown", which="last", network=planned)
    assert q.plan is not None and unknown.backend.networks["q"].plan is None
    assert state.keys() == same.keys()
    assert all(np.allclose(w, same[n], rtol=0, atol=1e-6) for n, w in state.items())
    assert type(loaded.networks["q"]).__name__ == "Twin"
    assert all(np.allclose(a.networks["q"](x), q.predict(x), atol=1e-5) for a in (loaded, old))
    assert tandem.export(loaded, folder / "agent.onnx").verified


def without_a_plan(framework: str, folder: Path) -> None:
    given = {"framework": framework, **LEARN}
    whole = run(other, out=folder / "other", **given)
    loaded = tandem.load(folder / "other", network=other)
    (folder / "half").mkdir()
    half = run(other, out=folder / "half" / "run", stop_at=450, **given)
    resumed = tandem.session(resume=folder / "half" / "run", env=Lights, network=other)
    list(resumed)
    assert whole.backend.networks["q"].plan is None
    assert tandem.evaluate(loaded, Lights, episodes=5).mean == 6.0
    assert half.fingerprint() != whole.fingerprint() == resumed.fingerprint()
    assert verify(folder / "other", 100, env=Lights, network=other).difference is None
    if framework != "jax":  # whose exporter is an extra of its own
        assert tandem.export(loaded, folder / "other.onnx").verified
    with pytest.raises(NetworkError) as caught:
        tandem.export(loaded, folder / "other.npz")
    assert caught.value.fix == "export it to onnx instead."


def main(framework: str, folder: str, *names: str) -> None:
    for name in names:
        globals()[name](framework, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
