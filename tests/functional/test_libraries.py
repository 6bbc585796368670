"""Functional environments of other libraries."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tandem.envs.actions import random_actions
from tandem.envs.factory import make, resume_fault, vectorize
from tandem.envs.functions import is_one
from tandem.envs.jax.vector import FunctionalVector
from tandem.errors import SpaceError
from tests.functional import libraries

IDS = "gymnax/Corridor-v0 brax/slide playground/Slide pgx/nim pgx/count phys2d/Grid-v0"


@pytest.fixture(autouse=True)
def _libraries(request: Any, monkeypatch: Any) -> None:
    if "thorough" not in request.keywords:
        libraries.here(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", IDS.split())
def test_ids_are_stepped_and_resumed_exactly(name: str) -> None:
    envs = vectorize(name, 2)
    assert isinstance(envs, FunctionalVector) and envs.name == name
    assert resume_fault(name, steps=20) is None
    assert make(name).observation_space == envs.observation_space


def steps(env: Any, actions: Any, n: int = 1, **kwargs: Any) -> list[Any]:
    envs = vectorize(env, n, kwargs=kwargs)
    envs.reset()
    return [envs.step(np.full((n, *envs.action.shape), a, envs.action.dtype)) for a in actions]


def test_gymnaxs_cut_episodes_themselves_and_end_otherwise() -> None:
    rows = steps("gymnax/Corridor-v0", [2] * 5)
    assert [row.reward[0] for row in rows] == [0.5, 1, 1.5, 2, 0.5]
    assert [row.terminated[0] for row in rows] == [False, False, False, True, False]
    ((_, last),) = rows[3].final
    assert last["at"] == [2] and last["far"] == 1 and rows[3].obs["at"] == [[0]]
    stays = steps("gymnax/Corridor-v0", [1] * 6)
    assert [row.truncated[0] for row in stays] == [False] * 5 + [True]
    given = {"start": 1.0, "step": 1.0, "max_steps_in_episode": 2}
    assert steps("gymnax/Corridor-v0", [2], **given)[0].terminated[0]
    assert steps("gymnax/Corridor-v0", [1] * 2, **given)[1].truncated[0]


@pytest.mark.slow
def test_braxs_are_cut_where_their_training_cuts_them() -> None:
    envs = vectorize("brax/slide", 2)
    assert envs.observation.shape == (2,) and make("brax/slide").spec.max_episode_steps == 1000
    rows = steps("brax/slide", [1.0] * 4)
    assert rows[0].reward[0] == 2 and any(row.terminated[0] for row in rows)
    assert not steps("brax/slide", [1.0] * 4, mass=10.0)[3].terminated[0]
    ended = steps("playground/Slide", [0.0] * 5)
    assert [row.truncated[0] for row in ended] == [False] * 4 + [True]
    assert set(ended[0].obs) == {"state", "privileged_state"}
    assert steps("playground/Slide", [0.0] * 2, episode_length=2)[1].truncated[0]
    assert steps("playground/Slide", [0.0] * 3, max_episode_steps=3)[2].truncated[0]


def random_games(name: Any, n: int = 2, count: int = 120) -> list[Any]:
    envs, rng = vectorize(name, n), np.random.default_rng(0)
    obs, rows = envs.reset(), []
    assert envs.action.masked
    for _ in range(count):
        rows.append(envs.step(random_actions(envs.action, n, rng, obs)))
        obs = rows[-1].obs
    return rows


def test_games_of_one_pay_what_they_pay_and_of_two_the_other_moves_at_random() -> None:
    rows = random_games("pgx/count")
    assert all(0 < r <= 3 for row in rows for r in row.reward)
    assert rows[0].obs["obs"].shape == (2, 2, 3)
    assert np.sum([row.reward for row in rows]) >= 7 * sum(len(row.final) for row in rows)
    rows = random_games("pgx/nim")
    rewards, over = (np.array([getattr(row, n) for row in rows]) for n in ("reward", "terminated"))
    assert set(rewards[over]) == {1.0, -1.0} and (rewards[~over] == 0).all()
    # nobody plays better than chance, and sides are drawn: some games are won, some lost
    assert 0.2 < (rewards[over] > 0).mean() < 0.8


@pytest.mark.slow
def test_a_game_that_ends_before_the_learners_turn_is_none() -> None:
    rows = random_games(libraries.Nim(first_out=True))
    assert sum(len(row.final) for row in rows) > 40
    # had the other one given up in one of them, its next step would have been paid nothing
    assert all(row.reward[row.terminated].all() for row in rows)


def test_gymnasiums_functional_ones_have_discrete_actions_and_pictures() -> None:
    view = make("phys2d/Grid-v0", {"render_mode": "rgb_array", "start": 2})
    assert view.action_space == spaces.Discrete(3) and view.spec.max_episode_steps == 20
    view.reset(seed=0)
    assert view.render().shape == (8, 10, 3) and view.metadata["render_fps"] == 4
    obs, reward, over, _, _ = view.step(2)
    assert obs == [3] and reward == -1 and not over
    assert steps("phys2d/Grid-v0", [0, 0])[1].reward == -10
    assert steps("phys2d/Grid-v0", [2] * 3)[2].terminated.all()
    assert steps("phys2d/Grid-v0", [1] * 20)[19].truncated.all()


def test_objects_of_other_libraries_are_taken_as_they_are() -> None:
    for kind in (libraries.Grid, libraries.Slide, libraries.Nim, libraries.Corridor):
        env = kind()
        envs = vectorize(env, 2)
        assert is_one(env) and isinstance(envs, FunctionalVector) and envs.name == kind.__name__
        assert vectorize(env, 2).reset() is not None
    assert vectorize(libraries.Grid, 2).name == "Grid"
    with pytest.raises(SpaceError, match="nim has 3 players"):
        make("pgx/crowd")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "package, names",
    [
        ("flax", "phys2d/CartPole-v1 phys2d/Pendulum-v0"),
        ("flax", "tabular/Blackjack-v0 tabular/CliffWalking-v0"),
        ("gymnax", "gymnax/CartPole-v1 gymnax/Pendulum-v1 gymnax/Breakout-MinAtar"),
        ("brax", "brax/inverted_pendulum"),
        ("mujoco_playground", "playground/CartpoleBalance"),
        ("pgx", "pgx/2048 pgx/tic_tac_toe pgx/connect_four pgx/leduc_holdem"),
    ],
)
def test_the_libraries_themselves(package: str, names: str) -> None:
    pytest.importorskip(package)
    for name in names.split():
        assert resume_fault(name, steps=20) is None
