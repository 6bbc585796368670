"""Runs whose updates are divided among devices, from the beginning to a verified end; and vectors
on a device: here tensors of the processor's memory, taken for another device's."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.envs import tensors, vector_env
from tandem.learning import config, devices
from tandem.learning.build import beside
from tandem.learning.config import Options
from tandem.types import leaves
from tests.envs.test_vector_env import Tensors
from tests.envs.vectors import MODES, Counters, Resumable
from tests.helpers import COMPILED_LIGHTLY, run_python
from tests.runs import shared

thorough = pytest.mark.thorough
QUICK = shared.QUICK | {"steps": 400}
GIVEN = QUICK | {"rollout": 16, "batch_size": 32}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "engine",
    ["jax", "torch", *(pytest.param(e, marks=thorough) for e in ("tensorflow", "keras-torch"))],
)
def test_runs_on_two_devices(engine, tmp_path) -> None:
    code = """
    import contextlib, io, json, pathlib, sys
    import numpy as np, pytest
    import tandem
    from tandem.cli import main
    from tandem.errors import ResumeError
    from tandem.runs import verification
    from tandem.runs.folder import Run

    out, engine = pathlib.Path(sys.argv[1]), sys.argv[2]
    given = {"steps": 304, "learning_starts": 60, "batch_size": 32, "hidden": (16,),
             "prioritized": True, "learning_rate": 1e-3, "target_every": 50, "train_every": 8,
             "updates_per_call": 4, "eval_every": 150, "eval_episodes": 1, "final_episodes": 1,
             "log_every": 50, "plots": False, "tensorboard": False}
    flags = [word for name, value in given.items() for flag in [name.replace("_", "-")]
             for word in ([f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool)
                          else [f"--{flag}", 16 if flag == "hidden" else value])]

    def command(*words):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = main([*map(str, words)])
        return code, said.getvalue()

    def prints(run):
        return Run(out / run).table["fingerprint"]

    def config(run):
        return json.loads((out / run / "config.json").read_text())

    def far(run, other):
        one, two = ({n: x for n, x in tandem.load(out / r, "last").networks["q"].weights.items()}
                    for r in (run, other))
        return max(float(np.abs(one[n] - two[n]).max() / np.abs(two[n]).max()) for n in one)

    code, said = command("train", "dqn", "CartPole-v1", "--framework", engine, "--device", "cpu",
                         "--devices", 2, "--out", out / "two", *flags)
    half = {"devices": 2, "stop_at": 160}
    for name, more in (("parts", half), ("moved", half), ("one", {})):
        tandem.train("dqn", "CartPole-v1", framework=engine, out=out / name, **more, **given)
    tandem.train(resume=out / "parts")
    moved = tandem.train(resume=out / "moved", devices=1)
    again = command("verify", out / "two", "--quiet")
    rows = len(prints("two"))
    assert code == 0 and config("two")["options"]["devices"] == 2 and rows >= 5
    (line,) = [x for x in said.splitlines() if x.startswith("devices=2:")]
    assert "are quicker on one" in line and "docs/advanced/devices.md" in line
    assert prints("parts") == prints("two"), "resumed in the middle, the run was another"
    assert again == (0, f"equal: {rows} rows, to step 304\\n")
    assert prints("two") != prints("one"), "they add in another order than one: did both run?"
    assert 0 < far("two", "one") < 1e-4 and far("moved", "two") < 1e-4
    assert config("moved")["inexact"] == ["devices=1 after devices=2"]
    assert any(n.startswith("resumed with devices=1 after devices=2") for n in moved.notes)
    refused = r"was resumed on devices=1 after devices=2(.|\\n)*one that was not resumed on others"
    with pytest.raises(ResumeError, match=refused):
        verification.verify(out / "moved")
    """
    given = {"engine": engine, "timeout": 280, "env": COMPILED_LIGHTLY}
    run_python(code, str(tmp_path), engine, **given)


def test_large_networks_are_told_nothing() -> None:
    def backend(count: int, weights: int) -> Any:
        network = SimpleNamespace(read=lambda: {"kernel": np.empty((weights, 1))})
        return SimpleNamespace(devices=count, networks={"q": network})

    assert "networks of 4,610 weights" in devices.purpose(backend(2, 4_610))
    assert devices.purpose(backend(1, 4_610)) == devices.purpose(backend(2, 10**6)) == ""


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_processes_beside_the_run_have_one_device(device) -> None:
    conf = config.Config("dqn", "", "torch", device, 0, None, replace(Options(), devices=2))
    assert beside(conf).options.devices == 1


@pytest.mark.slow
def test_jax_has_as_many_devices_where_its_own_environments_started_it() -> None:
    # parts of the processor are made as JAX starts, which is for the look at the spaces
    code = """
        from tandem import trainer
        given = {"framework": "jax", "device": "cpu", "devices": 2, "envs": 2}
        print(trainer.session("a2c", "tandem/CartPole-v1", **given).backend.devices)
        """
    assert run_python(code) == [2]


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
    envs = vector_env.VectorEnvironments("Counters", other, session.vector._seed)
    obs = leaves(envs.reset())[0]
    for block in blocks:
        seen, last = leaves(block.obs)[0], leaves(block.cuts.obs)[0]
        assert isinstance(seen, torch.Tensor) and isinstance(last, torch.Tensor)
        assert not session.vector.resumable or isinstance(block.reward, np.ndarray)
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
