"""The advice of the room cluster, followed in one process; what needs Ray is in
`test_upper_ray.py`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from tandem.cluster import Agent, AlgorithmAgent, Cluster, Runner, agent_state
from tandem.cluster.runner import construct
from tandem.testing.env_checker import check
from tandem.testing.environments import NotFinite
from tests.advice.net import case, follows
from tests.cluster.agents import Counter, Plain
from tests.cluster.test_local import Net, fresh, here, make_agents

torch = pytest.importorskip("torch")


def make(name: Any = "agent", agent_class: Any = Plain, num: Any = 1, **hyper: Any) -> Any:
    return make_agents(fresh(), name, agent_class, num=num, **hyper)


class Runs(Runner):
    def run(self) -> tuple[int, int]:
        return self.rank, self.local_rank


class Needs(Runs):
    """Needs more than a runner is given."""

    def __init__(self, env: Any, seed: int, size: int) -> None:
        self.args = env, seed, size


class Takes(Runs):
    """Needs the same, in args."""

    def __init__(self, args: Any) -> None:
        self.args = args.env, args.seed, args.size


def runner(runner_class: Any, args: Any = None) -> None:
    assert construct(runner_class, args, 0, 0, here=True).run() == (0, 0)


class Acts(Agent):
    """Its network has a name that nobody looks for, or is `called` so."""

    def __init__(self, sync: bool = True, called: str = "brain") -> None:
        super().__init__(sync)
        setattr(self, called, torch.nn.Linear(1, 1))

    def choose_action(self, state: Any) -> int:
        return 0

    def update(self, *transition: Any) -> None:
        self.last = transition


class Fires(Acts):
    def _sync_model(self) -> None:
        self._fire({"weight": self.brain.weight.detach().numpy()})

    def _update_model(self, param: Any) -> None:
        self.brain.load_state_dict(param)


def learn(agent_class: Any = Acts, **given: Any) -> None:
    (agent,) = make_agents(fresh(), "agent", agent_class, sync=False, **given)
    agent.update(1)


class Gives(Runs):
    """Gives up by sys.exit, or by an exception."""

    def __init__(self, args: Any) -> None:
        self.how = args

    def run(self) -> Any:
        if self.how == "code":
            raise SystemExit(3)
        if self.how == "zero":
            raise SystemExit(0)
        raise KeyError("the map is lost")


def gives(how: str) -> None:
    if how == "raise":
        with pytest.raises(KeyError, match="the map is lost"):
            Gives(how).run()
    else:
        Gives(how).run()


def algorithm(algorithm: str = "dqn", env: Any = None, seed: Any = 0, **settings: Any) -> Any:
    env = env or gymnasium.make("CartPole-v1")
    own = {"observation_space": env.observation_space, "action_space": env.action_space}
    return AlgorithmAgent(algorithm=algorithm, framework="torch", seed=seed, **own, **settings)


@pytest.mark.parametrize(
    "each",
    [
        case(
            "cluster/cluster.py:Cluster.__init__",
            Cluster,
            {"patience": -1.0},
            "from 0 on",
            {"patience": 0.0},
        ),
        case(
            "cluster/cluster.py:Cluster.__init__ 2",
            Cluster,
            {"checkpoint_seconds": -1.0},
            "from 0 on",
            {"checkpoint_seconds": 0},
        ),
        case(
            "cluster/cluster.py:Cluster.__init__ 3",
            Cluster,
            {"restarts": -2},
            "from -1 on",
            {"restarts": -1},
        ),
        case(
            "cluster/runner.py:_arguments",
            runner,
            {"runner_class": Needs, "args": SimpleNamespace(env=0, seed=1, size=2)},
            "into args",
            {"runner_class": Takes},
        ),
        case(
            "cluster/agent_host.py:Agent._acting",
            learn,
            {},
            "name the network so",
            {"called": "actor"},
        ),
        case(
            "cluster/agent_host.py:Agent._acting",
            learn,
            {},
            "override _sync_model",
            {"agent_class": Fires},
        ),
        case(
            "cluster/algorithm_agent.py:_config 2",
            algorithm,
            {"seed": -1},
            "such as 0",
            {"seed": 0},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


def test_proxies_in_one_process_that_are_not_stepped_in_turn() -> None:
    def learner() -> tuple[Any, Any]:
        env, cluster = gymnasium.make("CartPole-v1"), fresh()
        spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        small = {"rollout": 8, "batch_size": 16, "epochs": 1, "hidden": (4,), "envs": 2}
        given = {"algorithm": "ppo", "framework": "torch", **spaces, **small}
        return cluster, make_agents(cluster, "agent", AlgorithmAgent, **given)[0]

    def step(proxies: list[Any], n: int = 0) -> None:
        s = np.zeros((n, 4) if n else 4, np.float32)
        for each in proxies:
            a, zeros = each.choose_action(s), np.zeros(n or ())
            assert a is not None
            each.update(s, a, zeros, s, zeros, zeros)

    cluster, one = learner()
    other = here(cluster, "agent")
    step([one] * 3)
    with follows("cluster/proxy.py:LocalProxy._call") as advice:
        for _ in range(8):
            step([one, other])
    assert "in turn from the first step" in advice.fix and "one proxy the obs" in advice.fix
    step([other] * 3)  # what was waited for comes
    step([one])
    assert one.env_steps == 16
    cluster, one = learner()
    other = here(cluster, "agent")
    for _ in range(24):
        step([one, other])
    assert one.env_steps == 48
    _, one = learner()
    for _ in range(24):
        step([one], n=2)
    assert one.env_steps == 48


def test_a_kept_state_that_does_not_fit(tmp_path: Path) -> None:
    data, arrays = agent_state.state_of(Net())

    class Wide(Net):
        def __init__(self) -> None:
            super().__init__()
            self.actor = torch.nn.Linear(5, 3)

    with follows("cluster/agent_state.py:load_into") as advice:
        agent_state.load_into(Wide(), data, arrays)
    for word in ("another name or another folder", "state() and load_state(data, arrays)"):
        assert word in advice.fix

    class Own(Wide):
        def state(self) -> Any:
            return {}, {}

        def load_state(self, data: Any, arrays: Any) -> None:
            self.told = data

    agent_state.load_into(Own(), data, arrays)
    for name, kind, folder in (("a", Net, "one"), ("b", Wide, "one"), ("a", Wide, "other")):
        cluster = Cluster(namespace=f"{name}-{folder}", folder=tmp_path / folder)
        (agent,) = make_agents(cluster, name, kind)
        agent._host.save()
    with follows("cluster/agent_state.py:StateStore._file") as advice:
        make_agents(Cluster(namespace="long", folder=tmp_path), "a" * 300, Counter)
    assert advice.fix == "shorten it."
    make_agents(Cluster(namespace="short", folder=tmp_path), "a" * 190, Counter)


def test_steps_in_their_order() -> None:
    env = gymnasium.make("CartPole-v1")
    own = {"observation_space": env.observation_space, "action_space": env.action_space}
    cluster, s = fresh(), env.reset(seed=0)[0]
    given = {"algorithm": "dqn", "framework": "torch", **own}
    (agent,) = make_agents(cluster, "agent", AlgorithmAgent, **given)
    a = agent.choose_action(s)
    with follows("cluster/sampler.py:Sampler.choose_action") as advice:
        agent.choose_action(np.stack([s, s]))
    assert advice.fix == "get_agent gives another proxy."
    assert len(here(cluster, "agent").choose_action(np.stack([s, s]))) == 2
    with follows("cluster/sampler.py:Sampler.update") as advice:
        agent.update(s + 1, a, 0.0, s, False)
    assert "call them in turn" in advice.fix and "use another proxy" in advice.fix
    agent.update(s, a, 0.0, s + 1, False)

    def step(reward: Any, over: Any = False) -> None:
        agent.update(s, agent.choose_action(s), reward, s, over)

    with follows("cluster/sampler.py:_flags") as advice:
        step(0.0, [False, True])
    assert advice.fix == "give one for each."
    with follows("cluster/sampler.py:Sampler._rewards") as advice:
        step([0.0, 1.0])
    assert "one number for each observation" in advice.fix
    with follows("cluster/sampler.py:Sampler.update 2") as advice:
        step(np.nan)
    assert "`tandem check` says what is wrong" in advice.fix
    step([1.0], [False])
    said = list(check(NotFinite, steps=100))
    assert any(each.verdict == "fault" and "nan" in each.text for each in said), said
