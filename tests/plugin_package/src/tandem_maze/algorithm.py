"""An algorithm of a package."""

from dataclasses import dataclass
from typing import Any

from tandem.algorithms.a2c import A2C, A2CSettings
from tandem.extending import setting


@dataclass(frozen=True)
class MazeSettings(A2CSettings):
    penalty: float = setting(1e-3, "weight of the square of values", minimum=0)


class MazePG(A2C):
    """A2C with a penalty on large values. It is one for tests."""

    Settings = MazeSettings

    def loss(self, b: Any) -> Any:
        loss, aux = super().loss(b)
        value = self.outputs(b)[1]
        return loss + self.settings.penalty * value**2, aux
