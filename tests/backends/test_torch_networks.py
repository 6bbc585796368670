"""Modules of torch's own that do something else in training than where an agent acts do it."""

import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tandem.backends.torch import TorchBackend  # noqa: E402
from tandem.backends.torch_networks import TorchNetwork  # noqa: E402
from tandem.networks import torch_products  # noqa: E402
from tandem.types import Batch, Update  # noqa: E402

SPECTRAL = nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm  # a module, and a hook


def network(module: nn.Module) -> TorchNetwork:
    return TorchNetwork("q", nn.Sequential(module), None, torch.device("cpu"))


def test_slopes_are_drawn_and_statistics_move_in_training_alone() -> None:
    one, x = network(nn.RReLU(0.1, 0.5)), -torch.ones(64, 4)
    assert torch.allclose(one(x), 0.3 * x)
    one.learning = True
    slopes = -one(x)
    assert slopes.min() >= 0.1 and slopes.max() <= 0.5 and slopes.std() > 0.05
    one.learning = False
    assert torch.allclose(one(x), 0.3 * x)
    module = nn.InstanceNorm1d(3, track_running_stats=True)
    one, x = network(module), 2 + torch.arange(24.0).reshape(2, 3, 4)
    one(x)
    assert not module.running_mean.any()
    one.learning = True
    one(x)
    assert torch.allclose(module.running_mean, 0.1 * x.mean((0, 2)))


@pytest.mark.parametrize("kind", SPECTRAL, ids=["module", "hook"])
def test_spectral_norms_iterate_in_training_alone(kind) -> None:
    module = kind(nn.Linear(8, 8, bias=False), n_power_iterations=1)
    (weight,) = module.parameters()  # learned since it was made
    weight.data = torch.diag(torch.linspace(0.1, 3, 8))
    one, x = network(module), torch.eye(8)
    first = one(x)
    assert torch.equal(one(x), first)
    one.learning = True
    for _ in range(200):
        one(x)
    one.learning = False
    after = one(x)
    assert float(torch.linalg.matrix_norm(after.detach(), 2)) == pytest.approx(1.0, abs=1e-3)
    acting = one.frozen(one.read())  # the hook has left a tensor with a gradient in the module
    assert torch.allclose(torch.as_tensor(acting(x)), after, atol=1e-6)


def test_a_module_with_a_lock_acts_in_copies() -> None:
    module = nn.Linear(4, 2)
    module.lock = threading.Lock()
    one, x = network(module), torch.ones(3, 4)
    acting, before = one.frozen(one.read()), one(x)
    with torch.no_grad():
        module.weight.zero_()
    assert torch.equal(torch.as_tensor(acting(x)), before)


class Mean(nn.Module):
    """Subtracts a running mean, a new tensor each time; and a weight, to be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * x.detach().mean(0)
        return x - self.mean + self.weight


def third_fails(net: TorchNetwork, target: TorchNetwork) -> int:
    """Three updates by ones, the third by NaN; how many were applied."""
    backend = TorchBackend("cpu")
    backend.networks |= {"q": net, "q_target": target}
    optimizer = backend.optimizer("q", [net], "sgd")

    def update(b: Batch) -> Update:
        loss, _ = backend.minimize(optimizer, lambda b: (net(b.obs).sum(-1), {}), b, 0.1)
        backend.soft_update(net, target, torch.tensor(0.5))
        return Update({"loss": loss})

    obs = torch.ones(3, 2, 4).numpy()
    obs[2] = float("nan")
    settings = {"rate": torch.zeros(3).numpy()}
    return backend.compile(update)(Batch(obs, obs[..., 0], settings=settings)).applied


def test_buffers_that_are_rebound_go_to_targets_and_back_where_an_update_does_not_hold() -> None:
    net, target = network(Mean()), network(Mean())
    assert third_fails(net, target) == 2
    for each in (net, target):
        assert torch.equal(each.module[0].mean, torch.full((4,), 0.75))


class Note(nn.Module):
    """Keeps what it last saw in training, and its mean, in buffers that no target needs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.register_buffer("seen", torch.zeros(1, 4), persistent=False)
        self.register_buffer("mean", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen = x.detach()
            self.mean = self.seen.mean(0)
        return x + self.weight


def test_buffers_may_get_another_shape_and_be_made_late() -> None:
    net, target = network(Note()), network(Note())
    assert third_fails(net, target) == 2
    note = net.module[0]
    assert torch.equal(note.seen, torch.ones(2, 4)) and torch.equal(note.mean, torch.ones(4))
    assert torch.allclose(target.module[0].weight, torch.full((4,), -0.125))


def test_large_products_have_the_gradients_of_others(monkeypatch) -> None:
    monkeypatch.setattr(torch_products, "by_onednn", lambda: True)
    xs = [torch.randn(shape, requires_grad=True) for shape in ((300, 90), (80, 90), (80,))]

    def found(linear):
        value = torch.tanh(linear(*xs)).square().mean()
        first = torch.autograd.grad(value, xs, retain_graph=True)
        again = torch.autograd.grad(value, xs, create_graph=True)
        return *first, *torch.autograd.grad(sum(x.square().sum() for x in again), xs)

    torch.testing.assert_close(found(torch_products.linear), found(nn.functional.linear))
