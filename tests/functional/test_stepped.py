"""Functional environments as vectors and as environments of Gymnasium's."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import tandem
from tandem.envs import functions
from tandem.envs.actions import random_actions
from tandem.envs.factory import environment_name, make, resume_fault, vectorize
from tandem.envs.jax.vector import FunctionalVector
from tandem.envs.stepped import Stepped
from tandem.envs.vector import episode_seed
from tandem.errors import EnvironmentFault, NonFiniteError, ResumeError, SpaceError
from tandem.learning.collect.evaluation import evaluate
from tandem.types import leaves
from tests.envs.made import Acts
from tests.functional.worlds import Broken, Doors, Walk, Weak
from tests.helpers import run_python
from tests.runs import shared

OURS = ("tandem/CartPole-v1", "tandem/Pendulum-v1")
PUSHING = Acts(lambda obs, noise: (obs[:, 2] > 0).astype(np.int64))
QUICK = shared.QUICK | {"rollout": 16, "batch_size": 32, "envs": 4}


def played(envs: Any, steps: int = 40, seed: int = 0) -> list[Any]:
    """Random steps, each after the first as (observations, rewards, ends, last observations)."""
    rng, obs = np.random.default_rng(seed), envs.reset()
    rows = [obs]
    for _ in range(steps):
        one = envs.step(random_actions(envs.action, envs.n, rng, obs))
        obs = one.obs
        rows.append((*one[:5], tuple(one.final)))
    envs.close()
    return rows


class Bare(Walk):
    """Its steps are tuples, not TimeSteps."""

    def step(self, key: Any, state: Any, action: Any) -> Any:
        return tuple(super().step(key, state, action))


def same(one: Any, other: Any) -> bool:
    pairs = zip(leaves(tuple(one)), leaves(tuple(other)), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def test_a_tuple_in_the_order_of_a_time_step_is_one() -> None:
    assert same(played(vectorize(Bare, 2)), played(vectorize(Walk, 2)))


@pytest.mark.parametrize("name", OURS)
def test_ours_are_gymnasiums_step_for_step(name: str) -> None:
    ours, theirs = make(name), gymnasium.make(name.removeprefix("tandem/")).unwrapped
    rng, ended = np.random.default_rng(0), 0
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    for episode in range(4):
        obs, _ = ours.reset(seed=episode)
        theirs.reset(seed=episode)
        over = False
        for _ in range(120):
            theirs.state = np.asarray(ours._now.state[0], np.float64)
            action = random_actions(vectorize(name).action, 1, rng, obs)[0]
            obs, reward, over, cut, _ = ours.step(action)
            seen, paid, done, _, _ = theirs.step(action)
            np.testing.assert_allclose(obs, seen, atol=2e-5)
            np.testing.assert_allclose(reward, paid, atol=1e-4)
            assert (over, cut) == (done, False)
            if over:
                ended += 1
                break
    assert ended == (4 if "CartPole" in name else 0)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["tandem/CartPole-v1", Walk, Doors], ids=str)
def test_many_are_one_by_one_to_the_bit_however_they_are_divided(env: Any) -> None:
    many, plain = (vectorize(env, 4, seed=7, mode=mode) for mode in ("auto", "plain"))
    assert isinstance(many, FunctionalVector) and isinstance(plain, Stepped)
    rows = played(many)
    assert sum(len(row[5]) for row in rows[1:]) > 2
    assert same(rows, played(plain))
    parts = [vectorize(env, 2, seed=7, first=first) for first in (0, 2)]
    seen = vectorize(env, 4, seed=7)
    obs, whole = [part.reset() for part in parts], seen.reset()
    for t in range(30):
        action = np.full(4, t % 2)
        whole = seen.step(action).obs
        obs = [part.step(action[:2]).obs for part in parts]
    for x, *halves in zip(leaves(whole), *map(leaves, obs), strict=True):
        assert x.tobytes() == np.concatenate(halves).tobytes()


def test_what_a_step_gives_is_the_callers() -> None:
    envs = vectorize("tandem/CartPole-v1", 2)
    obs = envs.reset()
    one = envs.step(np.zeros(2, np.int64))
    kept = one.obs.copy()
    obs[:] = one.obs[:] = 9.0
    envs.step(np.zeros(2, np.int64))
    assert not np.array_equal(one.obs, kept) and envs.step(np.zeros(2, np.int64)).obs.max() < 9


@pytest.mark.slow
@pytest.mark.parametrize("env", [*OURS, Walk, Weak, Doors, partial(Walk, pool=3)], ids=str)
def test_they_resume_to_the_bit(env: Any) -> None:
    assert resume_fault(env) is None


def test_episodes_begin_in_a_pool_and_states_of_others_are_refused() -> None:
    envs = vectorize(partial(Walk, limit=2, pool=3), 4)
    firsts = [envs.reset()]
    firsts += [envs.step(np.zeros(4, np.int64)).obs for _ in range(20)][1::2]
    assert len(np.unique(np.concatenate(firsts), axis=0)) == 3
    envs = vectorize(Walk, 2)
    envs.reset()
    other = vectorize("tandem/CartPole-v1", 2)
    other.reset()
    with pytest.raises(ResumeError, match="the saved state does not match Walk"):
        envs.load_state(*other.state())
    with pytest.raises(ResumeError, match="has 2 environments"):
        vectorize(Walk, 3).load_state(*envs.state())
    plain = vectorize("CartPole-v1", 2, mode="plain")
    plain.reset()
    with pytest.raises(ResumeError, match=r"make them with mode='plain' \(vectorization\)"):
        envs.load_state(*plain.state())


@pytest.mark.slow
def test_numbers_that_are_none_are_told_with_their_environment_and_step() -> None:
    for what, told in (("obs", "the observation"), ("reward", "the reward")):
        envs = vectorize(lambda what=what: Broken(what), 3)
        with pytest.raises(NonFiniteError, match=rf"environment 0 of .* {told}.* at step 3"):
            played(envs)


@pytest.mark.slow
def test_masks_forbid_and_must_leave_a_choice() -> None:
    envs = vectorize(Doors, 3)
    rows = played(envs)
    assert envs.action.masked and all((row[1] == 1).all() for row in rows[1:])
    shut = type("Shut", (Doors,), {"shut_all": 4})
    with pytest.raises(EnvironmentFault, match="masks every choice at step 4"):
        played(vectorize(shut, 2))


def test_a_view_is_an_environment_of_gymnasiums() -> None:
    view = make("tandem/CartPole-v1", {"render_mode": "rgb_array"})
    assert isinstance(view, gymnasium.Env) and environment_name(view) == "tandem/CartPole-v1"
    obs, _ = view.reset(seed=episode_seed(7, 0, 0))
    assert obs.tobytes() == vectorize("tandem/CartPole-v1", seed=7).reset()[0].tobytes()
    assert view.render().shape == (400, 600, 3)
    assert view.spec.max_episode_steps == 500
    assert make(Walk).render() is None and make(Walk).metadata["render_modes"] == []
    again = view.spec.make()
    assert again.reset(seed=episode_seed(7, 0, 0))[0].tobytes() == obs.tobytes()


def test_objects_classes_and_functions_are_taken_alike() -> None:
    made = []

    def function() -> Walk:
        made.append(Walk())
        return made[-1]

    for env, name in ((Walk, "Walk"), (Walk(), "Walk"), (function, "function")):
        envs = vectorize(env, 2)
        assert isinstance(envs, FunctionalVector) and envs.name == name
        assert isinstance(make(env), gymnasium.Env)
    make(function)
    assert len(made) == 1, "what is compiled of it serves all"
    assert functions.known(make) is None


def test_what_is_none_is_as_it_was() -> None:
    cart = gymnasium.make("CartPole-v1")
    assert make(cart) is cart and not functions.is_one(cart) and not functions.is_one("CartPole-v1")
    assert not functions.is_id(name := "tandem/Identity-v0")
    assert environment_name(make(name)) == name
    with pytest.raises(SpaceError, match="no max_episode_steps"):
        make(type("Forgetful", (Walk,), {"__init__": lambda self: None}))


@pytest.mark.slow
def test_evaluations_play_the_same_episodes_whatever_their_number_is() -> None:
    name = "tandem/CartPole-v1"
    one, other = (evaluate(PUSHING, name, 6, seed=3, environments=n).returns for n in (2, 5))
    assert one == other and min(one) > 20 and len(set(one)) > 2
    cut = evaluate(PUSHING, name, 3, seed=3, max_steps=7)
    assert cut.lengths == [7, 7, 7] and cut.cut == 3
    own = evaluate(PUSHING, name, 3, kwargs={"max_episode_steps": 7}, max_steps=7)
    assert own.lengths == [7, 7, 7] and own.cut == 0
    assert evaluate(PUSHING, make(name), 2).returns[0] > 20


def test_an_evaluation_s_seed_draws_its_pool_of_beginnings_too() -> None:
    env, firsts, seen = Walk(pool=3), list[Any](), list[Any]()

    def noting(obs: Any, noise: Any) -> Any:
        seen.append(obs.copy())
        return np.zeros(len(obs), np.int64)

    for seed in (0, 0, 1):
        seen.clear()
        evaluate(Acts(noting), env, 4, seed)
        firsts.append({row.tobytes() for row in seen[0]})
    assert firsts[0] == firsts[1] and firsts[0].isdisjoint(firsts[2])
    others = vectorize(env, 20, seed=0).reset()
    assert firsts[0].isdisjoint(row.tobytes() for row in others)


def run(env: Any = "tandem/CartPole-v1", algorithm: str = "ppo", **given: Any) -> str:
    session = tandem.session(algorithm, env, **{**QUICK, "steps": 192, **given})
    return shared.finished(session).fingerprint()


def test_a_run_is_resumed_to_the_bit(tmp_path: Any) -> None:
    tandem.train("ppo", Walk, **{**QUICK, "steps": 192, "stop_at": 64, "out": tmp_path / "run"})
    resumed = shared.finished(tandem.session(resume=tmp_path / "run", env=Walk))
    assert resumed.fingerprint() == run(Walk)


@pytest.mark.parametrize("env", ["tandem/CartPole-v1", Walk, lambda: Walk(), Walk()])
def test_a_run_is_evaluated(env: Any) -> None:
    """Training and evaluations may share the functions: they have no state."""
    result = tandem.train("ppo", env, **{**QUICK, "steps": 64})
    assert len(result.evaluation.returns) == 1
    assert not any("nothing to evaluate in" in note for note in result.notes)


@pytest.mark.slow
@pytest.mark.thorough
def test_processes_step_the_same_environments() -> None:
    assert run(Walk, workers=2, ahead=0) == run(Walk)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", pytest.param("tensorflow", marks=pytest.mark.thorough)])
def test_every_engine_learns_in_them(engine: Any) -> None:
    code = """
    import json, sys
    import tandem
    from tests.functional.test_stepped import QUICK

    given = QUICK | {"steps": 192, "framework": sys.argv[1]}
    session = tandem.session("ppo", "tandem/CartPole-v1", **given)
    updates = [event.updates for event in session if type(event).__name__ == "BatchEnd"]
    print(json.dumps([session.loop.env_steps, len(updates), type(session.vector).__name__]))
    """
    assert run_python(code, engine, engine=engine) == [[192, 3, "FunctionalVector"]]


def test_jax_is_set_up_for_a_process_that_steps() -> None:
    code = """
    import json, os
    from tandem.envs.factory import vectorize

    before = vectorize("tandem/CartPole-v1", 2).reset()
    import jax

    ours = os.environ["PJRT_NPROC"], os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"]
    print(json.dumps([*ours, jax.config.read("jax_cpu_enable_async_dispatch"), str(before.dtype)]))
    """
    assert run_python(code) == [["1", "false", False, "float32"]]
