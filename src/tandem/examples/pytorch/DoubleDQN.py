"""Double DQN (van Hasselt et al. 2016, arXiv:1509.06461) on CartPole, in PyTorch: DQN whose next
action is chosen by one network and judged by the other.

python -m tandem.examples.pytorch.DoubleDQN
"""

from __future__ import annotations

from typing import Any

import torch

from tandem.examples.pytorch import DQN as basic


class DoubleDQN(basic.DQN):
    def next_value(self, next_s: Any) -> Any:
        best = self.q_net(next_s).argmax(1)
        return self.target_q_net(next_s).gather(1, best[:, None])[:, 0]


def main(seed: int = 0, episodes: int = 1000) -> DoubleDQN:
    torch.manual_seed(seed)
    model = DoubleDQN(4, 128, 2)
    basic.train(model, seed, episodes, update_steps=100)
    return model


if __name__ == "__main__":
    main()
