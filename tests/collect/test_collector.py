import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tandem.envs.actions import to_environment
from tandem.envs.checks import all_finite
from tandem.envs.episode_budget import default_budget
from tandem.envs.factory import make, vectorize
from tandem.envs.vector import episode_seed
from tandem.errors import NetworkError, ResumeError, SettingError, SpaceError
from tandem.learning.collect.collector import Collector
from tandem.learning.collect.evaluation import EvaluationStopped, evaluate
from tandem.learning.events import Evaluation
from tandem.spaces import Leaf, action_leaf, observation_spec
from tandem.testing import environments as known
from tandem.types import leaves


class Noisy:
    """Acts by its noise alone; leaves what it saw in `extra`; its recurrent state counts the steps
    since a restart."""

    def initial_state(self, n):
        return np.zeros((n, 2), np.float32)

    def act(self, obs, state, noise):
        saw = leaves(obs)[0].astype(np.float64)
        return noise, {"saw": saw, "count": state[:, 0]}, state + 1


class Always:
    """Takes one action, whatever it sees."""

    def __init__(self, action):
        self.action = action

    def initial_state(self, n):
        return ()

    def act(self, obs, state, noise):
        return np.array([self.action] * len(leaves(obs)[0])), {}, ()


def _noise(action, steps, n, seed):
    rng = np.random.default_rng(seed)
    if action.kind == "box":
        return rng.uniform(-1, 1, (steps, n, *action.shape)).astype(np.float32)
    return rng.integers(0, action.sizes[0], (steps, n))


def test_block_against_a_slow_reference():
    """Plain CartPole, stepped by hand: every array of the trajectory, the cuts and the episodes
    over several blocks."""
    gamma, n = 0.9, 3
    collector = Collector(vectorize("CartPole-v1", n, seed=2, mode="plain"), gamma)
    alone, number = [make("CartPole-v1") for _ in range(n)], [0] * n
    obs = [env.reset(seed=episode_seed(2, i, 0))[0] for i, env in enumerate(alone)]
    score, length, ended = [0.0] * n, [0] * n, 0
    for turn in range(6):
        noise = _noise(collector.environments.action, 17, n, seed=turn)
        got, cuts, episodes = collector.collect(17, Noisy(), noise), [], []
        assert got.obs.shape == (17, n, 4) and got.valid.all()
        assert got.discount.dtype == got.reward.dtype == got.extra["saw"].dtype == np.float32
        for t in range(17):
            for i, env in enumerate(alone):
                np.testing.assert_array_equal(got.obs[t, i], obs[i])
                np.testing.assert_array_equal(got.extra["saw"][t, i], obs[i])
                assert got.action[t, i] == noise[t, i] and got.extra["count"][t, i] == length[i]
                obs[i], reward, terminated, truncated, _ = env.step(noise[t, i])
                score[i], length[i] = score[i] + reward, length[i] + 1
                discount = np.float32(0 if terminated else gamma)
                assert (got.reward[t, i], got.discount[t, i]) == (reward, discount)
                assert got.last[t, i] == (terminated or truncated)
                if got.last[t, i]:
                    cuts.append((t, i, obs[i].tolist()))
                    episodes.append((t, (i, score[i], length[i], terminated)))
                    score[i], length[i], number[i] = 0.0, 0, number[i] + 1
                    obs[i] = env.reset(seed=episode_seed(2, i, number[i]))[0]
        np.testing.assert_array_equal(got.bootstrap, obs)
        assert list(zip(*(x.tolist() for x in got.cuts[:3]), strict=True)) == cuts
        assert got.cuts.t.dtype == np.int64 and got.cuts.obs.shape[1:] == (4,)
        assert [(t, tuple(e[:4])) for t, e in collector.episodes] == episodes
        ended += len(episodes)
    assert collector.env_steps == 6 * 17 * n and ended > 5
    assert collector.seconds["environment"] > 0 and collector.seconds["acting"] > 0


def test_native_block_keeps_the_last_observation_in_the_next_row():
    n, gamma = 4, 0.9
    collector = Collector(vectorize("CartPole-v1", n, seed=2, mode="native"), gamma)
    got = collector.collect(120, Noisy(), _noise(collector.environments.action, 120, n, seed=0))
    assert len(got.cuts.t) == 0 and got.cuts.obs.shape == (0, 4)
    assert (got.valid[1:] == ~got.last[:-1]).all() and got.valid[0].all()
    assert collector.env_steps == got.valid.sum() < got.valid.size
    t, i = np.argwhere(got.last[:-1])[0]
    # the pole has fallen
    assert abs(got.obs[t + 1, i, 0]) > 2.4 or abs(got.obs[t + 1, i, 2]) > 0.2095
    assert got.discount[t, i] == 0 and (got.reward == got.valid).all()
    assert np.abs(got.obs[1:][~got.valid[:-1]]).max() <= 0.05  # a new episode begins
    # restarted after `last` and after not `valid`
    assert got.extra["count"][t + 1, i] == got.extra["count"][t + 2, i] == 0
    assert next(e.length for _, e in collector.episodes if e.env == i) == t + 1
    assert sum(e.length for _, e in collector.episodes) <= collector.env_steps


def test_truncation_keeps_the_discount_and_termination_ends_it():
    collector = Collector(vectorize(known.TerminatedTruncatedPair, 2, seed=1), 0.5)
    got = collector.collect(40, Always(0))
    assert got.last.all() and len(got.cuts.t) == 80
    np.testing.assert_array_equal(got.discount, np.where(got.obs[..., 0] == 1, 0, np.float32(0.5)))
    # the states stay as they are
    np.testing.assert_array_equal(got.cuts.obs, got.obs.reshape(80, 2))
    assert {e.terminated for _, e in collector.episodes} == {True, False}
    infinite = Collector(vectorize(known.InfiniteHorizon, 1), 0.5)
    got = infinite.collect(25, Always(1))
    assert (got.discount == 0.5).all() and np.flatnonzero(got.last[:, 0]).tolist() == [9, 19]
    ended = [(t, e.score, e.length, e.terminated) for t, e in infinite.episodes]
    assert ended == [(9, 10.0, 10, False), (19, 10.0, 10, False)]


def test_blocks_do_not_share_memory():
    collector = Collector(vectorize("CartPole-v1", 2), 0.9)
    noise = _noise(collector.environments.action, 8, 2, seed=0)
    first = collector.collect(8, Noisy(), noise)
    kept = _bytes(first)
    collector.collect(8, Noisy(), noise)
    assert _bytes(first) == kept


def test_wrong_shapes_and_states_of_an_actor_are_named():
    collector, again = (Collector(vectorize("CartPole-v1", 2), 0.9) for _ in range(2))
    with pytest.raises(NetworkError, match=r"'action' of shape \(2, 1\)"):
        again.collect(3, Noisy(), np.zeros((3, 2, 1), np.int64))
    collector.collect(3, Noisy(), np.zeros((3, 2), np.int64))
    again.load_state(*collector.state())
    with pytest.raises(ResumeError, match="recurrent state has 1 arrays; the actor's has 0"):
        again.collect(3, Always(0))


def _bytes(trajectory):
    return [x.tobytes() for x in leaves(tuple(trajectory))]


PLAIN = ("CartPole-v1", "Pendulum-v1", "tandem/IdentityDict-v0")


@pytest.mark.parametrize("env, mode", [("CartPole-v1", "native"), *((x, "plain") for x in PLAIN)])
@pytest.mark.parametrize("blocks", [0, 7])
def test_resume_is_exact(env, mode, blocks):
    """Also before the first block, with recurrent states, and in the middle of episodes; the state
    goes through JSON."""
    whole, again = (Collector(vectorize(env, 3, seed=9, mode=mode), 0.99) for _ in range(2))
    noise = [_noise(whole.environments.action, 23, 3, seed=k) for k in range(blocks + 12)]
    for k in range(blocks):
        whole.collect(23, Noisy(), noise[k])
    data, arrays = whole.state()
    again.load_state(json.loads(json.dumps(data)), arrays)
    ends = 0
    for x in noise[blocks:]:
        assert _bytes(whole.collect(23, Noisy(), x)) == _bytes(again.collect(23, Noisy(), x))
        assert whole.episodes == again.episodes
        ends += len(whole.episodes)
    assert whole.env_steps == again.env_steps and ends > 0


def test_taking_the_state_changes_nothing_and_may_be_taken_again_at_once():
    one, two, third, fourth = (
        Collector(vectorize("CartPole-v1", 2, seed=1, mode="plain"), 0.99) for _ in range(4)
    )
    noise = _noise(one.environments.action, 30, 2, seed=0)
    one.collect(30, Noisy(), noise)
    two.collect(30, Noisy(), noise)
    third.load_state(*one.state())
    fourth.load_state(*third.state())
    blocks = [_bytes(c.collect(30, Noisy(), noise)) for c in (one, two, fourth)]
    assert blocks[0] == blocks[1] == blocks[2]


def test_unit_actions_stretch_to_the_bounds():
    leaf = Leaf("box", (2,), "float32", low=(-2.0, 0.0), high=(2.0, 1.0))
    three = Leaf("discrete", (), "int64", (3,))
    got = to_environment(leaf, "unit")(np.float32([[-1, -1], [1, 1], [0, 0], [0.5, -0.5]]))
    np.testing.assert_allclose(got, [[-2, 0], [2, 1], [0, 0.5], [1, 0.25]])
    assert got.dtype == np.float32
    clipped = to_environment(leaf, "clip")(np.float32([[-3, 0.5]]))
    np.testing.assert_array_equal(clipped, [[-2, 0.5]])
    wide = [Leaf("box", (1,), "float32", low=(x,), high=(3e38,)) for x in (-np.inf, -3e38)]
    for unbounded in (*wide, three):
        with pytest.raises(SpaceError, match="cannot be stretched"):
            to_environment(unbounded, "unit")
    with pytest.raises(SettingError, match="mode=.tanh."):
        to_environment(three, "tanh")


BEYOND = np.float32([[-9, -9], [9, 9], [-1, 1], [0, 1]])


@pytest.mark.parametrize("mode", ["clip", "unit"])
def test_actions_lie_in_their_box_in_its_own_dtype(mode):
    """0.3 as a float is above 0.3, -0.1 below -0.1: an environment that asserts what it is given
    would break off."""
    doubles, halves = spaces.Box(-0.1, 0.3, (2,), np.float64), spaces.Box(-2, 2, (2,), np.float16)
    for action in to_environment(observation_spec(doubles), mode)(BEYOND):
        assert doubles.contains(action) and action.dtype == np.float32
    for space in (doubles, halves):
        for action in to_environment(action_leaf(space, observation_spec(space)), mode)(BEYOND):
            assert space.contains(action) and action.dtype == space.dtype
    five = spaces.Discrete(3, start=5, dtype=np.int32)
    got = to_environment(action_leaf(five, observation_spec(spaces.Discrete(3))))(np.array([0, 2]))
    assert got.tolist() == [5, 7] and got.dtype == np.int32


def test_trajectories_hold_the_actors_actions_and_the_environment_gets_its_own():
    scaled = vectorize(lambda: known.IdentityBox(scale=2.0), 2)
    got = Collector(scaled, 0.9, action_mode="unit").collect(5, Always([0.5]))
    assert (got.action == 0.5).all()
    np.testing.assert_allclose(got.reward, -((1.0 - got.obs[..., 0]) ** 2), rtol=1e-5)
    shifted = Collector(vectorize(lambda: known.Identity(3, start=5), 2), 0.9)
    got = shifted.collect(30, Always(1))
    assert (got.action == 1).all() and 0 < got.reward.mean() < 1
    np.testing.assert_array_equal(got.reward, got.obs == 6)


class Balances:
    """A fair policy for CartPole with a recurrent state: it counts steps and errs at every
    fourth."""

    def initial_state(self, n):
        return {"steps": (np.zeros(n, np.int64), np.zeros((n, 2)))}

    def act(self, obs, state, noise):
        steps, other = state["steps"]
        good = (obs[:, 2] > 0) ^ (steps % 4 == 3)
        return good.astype(np.int64), {}, {"steps": (steps + 1, other)}


@pytest.mark.parametrize("episodes", [1, 7, 13])
def test_evaluation_does_not_depend_on_how_many_environments_play(episodes):
    name = "CartPole-v1"
    runs = [evaluate(Balances(), name, episodes, seed=3, environments=k) for k in (1, 3, 10)]
    assert runs[0] == runs[1] == runs[2] and len(runs[0][0]) == len(runs[0][1]) == episodes
    if episodes > 1:
        assert runs[0] != evaluate(Balances(), name, episodes, seed=4)
        assert len(set(runs[0][1])) > 1


def test_evaluation_is_not_biased_towards_short_episodes():
    """Episodes of 1 or 50 steps, by seed: an evaluation that stopped when enough had ended would
    see mostly short ones."""

    class Uneven(known.InfiniteHorizon):
        def begin(self):
            self.length = int(self.np_random.choice([1, 50]))

    returns, lengths, *_ = evaluate(Always(0), Uneven, 200, seed=0)
    assert returns == lengths and set(lengths) == {1, 50}
    assert 70 < lengths.count(50) < 130


def test_evaluation_of_known_answers():
    assert evaluate(Always(1), "tandem/Chain-v0", 3) == ([1.0] * 3, [4] * 3, [], 0, None)
    env = known.InfiniteHorizon()
    assert evaluate(Always(1), env, 2) == ([10.0] * 2, [10] * 2, [], 0, None)
    scaled = lambda: known.IdentityBox(scale=3.0)  # noqa: E731
    stretched = evaluate(Always([1.0]), scaled, 40, action_mode="unit").returns
    assert np.mean(stretched) == pytest.approx(-10 * (9 + 3), rel=0.2)
    with pytest.raises(SettingError, match="episodes=0"):
        evaluate(Always(1), "tandem/Chain-v0", 0)


def endless() -> known.InfiniteHorizon:
    return known.InfiniteHorizon(length=10**9)


@pytest.mark.parametrize("episodes", [1, 3, 25])
def test_an_episode_without_an_end_is_cut_and_counts_with_its_return_so_far(episodes) -> None:
    played = evaluate(Always(1), endless, episodes, max_steps=50)
    assert played.lengths == [50] * episodes and played.returns == [50.0] * episodes
    assert played.cut == episodes
    ends = evaluate(Always(1), lambda: known.InfiniteHorizon(length=50), episodes, max_steps=50)
    assert ends.returns == played.returns and ends.cut == 0, "it ended by itself"


def test_some_episodes_are_cut_at_twice_the_limit_or_the_longest_episode_of_training() -> None:
    left = iter([3, 70, 5])
    make_one = lambda: known.InfiniteHorizon(length=next(left))  # noqa: E731
    played = evaluate(Always(1), make_one, 3, max_steps=9)
    assert (played.lengths, played.cut) == ([3, 9, 5], 1)
    text = str(Evaluation.of(*played))
    assert text.endswith("over 3 episodes, 1 of them cut at 9 steps")
    limited = gymnasium.make("CartPole-v1", max_episode_steps=4000)
    assert default_budget(endless()) == 5000 == evaluate(Always(1), endless, 1).lengths[0]
    assert (default_budget(limited), default_budget(limited, 6000)) == (8000, 12000)
    assert evaluate(Always(1), endless, 1, longest=2600).lengths == [5200]


def test_an_evaluation_stops_at_the_next_step() -> None:
    asked = []

    def stopped() -> bool:
        asked.append(0)
        return len(asked) == 8

    with pytest.raises(EvaluationStopped):
        evaluate(Always(1), endless, 3, max_steps=10**9, stopped=stopped)
    assert len(asked) == 8


@pytest.mark.parametrize("size", [1, 3, 8, 33, 1000])
def test_all_finite_agrees_with_numpy(size):
    rng = np.random.default_rng(0)
    for bad in (0.0, np.nan, np.inf, -np.inf):
        x = rng.uniform(-3e38, 3e38, (1, size)).astype(np.float32)
        x[0, rng.integers(size)] = bad
        with np.errstate(all="ignore"):
            assert all_finite(x) == np.isfinite(x).all()


def test_what_is_restored_before_the_first_step_plays_each_episode_once():
    envs = vectorize("CartPole-v1", 1)
    saved = Collector(envs, 0.99).state()
    envs.reset()
    restored = Collector(envs, 0.99)
    restored.load_state(*saved)
    played = restored.collect(40, Always(1))
    assert played.discount.size == 40 and envs.episodes()[0] == len(restored.episodes) > 1
