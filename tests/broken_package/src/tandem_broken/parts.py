"""Can be imported, and is nothing that tandem could use."""

from typing import Any

import gymnasium

from tandem.algorithms.base import Algorithm

VALUE = 3


class Nothing:
    """No algorithm."""


class Faulty(Algorithm):
    """An algorithm without its methods."""


class Bare:
    """A writer without its methods."""

    def __init__(self, folder: Any, config: Any) -> None:
        pass

    def write(self, row: Any) -> None:
        pass


class Failing(Bare):
    """A writer that fails."""

    def write(self, row: Any) -> None:
        raise KeyError("account")

    def rewind(self, env_steps: int) -> None:
        pass

    def close(self) -> None:
        pass


class Unfit:
    """A writer that is called otherwise."""

    def __init__(self, url: str) -> None:
        pass


def shadow() -> None:
    """Takes the place of an environment that is there."""
    gymnasium.register("CartPole-v1", entry_point="tandem_broken.parts:Nothing")
