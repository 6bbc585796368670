"""PPO (Schulman et al. 2017, arXiv:1707.06347) on CartPole, in Keras, from a prioritized pool:
transitions are drawn by their errors and ratios of probabilities (Schaul et al. 2016,
arXiv:1511.05952), and the pool keeps as many as their effective sample size says.

KERAS_BACKEND=jax python -m tandem.examples.keras.PPO_pr
"""

from __future__ import annotations

from typing import Any

import keras

from tandem.examples.keras import PPO as basic


class PPO(basic.PPO):
    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss, TD, ratio = self.losses(s, a, next_s, r, d)
        self.prioritized_replay.update(TD, ratio)
        return [actor_loss, TD**2]  # of each sample: the library weights them

    def window_size_fn(self) -> int:
        return self.adjust_window_size()


def main(seed: int = 0, episodes: int = 1000) -> PPO:
    keras.utils.set_random_seed(seed)
    model = PPO(4, 128, 2, 0.2, 0.01)
    basic.train(model, seed, episodes, PR=True)
    return model


if __name__ == "__main__":
    main()
