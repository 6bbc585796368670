"""The result of a run."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.learning import notebook
from tandem.learning.collect.trained_agent import Agent
from tandem.learning.events import Evaluation
from tandem.runs.folder import Run

if TYPE_CHECKING:
    from tandem.runs.session import Session


@dataclass(frozen=True)
class Result:
    """Result of training: the best agent, the run folder (None without one), and the agent's
    evaluation on fresh seeds.

    summary: the contents of result.json. reason: why the session ended, as in TrainEnd. notes:
    tasks that failed, and why. evaluations: (environment steps, mean, standard deviation) of each
    evaluation in this session. After a signal, scoring and plotting are skipped: `evaluation` is
    the latest one (without episodes if there was none), and `summary` is empty.
    """

    agent: Agent
    folder: Path | None
    evaluation: Evaluation
    summary: dict[str, Any] = field(default_factory=dict)
    reason: str = "steps"
    notes: tuple[str, ...] = ()
    evaluations: tuple[tuple[int, float, float], ...] = ()

    @property
    def run(self) -> Run | None:
        """The run folder as a `Run`; None without a folder."""
        return None if self.folder is None else Run(self.folder)

    def __repr__(self) -> str:
        """Return for example "Result(ppo CartPole-v1: 9.3 ± 0.5 over 10 episodes; ended by steps;
        runs/a)"."""
        parts = [self._score(), f"ended by {self.reason}"]
        parts += [] if self.folder is None else [str(self.folder)]
        return f"Result({self.agent.name}: {'; '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return the score and the learning curve as HTML; the curve is the folder's plot if there
        is one."""
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


def summary_of(run: Session, best: Evaluation, last: Evaluation) -> dict[str, Any]:
    """Return the contents of result.json for a session whose best and last agents were scored."""
    conf, now = run.config, run.loop.now()
    return {
        "algorithm": conf.algorithm,
        "env": conf.env,
        "framework": conf.framework,
        "seed": conf.seed,
        "env_steps": now["env_steps"],
        "updates": now["updates"],
        "seconds": round(now["seconds"], 3),
        "shares": {name: round(s, 3) for name, s in run.loop.shares.items()},
        "steps_per_second": round(now["env_steps"] / max(now["seconds"], 1e-9), 1),
        "eval_mean": best.mean if best.returns else None,
        "eval_std": best.std if best.returns else None,
        "eval_episodes": len(best.returns),
        "eval_cut": best.cut,
        **({"eval_agents": list(best.agents)} if best.agents else {}),
        **({"eval_success_rate": best.success} if best.success is not None else {}),
        "last_eval_mean": last.mean if last.returns else None,
        "last_eval_std": last.std if last.returns else None,
        "last_eval_cut": last.cut,
        **({"last_eval_success_rate": last.success} if last.success is not None else {}),
        "versions": conf.versions,
        "notes": run.notes,
    }
