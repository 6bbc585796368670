"""What a run came to."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tandem.collect.trained_agent import Agent
from tandem.learning.events import Evaluation


@dataclass(frozen=True)
class Result:
    """What training came to: the best agent, its run's folder (None without one), and its
    evaluation on fresh seeds.

    summary: what result.json says. reason: why the sitting ended, as in TrainEnd. notes: what could
    not be done, and why. After a signal nothing is scored or drawn any more: `evaluation` is the
    latest that there was (without one, of no episodes), and `summary` is empty.
    """

    agent: Agent
    folder: Path | None
    evaluation: Evaluation
    summary: dict[str, Any] = field(default_factory=dict)
    reason: str = "steps"
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """For notebooks: the score, and the curve of a run that has drawn one."""
        rows = {
            "agent": self.agent.name,
            "return": str(self.evaluation) if self.evaluation.returns else "not evaluated",
            "ended by": self.reason,
            **{name: f"{self.summary[name]:,}" for name in ("env_steps",) if name in self.summary},
            **({} if self.folder is None else {"folder": str(self.folder)}),
            **({"notes": "; ".join(self.notes)} if self.notes else {}),
        }
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in rows.items()
        )
        curve = None if self.folder is None else self.folder / "curve.png"
        if curve is None or not curve.is_file():
            return f"<table>{cells}</table>"
        picture = b64encode(curve.read_bytes()).decode()
        return f"<table>{cells}</table><img src='data:image/png;base64,{picture}' width='480'>"
