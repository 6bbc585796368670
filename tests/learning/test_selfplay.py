"""Self-play: against past copies of itself, resumed to the bit, to the known answers."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import trainer
from tandem.envs.factory import make
from tandem.envs.versus import Versus
from tandem.errors import SettingError
from tandem.reports.animation import film
from tandem.runs.folder import Run
from tandem.runs.verification import verify
from tandem.testing.turn_games import Nim, TicTacToe
from tests.runs.shared import finished

QUIET = {"plots": False, "tensorboard": False, "framework": "torch"}
SMALL = dict(steps=1600, envs=4, rollout=25, batch_size=50, epochs=2, hidden=(16,), opponents=3)
SHORT = dict(snapshot_every=150, eval_episodes=2, final_episodes=2, log_every=100, keep=1)
GIVEN: dict[str, Any] = SMALL | SHORT | QUIET
NIM = dict(steps=16_000, envs=16, rollout=32, batch_size=128, epochs=4, gamma=1.0, opponents=5)
NIM |= {"learning_rate": "3e-3:1e-4", "entropy": "0.05:0.01", "hidden": (32,), "eval_episodes": 0}


def numbers(run: Any) -> list[int]:
    return [env.unwrapped.number for env in run.vector._envs]


def rest(run: Any) -> Any:
    data, groups = run.state(replay=True)
    data["collector"].pop("seconds")
    data["counters"] = data["counters"]["episodes"]
    names = ("collector", "learner", "generators", "counters", "league", "session")
    arrays = {f"{g}/{n}": x.tobytes() for g, group in groups.items() for n, x in group.items()}
    return {name: data[name] for name in names}, arrays


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, {"recurrent": 5, "sequence": 5, "normalize_observations": True}, {"shared": True}]
)
def test_sittings_make_the_same_run(tmp_path: Path, more: Any) -> None:
    given = GIVEN | {"seed": 3, **more}
    whole = finished(trainer.session("ppo", TicTacToe, out=tmp_path / "whole", **given))
    first = trainer.session("ppo", TicTacToe, out=tmp_path / "parts", **given)
    seen = set(numbers(finished(first, 300)))
    for stop in (700, 1100, None):
        part = finished(trainer.session(resume=tmp_path / "parts", env=TicTacToe), stop)
        seen |= set(numbers(part))
    assert len(seen) > 3 and part.league.copies == whole.league.copies == 10
    assert part.fingerprint() == whole.fingerprint()
    assert rest(part) == rest(whole)


@pytest.mark.slow
def test_an_episode_goes_on_against_a_copy_that_left(tmp_path: Path) -> None:
    """With a pool of one and a copy after every block, whoever is at play has left it."""
    given = GIVEN | dict(opponents=1, snapshot_every=1, rollout=2, batch_size=8, steps=240)
    whole = finished(trainer.session("ppo", Nim, out=tmp_path / "whole", **given))
    part = finished(trainer.session("ppo", Nim, out=tmp_path / "parts", **given), 80)
    kept = part.state(replay=True)[0]["league"]
    assert kept["copies"] == 10 and len(kept["kept"]) > 1
    assert set(numbers(part)) - {10} <= set(kept["kept"])
    for stop in (120, 168, None):
        part = finished(trainer.session(resume=tmp_path / "parts", env=Nim), stop)
    assert rest(part) == rest(whole)


def test_a_copy_plays_as_the_learner_did() -> None:
    run = trainer.session("ppo", TicTacToe, **GIVEN | {"snapshot_every": 400})
    events, copies = run.events(), {}
    while run.league.copies < 3:
        before = run.league.copies
        next(events)
        if run.league.copies > before:
            copies[run.league.copies] = run.agent()
    events.close()
    obs, _ = make(TicTacToe).reset(seed=0)
    rows = {k: np.repeat(x[None], 50, 0) for k, x in obs.items()}
    for number, agent in copies.items():
        players = (agent, run.league.player(number))
        same, other = (a.move(rows, None, np.random.default_rng(5))[0].tolist() for a in players)
        assert same == other and len(set(same)) > 4, "it draws its moves"
    said = [c.act(rows, deterministic=False).tolist() for c in copies.values()]
    assert said[0] != said[2]


def test_it_is_measured_against_a_random_player_from_either_side(tmp_path: Path) -> None:
    run = finished(trainer.session("ppo", TicTacToe, out=tmp_path / "a", **GIVEN))
    assert len(Run(tmp_path / "a").table["env_steps"]) > 9 and run.last_evaluation is not None
    agent = tandem.load(tmp_path / "a", which="last")
    sides = [lambda s=s: Versus(TicTacToe(), side=s) for s in (0, 1)]
    found = [tandem.evaluate(agent, side, 200).mean for side in sides]
    both = tandem.evaluate(agent, TicTacToe, 400).mean
    assert min(found) - 0.1 < both < max(found) + 0.1 and abs(both - np.mean(found)) < 0.2
    other = tandem.evaluate(agent, lambda: Versus(TicTacToe(), agent), 100)
    assert Counter(other.returns).keys() <= {-1.0, 0.0, 1.0}
    assert verify(tmp_path / "a", 800, env=TicTacToe).difference is None
    options = json.loads((tmp_path / "a" / "config.json").read_text(encoding="utf-8"))["options"]
    assert options["opponents"] == 3


def test_processes_that_cannot_play_themselves_are_refused() -> None:
    for more in ({"workers": 2}, {"runners": 2}, {"workers": 1, "runners": 1}):
        with pytest.raises(SettingError, match="opponents=3 is not supported with ") as caught:
            trainer.session("ppo", TicTacToe, **QUIET | SMALL | more)
        assert caught.value.fix == f"leave {' and '.join(more)} out."


def test_its_defaults() -> None:
    assert trainer.session("ppo", TicTacToe, **SMALL | QUIET).every["snapshot"].steps == 16
    assert trainer.session("ppo", TicTacToe, **SMALL | QUIET | {"opponents": 0}).league is None


def test_a_run_of_a_classic_game(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    given = {k: v for k, v in GIVEN.items() if k not in ("batch_size", "epochs")} | {"steps": 400}
    run = finished(trainer.session("a2c", "classic/tictactoe_v3", out=tmp_path, **given), 200)
    assert run.league.copies == 1
    assert finished(trainer.session(resume=tmp_path)).loop.env_steps == 400
    film(tandem.load(tmp_path), "classic/tictactoe_v3", tmp_path / "play.gif")
    assert (tmp_path / "play.gif").stat().st_size > 1000


@pytest.mark.slow
def test_nim_is_solved() -> None:
    agent = tandem.train("ppo", Nim, seed=0, **NIM, **QUIET).agent
    game, taken = Nim(), {}
    for heap in (1, 2, 3, 5, 6, 7, 9, 10):
        game.reset()
        game.heap = heap
        taken[heap] = int(agent.act(game.observe("player_0"))) + 1
    assert taken == {heap: heap % 4 for heap in taken}
    assert set(tandem.evaluate(agent, lambda: Versus(Nim(), side=0), 200).returns) == {1.0}
