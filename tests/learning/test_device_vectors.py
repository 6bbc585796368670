"""Vectors on a device: here tensors of the processor's memory, taken for another device's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tandem
from tandem.envs import tensors, vector_env
from tandem.types import leaves
from tests.envs.test_vector_env import Tensors
from tests.envs.vectors import MODES, Counters, Resumable
from tests.helpers import run_python
from tests.runs import shared

QUICK = shared.QUICK | {"steps": 400}
GIVEN = QUICK | {"rollout": 16, "batch_size": 32}


class Kept(Tensors, Resumable):
    """With a state, too."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dict_obs", [False, True])
def test_observations_stay_tensors_from_the_step_to_the_update(mode, dict_obs, monkeypatch) -> None:
    """No observation becomes a NumPy array, and what is collected is what NumPy's vector gives."""
    torch = pytest.importorskip("torch")
    shapes: list[tuple[int, ...]] = []

    def noted(way: Any) -> Any:
        def call(x: Any, *args: Any, **more: Any) -> Any:
            shapes.append(tuple(x.shape))
            return way(x, *args, **more)

        return call

    monkeypatch.setattr(vector_env, "off_host", lambda x: bool(tensors.library_of(x)))
    session = tandem.session("ppo", lambda: Kept(4, mode, dict_obs=dict_obs), seed=1, **GIVEN)
    for name in ("numpy", "__array__"):
        monkeypatch.setattr(torch.Tensor, name, noted(getattr(torch.Tensor, name)))
    monkeypatch.setattr(np, "from_dlpack", noted(np.from_dlpack))
    blocks, collect = [], session.loop.collector.collect

    def kept(*args: Any) -> Any:
        blocks.append(collect(*args))
        return blocks[-1]

    session.loop.collector.collect = kept
    list(session.loop.events())
    assert shapes and not [shape for shape in shapes if shape[-1:] == (3,)]
    other = Counters(4, mode, dict_obs=dict_obs)
    envs = vector_env.VectorEnvironments("Counters", other, session.environments._seed)
    obs = leaves(envs.reset())[0]
    for block in blocks:
        seen, last = leaves(block.obs)[0], leaves(block.cuts.obs)[0]
        assert isinstance(seen, torch.Tensor) and isinstance(last, torch.Tensor)
        assert not session.environments.resumable or isinstance(block.reward, np.ndarray)
        for t in range(16):
            assert (seen[t].cpu().tolist() == obs).all()
            one = envs.step(block.action[t])
            assert (one.reward == block.reward[t]).all()
            for i, final in one.final:
                (at,) = np.flatnonzero((block.cuts.t == t) & (block.cuts.env == i))
                assert last[int(at)].tolist() == leaves(final)[0].tolist()
            obs = leaves(one.obs)[0]


@pytest.mark.slow
def test_such_a_run_is_resumed_to_the_bit(monkeypatch, tmp_path) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(vector_env, "off_host", lambda x: bool(tensors.library_of(x)))

    def run(**given: Any) -> Any:
        session = tandem.session(**given)
        list(session.events(200 if "out" in given else None))
        return session

    given = GIVEN | {"algorithm": "ppo", "env": Kept}
    whole = run(**given)
    run(**given, out=tmp_path / "run")
    assert run(resume=tmp_path / "run", env=Kept).fingerprint() == whole.fingerprint()
    # a replay buffer, and statistics of observations, are in this memory
    replay = dict(algorithm="dqn", learning_starts=50, buffer_size=200, train_every=8)
    for other in (QUICK | replay | {"env": Kept}, given | {"normalize_observations": True}):
        assert isinstance(run(**other).loop.collector._obs, np.ndarray)


@pytest.mark.thorough
def test_arrays_of_jax_stay_too() -> None:
    run_python(
        """
        import numpy as np, jax, tandem
        from tandem.envs import tensors, vector_env
        from tests.envs.vectors import Counters, MODES

        class Arrays(Counters):
            def reset(self, *, seed=None, options=None):
                options = options and {"reset_mask": np.asarray(options["reset_mask"])}
                obs, info = super().reset(seed=seed, options=options)
                return jax.numpy.asarray(obs), info

            def step(self, actions):
                assert isinstance(actions, jax.Array)
                *seen, info = super().step(np.asarray(actions))
                return *map(jax.numpy.asarray, seen), info

        vector_env.off_host = lambda x: bool(tensors.library_of(x))
        for mode in (MODES[0], MODES[2]):
            given = {"rollout": 16, "batch_size": 32, "hidden": (8,), "eval_episodes": 0}
            session = tandem.session("ppo", lambda: Arrays(4, mode), steps=200, **given)
            collect, blocks = session.loop.collector.collect, []
            session.loop.collector.collect = lambda *a: blocks.append(collect(*a)) or blocks[-1]
            list(session)
            assert all(isinstance(block.obs, jax.Array) for block in blocks)
            assert session.loop.env_steps >= 200
        """,
        engine="jax",
    )
