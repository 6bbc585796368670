"""The advice of `math`, `exploration`, `planning` and `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tandem import settings
from tandem.algorithms.ppo import PPOSettings
from tandem.exploration import (
    BoltzmannQPolicy,
    EpsGreedyQPolicy,
    GaussianWhiteNoiseProcess,
    GreedyQPolicy,
    OrnsteinUhlenbeckProcess,
    SoftmaxPolicy,
)
from tandem.math import (
    masks,
    moments,
    optimization,
    policy_losses,
    returns,
    special,
    value_distributions,
    values,
)
from tandem.math.effective import effective_sample_size
from tandem.planning import mcts
from tandem.spaces import action_leaf, observation_spec
from tests.advice.net import case, follows

X, LINE, ROW = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32), np.ones(3, np.float32)
FLAT = X.ravel()
BLOCK = dict(reward=X, discount=X, last=X > 2, value=X, bootstrap=ROW, lambda_=X)
MASKED = action_leaf(
    spaces.Discrete(3), observation_spec(spaces.Dict(action_mask=spaces.MultiBinary(3)))
)
GREEDY, SOFTMAX = GreedyQPolicy().choose, SoftmaxPolicy().choose


def seen(mask: Any) -> dict[str, Any]:
    return {"action_mask": mask}


def conjugate(b: Any) -> None:
    def repeat(n: int, body: Any, state: Any) -> Any:
        for _ in range(n):
            state = body(state)
        return state

    assert np.allclose(optimization.conjugate_gradient(lambda x: 2 * x, b, 5, repeat), b / 2)


def rows(rows: Any) -> None:
    moments.Moments(3).add(rows)


class Corridor:
    """A game whose state is how far one has come; at 3 it is over."""

    def simulate(self, state: int, action: int) -> tuple[int, bool]:
        return state + 1, state == 2


CORRIDOR = Corridor()


class Closed:
    """A game that cannot be put into a state."""


def search(
    env: Any = CORRIDOR, policy: Any = lambda s: [("on", 1.0)], value: Any = lambda s: 0.5, **more
) -> mcts.BaseNode:
    return mcts.run_mcts_search(mcts.Node(), 0, env, policy, value, **more)


def shares(root: mcts.BaseNode, temperature: Any = 1.0) -> None:
    assert mcts.visit_shares(root, temperature) == {"on": 1.0}


def apply(**values: Any) -> None:
    settings.check_ranges(settings.apply(PPOSettings(), values))


def path(out: Any) -> None:
    assert settings.as_path("out", out) == Path("runs/mine")


def number(n: Any) -> None:
    settings.whole_number("n", n, 3)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "math/effective.py:effective_sample_size",
            effective_sample_size,
            {"weight": -ROW},
            "take absolute values",
            {"weight": abs(-ROW)},
        ),
        case(
            "math/masks.py:masked",
            masks.masked,
            {"out": X, "obs": seen(FLAT), "action": MASKED},
            "give mask.reshape(4, 3)",
            {"obs": seen(FLAT.reshape(4, 3))},
        ),
        case("math/moments.py:Moments.add", rows, {"rows": LINE}, "this shape", {"rows": X}),
        case(
            "math/optimization.py:conjugate_gradient", conjugate, {"b": X}, "this shape", {"b": ROW}
        ),
        case(
            "math/policy_losses.py:clipped_surrogate",
            policy_losses.clipped_surrogate,
            {"ratio": ROW, "advantage": ROW[:, None], "clip": 0.2},
            "give advantage.reshape(3)",
            {"advantage": ROW[:, None].reshape(3)},
        ),
        case(
            "math/policy_losses.py:standardize",
            policy_losses.standardize,
            {"x": ROW, "weight": X},
            "give weight in this shape",
            {"weight": ROW},
        ),
        case(
            "math/returns.py:accumulate",
            returns.accumulate,
            {"x": X, "decay": LINE},
            "give decay in this shape",
            {"decay": X},
        ),
        case(
            "math/returns.py:accumulate 2",
            returns.accumulate,
            {"x": X, "decay": X, "end": ROW[None]},
            "give end.reshape(3)",
            {"end": ROW[None].reshape(3)},
        ),
        case(
            "math/returns.py:_discount_t",
            returns.generalized_advantage,
            {**BLOCK, "value": FLAT},
            "give value.reshape(4, 3)",
            {"value": FLAT.reshape(4, 3)},
        ),
        case(
            "math/returns.py:_discount_t 2",
            returns.generalized_advantage,
            {**BLOCK, "bootstrap": X},
            "give bootstrap in this shape",
            {"bootstrap": ROW},
        ),
        case(
            "math/returns.py:lambda_return",
            returns.lambda_return,
            {**BLOCK, "lambda_": FLAT},
            "give lambda_.reshape(4, 3)",
            {"lambda_": FLAT.reshape(4, 3)},
        ),
        case(
            "math/returns.py:n_step",
            returns.n_step,
            {"reward": X, "discount": FLAT, "last": X > 0, "n": 2},
            "give discount.reshape(4, 3)",
            {"discount": FLAT.reshape(4, 3)},
        ),
        case(
            "math/special.py:log_beta",
            special.log_beta,
            {"a": X, "b": FLAT},
            "give b.reshape(4, 3)",
            {"b": FLAT.reshape(4, 3)},
        ),
        *(
            case(
                key,
                values.q_learning,
                dict(q=X, action=np.zeros(4, int), reward=X[:, 0], discount=X[:, 0], next_q=X)
                | wrong,
                says,
                right,
            )
            for key, wrong, says, right in (
                (
                    "math/values.py:q_learning",
                    {"reward": LINE},
                    "give reward.reshape(4)",
                    {"reward": LINE.reshape(4)},
                ),
                (
                    "math/values.py:q_learning 2",
                    {"next_q": FLAT},
                    "give next_q.reshape(4, 3)",
                    {"next_q": FLAT.reshape(4, 3)},
                ),
                (
                    "math/values.py:q_learning 4",
                    {"policy": LINE},
                    "give policy in this shape",
                    {"policy": X},
                ),
                (
                    "math/values.py:q_learning 3",
                    {"selector": LINE},
                    "give selector in this shape",
                    {"selector": X},
                ),
            )
        ),
        *(
            case(
                key,
                values.epsilon_greedy_value,
                {"q": X, "best": np.zeros(4, int), "epsilon": X[:, 0], "mask": X} | wrong,
                says,
                right,
            )
            for key, wrong, says, right in (
                (
                    "math/values.py:epsilon_greedy_value",
                    {"best": np.zeros((2, 2), int)},
                    "give best.reshape(4)",
                    {"best": np.zeros(4, int)},
                ),
                (
                    "math/values.py:epsilon_greedy_value 2",
                    {"epsilon": LINE},
                    "give epsilon.reshape(4)",
                    {"epsilon": LINE.reshape(4)},
                ),
                (
                    "math/values.py:epsilon_greedy_value 3",
                    {"mask": FLAT},
                    "give mask.reshape(4, 3)",
                    {"mask": FLAT.reshape(4, 3)},
                ),
            )
        ),
        *(
            case(
                key,
                values.munchausen,
                dict(q=X, action=np.zeros(4, int), reward=X[:, 0], discount=X[:, 0], next_q=X)
                | {"alpha": 0.9, "temperature": 0.03, "lowest": -1.0}
                | wrong,
                says,
                right,
            )
            for key, wrong, says, right in (
                (
                    "math/values.py:munchausen",
                    {"reward": LINE},
                    "give reward.reshape(4)",
                    {"reward": LINE.reshape(4)},
                ),
                (
                    "math/values.py:munchausen 2",
                    {"next_q": FLAT},
                    "give next_q.reshape(4, 3)",
                    {"next_q": FLAT.reshape(4, 3)},
                ),
            )
        ),
        case(
            "math/values.py:clipped_value_loss",
            values.clipped_value_loss,
            {"value": ROW, "old_value": ROW, "target": ROW[:, None], "clip": 0.2},
            "give target.reshape(3)",
            {"target": ROW[:, None].reshape(3)},
        ),
        case(
            "math/value_distributions.py:categorical_projection",
            value_distributions.categorical_projection,
            {"place": X, "probability": FLAT, "support": value_distributions.atoms(0.0, 1.0, 3)},
            "give probability.reshape(4, 3)",
            {"probability": X},
        ),
        case(
            "math/value_distributions.py:cross_entropy",
            value_distributions.cross_entropy,
            {"logits": X, "probability": FLAT},
            "give probability.reshape(4, 3)",
            {"probability": X},
        ),
        case(
            "math/value_distributions.py:quantile_huber",
            value_distributions.quantile_huber,
            {"quantile": X, "fraction": FLAT, "target": X},
            "give fraction.reshape(4, 3)",
            {"fraction": X},
        ),
        case(
            "math/value_distributions.py:quantile_huber 2",
            value_distributions.quantile_huber,
            {"quantile": X, "fraction": X, "target": ROW},
            "give target in this shape",
            {"target": X},
        ),
        case(
            "exploration/noise.py:AnnealedGaussianProcess.__init__",
            GaussianWhiteNoiseProcess,
            {"sigma": 0.1, "sigma_min": 0.5},
        ),
        case(
            "exploration/noise.py:AnnealedGaussianProcess.__init__ 2",
            GaussianWhiteNoiseProcess,
            {"n_steps_annealing": 0},
        ),
        case(
            "exploration/noise.py:OrnsteinUhlenbeckProcess.__init__",
            OrnsteinUhlenbeckProcess,
            {"theta": -1.0},
        ),
        case(
            "exploration/policies.py:Policy.select_action",
            GreedyQPolicy().select_action,
            {"values": X},
            "take the first row",
            {"values": X[0]},
        ),
        case(
            "exploration/policies.py:Policy.select_action",
            lambda values, by: getattr(GreedyQPolicy(), by)(values),
            {"values": X, "by": "select_action"},
            "use choose(values) for several",
            {"by": "choose"},
        ),
        case(
            "exploration/policies.py:SoftmaxPolicy.choose",
            lambda values, policy: policy.choose(values),
            {"values": 3 * X, "policy": SoftmaxPolicy()},
            "or use BoltzmannQPolicy",
            {"policy": BoltzmannQPolicy()},
        ),
        case(
            "exploration/policies.py:SoftmaxPolicy.choose",
            SOFTMAX,
            {"values": 3 * X},
            "end the network with a softmax",
            {"values": np.exp(3 * X) / np.exp(3 * X).sum(-1, keepdims=True)},
        ),
        case(
            "exploration/policies.py:_finite",
            GREEDY,
            {"values": X * np.nan},
            "what the network is given",
            {"values": X},
        ),
        case("exploration/policies.py:_above", BoltzmannQPolicy, {"tau": 0.0}),
        case("exploration/policies.py:_within", EpsGreedyQPolicy, {"eps": 2.0}),
        case("exploration/policies.py:_range", BoltzmannQPolicy, {"clip": (5.0, -5.0)}),
        case("planning/mcts.py:run_mcts_search", search, {"num_simulations": 0.5, "c_puct": -1}),
        case(
            "planning/mcts.py:visit_shares",
            shares,
            {"root": mcts.Node()},
            "run run_mcts_search",
            {"root": search()},
        ),
        case("planning/mcts.py:visit_shares 2", shares, {"root": search(), "temperature": -1}),
        case(
            "planning/mcts.py:_Evaluation.__call__",
            search,
            {"policy": lambda s: (["on"], [1.0])},
            "return list(zip(actions, priors))",
            {"policy": lambda s: list(zip(["on"], [1.0], strict=True))},
        ),
        case(
            "planning/mcts.py:_Evaluation.__call__ 2",
            search,
            {"policy": lambda s: []},
            "return [(action, prior), ...]",
            {"policy": lambda s: [("on", 1.0)]},
        ),
        case(
            "planning/mcts.py:_simulator",
            search,
            {"env": Closed()},
            "a method simulate(state, action)",
            {"env": Corridor()},
        ),
        case("planning/mcts.py:_pair", search, {"dirichlet": 0.3}),
        case("settings.py:Limits.check", apply, {"gamma": 7.0}),
        case("settings.py:convert", apply, {"gamma": "much"}),
        case("settings.py:whole_number", number, {"n": 2}),
        case("settings.py:as_path", path, {"out": 3}),
    ],
)
def test_advice_on_numbers(case) -> None:
    case.follow()


def test_a_setting_that_is_mistyped() -> None:
    with follows("settings.py:apply") as advice:
        apply(lerning_rate=1e-3)
    apply(**{advice.quoted(): 1e-3})
