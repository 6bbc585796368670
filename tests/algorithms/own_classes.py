"""Algorithms of a program's own, as the tests of `tandem.train` and its commands give them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.algorithms.a3c import A3C
from tandem.algorithms.dqn import DQN
from tandem.algorithms.ppo import PPO, PPOSettings
from tandem.extending import setting
from tests.helpers import ROOT
from tests.pages import blocks


@dataclass(frozen=True)
class PenalisedSettings(PPOSettings):
    penalty: float = setting(1e-3, "weight of the square of values", minimum=0)


class Penalised(PPO):
    """PPO with a loss of its own."""

    Settings = PenalisedSettings

    def loss(self, b: Any) -> Any:
        loss, aux = super().loss(b)
        return loss + self.settings.penalty * self.outputs(b)[1] ** 2, aux


class Other(PPO):
    """Another one."""


class Replayed(DQN):
    """One with a replay buffer."""


class Asynchronous(A3C):
    """One of sequences."""


def reinforce(folder: Path) -> None:
    """Writes the module that docs/advanced/extending.md writes."""
    page = (ROOT / "docs" / "advanced" / "extending.md").read_text(encoding="utf-8")
    (block,) = (b for b in blocks(page) if b.text.startswith("# reinforce.py\n"))
    (folder / "reinforce.py").write_text(block.text, encoding="utf-8")
