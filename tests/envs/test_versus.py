"""Games of two in turn, seen by one of them."""

import sys
from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from tandem.envs.actions import random_actions
from tandem.envs.factory import make, resume_fault, vectorize
from tandem.envs.league import League, RandomPlayer
from tandem.envs.league_games import LeagueEnvFactory
from tandem.envs.versus import Versus
from tandem.errors import (
    EngineError,
    EnvironmentFault,
    ResumeError,
    SettingError,
    SpaceError,
    UnknownNameError,
)
from tandem.spaces import MASK
from tandem.testing.turn_games import Nim, TicTacToe
from tests.envs.made import assert_same


class Scripted:  # makes these moves, and counts them as its state
    def __init__(self, *moves: Any) -> None:
        self.moves, self.saw = moves, []

    def move(self, obs: Any, state: Any, rng: Any) -> tuple[Any, Any]:
        self.saw.append(obs)
        move = state or 0
        return np.array([self.moves[move]]), move + 1


class Pocket:
    """Cards of chance: 'quiet' sees a number as int8, has masks in infos and actions 1 and 2. Who
    chooses 2 folds and pays the other 1. p0 passes twice, is paid 1 at once, and leaves; p1 goes on
    by itself, passes three times, and is paid 0.5."""

    def __init__(self, players: int = 2, together: bool = False, masked: bool = True) -> None:
        self.possible_agents, self.masked = [f"p{i}" for i in range(players)], masked
        self.metadata = {"is_parallelizable": together}

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-5, 5, (2,), np.int8)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2, start=1)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.cards = np.random.default_rng(seed).integers(-5, 6, 2).astype(np.int8)
        self.agents, self.agent_selection = list(self.possible_agents), "p0"
        self.passed = Counter()
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos = {a: {MASK: [1, 1]} if self.masked else {} for a in self.agents}

    def observe(self, agent: str) -> Any:
        return self.cards

    def step(self, action: Any) -> None:
        who, other = self.agent_selection, "p1" if self.agent_selection == "p0" else "p0"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        if self.terminations[who]:
            assert action is None
            self.agents.remove(who)
            self.agent_selection = other
            return
        assert action in (1, 2) and isinstance(action, int)
        if action == 2:
            self.terminations = dict.fromkeys(self.terminations, True)
            self.rewards = {who: -1.0, other: 1.0}
        else:
            self.passed[who] += 1
            if self.passed[who] == (2 if who == "p0" else 3):
                self.rewards[who] = 1.0 if other in self.agents else 0.5
                self.terminations[who] = True
        self.agent_selection = other if other in self.agents else who

    def close(self) -> None:
        self.agents = []


def begun(game: Any, *moves: Any, side: int = 0, seed: int = 0) -> tuple[Versus, Any, Any]:
    """An environment against these moves, and what its reset gave."""
    env = Versus(game, Scripted(*moves), side=side)
    return env, *env.reset(seed=seed)


def test_the_end_pays_whoever_brings_it_and_a_draw_pays_nothing() -> None:
    env, obs, info = begun(TicTacToe(), 3, 4)
    assert info == {"side": "player_0", "opponent": 0}
    assert not obs["observation"].any() and obs[MASK].all()
    found = [env.step(a) for a in (0, 1, 2)]
    assert [x[1:4] for x in found] == [(0.0, False, False)] * 2 + [(1.0, True, False)]
    # its own marks first
    assert found[1][0]["observation"].tolist() == [1, 1, *[0] * 7, 0, 0, 0, 1, 1, *[0] * 4]
    assert found[1][0][MASK].tolist() == [0, 0, 1, 0, 0, 1, 1, 1, 1]
    assert found[2][0][MASK].all(), "after the end nothing is chosen"
    env, obs, info = begun(TicTacToe(), 0, 1, 2, side=1)
    assert info["side"] == "player_1" and obs["observation"].tolist() == [*[0] * 9, 1, *[0] * 8]
    found = [env.step(a) for a in (3, 4)]
    # the opponent's last move reaches it
    assert [x[1:4] for x in found] == [(0.0, False, False), (-1.0, True, False)]
    assert found[-1][0]["observation"].tolist() == [0, 0, 0, 1, 1, *[0] * 4, 1, 1, 1, *[0] * 6]
    env, *_ = begun(TicTacToe(), 1, 3, 5, 6, seed=3)
    assert [env.step(a)[1] for a in (0, 4, 2, 7, 8)] == [0.0] * 4 + [1.0]  # 0, 4, 8
    env.reset(seed=3)
    other = env.opponent
    other.moves = (4, 1, 3, 8)
    found = [env.step(a) for a in (0, 2, 7, 5, 6)]
    assert [x[1:3] for x in found] == [(0.0, False)] * 4 + [(0.0, True)]
    second = other.saw[-3]
    assert second["observation"].tolist() == [[0, 0, 0, 0, 1, *[0] * 4, 1, 0, 1, *[0] * 6]]
    assert second[MASK].tolist() == [[0, 1, 0, 1, 0, 1, 1, 1, 1]]


def played(env: Any, seed: int) -> tuple[str, float, list[Any]]:
    """Its side, what it was paid at the end, and what it saw, where it plays at random."""
    rng = np.random.default_rng(seed)
    (obs, info), over, seen = env.reset(seed=seed), False, []
    while not over:
        obs, reward, over, cut, _ = env.step(rng.choice(np.flatnonzero(obs[MASK])))
        assert not cut
        seen.append(obs["observation"].tolist())
    return info["side"], reward, seen


def assert_fair(games: list[Any], first: str, second: str) -> None:
    pays = Counter(game[:2] for game in games)
    assert {pay for _, pay in pays} <= {-1.0, 0.0, 1.0}
    assert {who for who, _ in pays} == {first, second}
    assert pays[first, 1.0] > pays[first, -1.0] and pays[second, 1.0] < pays[second, -1.0]


def test_sides_are_drawn_and_all_follows_from_the_seed() -> None:
    games, again = ([played(Versus(TicTacToe()), seed) for seed in range(200)] for _ in range(2))
    assert games == again
    assert 70 < sum(g[0] == "player_0" for g in games) < 130
    assert_fair(games, "player_0", "player_1")


ONE, TWO = np.int64(1), np.int64(2)


def test_who_has_left_and_who_goes_on() -> None:
    env, obs, _ = begun(Pocket(), 1, 1, side=1, seed=4)
    assert obs["observation"].dtype == np.float32
    assert (obs["observation"] == env.inner.cards).all() and obs[MASK].all()
    assert env.step(ONE)[1:3] == (0.0, False)
    assert env.inner.terminations == {"p0": True, "p1": False}
    assert env.step(ONE)[1:3] == (0.0, False) and env.inner.agents == ["p1"]
    assert env.step(ONE)[1:4] == (0.5, True, False)
    env, *_ = begun(Pocket(), 1, 2, side=1, seed=4)
    assert env.step(ONE)[1:3] == (1.0, True)  # it folds
    env, *_ = begun(Nim(), 2, 2, 2, side=1)
    assert env.resume_options is None and env.step(TWO)[1:3] == (0.0, False)
    assert env.step(np.int64(0))[0]["observation"].argmax() == 0


def test_a_game_without_a_turn_is_played_anew() -> None:
    env = Versus(Pocket(), side=1)
    seeds = [*range(30), *range(30)]
    first = [env.reset(seed=seed)[0]["observation"].tolist() for seed in seeds]
    assert first[:30] == first[30:]
    assert all(env.step(TWO)[1:3] == (-1.0, True) for _ in range(30) if env.reset())
    with pytest.raises(EnvironmentFault, match="in a row ended before p1 had a turn"):
        begun(Pocket(), 2, side=1)


@pytest.mark.parametrize(
    "game", [Nim, lambda: Versus(Nim(20)), Pocket, lambda: Pocket(masked=False), TicTacToe]
)
def test_a_game_is_an_environment_of_gymnasium(game: Any) -> None:
    assert resume_fault(game) is None
    made = make(game)
    if game is not TicTacToe:  # where any first action may be taken
        check_env(made, skip_render_check=True)
    of_parts = isinstance(made.observation_space, spaces.Dict)
    assert made.masked == (of_parts and MASK in made.reset(seed=0)[0])


def test_games_end_as_they_should() -> None:
    made = Nim(5)
    made.reset()
    made.step(0)
    made.step(1)
    assert (made.observe("player_0")[MASK].tolist(), made.last()[1]) == ([1, 1, 0], 0.0)
    made.step(1)
    assert made.rewards == {"player_0": 1.0, "player_1": -1.0} and made.last()[1:3] == (-1.0, True)
    made.step(None)
    assert made.agents == ["player_0"] and made.last()[1] == 1.0
    made.reset()
    with pytest.raises(ValueError, match="may not choose"):
        [made.step(a) for a in (2, 2)]
    vector = vectorize(lambda: Versus(TicTacToe(), side=0), 2)
    vector.reset()
    with pytest.raises(EnvironmentFault, match="player_0 may not choose 0"):
        [vector.step(np.array([a, 0])) for a in (0, 0)]


class Habit:
    """Takes the first allowed move after its number, or, by chance, the one after that."""

    def __init__(self, weights: Any) -> None:
        self.number = int(weights["actor"]["0/bias"][0])

    def move(self, obs: Any, state: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        allowed = np.flatnonzero(obs[MASK][0])
        later = [*allowed[allowed >= self.number % 9], *allowed, *allowed]
        return np.array([later[int(rng.integers(2))]]), None


def weights(number: int) -> Any:
    return {"actor": {"0/bias": np.array([number], np.float32)}}


def league(size: int, copies: int = 0) -> League:
    made = League(size)
    made.made = Habit
    for number in range(1, copies + 1):
        made.add(weights(number))
    return made


def test_the_newest_play_chance_does_at_first_and_a_registered_game_finds_its_league() -> None:
    for copies, expected in ((0, {0}), (2, {0, 1, 2}), (3, {1, 2, 3}), (7, {5, 6, 7})):
        env = LeagueEnvFactory(TicTacToe, league(3, copies))()
        drawn = Counter(env.reset(seed=seed)[1]["opponent"] for seed in range(300))
        assert set(drawn) == expected and min(drawn.values()) > 210 / len(expected)
        assert isinstance(env._playing, RandomPlayer if env.number == 0 else Habit)
        assert env.number == 0 or env._playing.number == env.number
    bare = Pocket()
    del bare.metadata
    assert isinstance(make(lambda: bare), Versus)
    one = league(2, 3)
    made = LeagueEnvFactory("tandem/TicTacToe-v0", one)()
    assert made.reset(seed=0)[1]["opponent"] in (2, 3) and made.unwrapped.league is one


def numbers(vector: Any) -> list[int]:
    return [env.unwrapped.number for env in vector._envs]


def test_the_opponent_of_an_episode_stays_though_it_leaves_the_pool() -> None:
    one, other = league(2, 5), league(2)
    vector, again = (vectorize(LeagueEnvFactory(TicTacToe, pool), 4, 2) for pool in (one, other))
    rng, obs = np.random.default_rng(0), vector.reset()
    obs = vector.step(random_actions(vector.action, 4, rng, obs)).obs
    before = numbers(vector)
    for number in range(6, 12):
        one.add(weights(number))
    assert numbers(vector) == before and set(before) == {4, 5}
    data, held = one.state()
    assert data == {"copies": 11, "kept": [4, 5, 10, 11]} and held["4/actor/0/bias"] == 4
    state = vector.state()
    assert state[0]["options"] == [{"copies": 5}] * 4
    again.reset()
    other.load_state(data, held)
    again.load_state(*state)
    for _ in range(40):
        actions = random_actions(vector.action, 4, rng, obs)
        a, b = vector.step(actions), again.step(actions)
        assert_same(a[:5], b[:5])
        obs = a.obs
    assert set(numbers(vector)) <= {10, 11}
    for made in (one, other):
        made.add(weights(12))
    assert one.state()[0] == other.state()[0] and not {4, 5} & set(one.state()[0]["kept"])
    other.load_state({"copies": 12, "kept": []}, {})
    with pytest.raises(ResumeError, match="an episode is against copy"):
        again.load_state(*state)


class Silent(Pocket):
    def step(self, action: Any) -> None:
        super().step(action)
        self.infos = {}


FLAT = gymnasium.wrappers.FlattenObservation
UNEQUAL = {"action_space": lambda self, agent: spaces.Discrete(2 + (agent == "p1"), start=1)}


def in_league(env: Any) -> Any:
    return LeagueEnvFactory(env, League(3))()


@pytest.mark.parametrize(
    "call, kind, said",
    [
        (lambda: Versus(Pocket(3)), SettingError, "has 3 players: p0, p1, p2"),
        (lambda: Versus(Pocket(together=True)), SettingError, "players of Pocket move together"),
        (
            lambda: Versus(type("Unequal", (Pocket,), UNEQUAL)()),
            SpaceError,
            "the same spaces for both",
        ),
        (lambda: Versus(object()), SettingError, "AEC interface"),
        (lambda: Versus(Nim(), side=2), SettingError, "side=2"),
        (lambda: Versus(Nim(), "me"), SettingError, "opponent='me'"),
        (lambda: make(Nim()), SettingError, "callable"),
        (lambda: begun(Silent(), 1)[0].step(ONE), EnvironmentFault, "no 'action_mask' for p1"),
        (lambda: in_league("CartPole-v1"), SettingError, "there is no other player"),
        (lambda: in_league(lambda: Versus(Nim(), Scripted(0))), SettingError, "is already set"),
        (
            lambda: in_league(lambda: FLAT(Versus(Nim()))),
            SettingError,
            "game in FlattenObservation",
        ),
    ],
)
def test_what_cannot_be_played_so_is_refused(call: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        call()


def test_classic_games(monkeypatch: Any) -> None:
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    made = make("classic/tictactoe_v3", {"render_mode": "rgb_array"})
    obs, _ = made.reset(seed=5)
    assert obs["observation"].shape == (3, 3, 2) and obs["observation"].dtype == np.float32
    assert made.render().dtype == np.uint8 and made.render_mode == "rgb_array"
    assert resume_fault("classic/tictactoe_v3") is None
    assert resume_fault("classic/connect_four_v3") is None
    assert_fair([played(made, seed) for seed in range(60)], "player_1", "player_2")
    with pytest.raises(UnknownNameError, match="classic/tictactoe_v3"):
        make("classic/tictaktoe_v3")
    with pytest.raises(SettingError, match="move together"):
        make("classic/rps_v2")
    for name in [n for n in sys.modules if n.startswith("pettingzoo.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(EngineError, match="needs pettingzoo"):
        make("classic/connect_four_v3")
