"""The advice of `envs` on what a step gives, and on vectors of an environment's own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.envs.factory import vectorize
from tandem.envs.native import Native
from tandem.testing import environments as games
from tandem.testing.env_checker import check
from tests.advice.net import follows
from tests.advice.worlds import Toy, steps

MASK = {"action_mask": np.ones(2, np.int8)}


def test_the_check_shows_the_first_bad_step() -> None:
    with follows("envs/vector.py:not_finite") as advice:
        steps(vectorize(games.NotFinite, 1), 9)
    assert "`tandem check` shows the first bad step" in advice.fix
    told = [f.text for f in check(games.NotFinite, steps=20)]
    assert any("nan" in line and "at step 5" in line for line in told), told
    steps(vectorize(games.InfiniteHorizon, 1), 9)


class Stuck(Toy):
    """Nothing may be chosen after two steps, unless there is a way out."""

    def __init__(self, way_out: str = "") -> None:
        super().__init__()
        self.way_out = way_out

    def step(self, action: Any) -> Any:
        obs, reward, _, cut, _ = super().step(action)
        idle = [self.way_out == "an action that does nothing", 0]
        mask = np.array([1, 1] if self.t < 2 else idle, np.int8)
        over = self.way_out == "end the episode (terminated)" and self.t == 2
        return obs, reward, over, cut, {"action_mask": mask}

    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0], dict(MASK)


def test_a_way_out_where_nothing_may_be_chosen() -> None:
    with follows("envs/vector.py:no_choice") as advice:
        steps(vectorize(Stuck, 1), 5, action=0)
    for way_out in ("an action that does nothing", "end the episode (terminated)"):
        assert way_out in advice.fix
        steps(vectorize(lambda way=way_out: Stuck(way), 1), 5, action=0)


def made(**given: Any) -> Any:
    return type("Made", (Toy,), {"__init__": lambda self: Toy.__init__(self, **given)})


def test_states_of_vectors_that_cannot_be_kept() -> None:
    def kept(envs: Any, mode: str) -> Any:
        return Native("Toy", envs) if mode == "native" else vectorize(Toy, 2, mode=mode)

    def cart(n: int = 2) -> Any:
        return gymnasium.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point")

    envs = cart()
    envs.screens = [object()]
    with follows("envs/vector_state.py:encode") as advice:
        kept(envs, "native").state()
    (told,) = advice.assigned()
    other = kept(envs, told["mode"])
    other.reset()
    other.state()

    envs = cart()
    envs.p, envs.q = np.zeros(2), np.ones(2)
    native = kept(envs, "native")
    native.reset()
    state = native.state()
    envs.p = envs.q = np.zeros(2)
    with follows("envs/vector_env.py:VectorEnvironments._compare") as advice:
        native.load_state(*state)
    assert advice.assigned() == [told]  # which was just done
    wide = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    wide.single_observation_space = spaces.Box(-9, 9, (5,), np.float32)
    with follows("envs/vector_reading.py:Reader._unlike_space") as advice:
        Native("CartPole", wide).reset()
    assert "or its single_observation_space" in advice.fix
    wide.single_observation_space = spaces.Box(-9, 9, (4,), np.float32)
    Native("CartPole", wide).reset()
