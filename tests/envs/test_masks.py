"""Masks on their way from an environment to what learns from them, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from tandem import trainer
from tandem.collect.actor import RandomActor
from tandem.collect.collector import Collector
from tandem.collect.evaluation import evaluate
from tandem.envs.factory import resume_fault, spaces_of, vectorize
from tandem.envs.vector_env import VectorEnvironments
from tandem.errors import EnvironmentFault, SpaceError
from tandem.math.masks import evenly, masked
from tandem.spaces import Leaf, action_leaf, from_json, observation_spec, seen, to_json
from tandem.testing import environments as games
from tandem.testing.env_checker import check
from tandem.types import leaves

QUIET: dict[str, Any] = {
    "plots": False,
    "tensorboard": False,
    "eval_episodes": 2,
    "final_episodes": 2,
    "hidden": (8,),
}
MULTI = Leaf("multidiscrete", (2,), "int64", (3, 2), masked=True)


def collected(env: Any, n: int = 3, steps: int = 40) -> Any:
    envs = vectorize(env, n)
    chance = RandomActor(envs.action)
    return Collector(envs, 0.9).collect(
        steps, chance, chance.noise(np.random.default_rng(0), (steps, n))
    )


def test_masks_in_info_become_a_part_of_the_observation() -> None:
    shown, _ = spaces_of(games.Forbidden)
    assert shown == spaces.Dict({"obs": spaces.Discrete(4), "action_mask": spaces.MultiBinary(4)})
    envs = vectorize(games.Forbidden, 2)
    assert envs.action.masked and from_json(to_json(envs.action)) == envs.action
    assert seen(envs.observation, envs.action) == {"obs": Leaf("discrete", (), "int64", (4,))}
    t = collected(games.Forbidden)
    for obs in (t.obs, t.bootstrap, t.cuts.obs):
        np.testing.assert_array_equal(obs["action_mask"], obs["obs"][..., None] != np.arange(4))
        assert obs["action_mask"].dtype == np.int8
    assert len(t.cuts.t) and (t.action != t.obs["obs"]).all()  # it would have raised, too


def test_a_mask_in_the_observation_is_left_where_it_is() -> None:
    t = collected(games.ForbiddenMultiDiscrete)
    assert set(t.obs) == {"symbols", "action_mask"} and t.obs["action_mask"].dtype == np.int8
    assert (t.action != t.obs["symbols"]).all()


class Several(gymnasium.Env[Any, Any]):
    """Choices in two rows, of which the first is allowed alone, or the last in the second row."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.MultiDiscrete([[3, 3], [3, 2]])
    MASK = np.int8([1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1])

    def __init__(self, parts: bool = False) -> None:
        a, b, c, d = np.split(self.MASK, [3, 6, 9])
        self.info = {"action_mask": ((a, b), (c, d)) if parts else self.MASK}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), self.info

    def step(self, action: Any) -> Any:
        assert action.tolist() == [[0, 0], [2, 1]]
        return np.zeros(2, np.float32), 1.0, False, False, self.info


@pytest.mark.parametrize("parts", [False, True])
def test_masks_of_actions_of_several_axes_are_seen(parts: bool) -> None:
    shown, action = spaces_of(lambda: Several(parts))
    assert action.inner == Several.action_space and set(shown.spaces) == {"obs", "action_mask"}
    t = collected(lambda: Several(parts), steps=5)
    assert (t.obs["action_mask"] == Several.MASK).all() and (t.action == [0, 0, 2, 1]).all()


def test_a_mask_may_have_the_axes_of_the_actions() -> None:
    class Square(Several):
        action_space = spaces.MultiDiscrete([[3, 3], [3, 3]])

        def __init__(self) -> None:
            self.info = {"action_mask": np.eye(3, dtype=np.int8)[[[0, 0], [2, 1]]]}

    t = collected(Square, steps=5)
    assert (t.action == [0, 0, 2, 1]).all()
    vector = VectorEnvironments("Square", SyncVectorEnv([Square, Square]), seed=0)
    obs = vector.reset()
    assert np.array_equal(obs["action_mask"], t.obs["action_mask"][0, :2])


def test_without_masks_an_environment_is_not_wrapped() -> None:
    envs = vectorize(games.Identity, 2)
    assert not envs.action.masked and all(isinstance(e, games.Identity) for e in envs._envs)  # type: ignore[attr-defined]


def test_an_entry_of_that_name_masks_no_continuous_actions_and_has_to_fit_discrete_ones() -> None:
    obs = observation_spec(
        spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": spaces.Discrete(2)})
    )
    assert not action_leaf(spaces.Box(-1, 1, (3,)), obs).masked
    assert action_leaf(spaces.Discrete(3), obs).masked
    for space in (spaces.Discrete(4), spaces.MultiDiscrete([3, 2])):
        with pytest.raises(SpaceError, match=r"'action_mask' of shape \(3,\)"):
            action_leaf(space, obs)


def test_every_allowed_action_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    obs = {"action_mask": np.tile(np.int8([1, 0, 1, 0, 1]), (30_000, 1))}
    drawn = evenly(rng.random((30_000, 5), dtype=np.float32), obs, MULTI)
    np.testing.assert_allclose(
        np.bincount(drawn[:, 0], minlength=3) / 30_000, [0.5, 0, 0.5], atol=0.02
    )
    assert (drawn[:, 1] == 1).all()


def test_masked_logits_and_unmasked_ones() -> None:
    out = np.float32([[1, 2, 3, 4, 5]])
    found = masked(out, {"action_mask": np.int8([[1, 0, 1, 0, 1]])}, MULTI)
    np.testing.assert_array_equal(found, np.float32([[1, -1e9, 3, -1e9, 5]]))
    plain = Leaf("multidiscrete", (2,), "int64", (3, 2))
    assert masked(out, None, plain) is out


class Stuck(games.Forbidden):
    """Forbids everything from step `at` of an episode on; `how` it ends there, or does not."""

    def __init__(self, how: str, at: int = 3) -> None:
        super().__init__()
        self.how, self.at = how, at

    def mask(self) -> Any:
        return super().mask() * (self.t < self.at)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        over = self.t == self.at
        return (
            obs,
            reward,
            terminated or (over and self.how == "ends"),
            truncated or (over and self.how == "is cut"),
            info,
        )


@pytest.mark.parametrize("how", ["goes on", "is cut"])
def test_a_mask_that_forbids_everything_is_named_with_environment_and_step(how) -> None:
    with pytest.raises(
        EnvironmentFault,
        match="the action mask of environment 0 of .* forbids every choice at step 3 of its",
    ):
        collected(lambda: Stuck(how))


def test_where_an_episode_terminates_nothing_need_be_allowed() -> None:
    assert collected(lambda: Stuck("ends")).last.sum() > 3


def test_a_mask_that_is_missing_later_is_named() -> None:
    class Forgets(games.Forbidden):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {})

    with pytest.raises(
        EnvironmentFault, match=r"at step 1 of its episode: no mask in info\['action_mask'\] here"
    ):
        collected(Forgets)


def test_masks_in_the_info_of_a_vector_of_its_own_are_seen() -> None:
    name = "tandem-tests/MaskedVector-v0"
    gymnasium.register(
        name,
        entry_point=games.Forbidden,
        vector_entry_point=lambda num_envs, **_: SyncVectorEnv([games.Forbidden] * num_envs),
    )
    try:
        assert vectorize(name, 8).action.masked
        plain, native = (vectorize(name, 3, mode=mode) for mode in ("plain", "native"))
        assert native.action.masked
        for mine, other in zip(leaves(native.reset()), leaves(plain.reset()), strict=True):
            assert mine.shape == other.shape and mine.dtype == other.dtype
    finally:
        gymnasium.registry.pop(name)


def test_evaluation_check_and_resume_take_no_forbidden_action() -> None:
    class Best:
        def act(self, obs: Any, state: Any, noise: Any) -> Any:
            return (obs["obs"] + 1) % 4, {}, state

        def initial_state(self, n: int) -> Any:
            return ()

    assert evaluate(Best(), games.Forbidden, 5)[0] == [10.0] * 5
    for env in (games.Forbidden, games.ForbiddenMultiDiscrete):
        assert resume_fault(env) is None
        found = {f.what: f for f in check(env, steps=100)}
        # its checker may take forbidden actions (1.4 does, 1.3 did not): a note, and no fault
        assert found["gymnasium"].verdict in ("note", "ok"), found
        assert found["random steps"].verdict == found["resume"].verdict == "ok", found
        assert "sac" in found["algorithms"].text or env is games.ForbiddenMultiDiscrete


class Method(games.Forbidden):
    """Masks by the method that sb3-contrib asks for, and none in info."""

    def action_masks(self) -> Any:
        return [bool(x) for x in self.mask()]

    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0], {}

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {})


class MethodOfAxes(games.ForbiddenMultiDiscrete):
    """The masks of both choices in one row."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self.observation_space["symbols"]

    def observe(self) -> Any:
        return super().observe()["symbols"]

    def action_masks(self) -> Any:
        return super().observe()["action_mask"].astype(bool)


@pytest.mark.parametrize(
    "env", [Method, MethodOfAxes, lambda: gymnasium.wrappers.RecordEpisodeStatistics(Method())]
)
def test_masks_of_a_method_become_a_part_of_the_observation(env: Any) -> None:
    t = collected(env)  # invalid actions raise
    assert (t.action != t.obs["obs"]).all() and t.obs["action_mask"].dtype == np.int8
    assert resume_fault(env) is None


def test_masks_in_info_win_over_a_method() -> None:
    class Both(games.Forbidden):
        def action_masks(self) -> Any:
            return np.arange(4) == self.symbol

    t = collected(Both)
    assert (t.action != t.obs["obs"]).all()


class Silent(Method):
    action_masks = None


class OwnMethod(SyncVectorEnv):
    def action_masks(self) -> Any:
        return np.stack([env.mask() for env in self.envs])


@pytest.mark.parametrize(
    "make",
    [
        lambda: SyncVectorEnv([Method] * 2),
        lambda: SyncVectorEnv([Method] * 2, autoreset_mode="Disabled"),
        lambda: OwnMethod([Silent] * 2),
        lambda: AsyncVectorEnv([Method] * 2),
    ],
)
def test_masks_of_a_method_are_seen_in_vectors(make: Any) -> None:
    envs = VectorEnvironments("masked", make())
    chance = RandomActor(envs.action)
    noise = chance.noise(np.random.default_rng(0), (40, 2))
    t = Collector(envs, 0.9).collect(40, chance, noise)
    envs.close()
    assert (t.action != t.obs["obs"])[t.valid].all() and t.valid.sum() > 60


def test_a_method_that_raises_or_returns_nothing_is_named_alike_in_vectors() -> None:
    class Raises(Method):
        def action_masks(self) -> Any:
            raise KeyError("board")

    class Nothing(Method):
        def action_masks(self) -> Any:
            return None

    for kind, text in ((Raises, "raised KeyError"), (Nothing, "no (action )?mask")):
        for envs in (vectorize(kind, 2), VectorEnvironments("masked", SyncVectorEnv([kind] * 2))):
            with pytest.raises(EnvironmentFault, match=text):
                envs.reset()


def test_a_vector_that_resets_in_the_same_step_cannot_have_masks_of_a_method() -> None:
    vector = SyncVectorEnv([Method] * 2, autoreset_mode="SameStep")
    with pytest.raises(EnvironmentFault, match="autoreset_mode=gymnasium.vector.AutoresetMode"):
        VectorEnvironments("masked", vector)


@pytest.mark.parametrize(
    "name, env",
    [*((n, games.Forbidden) for n in ("dqn", "ppo", "a2c", "trpo", "sac")), ("ppo", Method)],
)
def test_a_run_takes_no_forbidden_action_though_it_would_pay_most(name, env, tmp_path) -> None:
    given = {
        "ppo": {"batch_size": 32, "rollout": 32, "envs": 2},
        "a2c": {"envs": 2},
        "trpo": {"rollout": 64, "batch_size": 32},
    }.get(name, {})
    given |= {"learning_starts": 50} if name in ("dqn", "sac") else {}
    run = trainer.session(
        name,
        lambda: env(raises=False),
        framework="torch",
        steps=200,
        out=tmp_path / "run",
        **given,
        **QUIET,
    )
    seen: list[Any] = []
    real = run.loop.learner.learn
    run.loop.learner.learn = lambda t, span: (seen.append(t), real(t, span))[1]  # type: ignore[func-returns-value]
    for _ in run.events():
        pass
    assert all((t.action != t.obs["obs"]).all() for t in seen)
    assert run.last_evaluation is not None and max(run.last_evaluation.returns) <= 10
    agent = trainer.load(tmp_path / "run", which="last")
    obs = {
        "obs": np.arange(4).repeat(50),
        "action_mask": (1 - np.eye(4, dtype=np.int8)).repeat(50, 0),
    }
    for deterministic in (True, False):
        assert (agent.act(obs, deterministic) != obs["obs"]).all()
    one = agent.act({"obs": np.int64(2), "action_mask": np.int8([0, 1, 0, 0])})
    assert one == 1 and np.shape(one) == ()
    assert agent.act(2, action_masks=[False, True, False, False]) == 1  # as sb3-contrib has it
    several, _ = agent.predict(obs["obs"], action_masks=obs["action_mask"])
    assert (several != obs["obs"]).all()
