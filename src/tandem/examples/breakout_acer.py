"""ACER on Breakout by `make_trainer`, from pictures: a whole model with convolutions, replay of
rollout lists.

pip install 'tandem-rl[atari]'
python -m tandem.examples.breakout_acer [keras|torch] [STEPS]
"""

from __future__ import annotations

import sys
from typing import Any

import tandem
from tandem.envs.atari import history


def keras_model(env: Any) -> Any:
    """Logits, and values of actions, on three convolutions and a dense layer (Mnih et al. 2015)."""
    from keras import Model
    from keras.layers import Conv2D, Dense, Flatten, Input, Permute, Rescaling

    state = Input(shape=env.observation_space.shape, dtype="uint8")
    x = Rescaling(1 / 255)(Permute((2, 3, 1))(state))  # channels last
    for filters, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        x = Conv2D(filters, kernel, stride, activation="relu", data_format="channels_last")(x)
    x = Dense(512, activation="relu")(Flatten()(x))
    logits = Dense(env.action_space.n, kernel_initializer="zeros")(x)
    return Model(inputs=state, outputs=[logits, Dense(env.action_space.n)(x)])


def torch_model(env: Any) -> Any:
    """The same as a torch module, which returns both."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self, actions: int) -> None:
            super().__init__()
            parts: list[nn.Module] = []
            for inputs, filters, kernel, stride in ((4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
                parts += [nn.Conv2d(inputs, filters, kernel, stride), nn.ReLU()]
            self.body = nn.Sequential(*parts, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())
            self.logits, self.values = nn.Linear(512, actions), nn.Linear(512, actions)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = self.body(x.float() / 255)
            return self.logits(x), self.values(x)

    return Network(int(env.action_space.n))


def main(kind: str = "keras", steps: str = "10000000", **arguments: Any) -> tandem.Result:
    trainer = tandem.make_trainer(
        algorithm="acer",
        env_maker=lambda: history("ALE/Breakout-v5", num_frames=4, act_steps=2),
        model_maker=keras_model if kind == "keras" else torch_model,
        rollout_maxlen=4,
        batch_size=8,
        train_steps=int(steps),
        **{"save_dir": "runs", "verbose": True, **arguments},
    )
    return trainer.run()


if __name__ == "__main__":
    print(f"mean return of 20 episodes: {main(*sys.argv[1:]).evaluation.mean:.0f}")
