"""Our own optimizers on torch step as torch's, and cost no import of its compiler."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tandem
from tests.advice.net import follows
from tests.helpers import run_python

torch = pytest.importorskip("torch")
from tandem.backends.torch_optimizers import TorchAdam, TorchOptimizer, TorchSGD, _copied  # noqa: E402
from tandem.backends.torch_states import stored  # noqa: E402


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_steps_are_those_of_torch_to_the_bit(kind) -> None:
    first = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    own, theirs = (torch.nn.Parameter(first.clone()) for _ in range(2))
    mine: Any = TorchAdam(own, epsilon=1e-5) if kind == "adam" else TorchSGD(own)
    other: Any = torch.optim.SGD([theirs])
    if kind == "adam":
        other = torch.optim.Adam([theirs], betas=(0.9, 0.999), eps=1e-5, fused=True)
    for i in range(20):
        gradient = torch.randn(1000, generator=torch.Generator().manual_seed(1 + i))
        for parameter, optimizer in ((own, mine), (theirs, other)):
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + i)
            parameter.grad = gradient.clone()
            optimizer.step()
    np.testing.assert_array_equal(own.detach().numpy(), theirs.detach().numpy())
    assert not torch.equal(own, first)
    if kind == "adam":
        for name, x in other.state[theirs].items():
            assert torch.equal(mine.state[own][name], x), name


class Own(torch.optim.AdamW):
    def __init__(self, params, **options) -> None:
        super().__init__(params, **options)


def test_a_copy_of_a_given_optimizer_steps_by_its_options() -> None:
    """Given in its group, afterwards, and by a subclass."""
    in_group = torch.optim.AdamW([{"params": [torch.zeros(1)], "lr": 0.01, "weight_decay": 0.3}])
    lowered = torch.optim.AdamW([torch.zeros(1)], lr=0.1, weight_decay=0.3)
    lowered.param_groups[0]["lr"] = 0.01
    for given in (in_group, lowered, Own([torch.zeros(1)], lr=0.01, weight_decay=0.3)):
        weight = torch.nn.Parameter(torch.ones(3))
        copy = _copied(given, [weight])
        weight.grad = torch.zeros(3)
        copy.step()  # the decay alone
        assert torch.allclose(weight, torch.full((3,), 1 - 0.01 * 0.3), atol=1e-7)


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, torch.optim.Adam])
def test_a_given_optimizer_steps_as_it_does_on_weights_of_their_shapes(kind) -> None:
    """Adafactor's step goes by the size of each weight."""
    mine, theirs = (
        [torch.nn.Parameter(torch.full((4, 4), x)) for x in (1.0, 0.01)] for _ in range(2)
    )
    optimizer = TorchOptimizer(
        "q",
        [SimpleNamespace(weights=mine, unit=(), constrained=(), decays=True)],
        kind([torch.zeros(1)], lr=0.1),
        {},
    )
    reference = kind(theirs, lr=0.1)
    for i in range(3):
        gradients = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(i))
        with torch.no_grad():
            optimizer.step([gradients.reshape(-1)])
        for p, gradient in zip(theirs, gradients, strict=True):
            p.grad = gradient.clone()
        reference.step()
    for p, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(p, other)
    state = optimizer.entries()
    assert {n.split("/")[0] for n in state} == (
        {"0", "1"} if kind is torch.optim.Adafactor else {"step", "exp_avg", "exp_avg_sq"}
    )
    assert optimizer.flat.data_ptr() == mine[0].data_ptr()


class Counting(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1) -> None:
        super().__init__(params, {"lr": lr, "step": 0})

    def step(self, closure=None) -> None:
        self.param_groups[0]["step"] += 1


class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner) -> None:
        super().__init__(inner.param_groups[0]["params"], {})


def test_copies_do_not_count_their_first_steps_and_wrappers_are_refused_by_name() -> None:
    with follows("backends/torch_optimizers.py:_copied 2") as advice:
        _copied(Lookahead(torch.optim.SGD([torch.zeros(1)])), [torch.zeros(1)])
    assert "Lookahead" in str(advice.error)
    # the steps that give a copy its state are not counted
    weights = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
    copy = _copied(Counting([torch.zeros(1, requires_grad=True)]), weights)
    assert copy.param_groups[0]["step"] == 0


@pytest.mark.slow
def test_a_run_that_compiles_nothing_does_not_import_the_compiler() -> None:
    code = """
    import json, sys
    from tandem.trainer import session

    run = session("ppo", "CartPole-v1", framework="torch", steps=512, eval_episodes=0)
    list(run)
    print(json.dumps([run.loop.learner.updates, "torch._dynamo" in sys.modules]))
    """
    (found,) = run_python(code, engine="torch")
    assert found[0] > 0 and not found[1]


class Various(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, scale=1.0) -> None:
        super().__init__(params, {"lr": lr})
        self.scale, self.calls = scale, 0
        self.state["calls"] = 0  # of no weight

    @torch.no_grad()
    def step(self, closure=None) -> None:
        self.calls += 1
        self.state["calls"] += 1
        (group,) = self.param_groups
        group["k"] = group.get("k", 0) + 1
        for p in group["params"]:
            state = self.state[p]
            if not state:
                nested = {"n": 0.5, "list": [0, torch.ones(2)], "no": {}}
                half = torch.zeros(2, dtype=torch.bfloat16)
                state.update(step=0, mean=torch.zeros_like(p), none=None, flag=False)
                state.update(nested=nested, half=half, big=torch.zeros(3, dtype=torch.float64))
            assert state["none"] is None and state["nested"]["no"] == {}
            state["step"] += 1
            state["flag"] = not state["flag"]
            state["mean"] = state["mean"] * 0.9 + p.grad  # another tensor
            state["half"] += 0.5
            state["big"] += 1e-9
            state["nested"]["n"] *= 0.9
            state["nested"]["list"][0] += 1
            counts = self.calls + self.state["calls"] + group["k"]
            counts += state["nested"]["list"][0] + float(state["half"][0])
            step = group["lr"] * self.scale * (state["nested"]["n"] + float(state["big"][0]))
            p.sub_(step * state["mean"] / (1 - 0.9 ** state["step"]) / counts)


NAMES = ["ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam"]
NAMES += ["RMSprop", "Rprop", "SGD"]
KINDS = {name: getattr(torch.optim, name) for name in NAMES} | {"various": Various}
KINDS["tensor"] = lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_a_given_optimizer_continues_from_a_file(kind) -> None:
    def made() -> Any:
        weights = [torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(2))]
        network = SimpleNamespace(weights=weights, unit=(), constrained=(), decays=True)
        return TorchOptimizer("q", [network], KINDS[kind]([torch.zeros(1)]), {}), weights

    def steps(optimizer: Any, begin: int, end: int) -> None:
        for i in range(begin, end):
            optimizer.step([torch.linspace(-1.0, 2.0, 8) + i])

    (whole, expected), (first, half), (second, continued) = made(), made(), made()
    steps(whole, 0, 6)
    steps(first, 0, 3)
    saved = {n: stored(x) for n, x in first.entries().items()}
    second.load(saved)
    with torch.no_grad():
        for n, x in second.entries().items():
            if isinstance(x, torch.Tensor):
                x.copy_(torch.as_tensor(saved[n]))
        for x, y in zip(continued, half, strict=True):
            x.copy_(y)
    assert second.entries().keys() == saved.keys()
    steps(second, 3, 6)
    for x, y in zip(continued, expected, strict=True):
        assert torch.equal(x, y) and not torch.equal(x, torch.ones_like(x))


def test_a_run_with_an_optimizer_that_counts_by_itself_resumes_exactly(tmp_path) -> None:
    small = {"framework": "torch", "rollout": 16, "envs": 2, "epochs": 1, "batch_size": 32}
    small |= {"eval_episodes": 0, "final_episodes": 1, "plots": False, "hidden": (8,)}
    found = []
    for ends in ([64], [32, 64]):
        out, run = tmp_path / str(len(ends)), None
        for end in ends:
            mine = Various([torch.zeros(1)], scale=0.5)
            begun = ("ppo", "CartPole-v1") if run is None else ()
            given = {"steps": 64, "out": out, **small} if run is None else {"resume": out}
            run = tandem.session(*begun, optimizer=mine, **given)
            list(run.events(end))
        inner = run.algorithm.backend._optimizers[0].inner
        found.append((run.fingerprint(), inner.calls, inner.scale))
    assert found[0] == found[1]
    assert found[0][1:] == (2, 0.5)
    backend, state = run.backend, run.backend.state()
    backend.layout = object()  # several devices, whose processes know tensors only
    with follows("backends/torch_states.py:Stateful.load_state") as advice:
        backend.load_state(state)
    assert "devices=1" in advice.fix
    backend.layout = None
    backend.load_state(state)


@pytest.mark.parametrize("kind", ["Muon", "SparseAdam", "LBFGS"])
def test_optimizers_that_do_not_fit_are_refused_before_training(kind) -> None:
    if not hasattr(torch.optim, kind):
        pytest.skip("not in this version of torch")
    mine = getattr(torch.optim, kind)([torch.zeros(1, 1)])
    with pytest.raises(tandem.errors.SettingError, match=rf"{kind}(.|\n)*Fix: .*AdamW"):
        tandem.session("ppo", "CartPole-v1", framework="torch", optimizer=mine)
