"""How each algorithm acts: best actions without noise, others with it; by Beta distributions, by
implicit quantiles, and by noise that continues over steps: state-dependent (gSDE) and
Ornstein-Uhlenbeck."""

import numpy as np
import pytest
from scipy import stats

import tandem
from tandem import algorithms, trainer
from tandem.errors import SettingError
from tandem.learning.collect.actor import PolicyActor, forwards
from tandem.math import state_dependent
from tandem.math.distributions import Beta, Gaussian
from tandem.math.state_dependent import StateDependentDeterministic, StateDependentGaussian
from tandem.networks.plan import Flatten, forward, init
from tandem.networks.policy_layers import DenseWithInputs, StateDependent
from tandem.settings import Schedule
from tandem.spaces import Leaf
from tandem.testing import fakes
from tandem.types import tree_map
from tests.algorithms.cases import CASES, GSDE, IMPLICIT
from tests.runs.shared import QUICK, in_parts

ROWS = 200
QUIET = {"plots": False, "tensorboard": False, "eval_episodes": 0, "final_episodes": 1}
LAYER = StateDependent(5, 2, log_std=-1.0)
WEIGHTS = init((LAYER,), np.random.default_rng(3))
FEATURES = np.random.default_rng(4).standard_normal((7, 5)).astype(np.float32)
OUT = forward((LAYER,), WEIGHTS, FEATURES)


@pytest.mark.parametrize("name", CASES)
def test_without_noise_the_action_is_the_best_one_and_with_noise_it_explores(name) -> None:
    case = CASES[name]
    greedy = case.algorithm in ("dqn", "nstep_q", "pqn", "vdn", "qmix")
    explore = {"epsilon": Schedule(0.5)} if greedy else {}
    algorithm, backend = fakes.build(
        case.algorithm, "torch", case.action, case.observation, **(case.settings | explore)
    )
    networks = forwards(backend, algorithm.acting)
    actor = PolicyActor(type(algorithm), algorithm.settings, case.action, networks)
    obs = fakes.observations(case.observation, (ROWS,), np.random.default_rng(0))
    if case.action.masked:
        obs[fakes.MASK][:] = 1
    state = actor.initial_state(ROWS)
    best, again = (actor.act(obs, state, None)[0] for _ in range(2))
    noise = algorithm.exploration_noise(
        algorithm.settings, case.action, np.random.default_rng(1), (1, ROWS), np.zeros(1)
    )
    explored = actor.act(obs, state, tree_map(lambda x: x[0], noise))[0]
    np.testing.assert_array_equal(best, again)
    assert explored.shape == best.shape == (ROWS, *case.action.shape)
    assert (explored != best).mean() > 0.1


def test_choices_have_a_class_of_their_own_where_the_paper_is_another() -> None:
    for name, action, kind in (
        ("sac", fakes.DISCRETE, "DiscreteSAC"),
        ("sac", fakes.BOX, "SAC"),
        ("sac", fakes.MULTI, "SAC"),
        ("maddpg", fakes.TEAM_DISCRETE, "DiscreteMADDPG"),
        ("maddpg", fakes.TEAM_BOX, "MADDPG"),
        ("ppo", fakes.DISCRETE, "PPO"),
    ):
        found = algorithms.get(name, action)
        assert found.__name__ == kind and algorithms.for_actions(found, action) is found
    own = type("SAC", (algorithms.get("sac"),), {})
    assert algorithms.for_actions(own, fakes.DISCRETE) is own


@pytest.mark.parametrize("name", ["ppo", "a2c", "trpo"])
def test_a_run_acts_by_a_beta_distribution_and_so_does_what_is_loaded(name, tmp_path) -> None:
    given = QUICK | {"steps": 128, "rollout": 32, "envs": 2, "policy": "beta"}
    given |= {"batch_size": 32} if name == "ppo" else {}
    run = trainer.session(name, "Pendulum-v1", out=tmp_path / "run", **given)
    seen = []
    real = run.loop.learner.learn
    run.loop.learner.learn = lambda t, span: (seen.append(t.action), real(t, span))[1]
    list(run.events())
    assert isinstance(run.algorithm.policy, Beta) and np.abs(seen).max() < 1
    loaded = trainer.load(tmp_path / "run", which="last")
    policy = loaded.algorithm.distribution(loaded.settings, loaded.action)
    assert isinstance(policy, Beta) and policy.action_mode == "unit"
    obs = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -3.0]], np.float32)
    np.testing.assert_array_equal(loaded.act(obs), run.agent().act(obs))
    loaded.seed(1)
    # Pendulum's bounds are 2
    assert np.abs(loaded.act(np.tile(obs, (500, 1)), deterministic=False)).max() > 1.5


def test_it_acts_by_the_mean_at_midpoints_and_always_alike() -> None:
    algorithm, _ = fakes.build("dqn", "torch", fakes.DISCRETE, **IMPLICIT)
    obs = fakes.values(fakes.VECTOR, (9,), np.random.default_rng(0))
    network, fractions = algorithm.q.predict, (np.arange(6, dtype=np.float32) + 0.5) / 6
    rows = np.tile(fractions, (9, 1))
    quantiles = network({"obs": obs, "fractions": rows})
    assert quantiles.shape == (9, 6, 2) and np.ptp(quantiles, 1).min() > 1e-4
    one = [network({"obs": obs, "fractions": rows[:, i : i + 1]})[:, 0] for i in range(6)]
    np.testing.assert_allclose(quantiles, np.stack(one, 1), rtol=1e-5, atol=1e-6)
    act = lambda: algorithm.act(  # noqa: E731
        algorithm.settings, fakes.DISCRETE, {"q": network}, obs, (), None
    )
    np.testing.assert_array_equal(act()[0], quantiles.mean(1).argmax(-1))
    np.testing.assert_array_equal(act()[0], act()[0])


def test_the_default_network_has_fractions_before_its_last_hidden_layer() -> None:
    """psi and f of Dabney et al. 2018b, section 3.1; of pictures psi is the convolutions."""
    by_role = fakes.sources("dqn", fakes.DISCRETE, values="implicit", hidden=(16, 8))
    product, hidden, out = by_role["q"].plan
    assert [x.units for x in product.plans["obs"] if hasattr(x, "units")] == [16]
    assert product.plans["fractions"][1].units == hidden.inputs == 16
    assert (hidden.units, out.units) == (8, 2)
    image = Leaf("box", (36, 36, 1), "uint8", (), (0.0,) * 1296, (255.0,) * 1296)
    by_role = fakes.sources("dqn", fakes.DISCRETE, image, values="implicit", dueling=True)
    product, streams = by_role["q"].plan
    assert isinstance(product.plans["obs"][-1], Flatten)
    assert product.plans["fractions"][1].units == streams.value[0].inputs == 64
    assert streams.advantage[0].units == 512


def test_munchausen_has_no_double_targets_unless_asked_which_is_refused() -> None:
    for given, double in (({}, False), ({"double": True}, True), ({"munchausen": False}, True)):
        settings, *_ = trainer.resolve("dqn", "CartPole-v1", {"munchausen": True, **given})
        assert settings.double is double


def test_noise_at_one_state_is_the_gaussian_that_the_losses_take_it_for() -> None:
    d = StateDependentGaussian(2)
    many = np.repeat(OUT[:1], 20_000, axis=0)
    drawn = d.sample(many, d.noise(np.random.default_rng(0), (1, 20_000))[0])
    std = np.sqrt((FEATURES[0] ** 2).sum() * np.exp(-2.0) + 1e-6)
    mean = (FEATURES @ WEIGHTS["0/kernel"] + WEIGHTS["0/bias"])[0]
    for i in range(2):
        assert stats.kstest(drawn[:, i], stats.norm(mean[i], std).cdf).pvalue > 1e-3
    gaussian = np.concatenate([mean, np.log([std, std])]).astype(np.float32)
    expected = Gaussian(2).log_prob(gaussian, drawn[:20])
    np.testing.assert_allclose(d.log_prob(many[:20], drawn[:20]), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(d.entropy(OUT)[0], Gaussian(2).entropy(gaussian), rtol=1e-5)
    np.testing.assert_allclose(d.kl(OUT, OUT), 0, atol=1e-5)
    assert (d.kl(OUT[:1], OUT[1:2]) > 0).all()
    np.testing.assert_array_equal(d.mode(OUT), OUT[:, :2])


@pytest.mark.parametrize("freq, changes", [(-1, [0]), (4, [0, 4, 8]), (50, [0])])
def test_each_environment_has_its_own_matrix_for_sample_freq_steps(freq, changes) -> None:
    d = StateDependentGaussian(2, freq)
    seeds = d.noise(np.random.default_rng(0), (10, 3))
    assert seeds.shape == (10, 3) and len({*seeds[0]}) == 3
    offsets = np.stack([d.offset(OUT[:3], seed) for seed in seeds])
    moved = [0, *(1 + np.flatnonzero((np.diff(offsets, axis=0) != 0).any((1, 2))))]
    assert moved == changes
    # linear in the features, as a function of the state has to be
    layer = forward((LAYER,), WEIGHTS, 2 * FEATURES[:3])
    np.testing.assert_allclose(d.offset(layer, seeds[0]), 2 * offsets[0], rtol=1e-5)


def test_under_tanh_and_around_a_deterministic_action() -> None:
    squashed, inner = state_dependent.StateDependentTanh(2), StateDependentGaussian(2)
    noise = squashed.noise(np.random.default_rng(0), (1, 7))[0]
    np.testing.assert_array_equal(squashed.sample(OUT, noise), np.tanh(inner.sample(OUT, noise)))
    layer = DenseWithInputs(5, 2, "tanh")
    out = forward((layer,), init((layer,), np.random.default_rng(1)), FEATURES)
    np.testing.assert_array_equal(out[:, 2:], FEATURES)
    d = StateDependentDeterministic(2, -1, 0.05)
    many = np.repeat(out[:1], 20_000, axis=0)
    drawn = d.sample(many, d.noise(np.random.default_rng(0), (1, 20_000))[0]) - d.mode(many)
    np.testing.assert_allclose(drawn.std(0), 0.05, rtol=0.03)  # whatever the features are
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.03


def test_the_process_follows_its_recursion_and_begins_anew_with_each_episode(tmp_path) -> None:
    sizes = {"hidden": (8,), "learning_starts": 0, "train_every": 400, "batch_size": 500}
    given = {"action_noise": "ou", "exploration": 0.3, **sizes, **QUIET}
    run = trainer.session("ddpg", "Pendulum-v1", framework="torch", steps=400, **given)
    seen = []
    real = run.loop.learner.learn
    run.loop.learner.learn = lambda t, span: (seen.append(t), real(t, span))[1]
    list(run.events())
    actor = run.loop.actor.networks["actor"]
    x = np.concatenate([t.action - actor(t.obs[:, 0])[:, None] for t in seen])[:, 0, 0]
    drive = (x[1:] - x[:-1] * (1 - 0.15 * 0.01)) / np.sqrt(0.01)
    first = np.arange(1, 400) == 200  # Pendulum's limit
    assert stats.kstest(drive[~first], stats.norm(0, 0.3).cdf).pvalue > 1e-3
    assert abs(x[200]) < 0.15 and abs(np.corrcoef(x[:-1], x[1:])[0, 1]) > 0.95


def thorough(*given):
    return pytest.param(*given, marks=pytest.mark.thorough)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, given",
    [
        ("td3", {"action_noise": "ou"}),
        ("trpo", {**GSDE, "recurrent": 4, "rollout": 32, "sde_sample_freq": 3}),
        ("sac", {**GSDE, "train_every": 10, "workers": 1}),
        ("ppo", {**GSDE, "shared": True, "rollout": 32}),
        thorough("ddpg", {"action_noise": "ou", "workers": 1}),
        thorough("ddpg", {**GSDE, "workers": 1}),
        thorough("td3", {**GSDE, "sde_sample_freq": 3, "train_every": 10}),
        thorough("a2c", {**GSDE, "workers": 1}),
        thorough("ppo", {**GSDE, "recurrent": 4, "sde_sample_freq": 3, "rollout": 32}),
    ],
    ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x.values())),
)
def test_a_resumed_run_ends_on_the_same_bit(algorithm, given, tmp_path) -> None:
    replay = {"learning_starts": 40, "batch_size": 16, "train_every": 2}
    given = {**(replay if algorithm in ("ddpg", "td3", "sac") else {}), **given}
    same = {"framework": "torch", "steps": 320, "envs": 2, "hidden": (8,), "seed": 3, **QUIET}
    in_parts(tmp_path, algorithm, "Pendulum-v1", 160, **same, **given)


def test_an_agent_whose_noise_alone_has_a_memory_acts_without_being_told_of_it(tmp_path) -> None:
    given = {"action_noise": "ou", "exploration": 0.5, "learning_starts": 10, "hidden": (8,)}
    quiet = {"eval_every": 0, "progress": False, "framework": "torch"}
    result = tandem.train("td3", "Pendulum-v1", steps=40, **given, **quiet)
    obs = np.zeros((4, 3), np.float32)
    assert np.ptp(result.agent.act(obs)) == 0  # one action of one state
    assert np.ptp(result.agent.act(obs, deterministic=False)) > 0


def test_a_whole_network_whose_last_layer_nobody_can_read_is_refused() -> None:
    import torch

    given = {"framework": "torch", "action_noise": "gsde"}
    network = {"actor": lambda space: torch.nn.Linear(3, 2)}
    with pytest.raises(SettingError, match="a custom network for 'actor'"):
        trainer.session("sac", "Pendulum-v1", network=network, **given, **QUIET)

    def body(space):
        return torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh())

    given |= {"steps": 60, "learning_starts": 20, "batch_size": 8, "eval_every": 0}
    result = tandem.train("sac", "Pendulum-v1", network=body, progress=False, **given)
    assert result.agent.act(np.zeros(3, np.float32)).shape == (1,)
