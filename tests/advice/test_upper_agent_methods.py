"""The advice of the room agents, followed: rules that adapt, finders, and networks that are built
by a hook."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tandem import LRFinder, OptFinder, ParallelFinder  # noqa: E402
from tandem.exploration import EpsGreedyQPolicy, GreedyQPolicy  # noqa: E402
from tests.advice.net import case, excepted, follows  # noqa: E402
from tests.agents.agents import Clock, Probe, Walk, trained  # noqa: E402
from tests.agents.test_built_networks import Builds  # noqa: E402
from tests.tuning.test_finders import Aimer, sgd  # noqa: E402


def adjust(train: Any = None, method: str = "adjust_batch_size", **given: Any) -> Any:
    """Calls a method of an agent after a little training; `train`: arguments of `trained`."""
    return getattr(trained(Probe(), 3, **(train or {})), method)(**given)


def powers(p: int | None = None, processes: int = 1) -> Any:
    envs = [Clock() for _ in range(processes)]
    agent = trained(Probe(envs), 2, PR=True, train={"processes": processes})
    return agent.prioritized_replay.powers(p)


def aimer(optimizer: Any = sgd) -> Any:
    agent = Aimer()
    agent.optimizer = optimizer and optimizer(agent)
    return agent


def lr(
    optimizer: Any = sgd, look: str = "", index: int = -1, find: bool = True, **args: Any
) -> Any:
    """Finds a learning rate, then looks at the points that are found: `look`."""
    finder = LRFinder(aimer(optimizer), index)
    if find:
        finder.find(**{"N": 20, "start_lr": 0.01, "end_lr": 0.5, "p": 0, **args})
    return getattr(finder, f"plot_{look}")() if look else finder.best_lr


def change(metrics: str) -> Any:
    finder = LRFinder(aimer())
    finder.find(N=20, start_lr=0.01, end_lr=0.5, p=0)
    return finder.get_derivatives(1, metrics)


def opt(rates: Any = (0.5, 0.1), look: str = "loss", **args: Any) -> Any:
    agent = aimer(None)
    finder = OptFinder(agent, [sgd(agent, rate) for rate in rates])
    finder.find(**{"episodes": 8, "p": 0, **args})
    return finder.get_derivatives(1, look)


def several(agents: Any = Aimer, optimizers: int = 1, lock: bool = False, **args: Any) -> Any:
    """ParallelFinder of what `agents` makes, a list or one."""
    made = agents()
    made = made if isinstance(made, list) else [made]
    if lock:
        made[0].lock = threading.Lock()
    finder = ParallelFinder(made, [sgd(made[0])] * optimizers)
    if args:
        finder.find(**{"p": 0, **args})


def builds(shared: Any) -> Any:
    agent = Builds()
    agent.shared_param = shared(agent)
    return trained(agent, 1)


EPS = {"rate": 0.1}
METRICS = {"metrics": "los"}
WHOLE = {"metrics": "loss"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        case(
            "agents/adaptive/methods.py:AdaptiveMethods._batch_size",
            adjust,
            {"batch_params": {"min": 101}},
            "a smaller min",
            {"batch_params": {"min": 50}},
        ),
        case(
            "agents/adaptive/methods.py:AdaptiveMethods._batch_size",
            adjust,
            {"batch_params": {"min": 101}},
            "a larger pool_size",
            {"train": {"pool_size": 200}},
        ),
        case(
            "agents/adaptive/methods.py:AdaptiveMethods._parameters",
            lambda name: adjust(**{name: {"rate": 0.1}}),
            {"name": "lr_parms"},
            "lr_params",
            {"name": "lr_params"},
        ),
        case("agents/adaptive/methods.py:_share", adjust, {"smooth": 2}),
        case(
            "agents/adaptive/adjustable.py:values_of",
            adjust,
            {"eps_params": EPS},
            "leave eps_params out",
            {"eps_params": None},
        ),
        case(
            "agents/adaptive/adjustable.py:values_of",
            adjust,
            {"eps_params": EPS},
            "see to that",
            {"train": {"policy": EpsGreedyQPolicy(0.1)}},
        ),
        case(
            "agents/assembly.py:held",
            lambda **given: trained(Probe([Clock() for _ in range(3)]), 1, **given),
            {"batch": 4, "pool_size": 5},
        ),
        case(
            "agents/built_networks.py:acted",
            builds,
            {"shared": lambda agent: agent.shared_param[:1]},
            "one by one",
            {"shared": lambda agent: agent.shared_param},
        ),
        case(
            "agents/built_networks.py:_shared",
            builds,
            {"shared": lambda agent: None},
            "parameters()",
            {"shared": lambda agent: agent.net.parameters()},
        ),
        case(
            "agents/contract.py:TrainArguments.__post_init__",
            lambda given: trained(Probe(), 1, train={"parallel_store_and_training": given}),
            {"given": "yes"},
            "leave parallel_store_and_training out",
            {"given": None},
        ),
        case(
            "agents/contract.py:TrainArguments.__post_init__ 2",
            lambda **given: trained(
                Probe([Clock(), Clock()]),
                1,
                train={"parallel_store_and_training": True, "processes": 2, **given},
            ),
            {"pool_network": False},
            "leave pool_network out",
            {"pool_network": True},
            slow=True,
        ),
        case(
            "agents/user_functions.py:PrioritizedReplay.powers",
            powers,
            {"p": 1},
            "p out",
            {"p": None},
        ),
        case(
            "agents/user_functions.py:PrioritizedReplay.powers",
            powers,
            {"p": 1},
            "more processes",
            {"processes": 2},
            slow=True,
        ),
        # finders
        case(
            "tuning/finders.py:Series._part",
            lr,
            {"look": "loss", "find": False},
            "call find first",
            {"find": True},
        ),
        case("tuning/finders.py:Series._part", lr, {"look": "loss", "N": 5}, "more", {"N": 40}),
        case(
            "tuning/finders.py:best_of",
            opt,
            {"rates": (1e30,)},
            "learning rates",
            {"rates": (0.1,)},
        ),
        case(
            "tuning/finders.py:checked_agent",
            lambda agent: OptFinder(agent, [sgd(Aimer())]),
            {"agent": object()},
            "`tandem find`",
            {"agent": Aimer()},
        ),
        case("tuning/lr_finder.py:LRFinder._check", lr, METRICS, "", WHOLE),
        case("tuning/lr_finder.py:LRFinder._check 2", lr, {"start_lr": 0, "end_lr": 1.0}),
        case(
            "tuning/lr_finder.py:LRFinder._check 3",
            lr,
            {"start_lr": 1.0, "end_lr": 0.1},
            "the lower one",
            {"start_lr": 0.1, "end_lr": 1.0},
        ),
        case("tuning/lr_finder.py:LRFinder._curve", change, METRICS, "", WHOLE),
        case(
            "tuning/lr_finder.py:LRFinder._curve 2",
            lr,
            {"look": "reward_change", "metrics": "loss", "N": 40},
            "look at the loss",
            {"look": "loss_change"},
        ),
        case(
            "tuning/lr_finder.py:LRFinder._curve 2",
            lr,
            {"look": "reward_change", "metrics": "loss", "N": 40},
            "call find again",
            {"metrics": "reward"},
        ),
        case(
            "tuning/lr_finder.py:LRFinder._check_optimizer",
            lr,
            {"optimizer": None},
            "agent.optimizer =",
            {"optimizer": sgd},
        ),
        case(
            "tuning/lr_finder.py:LRFinder._check_optimizer 2",
            lr,
            {"index": 3},
            "leave",
            {"index": -1},
        ),
        case(
            "tuning/opt_finder.py:OptFinder.__init__",
            opt,
            {"rates": ()},
            "two",
            {"rates": (0.1, 0.5)},
        ),
        case("tuning/opt_finder.py:OptFinder._curve", opt, {"look": "los"}, "", {"look": "loss"}),
        case("tuning/opt_finder.py:OptFinder.find", opt, METRICS, "", WHOLE),
        case(
            "tuning/parallel_finder.py:ParallelFinder.__init__",
            several,
            {"optimizers": 2},
            "one optimizer",
            {"optimizers": 1},
        ),
        case(
            "tuning/parallel_finder.py:ParallelFinder.__init__ 2",
            several,
            {"agents": lambda: [Aimer()] * 2, "optimizers": 2},
            "OptFinder",
            {"agents": lambda: [Aimer(), Aimer()]},
        ),
        case(
            "tuning/trials.py:TrialArguments.of",
            lr,
            {"train_loss": len},
            "leave train_loss out",
            {"train_loss": None},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        case(
            "tuning/parallel_finder.py:ParallelFinder._task",
            several,
            {"lock": True, "episodes": 2},
            "where it is used",
            {"lock": False},
        ),
        case("tuning/parallel_finder.py:ParallelFinder.find", several, METRICS, "", WHOLE),
    ],
)
def test_followed_in_other_processes(each: Any) -> None:
    each.follow()


class Locked(Clock):
    """Cannot be copied."""

    def __deepcopy__(self, memo: object) -> Any:
        raise TypeError("cannot copy")


def test_an_environment_that_cannot_be_copied() -> None:
    def found(agent: Any) -> None:
        agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
        OptFinder(agent, [sgd(agent)]).find(episodes=2, p=0)

    agent = trained(Probe(Locked()), 1)
    with follows("tuning/trials.py:Trials._environments") as advice:
        OptFinder(agent, [sgd(agent)]).find(episodes=2, p=0)
    assert "give such a one" in advice.fix and "before the agent's first train" in advice.fix
    found(trained(Probe(Clock()), 1))
    found(Probe(Locked()))


class Mine(GreedyQPolicy):
    """Not the library's."""


def test_a_file_of_an_agent_with_a_policy_of_ones_own(tmp_path: Path) -> None:
    trained(Probe(Walk()), 2, policy=Mine()).save(tmp_path / "agent")
    agent = Probe(Walk())
    agent.restore(tmp_path / "agent")
    optimizer = torch.optim.SGD(agent.param, 0.01)
    with follows("agents/agent_checkpoint.py:arguments_of") as advice:
        agent.train(optimizer, 1, p=0)
    told = advice.fix.removesuffix(", then train.").removeprefix("call ")
    exec(told.replace("(...)", "()"), {"agent": agent, "Mine": Mine})
    agent.train(optimizer, 1, p=0)
    assert agent.total_episode == 3


excepted(
    "tuning/finders.py:learning_rate",
    because="tests/tuning/test_finders.py::test_keras_agents_are_as_before_and_travel, whose child "
    "gives a schedule and then numbers; all of torch's optimizers have a number",
)
