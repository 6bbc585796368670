"""The cluster door in one process, without Ray."""

import argparse
import json
import math
import pickle
import threading
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

import tandem
from tandem.cluster import Agent, AlgorithmAgent, Cluster, Runner, agent_state, ray_actors
from tandem.cluster import cluster as door
from tandem.cluster.agent_host import ActingCopy, AgentHost, AgentSpec
from tandem.cluster.agent_state import StateStore
from tandem.cluster.proxy import AsyncProxy, LocalProxy, RemoteProxy
from tandem.cluster.ray_actors import ActorHandle, Namespace, RemoteHost
from tandem.cluster.runner import RunnerHost, construct
from tandem.errors import CheckpointError, EngineError, SettingError, UnknownNameError, WorkerError
from tandem.testing import environments as known
from tests.cluster import agents
from tests.cluster.agents import Bare, Counter, Documented, Exits, Plain, Recorder, program, spaces
from tests.helpers import run_python


def fresh() -> Cluster:
    """A namespace of its own for each test, as each program has."""
    fresh.count = getattr(fresh, "count", 0) + 1
    return Cluster(namespace=f"test-{fresh.count}")


def test_the_door_brings_neither_ray_nor_a_framework() -> None:
    code = """
    import json, sys
    import tandem.cluster, tandem
    assert tandem.WiseRL is tandem.Cluster is tandem.cluster.Cluster
    print(json.dumps(sorted({"ray", "torch", "keras", "jax", "tensorflow"} & set(sys.modules))))
    """
    assert run_python(code) == [[]]
    names = "makeAgent getAgent makeRunner getRunner startAllRunner startAllRunners"
    assert all(callable(getattr(Cluster, name)) for name in names.split())


def test_a_runner_made_directly_acts_and_learns_here() -> None:
    args = SimpleNamespace(cluster=fresh(), lr=0.1)
    chosen, state_dim, rank, local_rank = Documented(args).run()
    assert chosen == list(range(1, 41, 2)) and (state_dim, rank, local_rank) == (4, 0, 0)
    agent = here(args.cluster, "recorder")
    own = Recorder()
    program(own)
    assert agent.lr == 0.1 and agent.history() == own.history()
    with pytest.raises(AttributeError, match="has no attribute 'policy'"):
        agent.policy  # noqa: B018
    with pytest.raises(ValueError, match="no map here"):
        agent.fail("map")


def in_a_runner(call):
    class Calls(Runner):
        def __init__(self) -> None:
            self.given = call()

    return Calls().given


def here(cluster, name):
    return in_a_runner(lambda: cluster.get_agent(name))


def make_agents(cluster, *arguments, **named):
    return in_a_runner(lambda: cluster.make_agent(*arguments, **named))


def test_the_same_agent_is_joined_and_another_is_refused() -> None:
    cluster = fresh()
    (one,) = make_agents(cluster, "a", Plain, gain=2)
    (other,) = make_agents(cluster, "a", Plain, gain=2)
    one.update(1, 2, 3, 4, False)
    assert other.seen == [2] and one.choose_action(4) == 8
    with pytest.raises(SettingError, match=r"gain=3 \(there: 2\)"):
        make_agents(cluster, "a", Plain, gain=3)
    with pytest.raises(SettingError, match="class .*Counter"):
        make_agents(cluster, "a", Counter)
    with pytest.raises(UnknownNameError, match=r"'b'[^\n]*; expected one of a"):
        here(cluster, "b")
    for i, agent in enumerate(make_agents(cluster, "two", Plain, num=2)):
        agent.update(0, i, 0, 0, False)
    assert [here(cluster, "two").seen for _ in range(4)] == [[0], [1], [0], [1]]  # in turn


def test_what_is_no_name_number_agent_or_runner_is_refused() -> None:
    for name, num in (("a/b", 1), ("", 1), ("a", 0), ("a", "2"), (1, 1)):
        with pytest.raises(SettingError):
            fresh().make_agent(name, Plain, num=num)
    with pytest.raises(SettingError, match="is not an agent class"):
        fresh().make_agent("a", Plain())
    with pytest.raises(SettingError, match="is not a runner class"):
        construct(Plain, None, 0, 0)
    for runners in (None, 3, [None]):
        said = r"start_all_runners was given[\s\S]*the result of make_runner"
        with pytest.raises(SettingError, match=said):
            fresh().start_all_runners(runners)


class Takes(Runner):
    def run(self) -> None:
        pass


class One(Takes):
    def __init__(self, args) -> None:
        self.got = (args, self.rank, self.local_rank)


class Second(Takes):
    def __init__(self, config, number) -> None:
        self.got = (config, self.rank, number)


class Named(Takes):
    def __init__(self, args=None, local_rank=0) -> None:
        self.got = (args, self.rank, local_rank)


def test_runners_take_what_they_take_and_say_why_they_end(monkeypatch) -> None:
    args = argparse.Namespace(x=1)
    for kind in (One, Second, Named):
        assert construct(kind, args, 3, 1).got == (args, 3, 1)
    assert construct(Bare, None, 2, 1).run() == (2, 1)
    assert Exits((0, "run")).run() is None and Exits((0, "")).run() == "ran"
    with pytest.raises(WorkerError, match=r"'Exits' called sys.exit\('lost'\)"):
        Exits(("lost", "run")).run()
    with pytest.raises(SettingError, match="takes none"):
        construct(Bare, argparse.Namespace(), 0, 0)
    monkeypatch.setattr("tandem.cluster.agent_host._identity", [""])
    host = RunnerHost(agents.FailsAtOnce, None, 0, 0, "r")
    for call in (host.run, lambda: host.call("run", (), {})):
        with pytest.raises(OSError, match="no environment"):
            call()


def test_an_agent_of_the_trainer_door_is_not_a_base_of_the_clusters() -> None:
    with pytest.raises(SettingError, match="choose_action") as caught:

        class Own(tandem.Agent):
            def choose_action(self, state):
                return 0

    names: dict[str, type] = {}
    exec(caught.value.fix, names)
    assert names["Agent"] is Agent


def test_in_one_process_an_agent_acts_by_what_it_learned() -> None:
    for sync in (True, False):
        (agent,) = make_agents(fresh(), "c", Counter, sync=sync)
        agent.update(0, 0, 0, 0, False)
        assert agent.at == 1 and agent.choose_action(0) == int(sync)


class Five(Takes):
    def __init__(self, cluster) -> None:
        (self.agent,) = cluster.make_agent("c", Counter)

    def run(self) -> int:
        before = self.agent.at
        for _ in range(5):
            self.agent.update(0, 0, 0, 0, False)
        return before


def test_a_second_program_goes_on_from_the_folder(tmp_path) -> None:
    for i in range(2):
        cluster = Cluster(namespace=f"program-{i}", folder=tmp_path, checkpoint_seconds=0)
        assert Five(cluster).run() == 5 * i
    assert [p.name for p in tmp_path.iterdir()] == ["c%2f0.zip"]


def test_a_damaged_file_is_named(tmp_path) -> None:
    (tmp_path / "c%2f0.zip").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="c%2f0"):
        make_agents(Cluster(folder=tmp_path, namespace="damaged"), "c", Counter)


def test_a_stored_state_does_not_change_with_the_agent() -> None:
    class Lists(Agent):
        def __init__(self) -> None:
            super().__init__()
            self.rewards, self.table = [], np.zeros(1)

        def update(self, *transition) -> None:
            self.rewards.append(1.0)
            self.table += 1

        def state(self):
            return {"rewards": self.rewards}, {"table": self.table}

        def load_state(self, data, arrays) -> None:
            self.rewards, self.table = data["rewards"], arrays["table"]

    store = agent_state.StateStore()
    one = AgentHost("l/0", AgentSpec(Lists, True, 1, {}), store, 1e9)
    one.agent.update()
    one.save()
    one.agent.update()
    for _ in range(2):
        other = AgentHost("l/0", AgentSpec(Lists, True, 1, {}), store, 1e9).agent
        assert (other.rewards, other.table.tolist()) == ([1.0], [1.0])
        other.update()


def test_who_acts_for_an_agent_that_is_told_what_it_was_has_its_parameters() -> None:
    data, arrays = agent_state.state_of(Counter(sync=True, at=7))
    store = SimpleNamespace(get=lambda key: {"version": 3, "data": data, "arrays": arrays})
    host = AgentHost("c/0", AgentSpec(Counter, False, 1, {}), store, 1e9)
    copy = ActingCopy(AgentSpec(Counter, False, 1, {}), host.newest)
    assert copy.perform("me", [("choose_action", (0,), {})], 0).value == 7 and not host.agent.sync


class Net:
    """A torch agent without the base: what is kept of it is found among its attributes."""

    def __init__(self, lr=0.1) -> None:
        torch.manual_seed(0)
        layers = torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
        self.actor = torch.nn.Sequential(*layers)
        self.critics = [torch.nn.Linear(2, 1) for _ in range(2)]
        learned = [*self.actor.parameters(), *self.critics[0].parameters()]
        self.optimizer = torch.optim.Adam(learned, lr=lr)
        self.epsilon, self.rng = 1.0, np.random.default_rng(0)

    def choose_action(self, state):
        return self.actor(torch.as_tensor(state)).detach().numpy()

    def update(self, x, y) -> None:
        x = torch.as_tensor(x)
        loss = ((self.actor(x) + self.critics[0](x) - y) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.epsilon *= 0.9


def test_networks_optimizers_and_numbers_come_back_to_the_bit() -> None:
    x = np.array([[1.0, 2.0], [3.0, -1.0]], np.float32)
    one, other = Net(), Net()
    for _ in range(3):
        one.update(x, 1.0)
    kept = agent_state.state_of(one)
    for _ in range(3):
        one.update(x, 1.0)
    agent_state.load_into(other, *kept)
    assert other.epsilon == pytest.approx(0.9**3)
    for _ in range(3):
        other.update(x, 1.0)
    np.testing.assert_array_equal(one.choose_action(x), other.choose_action(x))
    other.actor = torch.nn.Linear(5, 3)
    made = [gymnasium.make(name) for name in ("CartPole-v1", "Pendulum-v1")]
    given = {"algorithm": "ppo", "framework": "torch"}
    pole, pendulum = (AlgorithmAgent(**given, **agents.spaces(env)) for env in made)
    for agent, state in ((other, kept), (pendulum, agent_state.state_of(pole))):
        with pytest.raises(CheckpointError, match=f"state of {type(agent).__name__} does not fit"):
            agent_state.load_into(agent, *state)
    one = Counter(at=np.int64(3), seconds=np.float32(0.5), well=np.bool_(True))
    other = Counter(well=False)
    data, arrays = agent_state.state_of(one)
    agent_state.load_into(other, json.loads(json.dumps(data)), arrays)
    assert (other.at, other.seconds, other.well) == (3, 0.5, True)


def test_where_ray_is_not_installed_the_same_program_runs_here(monkeypatch) -> None:
    monkeypatch.setattr(door, "_installed", lambda: False)
    cluster = Cluster(namespace="no-ray")
    args = SimpleNamespace(cluster=cluster, lr=0.1)
    runners = cluster.make_runner("runner", Documented, args)
    assert cluster.start_all_runners(runners) == [(program(Recorder()), 4, 0, 0)]
    with pytest.raises(EngineError, match=r"pip install 'tandem-rl\[ray\]'"):
        cluster.make_runner("more", Documented, args, num=2)


# Proxies over a handle that behaves as Ray's does, without Ray


class Notes(Recorder):
    def _sync_model(self) -> None:
        pass


class Here(RemoteHost):
    def __init__(self, spec: AgentSpec) -> None:
        self._failed = None
        store = SimpleNamespace(get=lambda key: None, put=lambda *state: None)
        AgentHost.__init__(self, "a/0", spec, store, 0.0)


class Direct(ActorHandle):
    """A handle of an object here. What goes to it is pickled; its arrays are not to be written."""

    def send(self, method, *given, group=""):
        return sent(getattr(self.actor, method)(*sent(given)))

    def ready(self, reference) -> bool:
        return True

    def _ray(self):
        return SimpleNamespace(get=lambda reference: reference)


def sent(value):
    buffers: list = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(b.raw()) for b in buffers])


def proxy(kind, agent_class, **hyper):
    host = Here(AgentSpec(agent_class, kind is RemoteProxy, 1, hyper))
    return kind("a", "me#0", Direct(host, "agent 'a'", 1.0))


@pytest.mark.parametrize("kind", [RemoteProxy, AsyncProxy])
def test_updates_are_of_what_was_then_though_an_environment_writes_into_its_arrays(kind) -> None:
    agent, state, info = proxy(kind, Notes), np.zeros(2), {"at": 0, "seen": np.zeros(1)}
    for i in range(70):  # more than go at once
        state[:], info["at"], info["seen"][0] = i, i, i
        agent.update(state, info)
    updates = [given for _, given in agent.history()]
    found = [(s[0], told["at"], told["seen"][0]) for s, told in updates]
    assert found == [(i, i, i) for i in range(70)]


class Scales(Notes):
    def choose_action(self, state):
        state -= 1
        return state

    def update(self, state, info) -> None:
        state *= 2
        info["seen"] += state
        super().update(state, info)


def test_arrays_may_be_written_wherever_they_arrive() -> None:
    agent = proxy(RemoteProxy, Scales)
    action = agent.choose_action(np.ones(3))
    action += 1
    agent.update(action, {"seen": np.ones(3)})
    ((_, (state, info)),) = agent.history()
    state += info["seen"]
    np.testing.assert_array_equal([action, state], [[1, 1, 1], [5, 5, 5]])


def test_what_cannot_be_pickled_is_named() -> None:
    pytest.importorskip("ray")
    said = r"agent 'a' cannot be sent to another process: .*lock.*; expected .*\nFix: "
    with pytest.raises(SettingError, match=said):
        ray_actors.submit(lambda *given: pickle.dumps(given), "agent 'a'", 1, threading.Lock())


class Saves(Counter):
    caller = "nobody"

    def load(self, path):
        raise AssertionError

    finish = join = leave = must_wait = learn_from = set_progress = load


@pytest.mark.parametrize("kind", [RemoteProxy, AsyncProxy])
def test_an_agent_may_call_its_methods_what_it_likes(kind) -> None:
    spec = AgentSpec(Saves, kind is RemoteProxy, 1, {})
    more = {"make": lambda caller: spec.make()} if kind is AsyncProxy else {}
    agent = kind("a", "me#0", Direct(Here(spec), "agent 'a'", 1.0), **more)
    assert agent.choose_action(0) == 0
    agent.update(0)
    agent.flush()
    assert agent.choose_action(0) == 1
    agent.close()
    assert agent.caller == "nobody"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LocalProxy, RemoteProxy, AsyncProxy])
def test_nobody_waits_for_the_steps_of_one_who_only_acts(kind, monkeypatch) -> None:
    """As an evaluation does, while an update needs two blocks of the one that learns."""
    monkeypatch.setattr("tandem.learning.config.compiling", lambda _: "no")  # some ten seconds
    env = known.Identity()
    hyper = dict(algorithm="ppo", rollout=4, envs=2, batch_size=4, hidden=(4,), framework="torch")
    hyper |= spaces(env)
    host = Here(AgentSpec(AlgorithmAgent, True, 1, hyper))
    handle = Direct(host, "agent 'a'", 1.0)
    make = {"make": lambda me: host.agent.portable(me), "from_blocks": True}
    part = make if kind is AsyncProxy else {}
    learns, looks = (
        kind("a", me, host if kind is LocalProxy else handle, **part) for me in ("me#0", "me#1")
    )
    state, _ = env.reset(seed=0)
    for i in range(12):
        looks.choose_action(state)
        action = learns.choose_action(state)
        assert env.action_space.contains(action) and not host.agent.must_wait("me#0"), i
        after, reward, over, cut, _ = env.step(action)
        learns.update(state, action, reward, after, over or cut, cut)
        assert not host.agent.must_wait("me#0")
        state = env.reset()[0] if over or cut else after
    assert host.agent.updates > 0


class Called:
    def __init__(self) -> None:
        self.weight = 3

    def __call__(self, x):
        return self.weight * x


def test_networks_are_attributes_though_they_can_be_called() -> None:
    agent = proxy(RemoteProxy, Notes, actor=Called(), also=math.sqrt)
    assert agent.actor.weight == 3 and agent.actor(2) == 6
    assert agent.also(4) == 2 and agent.history() == []


@pytest.mark.parametrize("kind", [RemoteProxy, AsyncProxy])
def test_what_would_be_lost_with_a_proxy_is_refused(kind) -> None:
    agent = proxy(kind, Notes, gain=1)
    with pytest.raises(SettingError, match=r"gain of the agent 'a'[^\n]*; expected .*\nFix: "):
        agent.gain = 2
    said = r"proxy of the agent 'a'[^\n]*; expected .*\nFix: call get_agent\('a'\)"
    with pytest.raises(SettingError, match=said):
        pickle.dumps(agent)
    assert agent.gain == 1


def test_runners_that_could_not_be_made_take_no_ranks(monkeypatch) -> None:
    pytest.importorskip("ray")
    store, asked = StateStore(), []

    class Nowhere(Namespace):
        def __init__(self) -> None:
            pass

        def store(self):
            return Direct(store, "the store", 1.0)

        def names(self, kind):
            return []

        def make_runner(self, host_class, name, runner_class, args, ranks, resource):
            asked.append(ranks)
            if args is None:
                raise SettingError("args that cannot be pickled.")
            return []

    cluster = Cluster()
    monkeypatch.setattr(cluster, "_connect", Nowhere)
    cluster.make_runner("one", Bare, 0, num=2)
    with pytest.raises(SettingError):
        cluster.make_runner("two", Bare, num=3)
    cluster.make_runner("three", Bare, 0)
    assert asked == [[0, 1], [2, 3, 4], [2]]
