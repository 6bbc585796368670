"""Masks on their way from an environment to what learns from them, and what is refused."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from torch import nn

from tandem import trainer
from tandem.cli import main
from tandem.envs.factory import resume_fault, spaces_of, vectorize
from tandem.envs.vector_env import VectorEnvironments
from tandem.errors import EnvironmentFault, SpaceError
from tandem.learning.collect.actor import RandomActor
from tandem.learning.collect.collector import Collector
from tandem.learning.collect.evaluation import evaluate
from tandem.math.masks import evenly, masked
from tandem.spaces import Leaf, action_leaf, from_json, observation_spec, seen, to_json
from tandem.testing import environments as games
from tandem.testing.env_checker import check
from tandem.types import leaves
from tests.envs.made import Acts, Made

QUIET: dict[str, Any] = {"plots": False, "tensorboard": False, "framework": "torch", "hidden": (8,)}
MULTI = Leaf("multidiscrete", (2,), "int64", (3, 2), masked=True)


def collected(env: Any, n: int = 3, steps: int = 40) -> Any:
    envs = env if isinstance(env, VectorEnvironments) else vectorize(env, n)
    chance = RandomActor(envs.action)
    noise = chance.noise(np.random.default_rng(0), (steps, envs.n))
    return Collector(envs, 0.9).collect(steps, chance, noise)


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
    t = collected(games.ForbiddenMultiDiscrete)  # a mask in the observation is left there
    assert set(t.obs) == {"symbols", "action_mask"} and t.obs["action_mask"].dtype == np.int8
    assert (t.action != t.obs["symbols"]).all()


class Several(Made):
    """Choices in two rows, of which the first is allowed alone, or the last in the second row."""

    MASK = np.int8([1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1])

    def __init__(self, sizes: Any = ((3, 3), (3, 2)), mask: Any = MASK) -> None:
        box, info = spaces.Box(-1, 1, (2,), np.float32), {"action_mask": mask}
        super().__init__(box, spaces.MultiDiscrete(sizes), 99, info)

    def step(self, action: Any) -> Any:
        assert action.tolist() == [[0, 0], [2, 1]]
        return super().step(action)


A, B, C, D = np.split(Several.MASK, [3, 6, 9])
SQUARE = np.eye(3, dtype=np.int8)[[[0, 0], [2, 1]]]  # it has the axes of the actions


@pytest.mark.parametrize(
    "make",
    [Several, lambda: Several(mask=((A, B), (C, D))), lambda: Several(((3, 3), (3, 3)), SQUARE)],
)
def test_masks_of_actions_of_several_axes_are_seen(make: Any) -> None:
    shown, action = spaces_of(make)
    assert action.inner == make().action_space and set(shown.spaces) == {"obs", "action_mask"}
    t, own = collected(make, steps=5), make().action_space
    flat = Several.MASK if own == Several().action_space else SQUARE.reshape(-1)
    assert (t.obs["action_mask"] == flat).all() and (t.action == [0, 0, 2, 1]).all()
    obs = VectorEnvironments("Several", SyncVectorEnv([make, make]), seed=0).reset()
    assert np.array_equal(obs["action_mask"], t.obs["action_mask"][0, :2])


def test_an_entry_of_that_name_masks_no_continuous_actions_and_has_to_fit_discrete_ones() -> None:
    entries = {"action_mask": spaces.MultiBinary(3), "x": spaces.Discrete(2)}
    obs = observation_spec(spaces.Dict(entries))
    assert not action_leaf(spaces.Box(-1, 1, (3,)), obs).masked
    assert action_leaf(spaces.Discrete(3), obs).masked
    for space in (spaces.Discrete(4), spaces.MultiDiscrete([3, 2])):
        with pytest.raises(SpaceError, match=r"'action_mask' of shape \(3,\)"):
            action_leaf(space, obs)
    plain = vectorize(games.Identity, 2)  # without masks it is not wrapped
    assert not plain.action.masked
    assert all(isinstance(e, games.Identity) for e in plain._envs)  # type: ignore[attr-defined]


def test_every_allowed_action_is_equally_likely_and_logits_are_masked() -> None:
    rng, row = np.random.default_rng(0), np.int8([1, 0, 1, 0, 1])
    noise = rng.random((30_000, 5), dtype=np.float32)
    drawn = evenly(noise, {"action_mask": np.tile(row, (30_000, 1))}, MULTI)
    share = np.bincount(drawn[:, 0], minlength=3) / 30_000
    np.testing.assert_allclose(share, [0.5, 0, 0.5], atol=0.02)
    assert (drawn[:, 1] == 1).all()
    out = np.float32([[1, 2, 3, 4, 5]])
    found = masked(out, {"action_mask": row[None]}, MULTI)
    np.testing.assert_array_equal(found, np.float32([[1, -1e9, 3, -1e9, 5]]))
    assert masked(out, None, Leaf("multidiscrete", (2,), "int64", (3, 2))) is out


class Stuck(games.Forbidden):
    """Forbids everything from its third step on, where it ends, is cut, or does not end."""

    def __init__(self, terminates: bool = False, cuts: bool = False) -> None:
        super().__init__()
        self.ends = np.array([terminates, cuts])

    def mask(self) -> Any:
        return super().mask() * (self.t < 3)

    def step(self, action: Any) -> Any:
        obs, reward, *over, info = super().step(action)
        return obs, reward, *map(bool, over | (self.ends & (self.t == 3))), info


class Forgets(games.Forbidden):  # masks only with its first observation
    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {})


def test_masks_that_forbid_everything_or_are_missing_later_are_named() -> None:
    text = "the action mask of environment 0 of .* masks every choice at step 3 of its"
    for make in (Stuck, lambda: Stuck(cuts=True)):
        with pytest.raises(EnvironmentFault, match=text):
            collected(make)
    # where an episode terminates nothing need be allowed
    assert collected(lambda: Stuck(terminates=True)).last.sum() > 3
    with pytest.raises(EnvironmentFault, match=r"at step 1 of its ep.* in info\['action_mask'\]"):
        collected(Forgets)


def test_masks_in_the_info_of_a_vector_of_its_own_are_seen() -> None:
    name = "tandem-tests/MaskedVector-v0"

    def vector(num_envs: int, **_: Any) -> Any:
        return SyncVectorEnv([games.Forbidden] * num_envs)

    gymnasium.register(name, entry_point=games.Forbidden, vector_entry_point=vector)
    try:
        assert vectorize(name, 8).action.masked
        plain, native = (vectorize(name, 3, mode=mode) for mode in ("plain", "native"))
        assert native.action.masked
        for mine, other in zip(leaves(native.reset()), leaves(plain.reset()), strict=True):
            assert mine.shape == other.shape and mine.dtype == other.dtype
    finally:
        gymnasium.registry.pop(name)


def test_evaluation_check_and_resume_take_no_forbidden_action() -> None:
    best = Acts(lambda obs, noise: (obs["obs"] + 1) % 4)
    assert evaluate(best, games.Forbidden, 5)[0] == [10.0] * 5
    for env in (games.Forbidden, games.ForbiddenMultiDiscrete):
        assert resume_fault(env) is None
        found = {f.what: f for f in check(env, steps=100)}
        # its checker may take forbidden actions (1.4 does, 1.3 did not): a note, and no fault
        assert found["gymnasium"].verdict in ("note", "ok"), found
        assert found["random steps"].verdict == found["resume"].verdict == "ok", found
        assert found["spaces"].text.endswith("masked by action_mask")
        assert "sac" in found["algorithms"].text or env is games.ForbiddenMultiDiscrete


def alone(space: Any) -> Any:
    return nn.Linear(space.shape[0], 8)


def entry(space: Any) -> Any:
    return nn.Linear(int(space["obs"].n), 8)


def test_a_network_of_the_observation_alone_is_told_of_the_masks(capsys: Any) -> None:
    words = ["train", "ppo", "tandem.testing.environments:Forbidden", "--framework", "torch"]
    for network, says in (("alone", "alone, given as network=, raised"), ("entry", "failed on")):
        assert main([*words, "--network", f"{__name__}:{network}"]) == 2
        error = capsys.readouterr().err
        assert says in error and "Traceback" in error
        assert 'Fix: use space["obs"] and x["obs"]: with masks, the observation is a' in error


class Method(Forgets):  # masks by the method that sb3-contrib asks for, none in info
    def action_masks(self) -> Any:
        return [bool(x) for x in self.mask()]

    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0], {}


class MethodOfAxes(games.ForbiddenMultiDiscrete):  # the masks of both choices in one row
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self.observation_space["symbols"]

    def observe(self) -> Any:
        return super().observe()["symbols"]

    def action_masks(self) -> Any:
        return super().observe()["action_mask"].astype(bool)


def masking(kind: Any, masks: Any) -> Any:
    """The class of environments, with this method `action_masks`."""
    return type(f"Other{kind.__name__}", (kind,), {"action_masks": masks})


@pytest.mark.parametrize(
    "env",
    [
        Method,
        MethodOfAxes,
        lambda: gymnasium.wrappers.RecordEpisodeStatistics(Method()),
        masking(games.Forbidden, lambda self: np.arange(4) == self.symbol),  # those in info win
    ],
)
def test_masks_of_a_method_become_a_part_of_the_observation(env: Any) -> None:
    t = collected(env)  # invalid actions raise
    assert (t.action != t.obs["obs"]).all() and t.obs["action_mask"].dtype == np.int8
    assert resume_fault(env) is None


OwnMethod = masking(SyncVectorEnv, lambda self: np.stack([env.mask() for env in self.envs]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: SyncVectorEnv([Method] * 2),
        lambda: SyncVectorEnv([Method] * 2, autoreset_mode="Disabled"),
        lambda: OwnMethod([masking(Method, None)] * 2),
        lambda: AsyncVectorEnv([Method] * 2),
    ],
)
def test_masks_of_a_method_are_seen_in_vectors(make: Any) -> None:
    envs = VectorEnvironments("masked", make())
    t = collected(envs)
    envs.close()
    assert (t.action != t.obs["obs"])[t.valid].all() and t.valid.sum() > 60


def test_methods_that_cannot_be_used_are_named_alike_in_vectors() -> None:
    raises, empty = lambda self: {}["board"], lambda self: None
    for masks, text in ((raises, "raised KeyError"), (empty, "no (action )?mask")):
        kind = masking(Method, masks)
        vector = VectorEnvironments("masked", SyncVectorEnv([kind] * 2))
        for envs in (vectorize(kind, 2), vector):
            with pytest.raises(EnvironmentFault, match=text):
                envs.reset()
    same = SyncVectorEnv([Method] * 2, autoreset_mode="SameStep")
    with pytest.raises(EnvironmentFault, match="autoreset_mode=gymnasium.vector.AutoresetMode"):
        VectorEnvironments("masked", same)


GIVEN: dict[str, dict[str, Any]] = {
    "dqn": {"learning_starts": 50},
    "ppo": {"batch_size": 32, "rollout": 32, "envs": 2},
    "a2c": {"envs": 2},
    "trpo": {"rollout": 64, "batch_size": 32},
    "sac": {"learning_starts": 50},
}


@pytest.mark.parametrize("name, env", [*((n, games.Forbidden) for n in GIVEN), ("ppo", Method)])
def test_a_run_takes_no_forbidden_action_though_it_would_pay_most(name, env, tmp_path) -> None:
    make, given = lambda: env(raises=False), {"eval_episodes": 2, "final_episodes": 2, **QUIET}
    run = trainer.session(name, make, steps=200, out=tmp_path / "run", **given, **GIVEN[name])
    seen: list[Any] = []
    real = run.loop.learner.learn
    run.loop.learner.learn = lambda t, span: (seen.append(t), real(t, span))[1]  # type: ignore[func-returns-value]
    list(run.events())
    assert all((t.action != t.obs["obs"]).all() for t in seen)
    assert run.last_evaluation is not None and max(run.last_evaluation.returns) <= 10
    agent = trainer.load(tmp_path / "run", which="last")
    mask = (1 - np.eye(4, dtype=np.int8)).repeat(50, 0)
    obs = {"obs": np.arange(4).repeat(50), "action_mask": mask}
    for deterministic in (True, False):
        assert (agent.act(obs, deterministic) != obs["obs"]).all()
    one = agent.act({"obs": np.int64(2), "action_mask": np.int8([0, 1, 0, 0])})
    assert one == 1 and np.shape(one) == ()
    assert agent.act(2, action_masks=[False, True, False, False]) == 1  # as sb3-contrib has it
    several, _ = agent.predict(obs["obs"], action_masks=mask)
    assert (several != obs["obs"]).all()
