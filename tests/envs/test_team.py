"""Teams: several agents with the arrays of one."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import tandem
from tandem.envs.factory import make, resume_fault, vectorize
from tandem.envs.team import Team, team
from tandem.errors import EnvironmentFault, SettingError, SpaceError, UnknownNameError
from tandem.learning.collect.evaluation import evaluate
from tandem.learning.events import Evaluation
from tandem.spaces import MASK
from tandem.testing import team_games
from tests.envs.made import Acts


class Uneven:
    """Agents that differ: the second leaves after step 3, the first may not choose 2."""

    possible_agents = ("loud", "quiet")
    observations = {"loud": spaces.Discrete(3, start=1), "quiet": spaces.Box(-9, 9, (2, 2))}
    actions = {"loud": spaces.Discrete(3), "quiet": spaces.Discrete(2, start=5)}

    def __init__(self, limit: int = 6) -> None:
        self.limit, self.agents, self.taken = limit, [], []

    def observation_space(self, agent: str) -> Any:
        return self.observations[agent]

    def action_space(self, agent: str) -> Any:
        return self.actions[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.t, self.taken = list(self.possible_agents), 0, []
        return self.seen(), {"loud": {MASK: [1, 1, 0]}}

    def close(self) -> None:
        self.agents = []

    def seen(self) -> dict[str, Any]:
        both = {"loud": 1 + self.t % 3, "quiet": np.full((2, 2), self.t, np.float32)}
        return {n: both[n] for n in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.taken.append(actions)
        self.t += 1
        there, cut = list(self.agents), self.t == self.limit
        ended = {n: n == "quiet" and self.t == 3 for n in there}
        self.agents = [] if cut else [n for n in there if not ended[n]]
        rewards = {n: 1.0 if n == "loud" else 4.0 for n in there}
        return self.seen(), rewards, ended, dict.fromkeys(there, cut), {"loud": {MASK: [1, 1, 0]}}


def test_agents_that_differ_stand_side_by_side() -> None:
    with pytest.raises(SettingError, match="no possible_agents"):
        team(object())
    made = team(Uneven)  # the class itself, which says who there may be
    assert isinstance(made, Team)
    obs, _ = made.reset(seed=0)
    assert obs["agents"].tolist() == [[1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]]
    assert obs["active"].tolist() == [1, 1]
    # it has none of its own: what both see, but not who they are
    assert obs["state"].tolist() == [1] + [0] * 7
    assert made.action_space == spaces.MultiDiscrete([3, 3])
    assert obs[MASK].tolist() == [1, 1, 0, 1, 1, 0]
    obs, reward, *ends, info = made.step(np.array([1, 1]))
    assert made.inner.taken == [{"loud": 1, "quiet": 6}]
    assert (reward, ends, info["rewards"].tolist()) == (2.5, [False, False], [1.0, 4.0])
    assert obs["agents"].tolist() == [[0, 1, 0, 0, 1, 0], [1, 1, 1, 1, 0, 1]]


def played(game: Any, steps: int = 6) -> tuple[Team, list[Any]]:
    made = Team(game)
    made.reset(seed=0)
    found = [made.step(np.array([0, 0])) for _ in range(steps)]
    assert all(x[0] in made.observation_space for x in found)
    return made, found


BOTH, LOUD = [1, 1, 0, 1, 1, 0], [1, 1, 0, 1, 1, 1]  # what may be chosen


def test_one_that_leaves_is_gone_and_a_limit_cuts() -> None:
    made, found = played(Uneven())
    # the limit took none
    assert [x[0]["active"].tolist() for x in found] == [[1, 1], [1, 1]] + [[1, 0]] * 4
    assert [x[1] for x in found] == [2.5, 2.5, 2.5, 0.5, 0.5, 0.5]
    assert found[3][0]["agents"][1].tolist() == [0] * 5 + [1] and found[3][0][MASK].tolist() == LOUD
    assert [x[2:4] for x in found] == [(False, False)] * 5 + [(False, True)]
    assert [set(t) for t in made.inner.taken[2:4]] == [{"loud", "quiet"}, {"loud"}]


class Limited(Uneven):
    """The second is taken by a limit of its own, and not by an end of its game."""

    def step(self, actions: dict[str, Any]) -> Any:
        obs, rewards, ended, cut, infos = super().step(actions)
        cut = {n: cut[n] or ended[n] for n in cut}
        return obs, rewards, dict.fromkeys(ended, False), cut, infos


def test_whom_a_limit_takes_alone_is_seen_once_more_and_then_gone() -> None:
    """Its value is bootstrapped from its last observation; the row after is not learned from."""
    _, found = played(Limited())
    assert [x[0]["active"].tolist() for x in found] == [[1, 1], [1, 1], [1, 2]] + [[1, 0]] * 3
    assert [x[0][MASK].tolist() for x in found[2:4]] == [BOTH, LOUD]
    assert found[2][0]["agents"][1].any() and not found[3][0]["agents"][1, :5].any()
    assert [x[2:4] for x in found] == [(False, False)] * 5 + [(False, True)]
    _, (_, last) = played(Uneven(limit=2), 2)
    assert last[0]["active"].tolist() == [1, 1] and last[3] and last[0][MASK].tolist() == BOTH


GAMES = [team_games.Climbing, team_games.Penalty, team_games.TwoStep]


@pytest.mark.parametrize("game", [*GAMES, Uneven])
def test_a_team_is_an_environment_of_gymnasium(game: Any) -> None:
    check_env(Team(game()), skip_render_check=True)
    assert resume_fault(lambda: Team(game())) is None


def test_games_pay_what_they_say_and_evaluations_tell_what_each_agent_got() -> None:
    for game, actions in zip(GAMES, ([(0, 0)], [(2, 2)], [(1, 0), (1, 1)]), strict=True):
        made = Team(game())
        made.reset()
        *_, last = [made.step(np.array(a)) for a in actions]
        assert last[1] == made.inner.optimum and last[2]
    assert Team(team_games.Penalty(-30)).inner.payoff.min() == -30
    idle = Acts(lambda obs, noise: np.zeros((len(obs["agents"]), 2), np.int64))
    found = evaluate(idle, lambda: Team(team_games.Leaving()), 3)
    assert found == ([2.5] * 3, [3] * 3, [[3.0, 2.0]] * 3, 0, None)
    assert Evaluation.of(*found)[4] == (3.0, 2.0) and Evaluation.of(*found).mean == 2.5


@pytest.mark.slow
def test_one_mind_for_all_learns_two_steps() -> None:
    given = {"steps": 6000, "envs": 8, "rollout": 16, "batch_size": 64, "entropy": 0.05}
    given |= {"learning_rate": "1e-2:1e-3", "eval_episodes": 0, "plots": False, "hidden": (16,)}
    made = tandem.train("ppo", lambda: Team(team_games.TwoStep()), framework="torch", **given)
    assert made.evaluation.mean == 8.0


class Silent(Uneven):
    def step(self, actions: Any) -> Any:
        obs, rewards, *rest = super().step(actions)
        rewards.pop("quiet")
        return obs, rewards, *rest


class Staying(Uneven):  # an episode whose agents stay in the list would go on for ever
    def step(self, actions: Any) -> Any:
        found = super().step(actions)
        self.agents = list(self.possible_agents)
        return found


def uneven(**attributes: Any) -> Any:
    return type("Other", (Uneven,), attributes)


def of_both(space: Any) -> dict[str, Any]:
    return dict.fromkeys(Uneven.possible_agents, space)


WORDLESS = uneven(reset=lambda self, seed=None, options=None: Uneven.reset(self, seed)[0])
SEEDLESS = uneven(reset=lambda self: Uneven.reset(self))
PLACE = of_both(spaces.Dict({"place": spaces.Discrete(2)}))
MIXED = {"loud": spaces.Discrete(3), "quiet": spaces.Box(0, 1, (2,))}


@pytest.mark.parametrize(
    "game, kind, said",
    [
        (uneven(actions=MIXED), SpaceError, "Discrete for all agents"),
        (WORDLESS, EnvironmentFault, "reset of Other returned only the observation"),
        (SEEDLESS, EnvironmentFault, "Other raised TypeError while resetting"),
        (uneven(observations=PLACE), SpaceError, "loud observes a Dict of 'place'"),
        (uneven(actions=of_both(spaces.Box(0, 3, (2,), np.int64))), SpaceError, "a float Box"),
        (uneven(possible_agents=()), SpaceError, "Other has no agents"),
        (Silent, EnvironmentFault, "no reward for quiet"),
        (Staying, EnvironmentFault, "ended for quiet, but still has them"),
    ],
)
def test_environments_that_break_the_contract_are_told_how(game: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        made = make(game)
        made.reset()
        for _ in range(3):
            made.step(np.array([0, 0]))


def test_particle_worlds_and_moves_of_several_axes() -> None:
    pytest.importorskip("mpe2")
    made = team("mpe/simple_spread_v3", {"N": 3, "max_cycles": 25, "local_ratio": 0.5})
    assert made.observation_space["agents"].shape == (3, 21)
    assert made.observation_space["state"].shape == (54,)
    assert np.array_equal(made.reset(seed=3)[0]["state"], made.inner.state())
    vector = vectorize(lambda: team("mpe/simple_adversary_v3"), 2, 7)
    obs = vector.reset()
    # the adversary sees less
    assert obs["agents"].shape == (2, 3, 13) and not obs["agents"][:, 0, 8:10].any()
    for _ in range(25):
        one = vector.step(np.zeros((2, 3), np.int64))
    assert one.truncated.all() and not one.terminated.any()
    assert resume_fault(lambda: team("mpe/simple_spread_v3")) is None
    with pytest.raises(SettingError, match="cannot be created"):
        make("mpe/simple_spread_v3", {"N": 0})
    with pytest.raises(UnknownNameError, match="mpe/simple_spread_v3"):
        team("mpe/simple_spraed_v3")
    made = team("mpe/simple_speaker_listener_v4", {"continuous_actions": True})
    made.reset(seed=1)
    assert made.action_space.shape == (2, 5)
    taken, inner = {}, made.inner.step
    made.inner.step = lambda actions: (taken.update(actions), inner(actions))[1]
    made.step(np.full((2, 5), 0.5, np.float32))
    assert {n: x.shape for n, x in taken.items()} == {"speaker_0": (3,), "listener_0": (5,)}


def test_environments_in_turns_are_converted_where_they_can_be() -> None:
    made = team(pytest.importorskip("mpe2.simple_spread_v3").env)
    assert made.reset(seed=0)[0]["agents"].shape == (3, 21)
    with pytest.raises(SettingError, match="move in turn"):
        team(pytest.importorskip("pettingzoo.classic.tictactoe_v3").env)


def test_a_parallel_environment_may_have_a_method_observe() -> None:
    class Observing(Uneven):
        def observe(self, agent: str) -> Any:
            return self.seen()[agent]

    zoo = pytest.importorskip("pettingzoo")
    for kind in (Observing, type("Zoo", (Observing, zoo.ParallelEnv), {})):
        made = make(kind)
        assert isinstance(made, Team) and made.reset(seed=0)[0]["agents"].shape[0] == 2
        assert isinstance(make(lambda kind=kind: team(kind())), Team)
