"""A user's `action`, compiled."""

from __future__ import annotations

import warnings
from typing import Any

from tandem.agents.frozen_constants import Reads

# changes of what it reads; where there are more, compiling it anew each time takes longer than it
# saves
OFTEN = 3


class Forward:
    """Compiled, and anew where a number that it had read has changed; not any more where that goes
    on."""

    def __init__(self, agent: Any, backend: Any, function: Any) -> None:
        self.backend, self.function, self.reads, self.changes = backend, function, Reads(agent), 0
        self._run: Any = backend.forward(self._noted)

    def __call__(self, *arrays: Any) -> Any:
        if self._run is not None and (changed := self.reads.changed()):
            self.changes += 1
            often = self.changes > OFTEN
            then = "not compiled any more" if often else "compiled anew"
            warnings.warn(
                f"{', '.join(changed)} changed, which the compiled action had taken for constant: "
                f"it is {then}. Make it a"
                " variable (keras.Variable) that you assign to, and it need not be; or set "
                "self.jit_action = False.",
                stacklevel=2,
            )
            self.reads.forget()
            self._run = None if often else self.backend.forward(self._noted)
        return (
            self.backend.call(self.function, *arrays) if self._run is None else self._run(*arrays)
        )

    def _noted(self, *arrays: Any) -> Any:
        with self.reads.noting():
            return self.function(*arrays)
