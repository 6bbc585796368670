from contextlib import nullcontext as does_nothing

import numpy as np
import pytest

from tandem.errors import NetworkError
from tandem.learning.events import BatchEnd
from tandem.trainer import session
from tests.helpers import run_python

torch = pytest.importorskip("torch")
nn = torch.nn

GIVEN = {"framework": "torch", "envs": 1, "rollout": 64, "epochs": 3, "hidden": (8,)}
GIVEN["eval_episodes"] = 0


class Own(nn.Module):
    def forward(self, x):
        return x.sin()


def learned(steps: int = 64, **given):
    """The run, and what each call of updates measured."""
    run = session("trpo", "CartPole-v1", steps=steps, **GIVEN, **given)
    return run, [e.metrics for e in run if isinstance(e, BatchEnd) and e.metrics]


@pytest.mark.parametrize("batch_size, updates", [(16, 1 + 3 * 4), (64, 1 + 3), (0, 3)])
def test_one_step_of_the_policy_and_batches_of_the_critic(batch_size: int, updates: int) -> None:
    run, (metrics,) = learned(batch_size=batch_size)
    assert run.loop.learner.updates == updates
    assert {"improvement", "divergence", "value_loss"} <= metrics.keys()
    assert metrics["improvement"] > 0


def test_the_policy_does_not_depend_on_the_batches_of_the_critic() -> None:
    """In its first rollout: its step is by all rows, before the critic's."""
    actors = [learned(batch_size=n)[0].loop.backend.networks["actor"].read() for n in (16, 32, 0)]
    for name, weights in actors[0].items():
        for other in actors[1:]:
            np.testing.assert_allclose(weights, other[name], atol=1e-5)


def test_a_norm_of_0_does_not_clip_and_is_the_default() -> None:
    loops = [learned(max_grad_norm=norm)[0].loop for norm in (0.0, 1e9, 1e-3)]
    assert loops[0].algorithm.Settings().max_grad_norm == 0
    zero, unclipped, clipped = (loop.backend.networks["critic"].read() for loop in loops)
    for name, x in zero.items():
        assert np.array_equal(x, unclipped[name]) and not np.array_equal(x, clipped[name])


@pytest.mark.parametrize(
    "layer, kind",
    [
        (lambda: nn.BatchNorm1d(4), "BatchNorm1d"),
        (lambda: nn.Dropout(0.1), "Dropout"),
        (lambda: nn.Dropout(0.0), ""),
        (lambda: nn.LayerNorm(4), ""),
        (Own, ""),
    ],
)
def test_a_policy_that_is_another_in_training_is_refused(layer, kind) -> None:
    """Its step would move no statistics, and draw nothing; the critic's may."""

    def bodies(space):
        return nn.Sequential(layer(), nn.Linear(4, 8)), nn.Sequential(nn.Dropout(0.1), nn.Tanh())

    refused = pytest.raises(NetworkError, match=f"a policy with a {kind}.")
    with refused if kind else does_nothing():
        session("trpo", "CartPole-v1", network=bodies, steps=64, **GIVEN)


@pytest.mark.slow
def test_layers_of_keras_that_are_others_in_training_are_found() -> None:
    code = """
    import json
    import keras
    from keras import layers
    from tandem.networks.keras_layers import build, mode_dependent_layer
    from tandem.networks.plan import Dense

    for chain in (
        [layers.Dense(2), layers.Dropout(0.1)],
        [layers.BatchNormalization()],
        [layers.SpectralNormalization(layers.Dense(2))],
        [layers.BatchNormalization(trainable=False), layers.Dropout(0.0), layers.Dense(2)],
        [layers.LSTM(3)],
        [layers.LSTM(3, dropout=0.1)],
    ):
        shape = (5, 4) if isinstance(chain[0], layers.LSTM) else (4,)
        print(json.dumps(mode_dependent_layer(keras.Sequential([keras.Input(shape), *chain]))))
    """
    expected = ["Dropout", "BatchNormalization", "SpectralNormalization", "", ""]
    *found, last = run_python(code, engine="jax")
    assert found == expected and last.startswith("LSTM")
