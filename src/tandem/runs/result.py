"""What a run came to."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem.collect.trained_agent import Agent
from tandem.learning import notebook
from tandem.learning.events import Evaluation


@dataclass(frozen=True)
class Result:
    """What training came to: the best agent, its run's folder (None without one), and its
    evaluation on fresh seeds.

    summary: what result.json says. reason: why the sitting ended, as in TrainEnd. notes: what could
    not be done, and why. evaluations: of those of this sitting, (environment steps, mean,
    deviation). After a signal nothing is scored or drawn any more: `evaluation` is the latest that
    there was (without one, of no episodes), and `summary` is empty.
    """

    agent: Agent
    folder: Path | None
    evaluation: Evaluation
    summary: dict[str, Any] = field(default_factory=dict)
    reason: str = "steps"
    notes: tuple[str, ...] = ()
    evaluations: tuple[tuple[int, float, float], ...] = ()

    def __repr__(self) -> str:
        """As in "Result(ppo CartPole-v1: 9.3 ± 0.5 over 10 episodes; ended by steps; runs/a)"."""
        parts = [self._score(), f"ended by {self.reason}"]
        parts += [] if self.folder is None else [str(self.folder)]
        return f"Result({self.agent.name}: {'; '.join(parts)})"

    def _repr_html_(self) -> str:
        """For notebooks: the score, and the curve, which is that of the folder if it has one."""
        rows = {
            "agent": self.agent.name,
            "return": self._score(),
            "ended by": self.reason,
            **{name: f"{self.summary[name]:,}" for name in ("env_steps",) if name in self.summary},
            **({} if self.folder is None else {"folder": str(self.folder)}),
            **({"notes": "; ".join(self.notes)} if self.notes else {}),
        }
        file = None if self.folder is None else self.folder / "curve.png"
        if file is None or not file.is_file():
            return notebook.table(rows) + notebook.curve(self.evaluations)
        drawn = b64encode(file.read_bytes()).decode()
        return notebook.table(rows) + notebook.picture("png", drawn, "learning curve", 480)

    def _score(self) -> str:
        return str(self.evaluation) if self.evaluation.returns else "not evaluated"
