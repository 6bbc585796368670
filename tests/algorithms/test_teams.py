"""What the team algorithms do with agents that leave, with limits, with memories, and with
statistics of values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tandem
from tandem import algorithms
from tandem.algorithms import recurrent_batches
from tandem.algorithms import teams as rows_of
from tandem.algorithms.mappo import active_after
from tandem.algorithms.vdn import values
from tandem.envs.team import Team
from tandem.errors import SettingError, SpaceError
from tandem.learning.collect.actor import forwards
from tandem.learning.events import BatchEnd
from tandem.networks.plan import Cast, Dense, init
from tandem.networks.several import each
from tandem.networks.value_scale import Denormalize, follow
from tandem.replay.buffer import Ring
from tandem.replay.samplers import SequenceSampler
from tandem.spaces import MASK, Leaf
from tandem.testing import contracts, fakes, team_games
from tandem.types import Cuts, Trajectory, tree_map
from tests.runs.shared import QUICK

MAPPO, MADDPG, QMIX, VDN = (algorithms.get(n) for n in ("mappo", "maddpg", "qmix", "vdn"))
SMALL: dict[str, Any] = {"hidden": (8,), "envs": 2, "rollout": 4, "batch_size": 8, "steps": 64}
REPLAYED: dict[str, Any] = {"hidden": (8,), "recurrent": 4, "sequence": 4, "batch_size": 16}
REPLAYED |= {"steps": 200, "envs": 2, "train_every": 2, "learning_starts": 40}
TWO_BLOCKS: dict[str, Any] = {"hidden": (8,), "embedding": 8, "heads": 2, "blocks": 2}
TWO_BLOCKS["orthogonal"] = False


def climbing() -> Any:
    return Team(team_games.Climbing())


def begun(kind: Any, game: Any, **settings: Any) -> Any:
    return contracts.begin(kind, lambda: Team(game()), "torch", **settings)


class Sine(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.sin(x)


def rollout(game: Any, **settings: Any) -> tuple[Any, Trajectory]:
    """A MAPPO at its beginning, and the first rollout that it collected."""
    loop = begun(MAPPO, game, **SMALL | settings)
    seen: list[Trajectory] = []
    real = loop.learner.learn
    loop.learner.learn = lambda t, span: (seen.append(t), real(t, span))[1]
    contracts.train(loop, updates=1)
    return loop, seen[0]


def test_an_agent_that_leaves_has_an_episode_of_its_own() -> None:
    loop, t = rollout(team_games.Leaving)
    # of environment 0: agents 0 and 1, three steps and the next episode's first
    columns = loop.algorithm.columns(t)
    assert columns.reward.T[:2].tolist() == [[1, 1, 1, 1], [2, 0, 0, 2]]
    assert columns.last.T[:2].tolist() == [[False, False, True, False], [True] * 4]
    assert columns.valid[:, 0].all() and columns.valid[:, 1].tolist() == [True, False, False, True]
    assert columns.discount[:, 0].tolist() == pytest.approx([0.99, 0.99, 0, 0.99])
    assert not columns.discount[:, 1].any()
    assert columns.obs["actor"].shape == (4, 4, 6)
    assert columns.obs["critic"]["state"].shape == (4, 4, 4)


class LimitedAlone(team_games.Leaving):
    """A limit takes the second where it would leave: its game would have gone on."""

    def step(self, actions: dict[str, Any]) -> Any:
        obs, rewards, ended, cut, infos = super().step(actions)
        if "agent_1" in cut:
            ended["agent_1"], cut["agent_1"] = False, True
        return obs, rewards, ended, cut, infos


@pytest.mark.parametrize("rollouts", [4, 1], ids=["within a rollout", "at its end"])
def test_whom_a_limit_takes_alone_is_worth_what_its_last_observation_is(rollouts: int) -> None:
    loop, t = rollout(LimitedAlone, rollout=rollouts, batch_size=2 * rollouts, gae_lambda=1.0)
    columns = loop.algorithm.columns(t)
    assert columns.last[0].tolist() == [False, True] * 2
    assert columns.discount[0].tolist() == pytest.approx([0.99] * 4)
    if rollouts == 4:
        assert columns.valid[:, 1].tolist() == [True, False, False, True]
        assert columns.last[3].tolist() == [False, True] * 2
    critic = loop.networks["critic"]
    obs = t.obs["agents"][1] if rollouts == 4 else t.bootstrap["agents"]
    state = t.obs["state"][1] if rollouts == 4 else t.bootstrap["state"]
    last = critic({"own": obs[:, 1], "state": state})[:, 0]
    returns = loop.algorithm.prepare(t, loop.networks).extra["return"].reshape(rollouts, 2, 2)
    np.testing.assert_allclose(returns[0, :, 1], 2.0 + 0.99 * last, rtol=1e-5)


def test_a_team_that_shares_its_reward_goes_on_without_who_left() -> None:
    loop, t = rollout(team_games.Leaving, rewards="team")
    columns = loop.algorithm.columns(t)
    assert columns.reward[:, 1].tolist() == columns.reward[:, 0].tolist() == [1.5, 0.5, 0.5, 1.5]
    assert columns.valid.all() and columns.last[:, 1].tolist() == [False, False, True, False]
    acting = columns.extra["acting"]
    assert acting[:, 1].tolist() == [1, 0, 0, 1] and acting[:, 0].all()


def test_a_limit_takes_no_agent() -> None:
    _, t = rollout(team_games.Endless)
    assert t.cuts.obs["active"].all() and t.last[2].all() and (t.discount > 0).all()
    assert active_after(t).all()


def test_who_is_there_after_each_step() -> None:
    here = np.array([[[1, 1]], [[1, 0]], [[1, 1]]], np.int8)
    cuts = Cuts(np.array([1]), np.array([0]), {"active": np.array([[0, 1]], np.int8)})
    none = np.zeros((3, 1), np.float32)
    rest = (none, none, none, none > 0, none == 0)
    t = Trajectory({"active": here}, *rest, cuts, {"active": here[1]})
    assert active_after(t)[:, 0].tolist() == [[1, 0], [0, 1], [1, 0]]


class Joining(team_games.Leaving):
    """The second comes with the third step, and stays."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed)
        self.agents = ["agent_0"]
        return self._to_all(self.state()), self._to_all({})

    def step(self, actions: dict[str, Any]) -> Any:
        there, self.place = list(self.agents), self.place + 1
        over = self.place == 3
        self.agents = [] if over else self.possible_agents[: self.place]
        both = dict.fromkeys(self.possible_agents[: self.place], self.state())
        return both, *(dict.fromkeys(there, x) for x in (1.0, over, False)), {}


@pytest.mark.parametrize("rewards", ["own", "team"])
def test_a_memory_is_followed_as_it_acted_whenever_its_agent_came(rewards: str) -> None:
    """The policy in the buffer is the one that acted: its memory begins with the episode."""
    loop = begun(MAPPO, Joining, **SMALL, recurrent=4, sequence=4, rewards=rewards)
    algorithm, act = loop.learner.algorithm, loop.actor.act
    prepare = algorithm.prepare
    acted, followed = list[Any](), list[Any]()

    def acting(*given: Any) -> Any:
        found = act(*given)
        acted.append(found[2])  # the state after the step
        return found

    def preparing(t: Trajectory, networks: Any) -> Any:
        columns = algorithm.columns(t)
        start = recurrent_batches.starts(columns)
        assert start[3].all() and not start[:3].any()  # where the team's next episode begins
        obs = columns.obs["actor"].reshape(-1, 6)
        after = recurrent_batches.follow(networks["actor"], obs, columns.state, start)[1]
        followed.append(after)
        return prepare(t, networks)

    loop.actor.act, algorithm.prepare = acting, preparing
    contracts.train(loop, updates=1)
    states = np.stack(acted[:4]).reshape(followed[0].shape)
    np.testing.assert_allclose(followed[0], states, rtol=1e-5, atol=1e-6)


def test_every_agent_begins_with_weights_of_its_own() -> None:
    w = init(each((Cast(3), Dense(3, 4, "tanh"), Dense(4, 2)), 2), np.random.default_rng(0))
    assert np.abs(w["0/0/1/kernel"] - w["0/1/1/kernel"]).max() > 0.1


def test_forbidden_choices_have_the_lowest_values() -> None:
    rng = np.random.default_rng(0)
    obs = fakes.observations(fakes.MASKED_TEAM, (50,), rng)
    obs[MASK][:, ::4] = 1
    network = lambda x: rng.standard_normal((len(x), 4)).astype(np.float32)  # noqa: E731
    q, memory = values(network, obs, (), fakes.TEAM_MASKED)
    assert q.shape == (50, 3, 4) and memory == ()
    allowed = obs[MASK].reshape(50, 3, 4) > 0
    assert np.take_along_axis(allowed, q.argmax(-1)[..., None], -1).all()
    chance = (np.ones((50, 3), bool), rng.random((50, 12), dtype=np.float32))
    nothing = {"q": lambda x: np.zeros((len(x), 4), np.float32)}
    explored = VDN.act(VDN.Settings(), fakes.TEAM_MASKED, nothing, obs, (), chance)[0]
    assert np.take_along_axis(allowed, explored[..., None], -1).all()
    assert len(np.unique(explored)) == 4


def test_sequences_are_rows_of_one_environment_in_turn() -> None:
    number = Leaf("box", (), "float32", (), (-9.0,), (9.0,))
    ring = Ring(12, 2, number, number)
    for t in range(9):
        block = np.full((1, 2), t, np.float32) + np.array([[0, 0.5]], np.float32)
        none = Cuts(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
        last, all_valid = np.full((1, 2), t == 5), np.ones((1, 2), bool)
        discount = 0.9 * np.ones((1, 2), np.float32)
        rest = (last, all_valid, none, block[0] + 1)
        ring.add(Trajectory(block, block, block, discount, *rest))
    sampler = SequenceSampler(ring, 3)
    assert sampler.ready(1) and not SequenceSampler(ring, 8).ready(1)
    rows = sampler.sequences(sampler.draw(np.random.default_rng(0), 4, 50).ids)
    found = ring.transitions(rows).obs
    assert rows.shape == found.shape == (4, 50, 3) and (np.diff(found, axis=-1) == 1).all()
    assert sorted(set(found[..., 0].ravel())) == [3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5]


def test_sequences_start_anew_after_an_end_and_keep_their_memories() -> None:
    loop = begun(VDN, team_games.TwoStep, **REPLAYED, epsilon=0.5)
    contracts.train(loop, updates=20)
    # no more of chance, which has none
    ids = np.arange(loop.learner.ring.newest - 45, loop.learner.ring.newest - 5)[None]
    batch = loop.learner._batch(ids, ())
    state, start = batch.extra["q_state"], batch.extra["start"]
    place = batch.obs["state"].argmax(-1)  # 0 where an episode begins
    assert batch.obs["agents"].shape == (1, 40, 4, 2, 5) and state.shape == (1, 40, 2, 4)
    np.testing.assert_array_equal(start[..., 1:], place[..., 1:] == 0)
    assert not start[..., 0].any()
    began = place[0, :, 0] == 0
    assert not state[0, began].any() and np.abs(state[0, ~began]).max() > 0.01


def test_a_sequence_may_have_one_step() -> None:
    assert contracts.train(begun(VDN, team_games.TwoStep, **REPLAYED | {"sequence": 1}))


@pytest.mark.parametrize("preserve", [False, True])
def test_values_keep_their_units(preserve: bool) -> None:
    """PopArt's outputs stay where they were as the statistics move; without it they move along."""
    loop = begun(MAPPO, team_games.Endless, value_norm="popart", share=False, **SMALL)
    critic, rng = loop.backend.networks["critic"], np.random.default_rng(0)
    own = rng.standard_normal((4, 3)).astype(np.float32)
    seen = {"own": own, "state": np.ones((4, 1), np.float32)}
    for returns in (rng.normal(40, 5, 300), rng.normal(-3, 80, 200)):
        before = critic.predict(seen)
        deviation, ratio, shift = follow(critic, returns.astype(np.float32), preserve)
        now = critic.predict(seen)
        moved = np.abs(now - before).max()
        np.testing.assert_allclose(now, ratio * before + shift, rtol=1e-4, atol=1e-3)
        assert moved < 1e-3 if preserve else moved > 1
    assert deviation == pytest.approx(np.sqrt(critic.read()["0/1/3/value_variance"][0]), rel=1e-6)
    assert critic.read()["0/0/3/value_count"][0] == 500


@pytest.mark.parametrize("kind", ["norm", "popart"])
def test_clipped_values_are_held_near_what_the_critic_says_now(kind: str) -> None:
    """Else, where returns are far from 0, the statistics' own move is beyond the clip, and the
    critic learns nothing."""
    loop, t = rollout(team_games.Endless, value_norm=kind, share=True)
    loop._sync()
    far = t._replace(extra=t.extra | {"rewards": 30 * t.extra["rewards"] - 500})
    critic = loop.backend.networks["critic"]
    before = critic.read()["3/value_mean"][0]
    data = loop.algorithm.prepare(far, loop.networks)
    assert critic.read()["3/value_mean"][0] < before - 100
    now = critic.predict(tree_map(rows_of.rows, data.obs["critic"]))[:, 0]
    np.testing.assert_allclose(data.extra["value"].reshape(-1), now, rtol=1e-4, atol=1e-3)


def test_value_statistics_are_those_of_all_returns() -> None:
    loop = begun(MAPPO, team_games.Endless, value_norm="norm", **SMALL)
    critic, rng = loop.backend.networks["critic"], np.random.default_rng(0)
    parts = [rng.normal(m, 2, 50).astype(np.float32) for m in (0, 7, -4)]
    for part in parts:
        deviation = follow(critic, part, False).deviation
    returns = np.concatenate(parts)
    found = (critic.read()["3/value_mean"][0], deviation)
    assert found == pytest.approx((returns.mean(), returns.std()), rel=1e-4)
    # returns that are all alike are not blown up
    assert follow(critic, np.zeros(100_000, np.float32), False).deviation >= 0.1
    assert Denormalize().outputs == 1


@pytest.mark.parametrize("layers", [(), (torch.nn.Tanh(),), (torch.nn.Softsign(), Sine())])
def test_value_statistics_of_a_whole_custom_critic(layers: Any) -> None:
    """Of known layers or not; PopArt has to know that the last one is linear."""
    linear, seen = torch.nn.Linear(3, 1), np.eye(3, dtype=np.float32)
    network = {"actor": torch.nn.Linear(3, 2), "critic": torch.nn.Sequential(linear, *layers)}
    own = {**SMALL, "centralized": False, "network": network}
    loop = begun(MAPPO, team_games.Endless, value_norm="norm", **own)
    critic, before = loop.backend.networks["critic"], network["critic"](torch.eye(3)).detach()
    follow(critic, np.float32([3.0, 5.0, 13.0]), False)
    expected = before.numpy() * np.sqrt(56 / 3) + 7
    np.testing.assert_allclose(critic.predict(seen), expected, rtol=1e-5)
    if layers:
        with pytest.raises(SettingError, match="value_norm='popart' .* unknown"):
            follow(critic, np.ones(3, np.float32), True)
    else:
        follow(critic, np.ones(3, np.float32), True)
        np.testing.assert_allclose(critic.predict(seen), expected, rtol=1e-5)


def test_a_box_is_refused() -> None:
    with pytest.raises(SpaceError, match="qmix cannot act in a Box"):
        QMIX.check(fakes.TEAM, fakes.TEAM_BOX, QMIX.Settings())


def test_a_body_of_the_users_own_is_shared_by_all_agents() -> None:
    from torch import nn

    spaces: list[Any] = []

    def body(space: Any) -> Any:
        spaces.append(space)
        return nn.Sequential(nn.Linear(space.shape[0], 8), nn.Tanh())

    given = {"steps": 40, "envs": 2, "train_every": 2, "learning_starts": 8, "batch_size": 8}
    for kind in (VDN, QMIX):
        assert len(contracts.train(begun(kind, team_games.TwoStep, network=body, **given))) > 5
    assert {s.shape for s in spaces} == {(5,)}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["mappo", "mat", "mat box", "qmix", "maddpg", "maddpg box"])
def test_agents_of_different_sizes_learn_together(case: str) -> None:
    """A speaker that sees 3 numbers and has 3 choices, a listener that sees 11 and has 5."""
    pytest.importorskip("mpe2")
    name, _, box = case.partition(" ")
    sizes: dict[str, Any] = {"steps": 120, "envs": 2, "hidden": (8,), "batch_size": 8}
    if name in ("mappo", "mat"):
        sizes["rollout"] = 8
    else:
        sizes |= {"train_every": 4, "learning_starts": 20}
    world, quiet = "mpe/simple_speaker_listener_v4", {"eval_episodes": 2, "plots": False}
    kwargs = {"continuous_actions": bool(box)}
    run = tandem.session(name, world, env_kwargs=kwargs, framework="torch", **quiet, **sizes)
    metrics = [e.metrics for e in run if isinstance(e, BatchEnd) and e.metrics]
    assert len(metrics) > 5 and all(np.isfinite(list(m.values())).all() for m in metrics)
    assert run.last_evaluation is not None and len(run.last_evaluation.agents) == 2


# The multi-agent transformer


@pytest.mark.parametrize(
    ("action", "observation"),
    [(fakes.TEAM_MASKED, fakes.MASKED_TEAM), (fakes.TEAM_BOX, fakes.TEAM)],
)
def test_what_is_learned_of_is_the_policy_that_acted(action: Any, observation: Any) -> None:
    """All agents at once, told what was taken, draw by the same noise what was drawn one by one."""
    algorithm, backend = fakes.build("mat", "torch", action, observation, **TWO_BLOCKS)
    rng, networks = np.random.default_rng(0), forwards(backend, algorithm.acting)
    obs = fakes.observations(observation, (50,), rng)
    if action.masked:
        obs[MASK][:, ::4] = 1
    noise = algorithm.exploration_noise(algorithm.settings, action, rng, (50,), np.zeros(1))
    taken = algorithm.act(algorithm.settings, action, networks, obs, (), noise)[0]
    batch = fakes.batches(algorithm, observation, action, 1, 50)
    batch = tree_map(lambda x: x[0], batch._replace(settings={}, obs=(), action=()))
    rows = algorithm.rows(obs)
    flat = taken.reshape(-1, *taken.shape[2:])
    algorithm.encoder, algorithm.actor, algorithm.critic = (
        backend.networks[n].predict for n in ("encoder", "actor", "critic")
    )
    out, value = algorithm.outputs(batch._replace(obs=rows, action=flat))
    again = algorithm.policy.sample(out, noise.reshape(150, *noise.shape[2:]))
    np.testing.assert_allclose(again, flat, rtol=1e-4, atol=1e-5)
    assert value.shape == (150,) and len(np.unique(np.round(flat, 3))) > 3
    if action.masked:
        allowed = obs[MASK].reshape(50, 3, 4)
        assert np.take_along_axis(allowed, taken[..., None], -1).all()


@pytest.mark.slow
def test_agents_who_know_of_each_other_climb() -> None:
    """11 stands beside -30: of agents who draw independently, MAPPO takes 7."""
    sizes = {"hidden": (16,), "embedding": 16, "envs": 8, "rollout": 16, "batch_size": 128}
    rates = {"learning_rate": "5e-3:1e-3", "clip": 0.2, "entropy": "0.3:0", "gamma": 0.9}
    loop = contracts.begin(algorithms.get("mat"), climbing, "torch", steps=4000, **sizes, **rates)
    contracts.train(loop)
    assert contracts.score(loop, climbing) == 11.0


def test_a_saved_team_acts_as_it_did(tmp_path: Path) -> None:
    given = QUICK | TWO_BLOCKS | {"steps": 128, "envs": 4, "rollout": 8, "batch_size": 16}
    result = tandem.train("mat", climbing, out=tmp_path, **given | {"eval_episodes": 3})
    agent = tandem.load(tmp_path, which="last")
    found = tandem.evaluate(agent, env=climbing, episodes=3)
    assert found.mean == result.evaluation.mean
