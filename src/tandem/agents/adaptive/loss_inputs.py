"""Numbers that rules change, as inputs of a compiled update: otherwise each change would recompile
it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tandem.agents.adaptive.frozen_constants import FrozenConstants
from tandem.backends.backend import Losses
from tandem.backends.broadcast_check import square_arrays
from tandem.types import AnyArray, Batch

HOOKS = ("adjust_func", "batch_size_fn", "window_size_fn", "window_size_func")
ATTRIBUTES = ("tau", "gamma", "clip", "beta")  # of an agent
NUMBERS = ("weight_decay", "beta1", "beta2")  # of an optimizer; its learning rate is a variable


def adapts(agent: object) -> bool:
    """Return whether the agent has a hook that can change numbers."""
    return any(callable(getattr(agent, name, None)) for name in HOOKS)


class LossInputs:
    """Plain numbers of an agent and its optimizers that are inputs of the compiled update; none if
    it is not compiled. losses: function recorded by `constants`."""

    def __init__(
        self,
        agent: Any,
        optimizers: list[Any],
        losses: Losses,
        constants: FrozenConstants,
        framework: str,
        compiles: bool,
    ) -> None:
        self.agent, self.optimizers = agent, optimizers
        self.losses, self.constants = losses, constants
        self.framework, self.compiles = framework, compiles
        self.attributes: list[str] = []
        self.constant: set[str] = set()  # attributes that cannot be inputs
        self.numbers: list[tuple[int, str]] = []  # (index of the optimizer, name)

    def settings(self, count: int) -> dict[str, AnyArray]:
        """Return their values as settings of `count` updates; [count] each."""
        values = {f"agent/{n}": getattr(self.agent, n) for n in self.attributes}
        values |= {f"optimizer/{i}/{n}": self.optimizers[i].numbers(n)[0] for i, n in self.numbers}
        return {n: np.full(count, x, np.float32) for n, x in values.items()}

    @contextmanager
    def of(self, batch: Batch, constants: FrozenConstants) -> Iterator[None]:
        """Replace the numbers by the settings of `batch` while its update is traced."""
        settings = batch.settings
        given = {n: settings[f"agent/{n}"] for n in self.attributes if f"agent/{n}" in settings}
        constants.inputs.update(given)
        for i, n in self.numbers:
            if (name := f"optimizer/{i}/{n}") in settings:
                self.optimizers[i].inputs[n] = settings[name]
        try:
            yield
        finally:
            constants.inputs.clear()
            for i, _ in self.numbers:
                self.optimizers[i].inputs.clear()

    def choose(self, batch: Batch) -> None:
        """Add all numbers that rules could change. Attributes must be plain numbers with which the
        losses of `batch` can be traced."""
        if not self.compiles:
            return
        for name in ATTRIBUTES:
            if plain(getattr(self.agent, name, None)):
                self._add(name, batch)
        self.numbers = [
            (i, n) for i, o in enumerate(self.optimizers) for n in NUMBERS if o.numbers(n)
        ]

    def take_in(self, name: str, batch: Batch) -> bool:
        """Add a number of the agent or its optimizers that a rule has changed. Return whether the
        update must be recompiled."""
        if not self.compiles:
            return False
        before = len(self.attributes), len(self.numbers)
        if name in ATTRIBUTES:
            self._add(name, batch)
        elif name in NUMBERS:
            every = [(i, name) for i, o in enumerate(self.optimizers) if o.numbers(name)]
            self.numbers += [one for one in every if one not in self.numbers]
        return before != (len(self.attributes), len(self.numbers))

    def _add(self, name: str, batch: Batch) -> None:
        """Add an attribute. If the losses cannot be traced with it, for example because a Python
        `if` depends on it, it stays a constant in compiled code, with a warning."""
        if name in self.attributes or name in self.constant:
            return
        rows = np.ones(len(batch.reward), np.float32)

        def traced(b: Batch) -> Any:
            self.constants.inputs[name] = b.settings[name]
            try:
                return self.losses(b)[0]
            finally:
                self.constants.inputs.clear()

        value = {name: np.float32(getattr(self.agent, name))}
        try:
            square_arrays(self.framework, traced, batch._replace(weight=rows, settings=value), -1)
        except Exception as error:  # any error of a backend or NumPy for a traced number
            self.constant.add(name)
            warnings.warn(
                f"self.{name} cannot be an input of the compiled loss ({type(error).__name__}): a "
                "Python `if` or a function that needs a number depends on it. It stays a "
                "constant, and the loss is recompiled whenever a rule changes it, which is slow; "
                "this is shown once. Use keras.ops.where instead.",
                stacklevel=2,
            )
        else:
            self.attributes.append(name)


def plain(value: object) -> bool:
    """Return whether the value is a plain number."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
