"""The native vector of particle worlds gives what mpe2's own give, to the bit."""

import json
from itertools import chain
from typing import Any

import numpy as np
import pytest

from tandem.envs import particles
from tandem.envs.actions import random_actions
from tandem.envs.factory import resume_fault, vectorize
from tandem.envs.particles import Particles
from tandem.envs.stepped import Stepped
from tandem.envs.vector import Step
from tandem.errors import EnvironmentFault, NonFiniteError, ResumeError, SettingError
from tandem.types import Array, Tree, leaves
from tests.envs.made import assert_same

pytest.importorskip("mpe2")

SPREAD, ADVERSARY = "mpe/simple_spread_v3", "mpe/simple_adversary_v3"


def pair(name: str, n: int, kwargs: dict[str, Any], first: int = 0) -> tuple[Stepped, Particles]:
    plain, native = (vectorize(name, n, 5, mode, kwargs, first) for mode in ("plain", "native"))
    assert isinstance(plain, Stepped) and isinstance(native, Particles)
    return plain, native


def assert_same_step(one: Step, other: Step) -> None:
    assert one.obs.keys() == other.obs.keys() and one.extra.keys() == other.extra.keys()
    assert_same((*one[:5], one.extra, *one.final), (*other[:5], other.extra, *other.final))


def positions(plain: Stepped, native: Particles) -> tuple[Array, Array]:
    """Both's positions and velocities in float64, which observations round."""
    worlds = [env.unwrapped.inner.unwrapped.world for env in plain._envs]
    rows = [[e.state.p_pos for e in w.entities] + [a.state.p_vel for a in w.agents] for w in worlds]
    ours = np.concatenate([native._bodies, native._speeds], axis=1)
    return np.array([np.concatenate(row) for row in rows]), ours


def crowding(plain: Stepped, rng: np.random.Generator, obs: Tree, continuous: bool) -> Array:
    """Actions towards the middle, mixed with random ones: agents run into one another."""
    x, y = np.moveaxis(obs["agents"][:, :, 2:4], -1, 0)
    inwards = np.where(np.abs(x) > np.abs(y), 1 + (x < 0), 3 + (y < 0))
    noise = random_actions(plain.action, plain.n, rng, obs)
    heed = rng.random(inwards.shape) < 0.8
    if continuous:
        return np.where(heed[..., None], np.eye(5, dtype=np.float32)[inwards] * noise, noise)
    return np.where(heed, inwards, noise)


CROWD = {"N": 6, "max_cycles": 60}


@pytest.mark.parametrize(
    "name, n, steps, first, kwargs",
    [
        (SPREAD, 3, 210, 0, {}),
        (SPREAD, 2, 130, 3, {"continuous_actions": True, "local_ratio": 0.2, "max_cycles": 40}),
        (SPREAD, 1, 30, 0, {"N": 1, "local_ratio": 1.0}),
        (SPREAD, 2, 70, 1, {"N": 10, "local_ratio": 0.0, "max_cycles": 60}),
        (ADVERSARY, 3, 110, 0, {}),
        (ADVERSARY, 2, 10, 2, {"N": 1, "max_cycles": 1}),
        (ADVERSARY, 2, 70, 3, {"N": 9, "max_cycles": 31, "continuous_actions": True}),
        (SPREAD, 2, 150, 0, CROWD),
        (SPREAD, 2, 150, 0, CROWD | {"continuous_actions": True}),
    ],
)
def test_it_is_the_plain_vector_to_the_bit(name, n, steps, first, kwargs) -> None:
    plain, native = pair(name, n, kwargs, first)
    for part in ("observation_space", "action_space", "observation", "action", "extra"):
        assert getattr(plain, part) == getattr(native, part)
    rng, obs, touched, crowd = np.random.default_rng(0), plain.reset(), 0, kwargs.get("N") == 6
    assert_same(obs, native.reset())
    for _ in range(steps):
        if crowd:
            actions = crowding(plain, rng, obs, "continuous_actions" in kwargs)
        else:
            actions = random_actions(plain.action, n, rng, obs)
        one = plain.step(actions)
        assert_same_step(one, native.step(actions))
        assert_same(*positions(plain, native))
        obs = one.obs
        # else all of a world have the same
        touched += int((np.ptp(one.extra["rewards"], axis=1) > 0).any())
    assert touched > 50 or not crowd
    assert_same(plain.reset(), native.reset())  # and from the first episode again


@pytest.mark.parametrize("name", [SPREAD, ADVERSARY])
def test_its_state_is_plain_data_from_which_it_goes_on(name: str) -> None:
    kwargs = {"N": 3, "max_cycles": 20}
    native, rng = vectorize(name, 4, 7, "auto", kwargs, 2), np.random.default_rng(0)
    obs = native.reset()
    for _ in range(33):
        obs = native.step(random_actions(native.action, 4, rng, obs)).obs
    data, arrays = native.state()
    data, arrays = json.loads(json.dumps(data)), {key: x.copy() for key, x in arrays.items()}
    actions = [random_actions(native.action, 4, rng, obs) for _ in range(30)]
    expected = [native.step(a) for a in actions]
    # a fresh one, and one in use
    for other in (vectorize(name, 4, 7, "native", kwargs, 2), native):
        other.load_state(data, arrays)
        for a, one in zip(actions, expected, strict=True):
            assert_same_step(one, other.step(a))
    assert resume_fault(name, kwargs=kwargs) is None
    with pytest.raises(ResumeError, match=r"\[4, "):
        vectorize(name, 3, 7, kwargs=kwargs).load_state(data, arrays)
    plain = vectorize(name, 4, 7, "plain", kwargs)
    plain.reset()
    with pytest.raises(ResumeError, match="mode='plain'"):
        native.load_state(*plain.state())
    with pytest.raises(ResumeError, match="not from plain environments"):
        plain.load_state(data, arrays)


def test_actions_beyond_the_space_and_faults_are_as_elsewhere_and_steps_stay() -> None:
    plain, native = pair(SPREAD, 2, {})
    plain.reset(), native.reset()
    for actions in ([[5, 6, -1], [7, 13, -9]], [[1.9, 0.0, 4.0], [-0.5, 2.0, 3.0]]):
        assert_same_step(plain.step(np.array(actions)), native.step(np.array(actions)))
    native = vectorize(SPREAD, 2, 0, kwargs={"max_cycles": 3})
    given = (native.reset(), *(native.step(np.full((2, 3), 2))[:4] for _ in range(3)))
    kept = [x.copy() for x in leaves(given)]
    for _ in range(4):
        native.step(np.ones((2, 3), np.int64))
    assert all(np.array_equal(x, y) for x, y in zip(leaves(given), kept, strict=True))
    pairs = (pair(name, 2, {"continuous_actions": True}) for name in (SPREAD, ADVERSARY))
    for vector in chain(*pairs):
        vector.reset()
        actions = np.full((2, 3, 5), 0.5, np.float32)
        vector.step(actions)
        actions[1, 2, 1] = np.nan
        with pytest.raises(NonFiniteError, match="environment 1 of mpe/simple_"):
            for _ in range(3):  # in adversary only the place that a velocity leads to is seen
                vector.step(actions)
    wrongs = np.zeros((3, 3), np.int64), np.zeros((2, 2), np.int64), np.full((2, 3), np.nan)
    for vector in pair(SPREAD, 2, {}):
        for wrong in wrongs:
            vector.reset()
            with pytest.raises(EnvironmentFault, match="at step 1 of its episode"):
                vector.step(wrong)


def test_it_is_taken_where_it_is_known_to_be_the_same(monkeypatch: Any) -> None:
    assert isinstance(vectorize(SPREAD), Particles)
    assert isinstance(vectorize(SPREAD, mode="plain"), Stepped)
    for name, kwargs in ((SPREAD, {"terminate_on_success": True}), ("mpe/simple_tag_v3", {})):
        assert isinstance(vectorize(name, 2, kwargs=kwargs), Stepped)
        with pytest.raises(SettingError, match="mode='plain'"):
            vectorize(name, 2, mode="native", kwargs=kwargs)
    with pytest.raises(SettingError, match="cannot be created"):
        vectorize(SPREAD, 2, kwargs={"local_ratio": None})
    monkeypatch.setattr(particles, "VERIFIED", ("0.9.",))
    assert isinstance(vectorize(SPREAD, 2), Stepped)
    with pytest.raises(SettingError, match="not been compared with mpe2"):
        vectorize(SPREAD, 2, mode="native")
