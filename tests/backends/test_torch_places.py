"""Tensors stay where their networks are. PyTorch's device "meta" stands for a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.fx import Graph  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tandem import backends, trainer  # noqa: E402
from tandem.backends.torch import TorchBackend  # noqa: E402
from tandem.backends.torch_traced import Traced  # noqa: E402
from tandem.examples.pytorch.DQN import DQN  # noqa: E402
from tandem.exploration import AdaptiveEpsGreedyPolicy  # noqa: E402
from tandem.math.policy_losses import clipped_surrogate  # noqa: E402
from tandem.math.values import clipped_value_loss  # noqa: E402
from tandem.types import leaves, tree_map  # noqa: E402
from tests.algorithms import cases  # noqa: E402

SHORTEST = {cases.CASES[name].algorithm: name for name in sorted(cases.CASES, key=len)[::-1]}


class Watch(TorchDispatchMode):
    seen: list[set[str]]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        if "clamp" in str(function):
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            self.seen.append({x.device.type for x in tensors})
        return function(*args, **(kwargs or {}))


def test_a_setting_clips_where_the_batch_is() -> None:
    """CUDA's clamp takes no number in the host's memory, as other arithmetic does."""
    batch, clip = torch.ones(8, device="meta"), torch.tensor(0.2)
    with Watch() as watch:
        watch.seen = []
        clipped_surrogate(batch, batch, clip)
        clipped_value_loss(batch, batch, batch, clip)
    assert watch.seen == [{"meta"}] * 2


@pytest.mark.parametrize("network", ["whole", "body"])
def test_a_network_is_looked_at_where_it_is(network) -> None:
    from tandem.networks.defaults import CustomNetwork
    from tandem.networks.plan import Dense
    from tandem.networks.torch_bodies import given
    from tandem.spaces import Leaf, observation_spec

    space = gymnasium.spaces.Box(-1, 1, (4,))
    entering = observation_spec(space)
    assert isinstance(entering, Leaf)
    body = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).to("meta")
    head = () if network == "whole" else (Dense(3, 2),)
    module, plan = given("q", CustomNetwork(lambda: body, entering, 3 if not head else 2, 0, head))
    assert module[0].weight.device.type == "meta"
    assert plan is not None and len(plan) == 2 + len(head)


@contextmanager
def elsewhere() -> Iterator[None]:
    """A program whose default device is another one than that of its run."""
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize(
    "algorithm, env, settings",
    [
        ("dqn", "CartPole-v1", {"steps": 200, "learning_starts": 100, "batch_size": 16}),
        ("ppo", "CartPole-v1", {"steps": 256, "recurrent": 8, "memory": "lstm"}),
        ("sac", "Pendulum-v1", {"steps": 220, "learning_starts": 200, "hidden": (8, 8)}),
        ("trpo", "CartPole-v1", {"steps": 256}),
    ],
)
def test_a_run_is_where_it_was_asked_to_be(algorithm, env, settings, tmp_path) -> None:
    given = {"framework": "torch", "device": "cpu", "final_episodes": 1, "plots": False, **settings}

    def trained(name: str) -> str:
        run = trainer.session(algorithm, env, out=tmp_path / name, eval_episodes=1, **given)
        list(run)
        assert run.result()["env_steps"] >= settings["steps"]
        return str(run.fingerprint())

    with elsewhere():
        there = trained("there")
    assert there == trained("here")


def test_an_agent_is_trained_where_its_networks_are() -> None:
    agent = DQN(4, 16, 2)
    agent.set(policy=AdaptiveEpsGreedyPolicy(1.0, 0.1, 1e-3), pool_size=500, batch=16, PR=True)
    before = agent.q_net[0].weight.detach().clone()
    # small: with steps of 1e-2 one run in three diverged
    optimizer = torch.optim.SGD(agent.param, 1e-4, momentum=0.9)
    with elsewhere():
        agent.train(optimizer, 6)
    assert agent.q_net[0].weight.device.type == "cpu"
    assert torch.isfinite(agent.q_net[0].weight).all()
    assert not torch.equal(agent.q_net[0].weight, before)


class Moves(TorchDispatchMode):
    """Counts what goes between the processor and a device on which there is nothing to read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.fetched = 0
        self.came: list[int] = []  # the size of each tensor

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        kwargs, aten = kwargs or {}, torch.ops.aten
        where = args[0].device.type if args and isinstance(args[0], torch.Tensor) else ""
        if where == "meta" and function is aten._local_scalar_dense.default:
            self.read += 1
            return 1.0
        moves = aten._to_copy.default, aten.to.dtype_layout
        if where and function in moves and kwargs.get("device") is not None:
            if where == "meta":
                self.fetched += 1
                return torch.zeros(args[0].shape, dtype=args[0].dtype)
            self.came += [args[0].numel()]
        return function(*args, **kwargs)


@pytest.mark.parametrize("name", sorted({*SHORTEST.values(), *cases.EITHER}))
def test_an_update_stays_on_its_device(name, monkeypatch) -> None:
    """Tensors of two devices in one operation are an error, but for single numbers."""
    case = cases.CASES[name]
    monkeypatch.setattr(backends, "make", lambda *_, **__: TorchBackend("meta"))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: x)
    with Moves():
        algorithm, backend, batches = cases.prepared(case, "torch")
    with Moves() as moves:
        backend.compile(algorithm.update)(batches)
    data, steps = batches._replace(settings={}), cases.UPDATES * len(backend._optimizers)
    arrays = [x for x in (*leaves(data), *batches.settings.values()) if x.ndim > 1]
    assert sum(size >= cases.UPDATES for size in moves.came) == len(arrays)  # each once
    assert moves.fetched <= 8  # what the call gives
    if case.algorithm == "trpo":  # its step is searched for
        return
    assert moves.read <= steps  # whether all is finite; fewer where not all optimizers step
    traced = Traced(backend, backend._placing(algorithm.update))
    given = tree_map(lambda x: x[0], backend.to_device((batches.settings, data)))
    step, _, constants = traced.step((*given, torch.tensor(True, device="meta")), ())
    assert all(x.device.type == "meta" for x in (*traced.state, *constants))
    nodes = [n for m in step.modules() for n in getattr(m, "graph", Graph()).nodes]
    assert {n.kwargs["device"].type for n in nodes if n.kwargs.get("device")} <= {"meta"}
