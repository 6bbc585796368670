"""What a run sets for the whole process is the program's own again afterwards; memory of freed
blocks, and what TensorFlow keeps of a run."""

import platform
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.helpers import run_python

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tandem  # noqa: E402
from tandem.cluster.algorithm_agent import AlgorithmAgent  # noqa: E402
from tandem.errors import NetworkError  # noqa: E402
from tests.advice.net import follows  # noqa: E402
from tests.agents.agents import Probe, trained  # noqa: E402

TINY: dict[str, Any] = {"framework": "torch", "steps": 64, "rollout": 32, "envs": 2, "epochs": 1}
TINY |= {"batch_size": 64, "eval_episodes": 0, "final_episodes": 1, "eval_max_steps": 20}
THOROUGH = [pytest.param(e, marks=pytest.mark.thorough) for e in ("tensorflow", "keras-torch")]


class Dropping(nn.Module):
    """A body of no known layers, with tensors of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.drop = nn.Linear(4, 8), nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return torch.sin(self.drop(self.dense(x))) * torch.ones(8)


def settings() -> tuple[Any, ...]:
    return (
        torch.get_num_threads(),
        (torch.tensor([1e-40]) * 1.0).item(),
        sys.float_info.min / 2,
        torch.get_default_dtype(),
        torch.get_rng_state().tolist(),
        random.getstate(),
        str(np.random.get_state()),  # noqa: NPY002
    )


@pytest.fixture
def own_settings() -> Iterator[None]:
    before = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(2)
    torch.set_flush_denormal(False)
    torch.manual_seed(5)
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(before[0])
    torch.set_rng_state(before[1])


OWN: dict[str, Any] = {"network": lambda space: Dropping()}


def train(**more: Any) -> Any:
    return tandem.train("ppo", "CartPole-v1", **OWN | TINY | more)


def a_run(folder: Any) -> None:
    train(out=folder / "run", plots=False)
    tandem.load(folder / "run", **OWN).act(np.ones((1, 4), np.float32))


def a_failing_run(folder: Any) -> None:
    def fail(event: Any) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        train(callbacks=[fail])


def a_refused_run(folder: Any) -> None:
    with pytest.raises(NetworkError):
        train(network=lambda space: nn.Linear(3, 8))


def a_session(folder: Any) -> None:
    run, other = (tandem.session("ppo", "CartPole-v1", **OWN, **TINY) for _ in range(2))
    for events in zip(run, other, strict=True):
        here = settings()
        assert here[0] == 2 and here[1] and type(events[0]) is type(events[1])
        torch.rand(3)
        torch.manual_seed(5)
    assert run.fingerprint() == other.fingerprint()  # neither disturbs the other
    unfinished = iter(tandem.session("ppo", "CartPole-v1", **TINY))
    next(unfinished)


def nested_runs(folder: Any) -> None:
    inner: list[Any] = []

    def nest(event: Any) -> None:
        if not inner:
            inner.append(train())
            assert torch.get_num_threads() == 1

    outer = train(callbacks=[nest])
    x = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    assert outer.agent.act(x).tolist() == inner[0].agent.act(x).tolist()


def overlapping_runs(folder: Any) -> None:
    began, may_end = threading.Event(), threading.Event()

    def wait(event: Any) -> None:
        began.set()
        may_end.wait(20)

    thread = threading.Thread(target=lambda: train(callbacks=[wait]))
    thread.start()
    assert began.wait(20)
    train()
    may_end.set()
    thread.join()


def an_agent(folder: Any) -> None:
    state = torch.get_rng_state()
    agent = Probe()
    torch.set_rng_state(state)
    trained(agent)
    agent.save(folder / "agent")
    trained(agent).run_agent(5)


def an_agent_of_the_cluster(folder: Any) -> None:
    given: dict[str, Any] = {"observation_space": gymnasium.spaces.Box(-1, 1, (4,))}
    given |= {"action_space": gymnasium.spaces.Discrete(2), "learning_starts": 4, "batch_size": 4}
    # too few steps to compile for
    agent = AlgorithmAgent(algorithm="dqn", framework="torch", steps=1000, **given)
    x = np.ones(4, np.float32)
    for _ in range(8):
        agent.update(x, agent.choose_action(x), 1.0, x, False)
    agent.load_state(*agent.state())


USES = [a_run, a_failing_run, a_refused_run, a_session, nested_runs, overlapping_runs]
USES += [an_agent, an_agent_of_the_cluster]


@pytest.mark.parametrize("use", USES)
def test_the_settings_of_the_program_are_restored(use, tmp_path, own_settings) -> None:
    before = settings()
    use(tmp_path)
    assert settings() == before


def test_a_default_of_float64_changes_nothing(own_settings) -> None:
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        run = tandem.session("ppo", "CartPole-v1", hidden=(8,), recurrent=4, **TINY)
        list(run)
        found.append(run.fingerprint())
        assert torch.get_default_dtype() is dtype
    assert found[0] == found[1]


def test_networks_are_made_in_float32_or_refused(own_settings) -> None:
    torch.set_default_dtype(torch.float64)
    x = np.ones((3, 4), np.float32)
    assert train().agent.act(x).shape == (3,)
    whole = {"q": nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))}
    small = {"framework": "torch", "steps": 8, "eval_episodes": 0, "final_episodes": 1}
    with pytest.raises(NetworkError, match=r"float64 weights(.|\n)*Fix: call .float\(\)"):
        tandem.train("dqn", "CartPole-v1", network=whole, **small)
    whole["q"].float()
    tandem.train("dqn", "CartPole-v1", network=whole, **small)


def test_autocast_of_the_program_changes_nothing(own_settings) -> None:
    x = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    expected = train().agent.act(x).tolist()
    with torch.autocast("cpu", torch.bfloat16):
        agent = train().agent
        assert torch.is_autocast_enabled("cpu")
        assert agent.act(x).tolist() == expected
    trained_under_autocast = Probe()
    with torch.autocast("cpu", torch.bfloat16):  # the user's functions see it
        trained(trained_under_autocast)
        assert trained_under_autocast.action(torch.ones(1, 2)).dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_agents_of_another_precision_are_refused_by_name(dtype, own_settings) -> None:
    torch.set_default_dtype(dtype)
    agent = Probe()
    with follows("networks/users.py:refuse_precision") as advice:
        trained(agent)
    kind = str(dtype).removeprefix("torch.")
    assert f"'net' has {kind} weights" in str(advice.error) and ".float()" in advice.fix
    agent.net.float()
    agent.target.float()
    trained(agent)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", *THOROUGH])
def test_precisions_of_keras_change_nothing(engine) -> None:
    code = """
    import keras, pytest, random, sys
    import numpy as np
    import tandem
    from tandem.errors import NetworkError
    from tests.backends.test_process import TINY

    class Body(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(8, "tanh")

        def call(self, x):
            return self.inner(x) * keras.ops.ones((8,))

    small, found = TINY | dict(framework=sys.argv[1]), []
    for floatx, policy in (("float32",) * 2, ("float64",) * 2, ("float32", "mixed_bfloat16")):
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)
        state = random.getstate()
        run = tandem.session("ppo", "CartPole-v1", network=lambda space: Body(), **small)
        list(run)
        found.append(run.fingerprint())
        assert run.agent().act(np.ones((3, 4), np.float32)).shape == (3,)
        assert keras.config.floatx() == floatx and keras.config.dtype_policy().name == policy
        assert random.getstate() == state
    assert found[0] == found[1] == found[2]
    given = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(NetworkError, match="bfloat16 outputs(.|\\n)*Fix: make its last layer"):
        tandem.train("dqn", "CartPole-v1", network={"q": given}, framework=sys.argv[1], steps=8,
                     eval_episodes=0, final_episodes=1)
    """
    run_python(code, engine, engine=engine)


GROWTH = """
import ctypes, gc, json, statistics, sys

class Used(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Used

import tandem, tensorflow as tf
from tandem.backends import keras_tensorflow

packed, bare = keras_tensorflow._packed, []

def also_bare(f, tree, arrays, jit):
    if bare:  # a tf.function of the same updates that nothing holds on to
        packed(f, tree, arrays, jit)(arrays)
    return packed(f, tree, arrays, jit)

keras_tensorflow._packed = also_bare

def mebibytes():
    gc.collect()
    used = library.mallinfo2()
    return (used.uordblks + used.hblkhd) / 2**20

def growth(runs):
    grown = []
    for seed in range(runs):
        before = mebibytes()
        tandem.train("dqn", "CartPole-v1", framework="tensorflow", steps=240, learning_starts=200,
                     hidden=(8,), envs=4, eval_episodes=0, final_episodes=1, eval_max_steps=5,
                     plots=False, seed=seed)
        grown.append(mebibytes() - before)
    return statistics.median(grown)  # now and then TensorFlow takes 10 MiB at once

growth(2)
alone = growth(int(sys.argv[1]))
bare.append(True)
both = growth(int(sys.argv[1]))
print(json.dumps([alone, both - alone]))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc what is in use")
@pytest.mark.parametrize("runs", [3, pytest.param(20, marks=pytest.mark.thorough)])
def test_runs_keep_no_more_than_bare_compiled_functions(runs: int) -> None:
    """A `tf.function` that nothing holds on to says what TensorFlow keeps of the same updates."""
    one_arena = {"MALLOC_ARENA_MAX": "1"}  # glibc tells what is in use of the first arena alone
    ((ours, bare),) = run_python(GROWTH, str(runs), engine="tensorflow", timeout=280, env=one_arena)
    assert bare > 1  # MiB, for each run
    assert ours < bare + 0.25, (ours, bare)


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc's memory")
@pytest.mark.parametrize("said", [False, True])
def test_freed_blocks_are_kept_unless_the_user_has_said_something(said: bool) -> None:
    code = """
    import json, resource
    import numpy as np
    from tandem.backends.malloc import keep_freed

    def faults():
        began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            first, second = np.ones(2**20 * 20, np.uint8), np.ones(2**20 * 12, np.uint8)
            del first, second
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began

    done = keep_freed()
    faults()
    print(json.dumps([done, faults()]))
    """
    ((done, faults),) = run_python(code, env={"MALLOC_MMAP_THRESHOLD_": "100000"} if said else {})
    assert done is not said
    assert (faults > 1_000) if said else (faults < 100)
