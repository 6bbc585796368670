"""PPO whose acting network is made by `build_(shared_params)`, from the weights that it is to begin
with. See `tandem.examples.keras.PPO_with_build`.

KERAS_BACKEND=jax python -m tandem.examples.keras.PPO_with_build_
"""

from __future__ import annotations

from typing import Any

import keras

from tandem.agents.rl import assign_param
from tandem.examples.keras import PPO as basic
from tandem.examples.keras import PPO_with_build as single


class PPO(single.PPO):
    def build_(self, shared_params: Any) -> None:
        self.old_actor = self.policy_network()
        assign_param(self.old_actor.weights, shared_params)


def main(seed: int = 0, episodes: int = 1000, processes: int = 2) -> PPO:
    keras.utils.set_random_seed(seed)
    model = PPO(4, 128, 2, 0.2, 0.01, processes)
    basic.train(model, seed, episodes, processes)
    return model


if __name__ == "__main__":
    main()
