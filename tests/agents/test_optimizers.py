"""A user's own torch optimizer: it steps as torch has it, comes back whole, and goes into files."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.errors import CheckpointError, TandemError
from tandem.exploration import GreedyQPolicy
from tandem.runs import checkpoint
from tests.agents.agents import Clock, Layers, Probe, Walk, fit, same
from tests.backends.test_torch_steps import Various

Make = Callable[[Any], Any]


def configured(agent: Any = None) -> Any:
    agent = Probe(Walk()) if agent is None else agent
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, num_updates=1)
    return agent


def check_steps(agent: Any, net: Any, make: Make, batches: Any, freeze: Any = None) -> None:
    """The agent's network is what torch's own steps make of `net`, with `freeze(i)` before each."""
    optimizer = make(list(net.parameters()))
    for i, (s, _, _, r, _) in enumerate(batches):
        if freeze is not None:
            freeze(i)
        optimizer.zero_grad()
        ((net(s)[:, 0] - r) ** 2).mean().backward()
        optimizer.step()
    for x, y in zip(agent.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


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
def test_the_first_steps_are_torchs_own(make: Make) -> None:
    """What prepares the state of an optimizer leaves nothing of weight decay in it."""
    agent = configured()
    start = copy.deepcopy(agent.net)
    agent.train(make(agent.param), 4, p=0)
    check_steps(agent, start, make, agent.seen[1:])


def tower() -> Any:
    """An agent whose network has two layers, the first of which is frozen."""
    agent = Layers(Walk(), torch.nn.Linear(2, 2))
    agent.net[0].requires_grad_(False)
    return agent


MAKES: list[Make] = [
    lambda p: torch.optim.Adam(p, 0.05),
    lambda p: torch.optim.SGD(p, 0.001, momentum=0.9),
    lambda p: torch.optim.Rprop(p, 0.01),
    lambda p: torch.optim.NAdam([{"params": p[:1]}, {"params": p[1:]}], 0.05),
    lambda p: torch.optim.Adagrad(p, 0.05),
]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("make", MAKES)
def test_thawed_weights_leave_others_as_they_were(make: Make, again: bool, tmp_path: Path) -> None:
    """As torch has it: each weight by its own moments and its own count of steps."""
    agent = tower()
    agent.net[0].weight.requires_grad_(True)  # two of four weights are frozen, one in the midst
    agent.net[1].weight.requires_grad_(False)
    start, optimizer = copy.deepcopy(agent.net), make(agent.param)
    configured(agent).train(optimizer, 2, p=0)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    assert all(x is y for x, y in zip(params, agent.param, strict=True))
    first = len(agent.seen) - 1
    agent.net.requires_grad_(True)
    agent.train(None, 2, p=0)
    batches = agent.seen[1:]
    if again:
        agent.save(tmp_path / "agent")
        agent = configured(tower())
        agent.net.requires_grad_(True)
        agent.restore(tmp_path / "agent")
        agent.train(make(agent.param), 2, p=0)
        batches += agent.seen[1:]

    def freeze(i: int) -> None:
        start[0].bias.requires_grad_(i >= first)
        start[1].weight.requires_grad_(i >= first)

    check_steps(agent, start, make, batches, freeze)


@pytest.mark.parametrize("make", MAKES[:3])
def test_what_is_frozen_while_it_is_saved_keeps_its_moments(make: Make, tmp_path: Path) -> None:
    """All train, then one layer is frozen, saved, loaded and thawed: as without the file."""
    agent, again = tower(), configured(tower())
    agent.net.requires_grad_(True)
    start, optimizer = copy.deepcopy(agent.net), make(agent.param)
    configured(agent).train(optimizer, 2, p=0)
    thawed = len(agent.seen) - 1
    agent.net[0].requires_grad_(False)
    agent.train(None, 1, p=0)
    agent.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    again.train(make(again.param), 1, p=0)
    still = len(agent.seen[1:] + again.seen[1:])
    again.net.requires_grad_(True)
    again.train(None, 2, p=0)

    def freeze(i: int) -> None:
        start[0].requires_grad_(i < thawed or i >= still)

    check_steps(again, start, make, agent.seen[1:] + again.seen[1:], freeze)


def two_groups(p: Any) -> Any:
    return torch.optim.Adam([{"params": p[:1]}, {"params": p[1:], "lr": 0.1}], 0.01, maximize=True)


@pytest.mark.parametrize(
    "make",
    [
        *(MAKES[2], two_groups, lambda p: torch.optim.ASGD(p, 0.01), lambda p: Various(p, 0.01)),
        lambda p: torch.optim.SGD(p, 0.001, momentum=0.9, dampening=0.5),
    ],
)
@pytest.mark.parametrize("first", [0, 2])  # episodes before the file; of 0 there is no state yet
def test_state_of_a_first_step_is_restored(make: Make, first: int, tmp_path: Path) -> None:
    whole, again = saved(tmp_path / "agent", make, first, Walk if first else Clock)
    whole.train(None, 2, p=0)
    again.train(make(again.param), 2, p=0)
    assert same(whole.param, again.param)


@pytest.mark.parametrize("sitting", [1, 2])
def test_what_is_not_finite_changes_nothing_with_a_batch_norm_either(sitting: int) -> None:
    """The second of three updates of a phase: the first one holds, once."""

    class Norm(Layers):
        bad = 10**9

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
    with pytest.raises(TandemError, match=r"optimizer '0' was not finite in update \d+"):
        agent.train(optimizer, 4, p=0)
    assert same(agent.before.values(), [agent.net[1].state_dict()[name] for name in agent.before])
    assert all(torch.isfinite(x).all() for x in agent.param)
    assert agent.optimizer.param_groups[0]["params"] == agent.param


def saved(file: Path, optimizer: Make, episodes: int = 2, env: Any = Walk) -> Any:
    """An agent that was saved after its training, and one that was restored from that file."""
    agent, again = configured(Probe(env())), configured(Probe(env()))
    agent.train(optimizer(agent.param), episodes, p=0)
    agent.save(file)
    again.restore(file)
    return agent, again


def test_numbers_of_an_optimizer_are_in_the_file(tmp_path: Path) -> None:
    """Learning rates, changed ones too, and what else its groups hold."""

    def make(p: Any, rate: float, decay: float, beta: float) -> Any:
        groups = [{"params": p[:1], "lr": 2 * rate}, {"params": p[1:]}]
        return torch.optim.Adam(groups, rate, betas=(beta, 0.99), weight_decay=decay)

    whole, again = saved(tmp_path / "agent", lambda p: make(p, 0.5, 0.1, 0.8))
    whole.optimizer.param_groups[1]["lr"] = 0.03
    whole.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    whole.train(None, 2, p=0)
    again.train(make(again.param, 0.001, 0.0, 0.9), 2, p=0)
    assert same(whole.param, again.param)
    first, second = again.optimizer.param_groups
    assert (first["lr"], second["lr"]) == (1.0, 0.03)
    assert first["betas"] == (0.8, 0.99) and second["weight_decay"] == 0.1


@pytest.mark.parametrize(
    ("momentum", "other"),
    [({"momentum": 0.9}, {}), ({}, {"momentum": 0.9}), ({"momentum": 0.9, "dampening": 0.5}, {})],
)
def test_numbers_are_restored_before_states(momentum: Any, other: Any, tmp_path: Path) -> None:
    whole, again = saved(tmp_path / "agent", lambda p: torch.optim.SGD(p, 0.001, **momentum))
    whole.train(None, 2, p=0)
    again.train(torch.optim.SGD(again.param, 0.1, **other), 2, p=0)
    assert same(whole.param, again.param)


def test_an_optimizer_of_another_type_is_refused(tmp_path: Path) -> None:
    _, again = saved(tmp_path / "agent", torch.optim.Adam)
    sgd = r"Adam, but train was given SGD; expected .*\nFix: pass"
    for optimizer, match in (
        (torch.optim.SGD(again.param, 0.01), sgd),
        (two_groups(again.param), r"train was given Adam \(2 groups\)"),
    ):
        with pytest.raises(CheckpointError, match=match):
            again.train(optimizer, 2, p=0)
        again.seen = []  # tensors, which a new training would take for the agent's own
    assert fit(again, 2).total_episode == 4


def test_files_that_do_not_tell_their_optimizers_are_read(tmp_path: Path) -> None:
    """As they were once: the state is taken, with the numbers that are here."""
    file = tmp_path / "agent"
    _, again = saved(file, lambda p: torch.optim.Adam(p, 0.5))
    whole = checkpoint.read(file)
    groups = {name: whole.group(name) for name in ("param", "engine", "collector", "learner")}
    data = {name: x for name, x in whole.data.items() if name != "optimizers"}
    checkpoint.write(file, data, groups)
    again.restore(file)
    again.train(torch.optim.Adam(again.param, 0.001), 1, p=0)
    assert again.optimizer.param_groups[0]["lr"] == 0.001
    assert again.optimizer.state[again.param[0]]["step"] > 2


def test_a_network_of_another_width_is_named(tmp_path: Path) -> None:
    _, again = saved(tmp_path / "agent", torch.optim.Adam)
    again.target = torch.nn.Linear(2, 5)  # in no list of parameters
    again.update_param = lambda: None
    again.restore(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="network/target/0 has shape"):
        fit(again, 2)
