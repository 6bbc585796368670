"""Agents of the library's algorithms: what they write down, and what they learn from it."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

import tandem
from tandem.cluster import AlgorithmAgent, Cluster, Runner, sampler
from tandem.envs.factory import episode_seed, vectorize
from tandem.envs.team import team
from tandem.errors import NonFiniteError, SettingError, SpaceError, UnknownNameError
from tandem.learning import loop
from tandem.learning.collect.trajectories import split_environments, split_steps
from tandem.learning.seeds import Generators, derived
from tandem.testing import environments as games
from tandem.testing import team_games
from tandem.types import leaves
from tests.cluster.agents import spaces, step
from tests.cluster.test_local import fresh, make_agents

CARTPOLE = gymnasium.make("CartPole-v1")
SMALL = {"hidden": (16,), "framework": "torch"}
REPLAY = dict(learning_starts=20, batch_size=8, buffer_size=500, train_every=1, envs=1) | SMALL
ROLLOUT = {"rollout": 16, "envs": 1} | SMALL


def agent_of(algorithm, env, **settings):
    return AlgorithmAgent(algorithm=algorithm, **spaces(env), **settings)


def steps(agent, env, count, seed=0, told=True):
    """The documented loop; environments are seeded as a trainer's first one is."""
    seeds, episode = derived(seed, "environments"), 0
    s, _ = env.reset(seed=episode_seed(seeds, 0, 0))
    for _ in range(count):
        s, over = step(agent, env, s, told)
        if over:
            episode += 1
            s, _ = env.reset(seed=episode_seed(seeds, 0, episode))


def weights(backend):
    read = {n: network.read() for n, network in backend.networks.items()}
    return {f"{n}/{k}": w.copy() for n, arrays in read.items() for k, w in arrays.items()}


LONGER = {**ROLLOUT, "rollout": 64, "batch_size": 32, "epochs": 2}


@pytest.mark.parametrize(
    "algorithm, settings",
    [
        ("dqn", {**REPLAY, "train_every": 4, "target_every": 50}),
        ("ppo", LONGER),
        ("ppo", {**LONGER, "normalize_observations": True}),
    ],
)
def test_it_learns_as_the_trainer_does_to_the_bit(algorithm, settings) -> None:
    agent = agent_of(algorithm, CARTPOLE, steps=1000, **settings)
    steps(agent, gymnasium.make("CartPole-v1", max_episode_steps=30), 256)
    # the same again, for its algorithm alone
    made = agent_of(algorithm, CARTPOLE, steps=1000, **settings)
    make = partial(gymnasium.make, "CartPole-v1", max_episode_steps=30)
    environments = vectorize(make, 1, derived(0, "environments"), "plain")
    run = loop.Loop(made.algorithm, made._backend, environments, Generators(0))
    list(run.events(256))
    mine, theirs = weights(agent._backend), weights(made._backend)
    assert agent.updates == run.learner.updates > 0 and agent.env_steps == 256
    for name, w in theirs.items():
        np.testing.assert_array_equal(mine[name], w, err_msg=name)


class Reads:
    """A proxy whose user reads an attribute, as for a log, and flushes, before each call."""

    def __init__(self, agent) -> None:
        self.agent, self.seen = agent, set()

    def choose_action(self, *given):
        self.seen.add(self.agent.updates)
        self.agent.flush()
        return self.agent.choose_action(*given)

    def update(self, *given) -> None:
        self.seen.add(self.agent.updates)
        self.agent.flush()
        self.agent.update(*given)


@pytest.mark.parametrize(
    "algorithm, settings", [("dqn", {**REPLAY, "train_every": 4}), ("ppo", LONGER)]
)
def test_who_reads_its_attributes_in_one_process_changes_nothing(algorithm, settings) -> None:
    own = agent_of(algorithm, CARTPOLE, steps=1000, **settings)
    steps(own, gymnasium.make("CartPole-v1"), 150)
    given = {"algorithm": algorithm, "steps": 1000, **spaces(CARTPOLE), **settings}
    (agent,) = make_agents(fresh(), "agent", AlgorithmAgent, **given)
    steps(logged := Reads(agent), gymnasium.make("CartPole-v1"), 150)
    assert own.updates in logged.seen and own.updates > 0
    found = weights(agent._host.agent._backend)
    for name, w in weights(own._backend).items():
        np.testing.assert_array_equal(found[name], w, err_msg=name)


def blocks_of(told, env):
    agent = agent_of("dqn", env, **REPLAY)
    config = agent._sampler_config(remote=True)._replace(steps=32)
    one = sampler.TrajectorySampler(config, agent._networks, "acting")
    found: list = []
    writes = SimpleNamespace(choose_action=one.choose_action)
    writes.update = lambda *given: found.append(one.update(*given))
    steps(writes, env, 64, told=told)
    return [block for block in found if block is not None]


def test_a_limit_that_nobody_told_of_is_seen() -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=7)
    for one, other in zip(blocks_of(True, env), blocks_of(False, env), strict=True):
        for a, b in zip(leaves(one), leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
        cut = one.last & (one.discount > 0)
        assert cut.sum() >= 4 and one.discount[~cut & one.last].sum() == 0
        at = one.cuts.t[0], one.cuts.env[0]
        # what followed is not the next episode's
        assert not np.array_equal(one.cuts.obs[0], one.obs[at[0] + 1, at[1]])


def test_blocks_stand_for_themselves_and_come_apart_and_together() -> None:
    (block, later) = blocks_of(True, gymnasium.make("CartPole-v1"))
    assert block.last[-1].all() and block.cuts.t[-1] == 31
    np.testing.assert_array_equal(block.cuts.obs[-1], block.bootstrap[0])
    if block.discount[-1, 0]:
        np.testing.assert_array_equal(block.bootstrap[0], later.obs[0, 0])
    parts = blocks_of(True, gymnasium.make("CartPole-v1", max_episode_steps=9))
    whole = sampler.join_blocks(parts)
    assert whole.reward.shape == (32, 2) and (np.diff(whole.cuts.t) >= 0).all()
    for again, part in zip(split_environments(whole), parts, strict=True):
        for a, b in zip(leaves(again), leaves(part), strict=True):
            np.testing.assert_array_equal(a, b)
    first, second = split_steps(parts[0], 16)
    np.testing.assert_array_equal(first.bootstrap, parts[0].obs[16])
    np.testing.assert_array_equal(np.concatenate([first.reward, second.reward]), parts[0].reward)
    assert len(first.cuts.t) + len(second.cuts.t) == len(parts[0].cuts.t)
    assert (second.cuts.t < 16).all()


MPE = partial(team, "mpe/simple_spread_v3", {"max_cycles": 10})
# others learn below and in tests/cluster/test_examples.py
CASES = [
    ("dqn", "CartPole-v1", {**REPLAY, "n_step": 3, "prioritized": True, "noisy": "factorised"}),
    ("ppo", "Pendulum-v1", {**ROLLOUT, "batch_size": 8, "policy": "beta"}),
    ("ppo", "CartPole-v1", {**ROLLOUT, "batch_size": 16, "recurrent": 8, "sequence": 8}),
    ("a2c", "CartPole-v1", ROLLOUT),
    ("trpo", "CartPole-v1", {**ROLLOUT, "rollout": 32, "batch_size": 32, "recurrent": 4}),
    ("sac", "Pendulum-v1", {**REPLAY, "recurrent": 8, "sequence": 4, "burn_in": 2}),
    ("impala", "CartPole-v1", {"rollout": 8, "envs": 1, "recurrent": 4, **SMALL}),
    ("mappo", MPE, ROLLOUT | dict(batch_size=16, recurrent=8, memory="lstm", sequence=8)),
    ("mat", MPE, {**ROLLOUT, "batch_size": 8, "embedding": 8}),
]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm, env, settings", CASES)
def test_every_kind_of_algorithm_learns(algorithm, env, settings) -> None:
    if env is MPE:
        pytest.importorskip("mpe2")
    env = partial(gymnasium.make, env) if isinstance(env, str) else env
    agent = agent_of(algorithm, env(), steps=1000, **settings)
    before = weights(agent._backend)
    steps(agent, env(), 100)
    agent.finish()
    assert agent.updates > 0 and agent.metrics
    assert all(np.isfinite(v) for v in agent.metrics.values())
    assert any(not np.array_equal(before[n], w) for n, w in weights(agent._backend).items())


def test_several_environments_at_once_are_so_many_columns() -> None:
    agent = agent_of("ppo", CARTPOLE, steps=1000, **{**ROLLOUT, "envs": 3, "batch_size": 24})
    mode = gymnasium.vector.AutoresetMode.DISABLED
    pole = partial(gymnasium.make, "CartPole-v1")
    envs = gymnasium.vector.SyncVectorEnv([pole] * 3, autoreset_mode=mode)
    s, _ = envs.reset(seed=0)
    for _ in range(40):
        a = agent.choose_action(s)
        s2, r, terminated, truncated, _ = envs.step(a)
        agent.update(s, a, r, s2, terminated | truncated, truncated)
        s = s2
        if (over := terminated | truncated).any():
            s, _ = envs.reset(options={"reset_mask": over})
    assert agent.env_steps == 2 * 16 * 3 and agent.updates == 2 * 10 * 2


def test_wrong_use_is_refused_by_name() -> None:
    with pytest.raises(UnknownNameError, match="dqm"):
        agent_of("dqm", CARTPOLE)
    with pytest.raises(UnknownNameError, match="learning_rat"):
        agent_of("dqn", CARTPOLE, learning_rat=1.0)
    with pytest.raises(SpaceError, match="ddpg"):
        agent_of("ddpg", CARTPOLE, **SMALL)
    agent = agent_of("dqn", CARTPOLE, **REPLAY)
    s, _ = CARTPOLE.reset(seed=0)
    with pytest.raises(SettingError, match="a different observation than"):
        agent.update(s, 0, 1.0, s, False)
    a = agent.choose_action(s)
    with pytest.raises(NonFiniteError):
        agent.update(s, a, float("nan"), s, False)
    agent.choose_action(s)
    with pytest.raises(SpaceError, match="reward has shape"):
        agent.update(s, a, [1.0, 2.0], s, False)
    with pytest.raises(SpaceError, match="3 observations were given, after 1"):
        agent.choose_action(np.stack([s] * 3))


def test_what_was_kept_goes_on_and_what_was_saved_is_loaded(tmp_path) -> None:
    given = {**ROLLOUT, "batch_size": 8, "normalize_observations": True, "steps": 1000}
    agent, other = (agent_of("ppo", CARTPOLE, **given) for _ in range(2))
    steps(agent, gymnasium.make("CartPole-v1"), 64)
    other.load_state(*agent.state())
    assert (other.updates, other.env_steps) == (agent.updates, 64)
    other._samplers[""] = agent._samplers[""]  # the same place in the same episode
    other._samplers[""].networks |= other._networks
    s, _ = CARTPOLE.reset(seed=3)
    loaded = tandem.load(agent.save(tmp_path / "agent.zip"))
    assert loaded.act(s) in (0, 1)
    assert agent.evaluate("CartPole-v1", 3, seed=5) == other.evaluate("CartPole-v1", 3, seed=5)
    mine, theirs = weights(agent._backend), weights(other._backend)
    for name, w in mine.items():
        np.testing.assert_array_equal(theirs[name], w)


BANDIT = {"hidden": (32, 32), "framework": "torch", "gamma": 0.1, "envs": 2}
SAC = dict(learning_starts=200, train_every=16, updates_per_call=16, batch_size=64, tau=0.02)
SAC |= {"buffer_size": 5000, "learning_rate": 3e-3}
TRPO = {"rollout": 64, "learning_rate": "1e-2:1e-3", "log_std": -0.5}
PPO = TRPO | {"batch_size": 32, "epochs": 6, "entropy": 0.0}
MAPPO = dict(rollout=64, batch_size=128, learning_rate="5e-3:1e-3", gamma=0.9, entropy="0.3:0")
DQN = dict(learning_starts=100, batch_size=32, train_every=2, learning_rate=5e-3, target_every=100)
# algorithm: environment, steps, settings, and a lower limit below the score of a perfect policy.
# In IdentityBox the best constant action scores -3.3; in TwoStep agents that do not cooperate
# score at most 7.
SCORES: dict[str, tuple[Any, int, dict[str, Any], float]] = {
    "dqn": (games.Identity, 1500, DQN, 10.0),
    "sac": (games.IdentityBox, 1200, SAC, -0.5),
    "trpo": (games.IdentityBox, 6000, TRPO | {"radius": 0.03}, -1.0),
    "ppo": (games.IdentityBox, 4000, PPO, -1.0),
    "mappo": (lambda: team(team_games.TwoStep), 4000, MAPPO, 8.0),
}


class Two(Runner):
    """The loops of two runners in one process: their proxies take turns."""

    def __init__(self, cluster: Cluster, make: Any, steps: int, settings: dict[str, Any]) -> None:
        self.envs, self.steps = [make() for _ in range(2)], steps // 2
        given = {"steps": steps, **spaces(self.envs[0]), **settings}
        cluster.make_agent("learner", AlgorithmAgent, **given)
        self.agents = [cluster.get_agent("learner") for _ in self.envs]

    def run(self) -> None:
        states = [env.reset(seed=i)[0] for i, env in enumerate(self.envs)]
        for _ in range(self.steps):
            for i, (agent, env) in enumerate(zip(self.agents, self.envs, strict=True)):
                states[i], over = step(agent, env, states[i])
                states[i] = env.reset()[0] if over else states[i]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SCORES)
def test_it_learns_from_two_runners(algorithm: str) -> None:
    make, steps, settings, least = SCORES[algorithm]
    cluster = Cluster(namespace=f"scores-{algorithm}")
    runner = Two(cluster, make, steps, {"algorithm": algorithm, **BANDIT, **settings})
    untrained = runner.agents[0].evaluate(make, 20).mean
    runner.run()
    score = runner.agents[0].evaluate(make, 20).mean
    assert untrained < least - 0.5 and score >= least, (untrained, score)
