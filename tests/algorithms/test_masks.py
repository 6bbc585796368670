"""Masks: what losses make of them by hand, and that nothing forbidden is taken where networks have
a memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.algorithms import sarsa
from tandem.envs.team import Team
from tandem.math.distributions import Categorical, MultiCategorical
from tandem.math.masks import FORBIDDEN, masked
from tandem.testing import fakes
from tandem.testing.environments import Forbidden, ForbiddenMultiDiscrete
from tandem.testing.team_games import Barred
from tandem.types import Batch


@pytest.mark.parametrize("double", [False, True])
def test_targets_of_dqn_ignore_forbidden_values(double) -> None:
    """All values are their head's bias, 0 1 2 9; 9 is forbidden in what follows, so the target is 1
    + 0.5 * 2. Row 1 ended with nothing allowed: its target is its reward."""
    given = {"double": double, "prioritized": True, "hidden": (4,), "optimizer": "sgd"}
    algorithm, backend = fakes.build("dqn", "torch", fakes.MASKED, fakes.MASKED_VECTOR, **given)
    for name in ("q", "q_target"):
        weights = {n: np.zeros_like(w) for n, w in backend.networks[name].read().items()}
        backend.networks[name].write(weights | {"2/bias": np.float32([0, 1, 2, 9])})
    obs = {"obs": np.zeros((1, 2, 4), np.float32), "action_mask": np.ones((1, 2, 4), np.int8)}
    after = {**obs, "action_mask": np.int8([[[1, 1, 1, 0], [0, 0, 0, 0]]])}
    one = lambda *x: np.array([x], np.float32)  # noqa: E731
    numbers = {"learning_rate": 0, "max_grad_norm": 10, "tau": 0}
    settings = {n: np.float32([x]) for n, x in numbers.items()}
    taken, told = np.array([[0, 1]]), (one(1, 1), one(0.5, 0), after)
    batch = Batch(obs, taken, *told, weight=one(1, 1), settings=settings)
    outcome = backend.compile(algorithm.update)(batch)
    np.testing.assert_allclose(outcome.priority, [[2.0 - 0.0, 1.0 - 1.0]])


def test_forbidden_choices_have_no_probability_entropy_divergence_or_gradient() -> None:
    import torch

    d, free = Categorical(4), np.array([0.3, -0.2, 0.9], np.float32)
    logits = torch.tensor([*free, FORBIDDEN], requires_grad=True)
    alone = torch.tensor(free, requires_grad=True)
    old = torch.tensor([0.0, 1.0, -1.0, FORBIDDEN])

    def total(dist, x, before):
        return dist.log_prob(x, torch.tensor(1)) + dist.entropy(x) + dist.kl(before, x)

    full, part = total(d, logits, old), total(Categorical(3), alone, old[:3])
    np.testing.assert_allclose(full.detach(), part.detach(), rtol=1e-6)
    (g,), (h,) = torch.autograd.grad(full, logits), torch.autograd.grad(part, alone)
    np.testing.assert_allclose(g, [*h, 0.0], rtol=1e-5, atol=1e-7)
    # one choice is left at the first position, and at the second
    only, both = np.float32([[FORBIDDEN, 0.7, FORBIDDEN, 0.1]]), MultiCategorical((3, 1))
    assert both.entropy(only) == 0 and both.kl(only, only) == 0
    noise = Categorical(4).noise(np.random.default_rng(0), (5000,))
    assert set(d.sample(np.tile(logits.detach().numpy(), (5000, 1)), noise)) == {0, 1, 2}


def test_a_mask_that_allows_nothing_counts_as_one_that_allows_everything() -> None:
    """It is seen behind an end, where a value has to be finite to be 0 after its product with 0."""
    action = fakes.MASKED
    q = np.float32([[1, 2, 3, 6], [1, 2, 3, 6]])
    obs = {"action_mask": np.int8([[1, 1, 0, 0], [0, 0, 0, 0]])}
    np.testing.assert_array_equal(masked(q, obs, action), [[1, 2, FORBIDDEN, FORBIDDEN], q[1]])
    for epsilon, wanted in ((None, [2, 6]), (0.5, [1.75, 4.5])):
        q_allowed = masked(q, obs, action)
        value = sarsa.policy_value(q_allowed, q_allowed, obs, action, epsilon)
        np.testing.assert_array_equal(value, np.float32(wanted))


def test_the_temperature_of_sac_aims_at_what_masks_allow() -> None:
    algorithm, _ = fakes.build(
        "sac", "torch", fakes.MASKED, fakes.MASKED_VECTOR, hidden=(4,), initial_temperature=0.5
    )
    import torch

    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=torch.int8)
    obs = {"obs": torch.zeros(4, 4), "action_mask": mask}
    batch = Batch(obs, (), torch.zeros(4), extra={"entropy": torch.zeros(4)})
    loss, _ = algorithm.alpha_loss(batch)
    expected = -np.log(0.5) * 0.98 * np.log([4.0, 2.0, 1.0, 4.0])
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-5, atol=1e-7)


pytest.importorskip("torch")


def barred() -> Team:
    return Team(Barred())


FEW: dict[str, Any] = {"framework": "torch", "hidden": (8,), "recurrent": 4, "steps": 288}
FEW |= {"eval_every": 96, "eval_episodes": 2, "final_episodes": 2}
FEW |= {"plots": False, "tensorboard": False}
CUT = {"rollout": 8, "sequence": 4}  # rollouts within which episodes end, and sequences too
SEQUENCES = {"rollout": 8, "replay": "uniform", "replay_starts": 3, "replay_size": 20}
TEAM = {"sequence": 4, "batch_size": 16, "learning_starts": 32, "train_every": 9, "epsilon": 0.5}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ppo": ("ppo", Forbidden, {**CUT, "batch_size": 12, "memory": "lstm"}),
    "ppo of several": ("ppo", ForbiddenMultiDiscrete, {**CUT, "batch_size": 12}),
    "a2c": ("a2c", Forbidden, CUT),
    "trpo": ("trpo", ForbiddenMultiDiscrete, {**CUT, "memory": "lstm"}),
    "pqn": ("pqn", Forbidden, {**CUT, "batch_size": 12, "memory": "lstm"}),
    "pqn of the mean": ("pqn", Forbidden, {**CUT, "batch_size": 12, "bootstrap": "expected"}),
    "impala": ("impala", ForbiddenMultiDiscrete, {**SEQUENCES, "memory": "lstm"}),
    "acer": ("acer", Forbidden, SEQUENCES),
    "a3c": ("a3c", Forbidden, {"rollout": 8}),
    "nstep_q": ("nstep_q", Forbidden, {**SEQUENCES, "dueling": True, "memory": "lstm"}),
    "qmix": ("qmix", barred, {**TEAM, "memory": "lstm"}),
    "vdn": ("vdn", barred, {**TEAM, "share": False}),
    "mappo": ("mappo", barred, {**CUT, "batch_size": 12, "memory": "lstm"}),
    "mappo of a team": ("mappo", barred, {**CUT, "batch_size": 12, "rewards": "team"}),
}
FAST = ("ppo", "impala", "qmix")
thorough = pytest.mark.thorough


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=thorough)])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else thorough) for n in CASES]
)
def test_what_is_forbidden_is_never_taken(name: str, workers: int, tmp_path: Path) -> None:
    """In training, in evaluations, after a resume, by the trained agent, of several environments,
    with workers."""
    algorithm, env, settings = CASES[name]
    given = {**FEW, **settings, "envs": 3, "workers": workers, "out": tmp_path / "run"}
    given |= {"worker_patience": 300.0} if workers else {}
    tandem.train(algorithm, env, stop_at=120, **given)
    done = tandem.train(env=env, resume=tmp_path / "run")
    assert done.summary["env_steps"] >= 288
    agent = tandem.load(tmp_path / "run")
    assert tandem.evaluate(agent, env, episodes=3, deterministic=False).mean >= 0
