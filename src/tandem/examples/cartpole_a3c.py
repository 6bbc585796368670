"""A3C on CartPole by `make_trainer`, with a network of one's own: two hidden layers.

python -m tandem.examples.cartpole_a3c [keras|torch] [STEPS]
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium

import tandem


def keras_feature(space: Any) -> Any:
    """(input, feature): what policy and value stand on."""
    from keras.layers import Activation, Dense, Input

    state = feature = Input(shape=space.shape)
    for units in (200, 100):
        feature = Activation("relu")(Dense(units)(feature))
    return state, feature


def torch_feature(space: Any) -> Any:
    """The same as a torch module, which needs no input layer."""
    from torch import nn

    return nn.Sequential(nn.Linear(space.shape[0], 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU())


def main(kind: str = "keras", steps: str = "200000", **arguments: Any) -> tandem.Result:
    trainer = tandem.make_trainer(
        algorithm="a3c",
        env_maker=lambda: gymnasium.make("CartPole-v1"),
        feature_maker=keras_feature if kind == "keras" else torch_feature,
        batch_size=4,  # four environments, and a rollout list of each in an update
        rollout_maxlen=16,
        opt_kwargs={"learning_rate": "2e-3:0"},
        opt_clip_norm=5,
        num_parallel=1,
        train_steps=int(steps),
        **{"verbose": True, **arguments},
    )
    return trainer.run()


if __name__ == "__main__":
    print(f"mean return of 20 episodes: {main(*sys.argv[1:]).evaluation.mean:.0f}")
