"""The advice of `envs` on teams and on games of two."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces

from tandem import trainer
from tandem.envs.factory import make, vectorize
from tandem.envs.league import Game, League, RandomPlayer
from tandem.envs.team import Team, team
from tandem.envs.versus import Versus
from tandem.spaces import leaf
from tandem.testing.team_games import Climbing, TwoStep
from tandem.testing.turn_games import Nim, TicTacToe
from tests.advice.net import case, follows
from tests.advice.worlds import Toy, steps, without
from tests.envs.test_versus import Pocket

BOX, THREE = spaces.Box(0, 2, (1,), np.float32), spaces.Discrete(3)


class Crew(TwoStep):
    """A team whose parts can be changed: `change(result of the step, game)`, and spaces."""

    def __init__(self, change: Any = None, seen: Any = None, choices: Any = None, **given: Any):
        super().__init__()
        self.change, self.seen, self.spaces_of_actions = change, seen, choices
        vars(self).update(given)

    def observation_space(self, agent: str) -> Any:
        return self.seen or super().observation_space(agent)

    def action_space(self, agent: str) -> Any:
        return self.spaces_of_actions[agent] if self.spaces_of_actions else self._choices

    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        return self.change(result, self) if self.change else result


class WithoutInfos(Climbing):
    def reset(self, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed)[0], None


class Whole(pettingzoo.utils.BaseParallelWrapper):
    """Discrete actions for an agent that takes a box."""

    def action_space(self, agent: str) -> Any:
        return THREE

    def step(self, actions: Any) -> Any:
        return self.env.step({n: int(np.ravel(a)[0]) for n, a in actions.items()})


def play(env: Any, n: int = 2) -> None:
    made = Team(env) if hasattr(env, "possible_agents") else env
    made.reset(seed=0)
    for _ in range(n):
        if made.step(made.action_space.sample() * 0)[2]:
            return


def paid(result: Any, to: int) -> Any:
    obs, rewards, *rest = result
    return obs, dict(list(rewards.items())[:to]), *rest


def staying(result: Any, game: Any, stays: bool) -> Any:
    obs, rewards, terminated, *rest = result
    gone = game.possible_agents[0]
    if not stays and gone in game.agents:
        game.agents.remove(gone)
    return obs, rewards, {**terminated, gone: True}, *rest


def unlike(space: Any) -> dict[str, Any]:
    return {"agent_0": THREE, "agent_1": space}


class Unfair(Pocket):
    """Games of Pocket in which the first player ends the game before the other has had a turn."""

    def __init__(self, ended: bool = True, silent: bool = False, **given: Any) -> None:
        super().__init__(**given)
        self.ended, self.silent = ended, silent

    def reset(self, seed: Any = None, options: Any = None) -> None:
        super().reset(seed, options)
        if self.ended:
            self.terminations = dict.fromkeys(self.agents, True)

    def step(self, action: Any) -> None:
        super().step(action)
        if self.silent:
            self.infos = {}


class Unequal(Pocket):
    def __init__(self, choices: int) -> None:
        super().__init__()
        self.choices = choices

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(self.choices if agent == "p1" else 2, start=1)


def turns(env: Any, **more: Any) -> None:
    game = Versus(env, **more)
    game.reset(seed=0)
    game.step(np.int64(1))


def run(env: Any, opponents: int = 3) -> None:
    trainer.session("ppo", env, framework="torch", opponents=opponents, plots=False)


def copy_to_play(league: League, number: int) -> None:
    league.player(number)


def resumed() -> League:
    """What `last.zip` brings back."""
    saved, again = League(3), League(3)
    for league in (saved, again):
        league.made = lambda weights: RandomPlayer(leaf(THREE))
    saved.add({"actor": {"w": np.zeros(1, np.float32)}})
    again.load_state(*saved.state())
    return again


@pytest.mark.parametrize(
    "case",
    [
        case(
            "envs/team.py:Team.__init__",
            play,
            {"env": Crew(possible_agents=[])},
            "name all agents",
            {"env": Crew()},
        ),
        case(
            "envs/team.py:Team.__init__ 2",
            play,
            {"env": Crew(choices=unlike(BOX))},
            "pettingzoo.utils.BaseParallelWrapper",
            {"env": Whole(Crew(choices=unlike(BOX)))},
        ),
        case(
            "envs/team.py:Team.step",
            play,
            {"env": Crew(lambda result, game: paid(result, 1))},
            "give them to every agent of the step before",
            {"env": Crew(lambda result, game: paid(result, 2))},
        ),
        case(
            "envs/team.py:Team.step 2",
            play,
            {"env": Crew(lambda result, game: staying(result, game, True)), "n": 1},
            "take an agent out of self.agents in the step that terminates",
            {"env": Crew(lambda result, game: staying(result, game, False))},
        ),
        case(
            "envs/team.py:Team._checked",
            play,
            {"env": WithoutInfos()},
            "return both from reset; infos may be {}",
            {"env": Climbing()},
        ),
        case(
            "envs/team.py:Team._leaf",
            play,
            {"env": Crew(seen=spaces.Dict(a=BOX, b=BOX))},
            "gymnasium.spaces.flatten_space(space)",
            {"env": Crew(seen=spaces.flatten_space(spaces.Dict(a=BOX, b=BOX, c=BOX)))},
        ),
        case(
            "envs/team.py:team",
            lambda env, of: play(of(env), 1),
            {"env": Toy(), "of": team},
            "give tandem.train an environment of one agent as it is",
            {"of": make},
        ),
        case(
            "envs/team.py:team 2",
            lambda env, of: steps(vectorize(lambda: of(env), 1), action=0),
            {"env": Nim(), "of": team},
            "a game of two in turn is for tandem.envs.versus.Versus(env)",
            {"of": Versus},
        ),
        case(
            "envs/versus.py:Versus.__init__",
            turns,
            {"env": Pocket(), "opponent": "me"},
            "or None for a random player",
            {"opponent": None},
        ),
        case(
            "envs/versus.py:Versus.reset",
            turns,
            {"env": Unfair(), "side": 1},
            "until each of the two has had a turn",
            {"env": Unfair(ended=False)},
        ),
        case(
            "envs/versus.py:Versus._observed",
            turns,
            {"env": Unfair(ended=False, silent=True), "side": 0},
            "or in infos",
            {"env": Unfair(ended=False)},
        ),
        case(
            "envs/versus.py:_check",
            lambda env, of: play(of(env), 1),
            {"env": Toy(), "of": Versus},
            "give tandem.train an environment of one agent as it is",
            {"of": make},
        ),
        case(
            "envs/versus.py:_check",
            lambda env, of: play(of(env), 1),
            {"env": Climbing(), "of": Versus},
            "agents that move together are for tandem.envs.team",
            {"of": team},
        ),
        case(
            "envs/versus.py:_check 2", turns, {"env": Pocket(3)}, "a game of two", {"env": Pocket()}
        ),
        case(
            "envs/versus.py:_check 3",
            lambda env, of: of(env),
            {"env": Pocket(together=True), "of": Versus},
            "give it to tandem.envs.team.team",
            {"env": Climbing(), "of": team},
        ),
        case("envs/versus.py:_check 4", turns, {"env": Pocket(), "side": 2}),
        case(
            "envs/versus.py:_check 5",
            turns,
            {"env": Unequal(3)},
            "ask both players alike",
            {"env": Unequal(2)},
        ),
        case(
            "envs/league.py:League.player",
            copy_to_play,
            {"league": League(3), "number": 1},
            "resume from the run's last.zip",
            {"league": resumed()},
        ),
        case(
            "envs/league.py:Game.__call__",
            lambda env: Game(env, League(3))(),
            {"env": lambda: gymnasium.wrappers.FlattenObservation(Versus(Nim()))},
            "change the game itself",
            {"env": lambda: Versus(Nim(20))},
        ),
        case(
            "envs/league.py:Game.__call__ 2",
            run,
            {"env": "CartPole-v1"},
            "or leave opponents out",
            {"opponents": 0},
        ),
        case(
            "envs/league.py:Game.__call__ 2",
            run,
            {"env": "CartPole-v1"},
            "give such a game",
            {"env": lambda: Versus(TicTacToe())},
        ),
    ],
)
def test_advice_on_games(case) -> None:
    case.follow()


def test_a_game_that_is_mistyped() -> None:
    with follows("envs/pettingzoo.py:by_id 2") as advice:
        make("mpe/simple_spred_v3")
    make(advice.quoted()).close()
    with follows("envs/pettingzoo.py:by_id 3") as advice:
        make("mpe/_mpe_utils")
    make(advice.quoted()).close()


def test_pettingzoo_that_is_missing(monkeypatch) -> None:
    import tomllib

    from tests.helpers import ROOT

    with without(monkeypatch, "mpe2"), follows("envs/pettingzoo.py:by_id") as advice:
        make("mpe/simple_spread_v3")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "pip install 'tandem-rl[marl]'" in advice.fix and project["name"] == "tandem-rl"
    installs = project["optional-dependencies"]["marl"]
    assert {"mpe2", "pettingzoo"} == {one.partition(">")[0] for one in installs}
    make("mpe/simple_spread_v3").close()  # with them
