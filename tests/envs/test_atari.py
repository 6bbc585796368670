"""Atari games: what is seen, ends and rewards, and that both ways come back exactly."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from tandem.envs import atari
from tandem.envs.atari import Preprocessing
from tandem.envs.atari_fire import Fire
from tandem.envs.atari_vector import AtariVector
from tandem.envs.factory import environment_name, make, resume_fault, separate, spaces_of, vectorize
from tandem.envs.stepped import Stepped
from tandem.envs.vector import Environments, episode_seed
from tandem.errors import ResumeError, SettingError
from tandem.learning.collect.collector import Collector
from tandem.learning.collect.evaluation import evaluate
from tandem.replay.buffer import Ring
from tests.envs.made import Acts, always, assert_same

BREAKOUT = "ALE/Breakout-v5"
TRAINING = {"life_loss_ends": True, "clip_rewards": True}
STILL = {"noop_max": 0, "sticky_actions": 0.0, "press_fire": False}  # every reset is the same


def chance(actions: int = 4) -> Acts:
    rng = np.random.default_rng(0)
    return Acts(lambda obs, noise: rng.integers(actions, size=len(obs)))


def assert_same_step(one: Any, other: Any) -> None:
    assert_same(one[:5], other[:5])
    assert len(one.final) == len(other.final)


@pytest.fixture(params=["plain", "native"])
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


def games(n: int, mode: Any, kwargs: Any = TRAINING, env: str = BREAKOUT) -> Environments:
    return vectorize(env, n, 7, mode, kwargs)


def walk(envs: Environments, steps: int, seed: int = 0) -> Iterator[Any]:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield envs.step(rng.integers(4, size=envs.n))


def test_ids_and_arguments_are_known_and_nothing_else_is_touched() -> None:
    atari.quiet()
    for name in ("ALE/Pong-v5", "ale_py:PongNoFrameskip-v4", "PongNoFrameskip-v4"):
        assert atari.is_atari(name)

    def own() -> Any:
        return gymnasium.make(BREAKOUT, obs_type="grayscale")

    assert not any(map(atari.is_atari, ("CartPole-v1", "No/Such-v0", own)))
    assert make(own).observation_space.shape == (210, 160) and not vectorize(own, 2).clips
    assert make("ale_py:PongNoFrameskip-v4").observation_space.shape == (4, 84, 84)
    assert atari.arguments("CartPole-v1", Preprocessing()) == {}
    assert atari.training("CartPole-v1", {}, Preprocessing()) is None
    given = atari.arguments(BREAKOUT, Preprocessing(frame_skip=2))
    assert given["frame_skip"] == 2 and not set(given) & {"life_loss_ends", "clip_rewards"}
    assert atari.training(BREAKOUT, given, Preprocessing())["life_loss_ends"] is True
    with pytest.raises(SettingError, match="frame_stack=2 requires an Atari environment"):
        atari.arguments("CartPole-v1", Preprocessing(frame_stack=2))
    with pytest.raises(SettingError, match="sticky_actions=1.5"):
        atari.arguments(BREAKOUT, Preprocessing(sticky_actions=1.5))
    with pytest.raises(SettingError, match="cannot be created"):
        make(BREAKOUT, {"no_such": 1})


def test_what_is_seen(mode: Any) -> None:
    envs = games(2, mode)
    assert type(envs) is {"plain": Stepped, "native": AtariVector}[mode]
    spec = envs.observation
    assert (spec.shape, spec.dtype, spec.stack, spec.image) == ((4, 84, 84), "uint8", 4, True)
    assert spaces_of(BREAKOUT) == (envs.observation_space, envs.action_space)
    assert envs.action.sizes == (4,)
    obs = envs.reset()
    assert obs.shape == (2, 4, 84, 84) and obs.dtype == np.uint8
    for one in walk(envs, 60):
        ended = dict(one.final)
        for i in range(2):
            before = ended.get(i, one.obs[i])
            np.testing.assert_array_equal(before[:-1], obs[i][1:])  # the newest picture comes last
            if i in ended:
                assert not one.obs[i][:-1].any() and one.obs[i][-1].any()  # zeros before the first
        obs = one.obs
    envs.close()


@pytest.mark.slow
def test_both_ways_see_the_same_pictures() -> None:
    for more in ({}, {"frame_skip": 1, "frame_stack": 2}, {"frame_skip": 3, "frame_stack": 1}):
        does = STILL | more
        plain, native = (vectorize(BREAKOUT, 1, 0, mode, does) for mode in ("plain", "native"))
        np.testing.assert_array_equal(plain.reset(), native.reset())
        for one, other in zip(walk(plain, 40), walk(native, 40), strict=True):
            assert_same_step(one, other)


def frames(envs: Environments, mode: str) -> int:
    if mode == "plain":
        return int(envs._envs[0].unwrapped.ale.getEpisodeFrameNumber())  # type: ignore[attr-defined]
    return int(envs._envs.step(np.zeros(1, np.int64))[4]["frame_number"][0])  # type: ignore[attr-defined]


@pytest.mark.slow
def test_options_reach_the_game(mode: Any) -> None:
    assert games(1, mode, {**TRAINING, "frame_stack": 2}).observation.shape == (2, 84, 84)
    for skip in (2, 4):
        envs = games(1, mode, {**STILL, "frame_skip": skip})
        envs.reset()
        _ = list(walk(envs, 10))
        assert frames(envs, mode) == skip * (10 if mode == "plain" else 11)
    first = [games(1, mode, {**STILL, "noop_max": most}, "ALE/Pong-v5").reset() for most in (0, 30)]
    assert not np.array_equal(*first)
    for env, kwargs, expected in (
        (BREAKOUT, {}, 0.25),
        ("BreakoutNoFrameskip-v4", {}, 0.0),
        (BREAKOUT, {"sticky_actions": 0.5}, 0.5),
    ):
        ale = make(env, kwargs).unwrapped.ale
        assert ale.getFloat("repeat_action_probability") == expected


def test_a_lost_life_ends_episodes_in_training_only(mode: Any) -> None:
    envs: Any = games(1, mode)
    envs.reset()
    assert sum(one.terminated[0] for one in walk(envs, 300)) >= 3
    game = envs._envs if mode == "native" else envs._envs[0]
    lives = game.step(np.zeros(1, np.int64))[4]["lives"][0] if mode == "native" else 0
    assert (lives or game.unwrapped.ale.lives()) == 5  # the next episode is a new game
    game = make(BREAKOUT)
    game.reset(seed=0)
    seen, over, rng = {game.unwrapped.ale.lives()}, False, np.random.default_rng(0)
    while not over:
        *_, terminated, truncated, _ = game.step(int(rng.integers(4)))
        seen.add(game.unwrapped.ale.lives())
        over = terminated or truncated
    assert seen == {5, 4, 3, 2, 1, 0}


class Changes(gymnasium.Wrapper):  # type: ignore[misc]
    """Pays 4 in each step; `ends`: its first episode ends in its first step."""

    resets, ends = 0, False

    def reset(self, **how: Any) -> Any:
        self.resets += 1
        return self.env.reset(**how)

    def step(self, action: Any) -> Any:
        seen, _, over, *rest = self.env.step(action)
        return seen, 4.0, self.resets == 1 if self.ends else over, *rest


def test_rewards_are_clipped_for_learners_and_counted_whole() -> None:
    envs = Stepped("rich", [Changes(make(BREAKOUT, {"life_loss_ends": True}))])
    envs.clips = True
    collector = Collector(envs, 0.99)
    trajectory = collector.collect(120, chance())
    assert (trajectory.reward == 1).all() and trajectory.reward.dtype == np.float32
    assert collector.episodes
    assert all(ended.episode.score == 4 * ended.episode.length for ended in collector.episodes)
    inner = Changes(gymnasium.make(BREAKOUT))  # an end in the step of FIRE resets again
    inner.ends = True
    Fire(inner).reset(seed=0)
    assert inner.resets == 2


@pytest.mark.slow
def test_evaluation_plays_whole_games_of_whole_rewards() -> None:
    """A policy that never presses FIRE still comes to the game's end."""
    scores, lengths, *_ = evaluate(always(0), BREAKOUT, 2, 0)
    assert len(scores) == 2 and all(100 < n < 400 for n in lengths)
    assert not vectorize(BREAKOUT, 2, 0).clips and vectorize(BREAKOUT, 2, 0, "auto", TRAINING).clips
    # lives go on: ale_py's vector presses FIRE at resets only
    assert isinstance(vectorize(BREAKOUT, 2, 0), Stepped)
    assert isinstance(vectorize(BREAKOUT, 2, 0, "auto", TRAINING), AtariVector)
    with pytest.raises(SettingError, match="presses FIRE at resets only"):
        vectorize(BREAKOUT, 2, 0, "native")


@pytest.mark.slow
def test_an_episode_comes_from_its_seed_anywhere(mode: Any, monkeypatch: Any) -> None:
    """Episode 1 of environment 1, among two and among three, after others of other lengths."""
    monkeypatch.setattr(AtariVector, "EACH", 1)
    seen = []
    for n, warm in ((2, 0), (3, 5)):
        envs: Any = games(n, mode)
        obs, rng = envs.reset(), np.random.default_rng(warm)
        while envs._seeds[1] != episode_seed(7, 1, 1):
            obs = envs.step(rng.integers(4, size=n)).obs
        rng, rows = np.random.default_rng(3), [obs[1]]
        for _ in range(15):
            actions = np.zeros(n, np.int64)
            actions[1] = rng.integers(4)
            rows.append(envs.step(actions).obs[1])
        seen.append(np.array(rows))
    np.testing.assert_array_equal(*seen)


@pytest.mark.slow
@pytest.mark.parametrize("each", [1, 40, 4_000])
def test_games_are_resumed_in_the_middle_of_episodes(each: int, monkeypatch: Any) -> None:
    if each == 1:
        assert resume_fault(BREAKOUT, 40, mode="plain", kwargs=TRAINING) is None
    monkeypatch.setattr(AtariVector, "EACH", each)
    first, second = games(3, "native"), games(3, "native")
    first.reset()
    ended = sum(len(one.final) for one in walk(first, 90))
    assert ended >= 6
    second.load_state(*first.state())  # in an environment just made
    for one, other in zip(walk(first, 60, 5), walk(second, 60, 5), strict=True):
        assert_same_step(one, other)
    data, arrays = first.state()
    assert data == second.state()[0]
    second.load_state(data, arrays)  # and in one that was in use
    np.testing.assert_array_equal(second.state()[1]["actions"], arrays["actions"])
    assert max(data["lengths"]) < 40 + 100 if each < 4_000 else data["lengths"] == [150] * 3


def test_another_game_is_not_resumed() -> None:
    envs = games(2, "native")
    envs.reset()
    _ = list(walk(envs, 15))
    data, arrays = envs.state()
    with pytest.raises(ResumeError, match="saved state has 2 environments"):
        games(3, "native").load_state(data, arrays)
    text = "environment [01] of ALE/Breakout-v5 could not be restored"
    other = arrays | {"obs/0": arrays["obs/0"] ^ 1}
    for wrong, right in ((data, other), (data | {"ends": [0, 1]}, arrays)):
        with pytest.raises(ResumeError, match=text):
            games(2, "native").load_state(wrong, right)
    broken = games(1, "native")
    broken.reset()
    with pytest.raises(Exception, match="raised"):
        broken.step(np.zeros((1, 2)))


def test_the_ring_gives_back_what_acting_saw(mode: Any) -> None:
    # cut every 30 steps
    envs = games(2, mode, env="ALE/Pong-v5", kwargs={**TRAINING, "max_num_frames_per_episode": 120})
    ring, collector = Ring(60, 2, envs.observation, envs.action), Collector(envs, 0.99)
    obs, after, cut = [], [], 0
    for _ in range(12):
        trajectory = collector.collect(7, chance(6))
        ring.add(trajectory)
        following = np.concatenate([trajectory.obs[1:], trajectory.bootstrap[None]])
        following[trajectory.cuts.t, trajectory.cuts.env] = trajectory.cuts.obs
        cut += int((trajectory.last & (trajectory.discount > 0)).sum())
        obs.append(trajectory.obs)
        after.append(following)
    assert cut >= 4 and len(ring) == 60
    ids = np.arange(ring.oldest, ring.newest + 1)
    batch = ring.transitions(ids)
    for found, kept in ((batch.obs, obs), (batch.next_obs, after)):
        np.testing.assert_array_equal(found, np.concatenate(kept).reshape(-1, 4, 84, 84)[ids])


def test_the_older_manner() -> None:
    env = atari.history()
    seen, _ = env.reset(seed=0)
    assert seen.shape == (4, 84, 84) and env.observation_space.stack == 4
    frame = env.unwrapped.ale.getEpisodeFrameNumber()
    env.step(0)
    assert env.unwrapped.ale.getEpisodeFrameNumber() == frame + 8
    assert isinstance(separate(atari.history), type(atari.history))
    assert environment_name(env) == BREAKOUT
    lengths = []
    for episodic in (True, False):
        game = atari.history(episodic=episodic)
        game.reset(seed=0)
        n, over = 0, False
        while not over:
            *_, terminated, truncated, _ = game.step(2)
            n, over = n + 1, terminated or truncated
        lengths.append(n)
    assert 2 * lengths[0] < lengths[1]
    assert type(atari.history(clip=False)).__name__ == "FrameStackObservation"
    with pytest.raises(SettingError, match="a random number of frames"):
        atari.history("Breakout-v0")
