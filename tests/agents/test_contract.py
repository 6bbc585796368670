"""What a user's agent is told before training starts, and what happens around it: callbacks, lines,
files, optimizers."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import signal
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tandem  # noqa: E402
from tandem.agents.contract import SetArguments, TrainArguments  # noqa: E402
from tandem.agents.rl import RL, LambdaCallback, RL_pytorch, restore_param  # noqa: E402
from tandem.agents.train_call import print_interval  # noqa: E402
from tandem.agents.user_functions import AgentAlgorithm, CompiledAction  # noqa: E402
from tandem.errors import (  # noqa: E402
    CheckpointError,
    NetworkError,
    SettingError,
    TandemError,
    UnknownNameError,
)
from tandem.exploration import EpsGreedyQPolicy, GreedyQPolicy, OrnsteinUhlenbeckProcess  # noqa: E402
from tests.advice.net import follows  # noqa: E402
from tests.agents.agents import Clock, Probe, trained  # noqa: E402


def without(name: str) -> Any:
    agent = Probe()
    if name in ("env", "param"):
        setattr(agent, name, None if name == "env" else [])
        return agent
    kind = type(
        "Forgetful",
        (RL_pytorch,),
        {n: x for n, x in vars(Probe).items() if n not in (name, "__init__", "__dict__")},
    )
    other = kind()
    other.__dict__.update(agent.__dict__)
    return other


@pytest.mark.parametrize("name", ["env", "param", "action", "__call__", "update_param"])
def test_what_is_forgotten_is_named_with_an_example(name: str) -> None:
    agent = without(name)
    agent.set(policy=GreedyQPolicy())
    with pytest.raises(
        SettingError, match=rf"{name} is (missing|empty)[\s\S]*for example: "
    ) as told:
        agent.train(torch.optim.SGD(Probe().param, 0.1), 1)
    assert name.strip("_") in str(told.value).split("for example")[1] or name == "param"


def test_an_empty_list_of_environments_is_none() -> None:
    with pytest.raises(SettingError, match="Probe.env is empty"):
        trained(Probe([]))


def test_hooks_of_modes_are_missed_too() -> None:
    with pytest.raises(SettingError, match="reward_done_func_ma is missing"):
        trained(Probe(), MARL=True)
    with pytest.raises(SettingError, match="reward_done_func is missing"):
        trained(Probe(), HER=True, policy=None)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda s, r: None, "returned a NoneType"),
        (lambda s, r: 0.5, "returned a float"),
        (lambda s, r: np.zeros(()), "returned a ndarray"),
        (lambda s, r: s, r"loss of shape \(11, 2\) for 11 samples"),
        (lambda s, r: (s[:, :1] - r[:, None]) ** 2, r"loss of shape \(11, 1\)"),
        (lambda s, r: [s.mean(), r.mean()], "returned 2 losses for 1 optimizers"),
    ],
)
def test_wrong_losses_are_named(returned: Any, message: str) -> None:
    class Wrong(Probe):
        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            return returned(s, r)

    with pytest.raises(NetworkError, match=message):
        trained(Wrong())


def test_a_loss_without_gradients_for_an_optimizer_is_refused() -> None:
    class Detached(Probe):
        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            return (self.target(s)[:, 0] - r).pow(2).mean()  # another network

    with follows("backends/broadcast_check.py:check_losses 2") as advice:
        trained(Detached())
    assert "networks, outside of no_grad, detach" in advice.fix
    agent = Pair()
    agent.param = agent.param[::-1]  # the first loss is of the first network alone
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    with pytest.raises(NetworkError, match="optimizer 0 depends on no weight"):
        agent.train([torch.optim.SGD(part, 0.01) for part in agent.param], 4, p=0)


def test_each_sample_with_each_other_is_refused_with_its_line() -> None:
    class Square(Probe):
        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            value = self.net(s)[:, :1]
            return ((value - r) ** 2).mean()  # (B, 1) - (B,)

    with pytest.raises(
        NetworkError, match=r"test_contract.py, line \d+: return \(\(value - r\)"
    ) as told:
        trained(Square())
    assert "squeeze" in str(told.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda x: x[:, :1], r"shape \(1, 1\), which the policy"),
        (lambda x: x[0], r"shape \(2,\) for 1 observations"),
        (lambda x: x[:, None], r"shape \(1, 1, 2\), which the policy"),
    ],
)
def test_wrong_actions_are_named(given: Any, message: str) -> None:
    class Wrong(Probe):
        def action(self, s: Any) -> Any:
            return given(self.net(s))

    with pytest.raises(NetworkError, match=message):
        trained(Wrong())


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"noise": OrnsteinUhlenbeckProcess(0.1)}, "policy and noise"),
        ({"batch": 0}, "batch=0"),
        ({"batch": 200}, "pool_size=100, batch=200"),
        ({"batch": 4.0}, "batch=4.0"),
        ({"batch": "four"}, "batch='four'"),
        ({"trial_count": 2, "criterion": "high"}, "criterion='high'"),
        ({"PR": True, "beta": None}, "beta=None"),
        ({"policy": "greedy"}, "policy='greedy'"),
        ({"policy": GreedyQPolicy}, "GreedyQPolicy"),
        ({"policy": None, "noise": [OrnsteinUhlenbeckProcess(0.1), "ou"]}, "noise='ou'"),
        ({"criterion": 1.0}, "without trial_count"),
        ({"PPO": True}, "without update_steps or update_batches"),
        ({"PPO": True, "HER": True, "update_steps": 8}, "PPO=True and HER=True"),
        ({"HER": True, "num_steps": 2}, "num_steps"),
        ({"PPO": "yes", "update_steps": 8}, "PPO='yes'"),
        ({"PR": 2}, "PR=2"),
        ({"PR": True, "alpha": -1}, "alpha=-1"),
        ({"PR": True, "initial_TD": float("inf")}, "initial_TD=inf"),
        ({"k": -1}, "k=-1"),
        ({"strategy": "last"}, "strategy='last'"),
        ({"policy": []}, r"policy=\[\]"),
    ],
)
def test_choices_that_contradict_each_other(choices: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        trained(Probe(), **choices)


@pytest.mark.parametrize(
    "wrong",
    [
        {"episodes": "3"},
        {"episodes": 2.5},
        {"processes": 1.5},
        {"window_size": "5"},
        {"clearing_freq": 0},
        {"p": -1},
    ],
)
def test_numbers_that_train_cannot_count_by(wrong: Any) -> None:
    agent = Probe()
    agent.set(policy=GreedyQPolicy())
    with pytest.raises(SettingError, match=f"{next(iter(wrong))}="):
        agent.train(torch.optim.SGD(agent.param, 0.1), **{"episodes": 1, "p": 0, **wrong})
    assert not agent.total_episode


@pytest.mark.parametrize("wrong", [3, None, b"x", [], ""])
@pytest.mark.parametrize("method", ["save", "restore", "save_param", "restore_param"])
def test_what_is_no_path(method: str, wrong: Any) -> None:
    with pytest.raises(TandemError) as told:
        getattr(fresh(), method)(wrong)
    assert told.value.expected and told.value.fix


@pytest.mark.parametrize(
    "param",
    [
        lambda net: net.named_parameters(),
        lambda net: dict(net.named_parameters()),
        lambda net: net,
        lambda net: [p.detach().numpy() for p in net.parameters()],
    ],
)
def test_param_is_of_variables_alone(param: Any, tmp_path: Path) -> None:
    agent = fresh()
    agent.param = param(agent.net)
    with pytest.raises(
        SettingError,
        match=r"in agent.param is a [\s\S]*for example: self.param = list\(self.q.parameters",
    ):
        agent.train(torch.optim.SGD(agent.net.parameters(), 0.1), 1)
    with pytest.raises(SettingError, match="in agent.param is a"):
        agent.save_param(tmp_path / "param")


@pytest.mark.parametrize(
    "wrong",
    [{"seed": "x"}, {"seed": -1}, {"seed": None}, {"callbacks": None}, {"callbacks": print}],
)
def test_attributes_of_a_wrong_kind(wrong: Any) -> None:
    agent = fresh()
    vars(agent).update(wrong)
    with pytest.raises(SettingError, match=f"agent.{next(iter(wrong))}"):
        agent.train(torch.optim.SGD(agent.param, 0.1), 1)


@pytest.mark.parametrize("steps", [0, -1, 2.5, "x", None])
def test_plays_of_no_number_of_steps(steps: Any) -> None:
    with pytest.raises(SettingError, match="max_steps="):
        fresh().run_agent(steps)


@pytest.mark.parametrize("wrong", [3, Probe().net, Probe().net.named_parameters()])
def test_assign_param_takes_variables_alone(wrong: Any) -> None:
    with pytest.raises(SettingError, match=r"assign_param was given a (int|Linear|str)"):
        tandem.assign_param(wrong, Probe().param)


@pytest.mark.parametrize(
    ("make", "message"), [(torch.optim.SparseAdam, "SparseAdam"), (lambda p: [], "no optimizer")]
)
def test_optimizers_that_cannot_train_an_agent(make: Any, message: str) -> None:
    agent = fresh()
    with pytest.raises(SettingError, match=message):
        agent.train(make(list(agent.param)), 1)
    agent.train(torch.optim.SGD(agent.param, 0.1), 1, p=0)  # what was refused is not kept


def test_no_episodes_are_no_step(tmp_path: Path) -> None:
    """But what was restored is there, an optimizer's numbers too, and can be changed before it goes
    on."""
    agent, again = fresh(), fresh()
    agent.train(torch.optim.Adam(agent.param, 0.5), 2, p=0)
    played = len(agent.env.actions)
    assert (
        agent.train(None, 0, p=0) == np.float32(agent.loss)
        and len(agent.env.actions) == played
        and agent.total_episode == 2
    )
    agent.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    optimizer = torch.optim.Adam(again.param, 0.1)
    again.train(optimizer, 0, p=0)
    assert optimizer.param_groups[0]["lr"] == 0.5
    agent.optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"] = 0.25
    agent.train(None, 2, p=0), again.train(None, 2, p=0)
    assert (
        all(torch.equal(x, y) for x, y in zip(agent.param, again.param, strict=True))
        and agent.loss_list == again.loss_list
    )


def test_train_before_set_and_without_an_optimizer() -> None:
    with pytest.raises(SettingError, match="before set"):
        Probe().train(None, 1)
    agent = Probe()
    agent.set(policy=GreedyQPolicy())
    with pytest.raises(SettingError, match="no optimizer"):
        agent.train(None, 1)


def test_optimizers_have_to_be_of_the_agents_weights() -> None:
    agent, other = Probe(), Probe()
    agent.set(policy=GreedyQPolicy())
    with pytest.raises(SettingError, match="none of agent.param"):
        agent.train(torch.optim.SGD(other.param, 0.1), 1)
    agent.optimizer = None
    with pytest.raises(SettingError, match="1 optimizers|2 optimizers"):
        agent.train([torch.optim.SGD(agent.param, 0.1)] * 2, 1)


def test_lists_of_policies_have_to_fit() -> None:
    with pytest.raises(SettingError, match="2 policies"):
        trained(Probe(), policy=[GreedyQPolicy(), GreedyQPolicy()])
    assert (
        trained(
            Probe([Clock(), Clock()]), policy=[GreedyQPolicy(), EpsGreedyQPolicy(1.0)]
        ).total_episode
        == 4
    )


def test_a_policy_of_ones_own_is_asked_once_with_the_step_if_it_takes_that() -> None:
    class Asked:
        def __init__(self) -> None:
            self.given: list[tuple[object, ...]] = []

        def select_action(self, values, *step):
            self.given.append(step)
            return 0

    class Alone(Asked):
        def select_action(self, values):
            return super().select_action(values)

    class Breaks(Asked):
        def select_action(self, values, step):
            super().select_action(values, step)
            return len(step)  # its own fault, and no reason to ask again

    asked, alone, breaks = Asked(), Alone(), Breaks()
    trained(Probe(), policy=asked)
    trained(Probe(), policy=alone)
    assert asked.given == [(i,) for i in range(len(asked.given))] and set(alone.given) == {()}
    with pytest.raises(TypeError, match="'int' has no len"):
        trained(Probe(), policy=breaks)
    assert breaks.given == [(0,)]


def test_a_forgotten_super_init_does_no_harm() -> None:
    class Bare(Probe):
        def __init__(self) -> None:
            self.net, self.target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            self.param = self.net.parameters()
            self.env = Clock()
            self.seen = []
            self.losses = 0
            self.copies = []

    assert trained(Bare()).total_episode == 4


# --- Optimizers


class Pair(Probe):
    """Two networks and two losses; the second depends on the first network too."""

    def __init__(self) -> None:
        super().__init__()
        self.other = torch.nn.Linear(2, 1)
        self.param = [self.net.parameters(), self.other.parameters()]

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        self.seen.append((s, a, next_s, r, d))
        first, second = self.net(s)[:, 0], self.other(s)[:, 0]
        return [(first - r).pow(2).mean(), (second - first).pow(2).mean()]

    def update_param(self) -> None:
        return None


@pytest.mark.parametrize(
    "kind",
    [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, torch.optim.AdamW, torch.optim.Rprop],
)
def test_each_optimizer_steps_by_its_own_loss_from_the_same_point(kind: Any) -> None:
    agent = Pair()
    start = copy.deepcopy((agent.net, agent.other))
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    optimizers = [kind(part, lr=0.01) for part in agent.param]
    agent.train(optimizers, 4, p=0)
    for module in start:
        for parameter in module.parameters():
            parameter.requires_grad_()
    mine = [kind(module.parameters(), lr=0.01) for module in start]
    for s, _, _, r, _ in agent.seen[1:]:
        first, second = start[0](s)[:, 0], start[1](s)[:, 0]
        losses = [(first - r).pow(2).mean(), (second - first).pow(2).mean()]
        grads = [
            torch.autograd.grad(x, list(m.parameters()), retain_graph=True)
            for x, m in zip(losses, start, strict=True)
        ]
        for module, mine_, own in zip(start, mine, grads, strict=True):
            for parameter, gradient in zip(module.parameters(), own, strict=True):
                parameter.grad = gradient
            mine_.step()
    for module, reference in zip((agent.net, agent.other), start, strict=True):
        for x, y in zip(module.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)
    # and the optimizers have their weights and their state back
    for given, reference in zip(optimizers, mine, strict=True):
        assert [p.shape for p in given.param_groups[0]["params"]] == [
            p.shape for p in reference.param_groups[0]["params"]
        ]
        for p, q in zip(
            given.param_groups[0]["params"], reference.param_groups[0]["params"], strict=True
        ):
            for name, x in reference.state[q].items():
                if isinstance(x, torch.Tensor):
                    torch.testing.assert_close(given.state[p][name], x, rtol=1e-4, atol=1e-6)


def test_the_optimizer_goes_on_from_one_training_to_the_next_and_a_preset_one_is_kept() -> None:
    agent = Probe()
    agent.optimizer = torch.optim.Adam(agent.param, 0.01)
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, num_updates=1)
    agent.train(torch.optim.SGD(agent.param, 100.0), 2, p=0)
    agent.train(None, 2, p=0)
    with pytest.warns(UserWarning, match="trains with agent.optimizer as before"):
        agent.train(torch.optim.SGD(agent.param, 100.0), 0, p=0)
    state = agent.optimizer.state[agent.param[0]]
    assert (
        isinstance(agent.optimizer, torch.optim.Adam)
        and state["step"] == 17
        and state["exp_avg"].shape == (2, 2)
    )


def test_a_learning_rate_that_is_changed_is_obeyed() -> None:
    agent = Probe()
    agent.optimizer = torch.optim.Adam(agent.param, 0.01)
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    agent.train(None, 2, p=0)
    agent.optimizer.param_groups[0]["lr"] = 0.0
    before = [x.detach().clone() for x in agent.param]
    agent.train(None, 2, p=0)
    assert all(torch.equal(x, y) for x, y in zip(before, agent.param, strict=True))


def test_what_is_not_finite_changes_nothing() -> None:
    class Bad(Probe):
        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            return (self.net(s)[:, 0] - r).pow(2).mean() * (
                1.0 if len(s) != 4 or s[:, 1].max() < 2 else float("nan")
            )

    agent = Bad()
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    with pytest.raises(TandemError, match=r"optimizer '0' was not finite in update \d+"):
        agent.train(torch.optim.Adam(agent.param, 0.01), 10, p=0)
    assert all(torch.isfinite(x).all() for x in agent.param)
    assert agent.optimizer.param_groups[0]["params"] == agent.param


def test_numbers_that_a_compiled_loss_reads_are_watched_of_whatever_kind() -> None:
    class Reads(AgentAlgorithm):
        def losses(self, batch: Any) -> Any:
            return self.agent.scale, self.agent.best

    agent = Probe()
    agent.scale, agent.best = np.float32(0.5), float("nan")
    algorithm = Reads(agent, SimpleNamespace(framework="jax"), [], 1, 1.0, (), False)
    algorithm._losses(None)
    assert algorithm.constants.changed() == []
    agent.scale = np.float32(0.25)
    assert algorithm.constants.changed() == ["scale"]
    agent.best = 1.0
    assert algorithm.constants.changed() == ["scale", "best"]


def test_numbers_in_dicts_and_lists_are_watched_too() -> None:
    class Reads(AgentAlgorithm):
        def losses(self, batch: Any) -> Any:
            return (
                self.agent.config,
                self.agent.steps,
                self.agent.options,
                self.agent.nets,
                self.agent.log,
            )

    agent = Probe()
    agent.config = {"alpha": 0.1, "inner": {"x": [1, 2]}}
    agent.steps = (3, 4.0)
    agent.options = SimpleNamespace(rate=0.5)
    agent.nets, agent.log = [agent.net], [0.0] * 100
    algorithm = Reads(agent, SimpleNamespace(framework="jax"), [], 1, 1.0, (), False)
    algorithm._losses(None)
    assert algorithm.constants.changed() == []
    agent.log[3] += 1.0  # a record, too long for settings
    agent.nets.append(agent.target)
    agent.config["alpha"], agent.config["inner"]["x"][1] = 0.2, 5
    assert algorithm.constants.changed() == ["config['alpha']", "config['inner']['x'][1]"]
    agent.config = {"alpha": 0.1, "inner": {"x": [1, 2]}}
    agent.config["beta"] = agent.options.rate = 0.1
    assert algorithm.constants.changed() == ["config['beta']", "options.rate"]
    del agent.config["beta"]
    agent.options.rate, agent.steps = 0.5, (3,)
    assert algorithm.constants.changed() == ["steps[1]"]


def test_numbers_that_a_compiled_action_reads_are_watched_until_they_change_too_often() -> None:
    class Scaled(Probe):
        scale = 1.0

        def action(self, s: Any) -> Any:
            return s * self.scale

    def forward(function: Any) -> Any:
        """Compiles as XLA does: what is no argument is a constant."""
        made: list[Any] = []
        return lambda s: (made or made.append(function(1.0)) or made)[0] * s

    agent = Scaled()
    called: list[float] = []
    backend = SimpleNamespace(
        forward=forward, call=lambda function, s: (called.append(s), function(s))[1]
    )
    action = CompiledAction(agent, backend, agent.action)
    assert action(2.0) == action(2.0) == 2.0
    for k in range(1, 4):
        agent.scale = 1.0 + k
        with pytest.warns(UserWarning, match=r"scale changed[\s\S]* it is compiled anew"):
            assert action(2.0) == 2.0 + 2 * k
        assert action(3.0) == 3.0 + 3 * k
    assert not called
    agent.scale = 0.5
    with pytest.warns(
        UserWarning, match=r"it is not compiled any more[\s\S]* self.jit_action = False"
    ):
        assert action(2.0) == 1.0
    agent.scale = 0.25
    assert action(2.0) == 0.5 and len(called) == 2


def test_a_loss_may_take_gradients_of_its_own() -> None:
    class Penalty(Probe):
        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            s = s.requires_grad_()
            value = self.net(s)[:, 0]
            slope = torch.autograd.grad(value.sum(), s, create_graph=True)[0]
            return ((value - r) ** 2).mean() + slope.pow(2).mean()

    assert trained(Penalty()).total_episode == 4


def test_batch_norm_trains_and_acts_as_it_should() -> None:
    class Norm(Probe):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
            self.target = copy.deepcopy(self.net)
            self.param = self.net.parameters()
            self.modes: list[tuple[str, bool]] = []

        def action(self, s: Any) -> Any:
            self.modes.append(("action", self.net.training))
            return self.net(s)

        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            self.modes += [("loss", self.net.training), ("target", self.target.training)]
            return super().__call__(s, a, next_s, r, d)

    agent = trained(Norm())
    assert set(agent.modes[2:]) == {("action", False), ("loss", True), ("target", False)}
    assert agent.net[0].num_batches_tracked == 17


# --- Callbacks and lines


def test_callbacks_hear_everything_in_order() -> None:
    heard: list[Any] = []
    agent = Probe()
    names = (
        "on_train_begin",
        "on_train_end",
        "on_episode_begin",
        "on_episode_end",
        "on_batch_begin",
        "on_batch_end",
    )
    agent.callbacks.append(
        LambdaCallback(**{n: lambda *x, n=n: heard.append((n, *x)) for n in names})
    )
    trained(agent, 2, num_updates=2)
    kinds = [h[0] for h in heard]
    assert kinds[0] == "on_train_begin" and kinds[-1] == "on_train_end"
    assert kinds.count("on_batch_begin") == kinds.count("on_batch_end") == 14
    assert [h[1] for h in heard if h[0] == "on_batch_end"] == list(range(14))
    ends = [h for h in heard if h[0] == "on_episode_end"]
    assert [h[1] for h in ends] == [0, 1] and ends[1][2] == {
        "loss": agent.loss_list[1],
        "reward": 15.0,
    }
    losses = [h[2]["loss"] for h in heard if h[0] == "on_batch_end"]
    assert agent.loss_list == pytest.approx([np.mean(losses[:4]), np.mean(losses[4:])])


@pytest.mark.parametrize("kind", [RL, RL_pytorch])
def test_arguments_of_train_reach_their_fields(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Any] = []
    monkeypatch.setattr(kind, "_train", lambda self, *arguments: received.extend(arguments))
    several = ("layout", "batch")  # of `distributed_training`
    names = [field.name for field in fields(TrainArguments) if field.name not in several]
    values: dict[str, Any] = {name: i for i, name in enumerate(names, 1)}
    values["parallel_store_and_training"] = True
    kind().train(**values)
    assert asdict(received[0]) == values | {"layout": None, "batch": None}
    documented = list(inspect.signature(kind.train).parameters)
    assert [name for name in documented if name in names] == names


def test_arguments_of_set_reach_their_fields() -> None:
    numbers = (
        "pool_size batch num_updates update_batches update_steps trial_count criterion epsilon "
        "initial_ratio initial_TD lambda_ alpha beta k"
    )
    values: dict[str, Any] = {name: 100 - i for i, name in enumerate(numbers.split())}
    values |= {"policy": GreedyQPolicy(), "strategy": "final"}
    agent = RL_pytorch()
    agent.set(**values)
    assert agent._arguments == SetArguments(**values)
    noise = OrnsteinUhlenbeckProcess(0.15)
    flags = [{name: True} for name in ("HER", "MARL", "PR", "IRL", "TRL")]
    for one in (*flags, {"PPO": True, "update_steps": 9}, {"num_steps": 5}, {"noise": noise}):
        agent.set(**one)  # type: ignore[arg-type]
        assert agent._arguments == SetArguments(**one)  # type: ignore[arg-type]


def test_any_subset_and_any_object_is_a_callback() -> None:
    class Stop:
        def on_episode_end(self, i: int, logs: dict[str, Any]) -> None:
            agent.stop_training = i == 1

    agent = Probe()
    agent.callbacks = [Stop(), LambdaCallback(on_train_begin=lambda logs: None)]
    assert trained(agent, None).total_episode == 2
    agent.callbacks = [type("Other", (), {"on_epoch_end": print})()]
    with pytest.raises(UnknownNameError, match="to 'on_batch_end'; setting agent.stop_training"):
        trained(agent)
    agent.callbacks = [print]
    with follows("agents/train_call.py:check_callbacks") as advice:
        trained(agent)
    exec(advice.fix.removesuffix("."), {"agent": agent, "tandem": tandem})
    trained(agent)


@pytest.mark.parametrize(
    ("p", "episodes", "every"),
    [
        (None, 100, 10),
        (None, 7, 1),
        (None, 95, 10),
        (0, 100, 0),
        (5, 100, 20),
        (1, 50, 50),
        (4, 10, 2),
        (None, None, 10),
        (20, 5, 1),
    ],
)
def test_how_often_a_line_is_printed(p: int | None, episodes: int | None, every: int) -> None:
    assert print_interval(p, episodes) == every


def test_lines(capsys: Any) -> None:
    agent = Probe()
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, trial_count=2, criterion=15.0)
    agent.train(torch.optim.SGD(agent.param, 0.01), 20)
    out = capsys.readouterr().out
    assert (
        "episode:1   loss:" in out
        and "reward:15" in out
        and "average reward:15 >= criterion:15" in out
        and "time:0s" in out
    )


# --- Files


class Walk(Clock):
    """Begins where its seed says, so that an episode can be played again."""

    def reset(self, seed: int = 0) -> Any:
        self.t, self.episode = 0, seed % 100
        return np.array([0.0, self.episode / 100], np.float32)

    def step(self, action: Any) -> Any:
        self.t += 1
        self.actions.append(int(action))
        return (
            np.array([self.t, self.episode / 100], np.float32),
            float(self.t + action),
            self.t == 7,
            {},
        )


def fresh(env: Any = None, **choices: Any) -> Probe:
    agent = Probe(env or Walk())
    agent.set(
        **{
            "policy": EpsGreedyQPolicy(0.5),
            "pool_size": 50,
            "batch": 4,
            "update_steps": 3,
            **choices,
        }
    )
    return agent


ONGOING: list[tuple[Any, Any]] = [  # arguments of set, and of train
    ({}, {}),
    ({"PR": True}, {}),
    ({"PPO": True, "update_steps": 10}, {}),
    ({"PPO": True, "update_steps": None, "update_batches": 5}, {}),
    ({"PR": True, "num_updates": 4, "update_batches": 3}, {"window_size_pr": 2}),
    ({"num_updates": 2}, {}),
    ({}, {"clearing_freq": 16, "window_size_": 11}),
    ({"pool_size": 20}, {"window_size": 5}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("choices", "windows"), ONGOING)
def test_saved_and_restored_it_goes_on_to_the_bit(
    choices: Any, windows: Any, tmp_path: Path
) -> None:
    whole = fresh(**choices)
    whole.train(torch.optim.Adam(whole.param), 9, p=0, **windows)
    first = fresh(**choices)
    first.train(torch.optim.Adam(first.param), 4, p=0, **windows)
    first.save(tmp_path / "model.dat")
    second = fresh(**choices)
    second.net.weight.data.zero_()
    second.restore(tmp_path / "model.dat")
    assert (
        torch.equal(second.net.weight, first.net.weight) and second.reward_list == first.reward_list
    )
    second.train(torch.optim.Adam(second.param), 5, p=0, **windows)
    assert all(
        torch.equal(x, y)
        for x, y in zip(whole.net.parameters(), second.net.parameters(), strict=True)
    )
    assert all(
        torch.equal(x, y)
        for x, y in zip(whole.target.parameters(), second.target.parameters(), strict=True)
    )
    assert second.loss_list == whole.loss_list and second.env.actions[-5:] == whole.env.actions[-5:]


def test_parallel_dump_has_no_effect_and_says_so(tmp_path: Path, caplog: Any) -> None:
    whole, first, second = fresh(PR=True), fresh(PR=True), fresh(PR=True)
    whole.train(torch.optim.Adam(whole.param), 9, p=0)
    first.parallel_dump, first.path, first.max_save_files = True, tmp_path / "model.dat", 2
    first.train(torch.optim.Adam(first.param), 4, p=0)
    older, newest = sorted(tmp_path.iterdir())
    assert newest.name.startswith("model-4-") and older.is_file() and newest.is_file()
    assert "parallel_dump has no effect" in caplog.text
    second.restore(newest)
    second.train(torch.optim.Adam(second.param), 5, p=0)
    assert all(
        torch.equal(x, y)
        for x, y in zip(whole.net.parameters(), second.net.parameters(), strict=True)
    )
    assert second.loss_list == whole.loss_list
    first.save_param(tmp_path / "param")
    arrays = tandem.restore_param(tmp_path / "param")
    assert np.array_equal(arrays[0], first.net.weight.detach().numpy())


def test_arrays_of_a_file_are_assigned_to_variables(tmp_path: Path) -> None:
    one, other = Pair(), Pair()
    one.save_param(tmp_path / "param")
    arrays = restore_param(tmp_path / "param")
    before = other.net.weight.detach().clone()
    tandem.assign_param(other.param, arrays, 0.25)
    torch.testing.assert_close(other.net.weight, before + 0.25 * (one.net.weight - before))
    tandem.assign_param(other.param, arrays)
    assert torch.equal(one.net.weight, other.net.weight) and torch.equal(
        one.other.bias, other.other.bias
    )
    with pytest.raises(SettingError, match="arrays as its target"):
        tandem.assign_param(arrays, other.param)


def test_where_the_environment_cannot_be_brought_back_new_episodes_begin(tmp_path: Path) -> None:
    first = fresh(Clock(7))
    first.train(torch.optim.Adam(first.param), 3, p=0)
    first.train(None, 1, p=0)
    first._assembly.loop.collector.environments.step(np.zeros(1))  # amid an episode
    first.save(tmp_path / "model.dat")
    second = fresh(Clock(7))
    second.restore(tmp_path / "model.dat")
    with pytest.warns(UserWarning, match="starts new episodes"):
        second.train(torch.optim.Adam(second.param), 2, p=0)
    assert second.total_episode == 6
    environments = second._assembly.loop.collector.environments
    # none is begun again
    assert (
        environments.episodes()[0] > first._assembly.loop.collector.environments.episodes()[0] + 1
    )


def test_parameters_alone(tmp_path: Path) -> None:
    agent, other = Pair(), Pair()
    for x in other.net.parameters():
        x.data.zero_()
    agent.save_param(tmp_path / "param.dat")
    other.restore_param(tmp_path / "param.dat")
    assert torch.equal(agent.net.weight, other.net.weight)
    arrays = tandem.restore_param(tmp_path / "param.dat")
    assert [[x.shape for x in part] for part in arrays] == [[(2, 2), (2,)], [(1, 2), (1,)]]
    np.testing.assert_array_equal(arrays[0][0], agent.net.weight.detach())
    loaded = pickle.loads(pickle.dumps(agent.param))
    assert torch.equal(loaded[0][0], agent.net.weight)
    with pytest.raises(CheckpointError, match="shapes"):
        Probe().restore_param(tmp_path / "param.dat")
    with pytest.raises(CheckpointError, match="parameters alone"):
        agent.restore(tmp_path / "param.dat")


def test_a_pickle_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "param.dat"
    path.write_bytes(pickle.dumps([1, 2]))
    for read in (Probe().restore_param, Probe().restore, restore_param):
        with pytest.raises(CheckpointError, match="is a pickle[\\s\\S]*runs whatever code"):
            read(path)


def test_files_while_training(tmp_path: Path) -> None:
    agent = fresh()
    agent.path, agent.save_freq, agent.max_save_files = tmp_path / "model.dat", 2, 2
    agent.train(torch.optim.Adam(agent.param), 7, p=0)
    names = sorted(os.listdir(tmp_path))
    assert len(names) == 2 and all(n.startswith("model-") and n.endswith(".dat") for n in names)
    again = fresh()
    again.restore(tmp_path / names[-1])
    again.path, again.save_freq, again.max_save_files = agent.path, 2, 2
    again.train(torch.optim.Adam(again.param), 4, p=0)
    assert len(os.listdir(tmp_path)) == 2


def test_a_callback_may_save(tmp_path: Path) -> None:
    whole = fresh()
    whole.train(torch.optim.Adam(whole.param), 6, p=0)
    first = fresh()
    first.callbacks = [
        LambdaCallback(on_episode_end=lambda i, logs: first.save(tmp_path / f"{i}.dat"))
    ]
    first.train(torch.optim.Adam(first.param), 6, p=0)
    second = fresh()
    second.restore(tmp_path / "2.dat")
    second.train(torch.optim.Adam(second.param), 3, p=0)
    for agent in (first, second):
        assert all(
            torch.equal(x, y)
            for x, y in zip(whole.net.parameters(), agent.net.parameters(), strict=True)
        )


def test_an_interrupt_ends_it_with_its_file(tmp_path: Path) -> None:
    whole = fresh()
    whole.train(torch.optim.Adam(whole.param), 6, p=0)
    first = fresh()
    first.path, first.save_freq = tmp_path / "model.dat", 100
    first.callbacks = [
        LambdaCallback(
            on_batch_end=lambda b, logs: signal.raise_signal(signal.SIGINT) if b == 11 else None
        )
    ]
    with pytest.raises(KeyboardInterrupt):
        first.train(torch.optim.Adam(first.param), None, p=0)
    assert first._assembly.learner.updates == 12
    second = fresh()
    second.restore(tmp_path / "model.dat")
    second.train(torch.optim.Adam(second.param), 6 - second.total_episode, p=0)
    assert all(
        torch.equal(x, y)
        for x, y in zip(whole.net.parameters(), second.net.parameters(), strict=True)
    )


def test_parameters_only_and_best_only(tmp_path: Path) -> None:
    agent = fresh(trial_count=2)
    agent.path, agent.save_param_only, agent.save_best_only = tmp_path / "best.dat", True, True
    agent.train(torch.optim.Adam(agent.param), 4, p=0)
    assert (
        os.listdir(tmp_path) == ["best.dat"]
        and len(tandem.restore_param(tmp_path / "best.dat")) == 2
    )


# --- Looking


def test_pictures_and_plays(tmp_path: Path) -> None:
    agent = trained(Probe())
    figure = agent.visualize_reward_loss()
    assert [len(axes.lines[0].get_ydata()) for axes in figure.axes] == [4, 4]
    assert len(agent.visualize_loss().axes) == len(agent.visualize_reward().axes) == 1
    states, score, steps = agent.run_agent(100)
    assert (len(states), score, steps) == (5, 15.0, 5)
    assert agent.run_agent(3)[1:] == (6.0, 3)


def test_a_picture_is_what_pyplot_saves(tmp_path: Path) -> None:
    from matplotlib import pyplot as plt

    plt.close("all")  # those of other tests
    agent, other = trained(Probe()), plt.figure()
    first = agent.visualize_reward()
    assert plt.gcf() is first
    plt.savefig(tmp_path / "x.png")
    assert plt.imread(tmp_path / "x.png").min() < 0.5  # something is drawn in it
    for _ in range(30):  # none is left behind
        last = agent.visualize_loss()
    assert plt.gcf() is last and plt.get_fignums() == [other.number, last.number]
    first.savefig(tmp_path / "first.png")
    plt.close("all")


class Read(Probe):
    """Reads what documented programs read, in its hooks."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.read: list[Any] = []

    def update_param(self) -> None:
        super().update_param()
        self.read.append(
            (
                self.batch,
                self.batch_counter,
                self.step_counter,
                len(self.state_pool),
                self.pool_size,
            )
        )


POOLS = ("state_pool", "action_pool", "next_state_pool", "reward_pool", "done_pool")


def test_attributes_that_documented_programs_read() -> None:
    agent = Read(Clock(3))
    assert [getattr(agent, name).shape for name in POOLS] == [(0,)] * 5
    assert agent.batch is agent.policy is agent.noise is agent.PPO is agent.epsilon is None
    assert agent.batch_counter == agent.step_counter == 0 and agent.processes is None
    policy = EpsGreedyQPolicy(0.5)
    agent.set(policy=policy, PR=True)
    assert agent.policy is policy and agent.noise is None and agent.alpha == 0.7
    assert (agent.pool_size, agent.batch, agent.epsilon, agent.PR) == (10_000, 64, 1e-7, True)
    trained(agent, 4, batch=5, epsilon=0.1, update_steps=2, num_updates=3, num_steps=None)
    assert agent.read == [(5, 6 * k, 2 * k, 4 + 2 * k, 100) for k in range(1, 5)]
    assert agent.epsilon == 0.1 and agent.num_updates == 3 and agent.processes == 1
    state, action, after, reward, done = (getattr(agent, name) for name in POOLS)
    assert reward.tolist() == [1, 2, 3] * 4 and done.tolist() == [0, 0, 1] * 4
    assert state[:, 0].tolist() == [0, 1, 2] * 4 and after[done == 0, 0].tolist() == [1, 2] * 4
    assert action.tolist() == agent.env.actions


def test_ones_own_attributes_of_such_names_are_ones_own() -> None:
    class Own(Probe):
        batch_counter = "of the class"

        def __init__(self) -> None:
            super().__init__()
            self.epsilon, self.policy, self.alpha = 0.25, torch.nn.Linear(2, 2), 3.0
            self.epsilon *= 0.5

        def loss(self, s: Any, r: Any) -> Any:  # a helper's name that programs use
            return ((self.net(s)[:, 0] - r) ** 2).mean()

        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            return self.loss(s, r) + self.policy(s).mean()

    agent = trained(Own())
    assert agent.epsilon == 0.125 and agent.alpha == 3.0 and agent.batch == 4
    assert isinstance(agent.policy, torch.nn.Linear) and agent.batch_counter == "of the class"
    assert agent.given == np.float32(agent.loss_list[-1]) != 0


def test_an_agent_that_is_a_module_keeps_its_parts(tmp_path: Path) -> None:
    class Both(Probe, torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.net, self.target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            self.policy = self.net
            self.env, self.seen, self.losses, self.copies = Clock(), [], 0, []
            self.param = self.net.parameters()

    agent = trained(Both())
    assert agent.policy is agent.net and agent.batch == 4 and len(agent.state_pool) == 20
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        agent.nothing_of_this_name  # noqa: B018


def test_what_has_nothing_to_choose_is_said_once(tmp_path: Path) -> None:
    from tandem.agents import train_call

    def said(choices: Any, given: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            trained(Probe(), 2, train=given, **choices)
        assert all(w.filename.endswith("agents.py") for w in told)  # where train was called
        return [str(w.message).split("=")[0] for w in told]

    train_call._said.clear()
    pr = {"PR": True}
    ppo = {"PPO": True, "update_steps": 8}
    for choices, given in (
        ({}, {"random": True}),
        ({}, {"processes_pr": 4}),
        ({}, {"processes": 2, "pool_network": False}),
        ({}, {"clearing_freq": 3}),
        ({}, {"window_size_": 3}),
        (pr, {"window_size_ppo": 3}),
        ({}, {"window_size_pr": 3}),
        (ppo, {"num_store": 2}),
        ({"update_steps": 2, "update_batches": 3}, {}),
        ({"alpha": 0.5}, {}),
        ({"lambda_": 0.7, "PR": True}, {}),
        ({"strategy": "final"}, {}),
    ):
        name = next(iter({**given, **choices}))
        assert said(choices, given) == [name] and said(choices, given) == []
    for choices, given in (
        ({}, {"clearing_freq": 3, "window_size_": 2, "processes": 1, "pool_network": False}),
        (pr, {"window_size_pr": 2}),
        ({"PPO": True, "update_batches": 4}, {"num_store": 2}),
    ):
        train_call._said.clear()
        assert said(choices, given) == []


def test_an_agent_plays_by_observations_in_the_type_it_was_trained_with() -> None:
    from gymnasium import spaces

    class Fine(gymnasium.Env):  # of float64, with Dicts in Dicts
        observation_space = spaces.Dict(
            {"a": spaces.Dict({"b": spaces.Box(-9, 9, (2,), np.float64)})}
        )
        action_space = spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.clock = Clock()
            return {"a": {"b": self.clock.reset().astype(np.float64)}}, {}

        def step(self, action: Any) -> Any:
            obs, reward, done, _ = self.clock.step(action)
            return {"a": {"b": obs.astype(np.float64)}}, reward, done, False, {}

    class Reads(Probe):
        def action(self, s: Any) -> Any:
            return self.net(s["a/b"])

        def __call__(self, s: Any, *rest: Any) -> Any:
            return self.net(s["a/b"]).mean()

    assert trained(Reads(Fine())).run_agent(10)[1:] == (15.0, 5)


def test_an_agent_plays_before_it_is_trained() -> None:
    assert Probe().run_agent(10)[1:] == (15.0, 5)


def test_before_set_the_best_of_the_values_is_played() -> None:
    """Such as with `restore_param` alone: no policy says yet that `action` gives values."""
    agent, told = Probe(gymnasium.make("CartPole-v1"), 4), Probe(gymnasium.make("CartPole-v1"), 4)
    told.set(policy=GreedyQPolicy())
    states, score, steps = agent.run_agent(30)
    expected = told.run_agent(30)
    assert (score, steps) == expected[1:] and np.array_equal(states, expected[0])


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_animations(suffix: str, tmp_path: Path) -> None:
    from tandem.agents import train_call
    from tandem.examples.pytorch.DQN import DQN

    agent = DQN(4, 8, 2)
    agent.set(policy=EpsGreedyQPolicy(0.01))
    train_call._said.clear()
    with pytest.warns(UserWarning, match="writer='imagemagick': GIFs are written by Pillow"):
        file = agent.animate_agent(20, save_path=tmp_path / f"play.{suffix}", writer="imagemagick")
    assert file.stat().st_size > 1000
