"""A user's own torch optimizer: it steps as torch has it, comes back whole, and goes into files."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tandem.errors import CheckpointError, TandemError  # noqa: E402
from tandem.exploration import GreedyQPolicy  # noqa: E402
from tandem.runs import checkpoint  # noqa: E402
from tests.agents.agents import Probe  # noqa: E402
from tests.backends.test_torch_steps import Various  # noqa: E402


def configured(agent: Any) -> Any:
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, num_updates=1)
    return agent


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.5),
        lambda p: torch.optim.NAdam(p, 0.01, weight_decay=0.5),
        lambda p: torch.optim.RMSprop(p, 0.01, weight_decay=0.5),
        lambda p: torch.optim.SGD(p, 0.001, momentum=0.9, weight_decay=0.5),
        lambda p: torch.optim.SGD(p, 0.001, momentum=0.9, dampening=0.5),
        lambda p: torch.optim.Adagrad(p, 0.01, weight_decay=0.5, initial_accumulator_value=0.3),
    ],
)
def test_the_first_steps_are_torchs_own(make: Callable[[Any], Any]) -> None:
    """What prepares the state of an optimizer leaves nothing of weight decay in it."""
    agent = configured(Probe())
    start = copy.deepcopy(agent.net)
    agent.train(make(agent.param), 4, p=0)
    reference = make(list(start.parameters()))
    for s, _, _, r, _ in agent.seen[1:]:
        reference.zero_grad()
        ((start(s)[:, 0] - r) ** 2).mean().backward()
        reference.step()
    for x, y in zip(agent.net.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


class Tower(Probe):
    """The first of its two layers is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        self.target = copy.deepcopy(self.net)
        self.param = self.net.parameters()
        self.net[0].requires_grad_(False)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.Rprop])
def test_what_is_frozen_stays_the_optimizers_and_learns_once_it_is_thawed(kind: Any) -> None:
    agent = configured(Tower())
    optimizer = kind(agent.param, 0.01)
    before = agent.net[0].weight.clone()
    agent.train(optimizer, 2, p=0)
    assert all(
        x is y for x, y in zip(optimizer.param_groups[0]["params"], agent.param, strict=True)
    )
    assert torch.equal(agent.net[0].weight, before)
    agent.net[0].requires_grad_(True)
    agent.train(None, 2, p=0)
    assert not torch.equal(agent.net[0].weight, before)


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, 0.05),
        lambda p: torch.optim.NAdam([{"params": p[:1]}, {"params": p[1:]}], 0.05),
        lambda p: torch.optim.Adagrad(p, 0.05),
        lambda p: torch.optim.SGD(p, 0.001, momentum=0.9),
        lambda p: torch.optim.Rprop(p, 0.01),
    ],
)
def test_what_was_not_frozen_goes_on_as_it_was_when_others_are_thawed(
    make: Callable[[Any], Any], resumed: bool, tmp_path: Path
) -> None:
    """As torch has it: each weight by its own moments and its own count of steps."""
    agent = Tower()
    agent.net[0].weight.requires_grad_(True)  # two of four weights are frozen, one in the midst
    agent.net[1].weight.requires_grad_(False)
    start, optimizer = copy.deepcopy(agent.net), make(agent.param)
    configured(agent).train(optimizer, 2, p=0)
    first = len(agent.seen)
    agent.net.requires_grad_(True)
    agent.train(None, 2, p=0)
    batches = agent.seen[1:]
    if resumed:
        agent.save(tmp_path / "agent")
        again = configured(Tower())
        again.net.requires_grad_(True)
        again.env.episode = agent.env.episode
        again.restore(tmp_path / "agent")
        again.train(make(again.param), 2, p=0)
        agent, batches = again, batches + again.seen[1:]
    reference = make(list(start.parameters()))
    for i, (s, _, _, r, _) in enumerate(batches):
        start.requires_grad_(i >= first - 1)
        start[0].weight.requires_grad_(True), start[1].bias.requires_grad_(True)
        if i < first - 1:
            start[0].bias.requires_grad_(False), start[1].weight.requires_grad_(False)
        reference.zero_grad()
        ((start(s)[:, 0] - r) ** 2).mean().backward()
        reference.step()
    for x, y in zip(agent.net.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, 0.05),
        lambda p: torch.optim.SGD(p, 0.001, momentum=0.9),
        lambda p: torch.optim.Rprop(p, 0.01),
    ],
)
def test_what_is_frozen_while_it_is_saved_keeps_its_moments(
    make: Callable[[Any], Any], tmp_path: Path
) -> None:
    """All train, then one layer is frozen, saved, loaded and thawed: as without the file."""
    agent = Tower()
    agent.net.requires_grad_(True)
    start, optimizer = copy.deepcopy(agent.net), make(agent.param)
    configured(agent).train(optimizer, 2, p=0)
    thawed = len(agent.seen)
    agent.net[0].requires_grad_(False)
    agent.train(None, 1, p=0)
    frozen = len(agent.seen)
    agent.save(tmp_path / "agent")
    again = configured(Tower())
    again.env.episode = agent.env.episode
    again.restore(tmp_path / "agent")
    again.train(make(again.param), 1, p=0)
    again.net.requires_grad_(True)
    again.train(None, 2, p=0)
    reference, batches = make(list(start.parameters())), agent.seen[1:] + again.seen[1:]
    steps_after = len(again.seen) - 1 - (frozen - thawed)
    for i, (s, _, _, r, _) in enumerate(batches):
        start[0].requires_grad_(i < thawed - 1 or i >= len(batches) - steps_after)
        reference.zero_grad()
        ((start(s)[:, 0] - r) ** 2).mean().backward()
        reference.step()
    for x, y in zip(again.net.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Rprop(p, 0.01),
        lambda p: torch.optim.ASGD(p, 0.01),
        lambda p: torch.optim.SGD(p, 0.001, momentum=0.9, dampening=0.5),
        lambda p: torch.optim.Adam(
            [{"params": p[:1]}, {"params": p[1:], "lr": 0.1}], 0.01, maximize=True
        ),
        lambda p: Various(p, 0.01),
    ],
)
@pytest.mark.parametrize("first", [0, 2])  # episodes before the file; of 0 there is no state yet
def test_a_state_that_a_first_step_makes_is_restored(
    make: Callable[[Any], Any], first: int, tmp_path: Path
) -> None:
    whole, half, again = (configured(Probe()) for _ in range(3))
    whole.train(make(whole.param), first, p=0)
    whole.train(None, 2, p=0)
    half.train(make(half.param), first, p=0)
    half.save(tmp_path / "agent")
    again.env.episode = half.env.episode  # which its clock shows
    again.restore(tmp_path / "agent")
    again.train(make(again.param), 2, p=0)
    assert all(torch.equal(x, y) for x, y in zip(whole.param, again.param, strict=True))


@pytest.mark.parametrize("sitting", [1, 2])
def test_what_is_not_finite_changes_nothing_with_a_batch_norm_either(sitting: int) -> None:
    """The second of three updates of a phase: the first one holds, once."""

    class Norm(Probe):
        bad = 10**9

        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
            self.target = copy.deepcopy(self.net)
            self.param = self.net.parameters()

        def __call__(self, *batch: Any) -> Any:
            loss = super().__call__(*batch)
            if self.losses != self.bad:
                return loss
            self.before = copy.deepcopy(self.net[1].state_dict())
            return loss * float("nan")

    agent = Norm()
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, num_updates=3)
    optimizer = torch.optim.Adam(agent.param, 0.01)
    if sitting == 2:
        agent.train(optimizer, 2, p=0)
    agent.bad = 6 if sitting == 1 else agent.losses + 2
    with pytest.raises(TandemError, match="not finite"):
        agent.train(optimizer, 4, p=0)
    for name, x in agent.before.items():
        torch.testing.assert_close(agent.net[1].state_dict()[name], x, rtol=0, atol=0)


def test_numbers_of_an_optimizer_are_in_the_file(tmp_path: Path) -> None:
    """Learning rates, also such as were changed meanwhile, and what else its groups hold: training
    goes on with them."""

    def make(p: Any, rate: float, decay: float, beta: float) -> Any:
        groups = [{"params": p[:1], "lr": 2 * rate}, {"params": p[1:]}]
        return torch.optim.Adam(groups, rate, betas=(beta, 0.99), weight_decay=decay)

    whole, half, again = (configured(Probe()) for _ in range(3))
    for agent in (whole, half):
        agent.train(make(agent.param, 0.5, 0.1, 0.8), 2, p=0)
        agent.optimizer.param_groups[1]["lr"] = 0.03
    whole.train(None, 2, p=0)
    half.save(tmp_path / "agent")
    again.env.episode = half.env.episode  # which its clock shows
    again.restore(tmp_path / "agent")
    again.train(make(again.param, 0.001, 0.0, 0.9), 2, p=0)
    assert all(torch.equal(x, y) for x, y in zip(whole.param, again.param, strict=True))
    first, second = again.optimizer.param_groups
    assert (
        first["lr"] == 1.0
        and second["lr"] == 0.03
        and first["betas"] == (0.8, 0.99)
        and second["weight_decay"] == 0.1
    )


@pytest.mark.parametrize(
    ("momentum", "other"),
    [({"momentum": 0.9}, {}), ({}, {"momentum": 0.9}), ({"momentum": 0.9, "dampening": 0.5}, {})],
)
def test_numbers_that_a_state_hangs_on_are_there_before_it(
    momentum: Any, other: Any, tmp_path: Path
) -> None:
    whole, half, again = (configured(Probe()) for _ in range(3))
    whole.train(torch.optim.SGD(whole.param, 0.001, **momentum), 4, p=0)
    half.train(torch.optim.SGD(half.param, 0.001, **momentum), 2, p=0)
    half.save(tmp_path / "agent")
    again.env.episode = half.env.episode
    again.restore(tmp_path / "agent")
    again.train(torch.optim.SGD(again.param, 0.1, **other), 2, p=0)
    assert all(torch.equal(x, y) for x, y in zip(whole.param, again.param, strict=True))


def test_an_optimizer_of_another_kind_than_the_files_is_refused_and_the_right_one_taken_then(
    tmp_path: Path,
) -> None:
    half, again = configured(Probe()), configured(Probe())
    half.train(torch.optim.Adam(half.param), 2, p=0)
    half.save(tmp_path / "agent")
    again.env.episode = half.env.episode
    again.restore(tmp_path / "agent")
    with pytest.raises(
        CheckpointError, match=r"optimizer Adam; train was given SGD\.\nExpected: .*\nFix: give"
    ):
        again.train(torch.optim.SGD(again.param, 0.01), 2, p=0)
    again.seen = []  # tensors, which a new training would take for the agent's own
    with pytest.raises(CheckpointError, match=r"train was given Adam \(2 groups\)"):
        again.train(
            torch.optim.Adam([{"params": again.param[:1]}, {"params": again.param[1:]}]), 2, p=0
        )
    again.seen = []
    again.train(torch.optim.Adam(again.param), 2, p=0)
    assert again.total_episode == 4


def test_files_that_do_not_tell_their_optimizers_are_read(tmp_path: Path) -> None:
    """As they were before optimizers were in them: the state is taken, with the numbers that are
    here."""
    half, again = configured(Probe()), configured(Probe())
    half.train(torch.optim.Adam(half.param, 0.5), 2, p=0)
    half.save(tmp_path / "agent")
    saved = checkpoint.read(tmp_path / "agent")
    groups = {name: saved.group(name) for name in ("param", "engine", "collector", "learner")}
    checkpoint.write(
        tmp_path / "agent", {n: x for n, x in saved.data.items() if n != "optimizers"}, groups
    )
    again.env.episode = half.env.episode
    again.restore(tmp_path / "agent")
    again.train(torch.optim.Adam(again.param, 0.001), 1, p=0)
    assert (
        again.optimizer.param_groups[0]["lr"] == 0.001
        and again.optimizer.state[again.param[0]]["step"] > 2
    )


def test_a_network_of_another_width_is_named(tmp_path: Path) -> None:
    half, again = configured(Probe()), configured(Probe())
    half.train(torch.optim.Adam(half.param), 2, p=0)
    half.save(tmp_path / "agent")
    again.target = torch.nn.Linear(2, 5)  # in no list of parameters
    again.update_param = lambda: None
    again.restore(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="network/target/0 has shape"):
        again.train(torch.optim.Adam(again.param), 2, p=0)
