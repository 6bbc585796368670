"""Scoring of a run's agents, in environments that are created once and kept."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from tandem.envs.factory import is_instance
from tandem.envs.occupied import running
from tandem.envs.vector_source import VectorSource
from tandem.errors import attempt, note
from tandem.learning.collect.evaluation import EvaluationEnvs
from tandem.learning.events import Evaluation
from tandem.learning.normalization import note_wrappers
from tandem.learning.seeds import derived
from tandem.networks.plan import Weights

if TYPE_CHECKING:
    from tandem.runs.session import Session

RoleWeights = dict[str, Weights]
NONE = Evaluation.of([], [])


class Scoring:
    """Deterministic returns of a run's agents in its `eval_env`, or in environments like the
    training ones without it."""

    def __init__(self, run: Session) -> None:
        self.run, self.own = run, run.eval_env is None
        self._of_loop = run.loop.evaluate if self.own else None
        self._envs: EvaluationEnvs | None = None
        self._budget = 0  # maximum steps of an episode

    def prepare(self) -> None:
        """Check before training whether there is an environment for evaluations. Raises for an
        unsuitable `eval_env`; notes its absence otherwise."""
        running.add(self.run.vector)
        options = self.run.config.options
        if not self.own or (options.eval_episodes and self._of_loop is None):
            envs = self._ready(options.eval_episodes or options.final_episodes, "select")
            if envs is not None and not self.own:
                note_wrappers(envs.step(), self.run.config, is_object=False, is_scored=True)

    @property
    def copies(self) -> bool:
        """True if evaluation environments are copies of the training environment."""
        return self.own and is_instance(self.run.env)

    def catch_up(self) -> None:
        """Make the calls for evaluation environments; see `RunEnvironments`."""
        if self._envs is not None:
            self._envs.catch_up(self.run.environments.for_evaluation)

    def __call__(
        self, weights: RoleWeights, episodes: int, purpose: str, stopped: Callable[[], bool]
    ) -> Evaluation:
        """Evaluate weights of the acting roles on the seeds reserved for `purpose`; without
        episodes if there is no environment. Raises EvaluationStopped once `stopped` returns
        True."""
        conf, longest = self.run.config, self.run.averages.longest
        if self._of_loop is not None and episodes:
            seed, most = derived(conf.seed, purpose), conf.options.eval_max_steps
            found = self._of_loop(weights, episodes, seed, most, longest, stopped)
            return Evaluation.of(*found)
        envs = self._ready(episodes, purpose) if episodes else None
        if envs is None:
            return NONE
        mode = self.run.kind.action_mode(conf.settings, self.run.action)
        actor = self.run.agent_of(weights).actor
        found = envs.play(actor, episodes, self._budget, mode, stopped=stopped)
        return Evaluation.of(*found)

    def final(
        self, last: RoleWeights, best: RoleWeights, stopped: Callable[[], bool]
    ) -> tuple[Evaluation, Evaluation]:
        """Return the scores of the last and the best agent. An environment error is noted and does
        not lose the agent."""
        episodes = self.run.config.options.final_episodes
        with attempt("the final evaluation failed"):
            scored = self(last, episodes, "final", stopped)
            return scored, self(best, episodes, "final", stopped)
        return NONE, NONE

    def close(self) -> None:
        """Close the environments. Another evaluation creates them again."""
        if self._envs is not None:
            self._envs.close()

    def _ready(self, episodes: int, purpose: str) -> EvaluationEnvs | None:
        """Return the evaluation environments, created if needed; None if there are none."""
        run, conf, many = self.run, self.run.config, self.run.config.options.eval_envs
        try:
            if self.own and isinstance(run.env, VectorSource) and run.env.is_object:
                raise TypeError("it is a single vector, and evaluations need another")
            if self._envs is None:
                self._envs = EvaluationEnvs(
                    run.env if self.own else run.eval_env,
                    10 if many == "auto" else many,  # "auto": runs from before this option
                    (conf.env_kwargs or None) if self.own else None,
                    None if self.own else (run.observation, run.action),
                    copies=self.own,
                )
                weakref.finalize(self, self._envs.close)
            seed, most = derived(conf.seed, purpose), conf.options.eval_max_steps
            self._budget = self._envs.ready(episodes, seed, most, run.averages.longest)
            self.catch_up()
            return self._envs
        except Exception as error:
            if not self.own:
                raise
            why = str(error).partition("\n")[0] or type(error).__name__
            note(
                f"nothing to evaluate in ({conf.env}: {why}): the best checkpoint is the one with "
                "the best mean return of recent training episodes. To evaluate, pass eval_env=: an "
                "id, another environment, or a function that makes one."
            )
            return None
