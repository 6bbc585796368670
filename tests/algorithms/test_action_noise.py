"""Noise on actions that goes on over steps: state-dependent (gSDE) and Ornstein-Uhlenbeck."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import tandem
from tandem import trainer
from tandem.errors import SettingError, SpaceError
from tandem.math import state_dependent
from tandem.math.distributions import Gaussian
from tandem.math.state_dependent import StateDependentDeterministic, StateDependentGaussian
from tandem.networks.plan import forward, init
from tandem.networks.policy_layers import DenseWithInputs, StateDependent
from tandem.testing import environments as games
from tests.runs.shared import in_parts

QUIET = {"plots": False, "tensorboard": False, "eval_episodes": 0, "final_episodes": 1}
LAYER = StateDependent(5, 2, log_std=-1.0)
WEIGHTS = init((LAYER,), np.random.default_rng(3))
FEATURES = np.random.default_rng(4).standard_normal((7, 5)).astype(np.float32)
OUT = forward((LAYER,), WEIGHTS, FEATURES)


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
def test_a_matrix_stays_for_sample_freq_steps_and_each_environment_has_its_own(
    freq, changes
) -> None:
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


LONG = {"rollout": 32}


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, given",
    [
        ("td3", {"action_noise": "ou"}),
        ("trpo", {"action_noise": "gsde", "recurrent": 4, "rollout": 32, "sde_sample_freq": 3}),
        ("sac", {"action_noise": "gsde", "train_every": 10, "workers": 1}),
        ("ppo", {"action_noise": "gsde", "shared": True, "rollout": 32}),
        thorough("ddpg", {"action_noise": "ou", "workers": 1}),
        thorough("ddpg", {"action_noise": "gsde", "workers": 1}),
        thorough("td3", {"action_noise": "gsde", "sde_sample_freq": 3, "train_every": 10}),
        thorough("a2c", {"action_noise": "gsde", "workers": 1}),
        thorough("ppo", {"action_noise": "gsde", "recurrent": 4, "sde_sample_freq": 3, **LONG}),
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


@pytest.mark.parametrize(
    "algorithm, env, given, kind, said",
    [
        ("ppo", "CartPole-v1", {}, SpaceError, "cannot act in a Discrete action space"),
        ("sac", "CartPole-v1", {}, SpaceError, "sac with action_noise='gsde' cannot act in a Disc"),
        ("ppo", "Pendulum-v1", {"policy": "beta"}, SettingError, "with policy='beta'"),
        ("sac", "Pendulum-v1", {"noisy": "factorised"}, SettingError, "with noisy='factorised'"),
        ("a2c", games.IdentityMultiDiscrete, {}, SpaceError, "MultiDiscrete"),
    ],
)
def test_what_it_cannot_go_with_is_refused(algorithm, env, given, kind, said, tmp_path) -> None:
    given = {"action_noise": "gsde", **QUIET, **given}
    with pytest.raises(kind, match=said):
        trainer.session(algorithm, env, framework="torch", out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


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
