"""Agents of the library's algorithms: what they write down, and what they learn from it."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import tandem
from tandem.cluster import AlgorithmAgent, sampler
from tandem.collect.trajectories import split_environments, split_steps
from tandem.envs.factory import episode_seed, vectorize
from tandem.envs.team import team
from tandem.errors import NonFiniteError, SettingError, SpaceError, UnknownNameError
from tandem.learning import loop
from tandem.learning.seeds import Generators, derived
from tandem.types import leaves
from tests.cluster.agents import spaces
from tests.cluster.test_local import fresh, make_agents

CARTPOLE = gymnasium.make("CartPole-v1")
torch = pytest.importorskip("torch")
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
        a = agent.choose_action(s)
        s2, r, terminated, truncated, info = env.step(a)
        over = terminated or truncated
        ended = (over, truncated and not terminated) if told else (terminated,)
        agent.update(s, a, info.get("rewards", r), s2, *ended)
        s = s2
        if over:
            episode += 1
            s, _ = env.reset(seed=episode_seed(seeds, 0, episode))


def weights(backend):
    return {
        f"{n}/{k}": w.copy() for n, net in backend.networks.items() for k, w in net.read().items()
    }


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
    one = sampler.Sampler(config, agent._networks, "acting")
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


def test_a_block_stands_for_itself() -> None:
    (block, later) = blocks_of(True, gymnasium.make("CartPole-v1"))
    assert block.last[-1].all() and block.cuts.t[-1] == 31
    np.testing.assert_array_equal(block.cuts.obs[-1], block.bootstrap[0])
    if block.discount[-1, 0]:
        np.testing.assert_array_equal(block.bootstrap[0], later.obs[0, 0])


def test_blocks_come_apart_and_together() -> None:
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
# others learn in tests/cluster/test_scores.py and test_examples.py
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
