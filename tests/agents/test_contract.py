"""Errors before an agent trains; callbacks, files and optimizers."""

import copy
import inspect
import pickle
import signal
import warnings
from dataclasses import asdict, fields
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import tandem
from tandem.agents import train_call
from tandem.agents.contract import SetArguments, TrainArguments
from tandem.agents.rl import RL, LambdaCallback, RL_pytorch, restore_param
from tandem.agents.user_functions import AgentAlgorithm, CompiledAction
from tandem.errors import CheckpointError, NetworkError, SettingError, TandemError, UnknownNameError
from tandem.exploration import EpsGreedyQPolicy, GreedyQPolicy, OrnsteinUhlenbeckProcess
from tests.advice.net import follows
from tests.agents.agents import Clock, Layers, Probe, Walk, alike, fit, own, resumed, same, trained


@pytest.mark.parametrize("name", ["env", "param", "action", "__call__", "update_param"])
def test_what_is_forgotten_is_named_with_an_example(name: str) -> None:
    agent = RL_pytorch() if name == "__call__" else Probe()
    vars(agent).update(vars(Probe()) | {"action": print})
    if name != "__call__":
        setattr(agent, name, [] if name == "param" else None)
    agent.set(policy=GreedyQPolicy())
    match = rf"{name} is (missing|empty)[\s\S]*for example: "
    with pytest.raises(SettingError, match=match) as told:
        agent.train(torch.optim.SGD(Probe().param, 0.1), 1)
    assert name.strip("_") in str(told.value).split("for example")[1] or name == "param"


@pytest.mark.parametrize(
    ("message", "choices"),
    [
        ("Probe.env is empty", {"env": []}),
        ("reward_done_func_ma is missing", {"MARL": True}),
        ("reward_done_func is missing", {"HER": True, "policy": None}),
        ("2 policies", {"policy": [GreedyQPolicy(), GreedyQPolicy()]}),
        ("policy and noise", {"noise": OrnsteinUhlenbeckProcess(0.1)}),
        *((f"batch={x!r}", {"batch": x}) for x in (0, 4.0, "four")),
        ("pool_size=100, batch=200", {"batch": 200}),
        ("criterion='high'", {"trial_count": 2, "criterion": "high"}),
        ("policy='greedy'", {"policy": "greedy"}),
        ("GreedyQPolicy", {"policy": GreedyQPolicy}),
        ("noise='ou'", {"policy": None, "noise": [OrnsteinUhlenbeckProcess(0.1), "ou"]}),
        ("requires trial_count", {"criterion": 1.0}),
        ("requires update_steps or update_batches", {"PPO": True}),
        ("not supported with HER=True", {"PPO": True, "HER": True, "update_steps": 8}),
        ("num_steps", {"HER": True, "num_steps": 2}),
        ("self.gamma", {"num_steps": 3}),
        ("PPO='yes'", {"PPO": "yes", "update_steps": 8}),
        ("PR=2", {"PR": 2}),
        *((f"{n}={x}", {"PR": True, n: x}) for n, x in (("beta", None), ("alpha", -1))),
        ("initial_TD=inf", {"PR": True, "initial_TD": float("inf")}),
        ("k=-1", {"k": -1}),
        ("strategy='last'", {"strategy": "last"}),
        (r"policy=\[\]", {"policy": []}),
    ],
)
def test_what_set_is_told_wrongly(message: str, choices: Any) -> None:
    given = {"env": None, **choices}
    with pytest.raises(SettingError, match=message):
        trained(Probe(given.pop("env")), **given)


def of_loss(function: Any) -> dict[str, Any]:
    return {"__call__": lambda self, s, a, next_s, r, d: function(self, s, r)}


def of_action(function: Any) -> dict[str, Any]:
    return {"action": lambda self, s: function(self.net(s))}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (of_loss(lambda self, s, r: None), "returned a NoneType"),
        (of_loss(lambda self, s, r: 0.5), "returned a float"),
        (of_loss(lambda self, s, r: np.zeros(())), "returned a ndarray"),
        (of_loss(lambda self, s, r: s), r"loss of shape \(11, 2\) for 11 samples"),
        (of_loss(lambda self, s, r: (s[:, :1] - r[:, None]) ** 2), r"loss of shape \(11, 1\)"),
        (of_loss(lambda self, s, r: [s.mean(), r.mean()]), "returned 2 losses for 1 optimizers"),
        (
            of_loss(lambda self, s, r: ((self.net(s)[:, :1] - r) ** 2).mean()),  # (B, 1) - (B,)
            r"test_contract.py, line \d+: of_loss\(lambda self, s, r: \(\(self[\s\S]*squeeze",
        ),
        (of_action(lambda x: x[:, :1]), r"shape \(1, 1\) for the policy"),
        (of_action(lambda x: x[0]), r"shape \(2,\) for 1 observations"),
        (of_action(lambda x: x[:, None]), r"shape \(1, 1, 2\) for the policy"),
    ],
)
def test_wrong_losses_and_actions_are_named(members: Any, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        trained(own(**members)())


def test_a_loss_without_gradients_for_an_optimizer_is_refused() -> None:
    # of another network
    detached = own(**of_loss(lambda self, s, r: (self.target(s)[:, 0] - r).pow(2).mean()))
    with follows("backends/broadcast_check.py:check_losses 2") as advice:
        trained(detached())
    assert "networks, outside no_grad, detach" in advice.fix
    agent = Pair()
    agent.param = agent.param[::-1]  # the first loss is of the first network alone
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    with pytest.raises(NetworkError, match="optimizer 0 depends on no trained weight"):
        agent.train([torch.optim.SGD(part, 0.01) for part in agent.param], 4, p=0)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("episodes", ("3", 2.5)),
        *(("processes", (1.5,)), ("p", (-1,)), ("window_size", ("5",)), ("clearing_freq", (0,))),
        *(("agent.seed", ("x", -1, None)), ("agent.callbacks", (None, print))),
    ],
)
def test_numbers_and_attributes_that_train_cannot_go_by(name: str, values: Any) -> None:
    for value in values:
        agent, given = fresh(), {"episodes": 1, "p": 0}
        owner = vars(agent) if name.startswith("agent.") else given
        owner[name.removeprefix("agent.")] = value
        with pytest.raises(SettingError, match=name if owner is not given else f"{name}="):
            agent.train(torch.optim.SGD(agent.param, 0.1), **given)
        assert not agent.total_episode


def test_what_is_no_path_no_number_of_steps_and_no_variable(tmp_path: Path) -> None:
    methods = ("save", "restore", "save_param", "restore_param")
    for method, wrong in product(methods, (3, None, b"x", [], "")):
        with pytest.raises(TandemError) as told:
            getattr(fresh(), method)(wrong)
        assert told.value.expected and told.value.fix
    for steps in (0, -1, 2.5, "x", None):
        with pytest.raises(SettingError, match="max_steps="):
            fresh().run_agent(steps)
    net = Probe().net
    for wrong in (3, net, net.named_parameters()):
        with pytest.raises(SettingError, match=r"assign_param received a (int|Linear|str)"):
            tandem.assign_param(wrong, Probe().param)
    example = r"agent.param contains a [\s\S]*for example: self.param = list\(self.q.parameters"
    arrays = [p.detach().numpy() for p in net.parameters()]
    for wrong in (net.named_parameters(), dict(net.named_parameters()), net, arrays):
        agent = fresh()
        agent.param = wrong
        with pytest.raises(SettingError, match=example):
            agent.train(torch.optim.SGD(agent.net.parameters(), 0.1), 1)
        with pytest.raises(SettingError, match="agent.param contains a"):
            agent.save_param(tmp_path / "param")


def test_no_episodes_are_no_step(tmp_path: Path) -> None:
    """But what was restored is there, an optimizer's numbers too, and can be changed."""
    agent, again = fresh(), fresh()
    agent.train(torch.optim.Adam(agent.param, 0.5), 2, p=0)
    played = len(agent.env.actions)
    assert agent.train(None, 0, p=0) == np.float32(agent.loss) and agent.total_episode == 2
    assert len(agent.env.actions) == played
    agent.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    optimizer = torch.optim.Adam(again.param, 0.1)
    again.train(optimizer, 0, p=0)
    assert optimizer.param_groups[0]["lr"] == 0.5
    agent.optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"] = 0.25
    assert alike(fit(agent, 2), fit(again, 2))


def test_what_train_misses() -> None:
    with pytest.raises(SettingError, match="before set"):
        Probe().train(None, 1)
    agent = fresh()
    for optimizer, match in (
        *((x, "no optimizer") for x in (None, [])),
        (torch.optim.SparseAdam(list(agent.param)), "SparseAdam"),
        (torch.optim.SGD(Probe().param, 0.1), "not in agent.param"),
        ([torch.optim.SGD(agent.param, 0.1)] * 2, "1 optimizers|2 optimizers"),
    ):
        with pytest.raises(SettingError, match=match):
            agent.train(optimizer, 1)
    fit(agent, 1)  # what was refused is not kept


def test_a_policy_of_ones_own_is_asked_once_with_the_step_if_it_takes_that() -> None:
    def asked(select_action: Any, env: Any = None, *others: Any) -> list[Any]:
        policy = SimpleNamespace(select_action=select_action)
        trained(Probe(env), policy=[policy, *others] if others else policy)
        return given

    given: list[Any] = []
    note = given.append
    assert asked(lambda values, *step: note(step) or 0) == [(i,) for i in range(len(given))]
    given.clear()
    alone = lambda values: note(()) or 0  # noqa: E731
    assert set(asked(alone, [Clock(), Clock()], EpsGreedyQPolicy(1.0))) == {()}
    given.clear()
    with pytest.raises(TypeError, match="'int' has no len"):
        asked(lambda values, step: note(step) or len(step))  # no reason to ask again
    assert given == [0]


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
        """There is no target."""


@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop", "AdamW", "Rprop"])
def test_each_optimizer_steps_by_its_own_loss_from_the_same_point(name: str) -> None:
    agent, by_hand, kind = Pair(), Pair(), getattr(torch.optim, name)
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    optimizers = [kind(part, lr=0.01) for part in agent.param]
    agent.train(optimizers, 4, p=0)
    own = [list(module.parameters()) for module in (by_hand.net, by_hand.other)]
    mine = [kind(part, lr=0.01) for part in own]
    for batch in agent.seen[1:]:
        for part, loss in zip(own, by_hand(*batch), strict=True):
            for p, g in zip(part, torch.autograd.grad(loss, part, retain_graph=True), strict=True):
                p.grad = g
        for optimizer in mine:
            optimizer.step()
    # and the optimizers have their weights and their state back
    for given, reference, part, of_agent in zip(optimizers, mine, own, agent.param, strict=True):
        assert all(x is y for x, y in zip(given.param_groups[0]["params"], of_agent, strict=True))
        for p, q in zip(of_agent, part, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
            for key, x in reference.state[q].items():
                if isinstance(x, torch.Tensor):
                    torch.testing.assert_close(given.state[p][key], x, rtol=1e-4, atol=1e-6)


def test_an_optimizer_goes_on_a_preset_one_is_kept_and_its_learning_rate_obeyed() -> None:
    agent = Probe()
    agent.optimizer = torch.optim.Adam(agent.param, 0.01)
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, num_updates=1)
    agent.train(torch.optim.SGD(agent.param, 100.0), 2, p=0)
    agent.train(None, 2, p=0)
    with pytest.warns(UserWarning, match="still uses agent.optimizer"):
        agent.train(torch.optim.SGD(agent.param, 100.0), 0, p=0)
    state = agent.optimizer.state[agent.param[0]]
    assert isinstance(agent.optimizer, torch.optim.Adam) and state["step"] == 17
    assert state["exp_avg"].shape == (2, 2)
    agent.optimizer.param_groups[0]["lr"] = 0.0
    before = copy.deepcopy(agent.net)
    agent.train(None, 2, p=0)
    assert same(before.parameters(), agent.param)


def test_numbers_that_a_compiled_loss_reads_are_watched() -> None:
    """In dicts and lists too, but not those of a record, which is too long for settings."""
    names = ("scale", "best", "config", "steps", "options", "nets", "log")

    class Reads(AgentAlgorithm):
        def losses(self, batch: Any) -> Any:
            return [getattr(self.agent, name) for name in names]

    agent = Probe()
    agent.scale, agent.best, agent.steps = np.float32(0.5), float("nan"), (3, 4.0)
    agent.config = {"alpha": 0.1, "inner": {"x": [1, 2]}}
    agent.options = SimpleNamespace(rate=0.5)
    agent.nets, agent.log = [agent.net], [0.0] * 100
    algorithm = Reads(agent, SimpleNamespace(framework="jax"), [], 1, 1.0, (), False)
    algorithm._losses(None)
    changed = algorithm.constants.changed
    agent.log[3] += 1.0
    agent.nets.append(agent.target)
    assert changed() == []
    agent.scale, agent.steps = np.float32(0.25), (3,)
    assert changed() == ["scale", "steps[1]"]
    agent.config["alpha"], agent.config["inner"]["x"][1] = 0.2, 5
    assert changed() == ["scale", "config['alpha']", "config['inner']['x'][1]", "steps[1]"]
    agent.config = {"alpha": 0.1, "inner": {"x": [1, 2]}, "beta": 0.1}
    agent.options.rate = agent.best = 1.0
    assert changed() == ["scale", "best", "config['beta']", "steps[1]", "options.rate"]


def test_numbers_that_a_compiled_action_reads_are_watched_until_they_change_too_often() -> None:
    scaled = own(scale=1.0, action=lambda self, s: s * self.scale)

    def forward(function: Any) -> Any:
        """Compiles as XLA does: what is no argument is a constant."""
        made: list[Any] = []
        return lambda s: (made or made.append(function(1.0)) or made)[0] * s

    def call(function: Any, s: Any) -> Any:
        called.append(s)
        return function(s)

    agent, called = scaled(), list[float]()
    action = CompiledAction(agent, SimpleNamespace(forward=forward, call=call), agent.action)
    assert action(2.0) == action(2.0) == 2.0
    for k in range(1, 4):
        agent.scale = 1.0 + k
        with pytest.warns(UserWarning, match=r"scale changed[\s\S]* recompiled"):
            assert action(2.0) == 2.0 + 2 * k
        assert action(3.0) == 3.0 + 3 * k
    assert not called
    agent.scale = 0.5
    stopped = r"no longer compiled[\s\S]* self.jit_action = False"
    with pytest.warns(UserWarning, match=stopped):
        assert action(2.0) == 1.0
    agent.scale = 0.25
    assert action(2.0) == 0.5 and len(called) == 2


def test_a_loss_may_take_gradients_of_its_own() -> None:
    def penalty(self: Any, s: Any, r: Any) -> Any:
        value = self.net(s.requires_grad_())[:, 0]
        slope = torch.autograd.grad(value.sum(), s, create_graph=True)[0]
        return ((value - r) ** 2).mean() + slope.pow(2).mean()

    assert trained(own(**of_loss(penalty))()).total_episode == 4


def test_batch_norm_trains_and_acts_as_it_should() -> None:
    modes: list[tuple[str, bool]] = []

    class Norm(Layers):
        def action(self, s: Any) -> Any:
            modes.append(("action", self.net.training))
            return self.net(s)

        def __call__(self, *batch: Any) -> Any:
            modes.extend([("loss", self.net.training), ("target", self.target.training)])
            return super().__call__(*batch)

    agent = trained(Norm())
    assert set(modes[2:]) == {("action", False), ("loss", True), ("target", False)}
    assert agent.net[0].num_batches_tracked == 17


def test_callbacks_hear_everything_in_order() -> None:
    heard: list[Any] = []
    agent, levels = Probe(), ("train", "episode", "batch")
    names = [f"on_{level}_{end}" for level in levels for end in ("begin", "end")]
    each = {name: lambda *x, name=name: heard.append((name, *x)) for name in names}
    agent.callbacks.append(LambdaCallback(**each))
    trained(agent, 2, num_updates=2)
    kinds = [h[0] for h in heard]
    assert kinds[0] == "on_train_begin" and kinds[-1] == "on_train_end"
    assert kinds.count("on_batch_begin") == kinds.count("on_batch_end") == 14
    assert [h[1] for h in heard if h[0] == "on_batch_end"] == list(range(14))
    ends = [h[1:] for h in heard if h[0] == "on_episode_end"]
    assert [e[0] for e in ends] == [0, 1]
    assert ends[1][1] == {"loss": agent.loss_list[1], "reward": 15.0}
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
    noise = {"noise": OrnsteinUhlenbeckProcess(0.15)}
    flags = [{name: True} for name in ("HER", "MARL", "PR", "IRL", "TRL")]
    agent = RL_pytorch()
    for one in (values, *flags, {"PPO": True, "update_steps": 9}, {"num_steps": 5}, noise):
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


def test_lines(capsys: Any) -> None:
    agent = fresh(Clock(), policy=GreedyQPolicy(), trial_count=2, criterion=15.0)
    agent.train(torch.optim.SGD(agent.param, 0.01), 20)
    out = capsys.readouterr().out
    assert "episode:1   loss:" in out and "reward:15" in out and "time:0s" in out
    assert "average reward:15 >= criterion:15" in out
    calls = [(None, 100), (None, 7), (None, 95), (0, 100), (5, 100), (1, 50), (4, 10), (20, 5)]
    assert [train_call.print_interval(*x) for x in calls] == [10, 1, 10, 0, 20, 50, 2, 1]
    assert train_call.print_interval(None, None) == 10


def fresh(env: Any = None, **choices: Any) -> Probe:
    agent = Probe(env or Walk())
    small = {"pool_size": 50, "batch": 4, "update_steps": 3}
    agent.set(**{"policy": EpsGreedyQPolicy(0.5), **small, **choices})
    return agent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choices", "windows"),  # arguments of set, and of train
    [
        *(({}, {}), ({"PR": True}, {}), ({"num_updates": 2}, {})),
        ({"PPO": True, "update_steps": 10}, {}),
        ({"PPO": True, "update_steps": None, "update_batches": 5}, {}),
        ({"PR": True, "num_updates": 4, "update_batches": 3}, {"window_size_pr": 2}),
        ({}, {"clearing_freq": 16, "window_size_": 11}),
        ({"pool_size": 20}, {"window_size": 5}),
    ],
)
def test_restored_it_resumes_exactly(choices: Any, windows: Any, tmp_path: Path) -> None:
    def made() -> Any:
        agent = fresh(**choices)
        return agent, torch.optim.Adam(agent.param)

    whole, second = resumed(made, tmp_path / "model.dat", 4, 9, **windows)
    assert alike(whole, second) and same(whole.target.parameters(), second.target.parameters())
    assert second.env.actions[-5:] == whole.env.actions[-5:]


def test_where_the_environment_cannot_be_brought_back_new_episodes_begin(tmp_path: Path) -> None:
    first = fit(fit(fresh(Clock(7)), 3), 1)
    first._assembly.loop.collector.environments.step(np.zeros(1))  # amid an episode
    first.save(tmp_path / "model.dat")
    second = fresh(Clock(7))
    second.restore(tmp_path / "model.dat")
    with pytest.warns(UserWarning, match="starts new episodes"):
        fit(second, 2)
    one, other = (x._assembly.loop.collector.environments.episodes() for x in (first, second))
    assert second.total_episode == 6 and other[0] > one[0] + 1  # none is begun again


def test_parameters_alone_and_pickles_which_are_refused_with_a_reason(tmp_path: Path) -> None:
    agent, other, third, path = Pair(), Pair(), Pair(), tmp_path / "param.dat"
    for x in (*other.net.parameters(), *third.net.parameters()):
        x.data.zero_()
    agent.save_param(path)
    other.restore_param(path)
    assert same(agent.net.parameters(), other.net.parameters())
    arrays = tandem.restore_param(path)
    assert [[x.shape for x in part] for part in arrays] == [[(2, 2), (2,)], [(1, 2), (1,)]]
    np.testing.assert_array_equal(arrays[0][0], agent.net.weight.detach())
    tandem.assign_param(third.param, arrays, 0.25)
    torch.testing.assert_close(third.net.weight, 0.25 * agent.net.weight)
    tandem.assign_param(third.net.parameters(), agent.net.parameters(), 0.5)
    torch.testing.assert_close(third.net.weight, (0.25 + 0.5 * 0.75) * agent.net.weight)
    tandem.assign_param(third.param, arrays)
    assert same(agent.net.parameters(), third.net.parameters())
    assert torch.equal(agent.other.bias, third.other.bias)
    with pytest.raises(SettingError, match="same shapes"):
        tandem.assign_param(third.net.parameters(), torch.nn.Linear(3, 2).parameters())
    with pytest.raises(SettingError, match="arrays as its target"):
        tandem.assign_param(arrays, third.param)
    loaded = pickle.loads(pickle.dumps(agent.param))
    assert torch.equal(loaded[0][0], agent.net.weight)
    with pytest.raises(CheckpointError, match="shapes"):
        Probe().restore_param(path)
    with pytest.raises(CheckpointError, match="only parameters"):
        agent.restore(path)
    path.write_bytes(pickle.dumps([1, 2]))
    for read in (Probe().restore_param, Probe().restore, restore_param):
        with pytest.raises(CheckpointError, match="is a pickle[\\s\\S]*can run any code"):
            read(path)


def test_files_while_training(tmp_path: Path, caplog: Any) -> None:
    first, again, whole = fresh(PR=True), fresh(PR=True), fit(fresh(PR=True), 9)
    for agent in (first, again):
        agent.path, agent.save_freq, agent.max_save_files = tmp_path / "model.dat", 2, 2
    first.parallel_dump = True
    fit(first, 7)
    older, newest = sorted(tmp_path.iterdir())
    assert newest.name.startswith("model-7-") and newest.suffix == older.suffix == ".dat"
    assert "parallel_dump has no effect" in caplog.text and older.is_file() and newest.is_file()
    again.restore(newest)
    assert alike(fit(again, 2), whole) and len(list(tmp_path.iterdir())) == 2
    # parameters only, and the best only
    agent = fresh(trial_count=2)
    agent.path, agent.save_param_only, agent.save_best_only = tmp_path / "best.dat", True, True
    fit(agent, 4)
    assert [x.name for x in tmp_path.glob("best*")] == ["best.dat"]
    assert len(tandem.restore_param(tmp_path / "best.dat")) == 2


def test_a_callback_may_save(tmp_path: Path) -> None:
    whole, first, second = fit(fresh(), 6), fresh(), fresh()
    save = lambda i, logs: first.save(tmp_path / f"{i}.dat")  # noqa: E731
    first.callbacks = [LambdaCallback(on_episode_end=save)]
    fit(first, 6)
    second.restore(tmp_path / "2.dat")
    assert alike(whole, first) and alike(whole, fit(second, 3))


def test_an_interrupt_ends_it_with_its_file(tmp_path: Path) -> None:
    whole, first, second = fit(fresh(), 6), fresh(), fresh()
    first.path, first.save_freq = tmp_path / "model.dat", 100

    def interrupt(b: int, logs: Any) -> None:
        if b == 11:
            signal.raise_signal(signal.SIGINT)

    first.callbacks = [LambdaCallback(on_batch_end=interrupt)]
    with pytest.raises(KeyboardInterrupt):
        fit(first, None)
    assert first._assembly.learner.updates == 12
    second.restore(tmp_path / "model.dat")
    assert alike(whole, fit(second, 6 - second.total_episode))


def test_pictures_and_plays(tmp_path: Path) -> None:
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
    assert len(first.axes) == len(last.axes) == 1
    figure = agent.visualize_reward_loss()
    assert [len(axes.lines[0].get_ydata()) for axes in figure.axes] == [4, 4]
    plt.close("all")
    states, score, steps = agent.run_agent(100)
    assert (len(states), score, steps) == (5, 15.0, 5)
    assert agent.run_agent(3)[1:] == (6.0, 3)
    assert Probe().run_agent(10)[1:] == (15.0, 5)  # before it is trained


def test_attributes_that_documented_programs_read() -> None:
    class Read(Probe):
        read: tuple[Any, ...] = ()

        def update_param(self) -> None:
            super().update_param()
            numbers = (self.batch, self.batch_counter, self.step_counter)
            self.read += ((*numbers, len(self.state_pool), self.pool_size),)

    def pools() -> list[Any]:
        names = ("state_pool", "action_pool", "next_state_pool", "reward_pool", "done_pool")
        return [getattr(agent, name) for name in names]

    agent = Read(Clock(3))
    assert [pool.shape for pool in pools()] == [(0,)] * 5
    assert agent.batch is agent.policy is agent.noise is agent.PPO is agent.epsilon is None
    assert agent.batch_counter == agent.step_counter == 0 and agent.processes is None
    policy = EpsGreedyQPolicy(0.5)
    agent.set(policy=policy, PR=True)
    assert agent.policy is policy and agent.noise is None and agent.alpha == 0.7
    assert (agent.pool_size, agent.batch, agent.epsilon, agent.PR) == (10_000, 64, 1e-7, True)
    trained(agent, 4, batch=5, epsilon=0.1, update_steps=2, num_updates=3, num_steps=None)
    assert agent.read == tuple((5, 6 * k, 2 * k, 4 + 2 * k, 100) for k in range(1, 5))
    assert agent.epsilon == 0.1 and agent.num_updates == 3 and agent.processes == 1
    state, action, after, reward, done = pools()
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

        def loss(self, *batch: Any) -> Any:  # a helper's name that programs use
            return super().__call__(*batch)

        def __call__(self, s: Any, *rest: Any) -> Any:
            return self.loss(s, *rest) + self.policy(s).mean()

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
    def said(choices: Any, given: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            trained(Probe(), 2, train=given, **choices)
        assert all(w.filename.endswith("agents.py") for w in told)  # where train was called
        return [str(w.message).split("=")[0] for w in told]

    train_call._said.clear()
    pr, ppo = {"PR": True}, {"PPO": True, "update_steps": 8}
    plain = {"random": True, "processes_pr": 4, "processes_her": 4, "clearing_freq": 3}
    plain |= {"window_size_": 3, "window_size_pr": 3}
    for choices, given in (
        *(({}, {name: x}) for name, x in plain.items()),
        ({}, {"processes": 2, "pool_network": False}),
        (pr, {"window_size_ppo": 3}),
        (ppo, {"num_store": 2}),
        ({"update_steps": 2, "update_batches": 3}, {}),
        *((x, {}) for x in ({"alpha": 0.5}, {"lambda_": 0.7, **pr}, {"strategy": "final"})),
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
        inner = spaces.Dict({"b": spaces.Box(-9, 9, (2,), np.float64)})
        observation_space, action_space = spaces.Dict({"a": inner}), spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.clock = Clock()
            return {"a": {"b": self.clock.reset().astype(np.float64)}}, {}

        def step(self, action: Any) -> Any:
            obs, reward, done, _ = self.clock.step(action)
            return {"a": {"b": obs.astype(np.float64)}}, reward, done, False, {}

    reads = own(
        action=lambda self, s: self.net(s["a/b"]),
        __call__=lambda self, s, *rest: self.net(s["a/b"]).mean(),
    )
    assert trained(reads(Fine())).run_agent(10)[1:] == (15.0, 5)


def test_before_set_the_best_of_the_values_is_played() -> None:
    """Such as with `restore_param` alone: no policy says yet that `action` gives values."""
    agent, told = Probe(gymnasium.make("CartPole-v1"), 4), Probe(gymnasium.make("CartPole-v1"), 4)
    told.set(policy=GreedyQPolicy())
    states, score, steps = agent.run_agent(30)
    expected = told.run_agent(30)
    assert (score, steps) == expected[1:] and np.array_equal(states, expected[0])


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_animations(suffix: str, tmp_path: Path) -> None:
    from tandem.examples.pytorch.DQN import DQN

    agent = DQN(4, 8, 2)
    agent.set(policy=EpsGreedyQPolicy(0.01))
    train_call._said.clear()
    with pytest.warns(UserWarning, match="writer='imagemagick' is not used: Pillow writes GIFs"):
        file = agent.animate_agent(20, save_path=tmp_path / f"play.{suffix}", writer="imagemagick")
    assert file.stat().st_size > 1000
