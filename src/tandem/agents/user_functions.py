"""Wrappers of the functions that a user writes: `action`, the loss `__call__` with its reports to
`prioritized_replay`, `reward_done_func` and `reward_done_func_ma`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tandem import ops
from tandem.agents.adaptive.frozen_constants import FrozenConstants
from tandem.agents.adaptive.loss_inputs import LossInputs
from tandem.algorithms.base import Settings
from tandem.backends.backend import AgentBackend
from tandem.envs.goals import ACHIEVED, GOAL, OBSERVATION
from tandem.errors import NetworkError, SettingError, brief
from tandem.replay.scored import ScoredSampler
from tandem.spaces import ActionMode, Leaf
from tandem.types import AnyArray, Array, Batch, Tree, Update, leaves

FOREVER = 2**62  # environment steps: the number of episodes limits training, not steps
# How often `action` is recompiled for changed constants: beyond that, compiling takes longer than
# it saves
RECOMPILATIONS = 3
PLAIN = (type(None), bool, int, float, str, bytes, np.generic, np.ndarray)


class CompiledAction:
    """`action`, compiled by JAX or TensorFlow. It is recompiled when a number that it read has
    changed, and no longer compiled after RECOMPILATIONS such changes."""

    def __init__(self, agent: object, backend: AgentBackend, function: Callable[..., Any]) -> None:
        self.backend, self.function = backend, function
        self.constants, self.changes = FrozenConstants(agent), 0
        self._recorded = self.constants.recorded(function)
        self._run: Callable[..., Any] | None = backend.forward(self._recorded)

    def __call__(self, *arrays: Tree) -> Any:
        if self._run is not None and (changed := self.constants.changed()):
            self.changes += 1
            often = self.changes > RECOMPILATIONS
            warnings.warn(
                f"{', '.join(changed)} changed, but the compiled action treats it as a constant, "
                f"so the action is {'no longer compiled' if often else 'recompiled'}. To avoid "
                "this, make it a keras.Variable and assign to it; or set self.jit_action = False.",
                stacklevel=2,
            )
            self.constants.forget()
            self._run = None if often else self.backend.forward(self._recorded)
        if self._run is None:
            return self.backend.call(self.function, *arrays)
        try:
            return self._run(*arrays)
        except Exception as error:  # from the compiler or the user's code
            self.backend.call(self.function, *arrays)  # raises an error of the user's code
            raise SettingError(
                f"{self.backend.framework} cannot compile `action`: {brief(error)}",
                fix="set self.jit_action = False in the agent's __init__.",
            ) from error


class AgentAlgorithm:
    """Algorithm that trains an agent with its `__call__` and one or several optimizers.

    reports: names of the values that the loss must report to `prioritized_replay`. irl: whether
    actions are stored together with the extra values from `action`.
    """

    acting: tuple[str, ...] = ()  # unused: the agent acts itself
    preparing: tuple[str, ...] = ()

    def __init__(
        self,
        agent: Any,
        backend: AgentBackend,
        optimizers: list[Any],
        envs: int,
        gamma: float,
        reports: tuple[str, ...],
        irl: bool,
    ) -> None:
        self.agent, self.backend, self.optimizers = agent, backend, optimizers
        self.reports, self.irl = reports, irl
        self.settings = Settings(steps=FOREVER, envs=envs, gamma=gamma)
        self.constants = FrozenConstants(agent)
        compiles = backend.framework in ("jax", "tensorflow")
        self._losses = self.constants.recorded(self.losses) if compiles else self.losses
        self.inputs = LossInputs(
            agent, optimizers, self._losses, self.constants, backend.framework, compiles
        )
        self._gradients: dict[bool, MeasuredGradients] = {}

    @staticmethod
    def action_mode(settings: Settings, action: Leaf) -> ActionMode:
        """Use the output of the agent's `action` as the environment's action."""
        return "as_is"

    @staticmethod
    def exploration_noise(
        settings: Settings,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        """Return (): policies and noise processes sample their own noise."""
        return ()

    def update(self, batch: Batch) -> Update:
        """Make one step of every optimizer."""
        with self.inputs.of(batch, self.constants):
            values, reports = self.backend.minimize_joint(self.optimizers, self._losses, batch)
        return Update({"loss": sum(values)}, reports or ())

    def outdated(self) -> bool:
        """Return whether a number that the compiled loss treats as a constant has changed. Warns
        about it, unless a warning has already said that it cannot be an input."""
        changed = self.constants.changed()
        if news := [name for name in changed if name not in self.inputs.constant]:
            warnings.warn(
                f"{', '.join(news)} changed, but the compiled loss treats it as a constant, so "
                "the loss is recompiled. To avoid this, make it a keras.Variable and assign to "
                "it.",
                stacklevel=3,
            )
        return bool(changed)

    def gradients(self, jit: bool) -> Callable[[Batch], AnyArray]:
        """Return a function that computes the gradients of a batch, see
        `AgentBackend.joint_gradients`."""
        if jit not in self._gradients:
            self._gradients[jit] = MeasuredGradients(self, jit)
        return self._gradients[jit]

    def losses(self, batch: Batch) -> tuple[list[Array], dict[str, Array]]:
        """Return the losses from the agent's `__call__` as a list, and its reports, [B] each.

        `__call__` receives d, which is 1 where the episode terminated and 0 where it continues. For
        n-step transitions it is 1 - gamma ** (m - 1) where the episode continues after m steps, so
        that gamma * (1 - d) is the discount of the bootstrap value for any m. Raises NetworkError
        for an invalid loss.
        """
        rows = leaves(batch.obs)[0].shape[0]
        replay = self.agent.prioritized_replay
        replay.begin(batch.weight)
        action = [batch.extra["irl"], batch.action] if self.irl else batch.action
        done = 1.0 - batch.discount / self.settings.gamma
        loss = self.agent(batch.obs, action, batch.next_obs, batch.reward, done)
        losses = list(loss) if isinstance(loss, (list, tuple)) else [loss]
        self._check(losses, rows)
        return losses, replay.reported(self.reports, rows)

    def _check(self, losses: list[Array], rows: int) -> None:
        if self.optimizers and len(losses) not in {1, len(self.optimizers)}:
            raise NetworkError(
                f"__call__ returned {len(losses)} losses for {len(self.optimizers)} optimizers.",
                "one loss, or one per optimizer in the same order",
                "return them as a list, or give as many optimizers.",
            )
        for x in losses:
            if not hasattr(x, "shape") or isinstance(x, np.ndarray):
                raise NetworkError(
                    f"__call__ returned a {type(x).__name__}.",
                    "the loss as a differentiable tensor of the agent's framework",
                    "return the mean loss of the samples, or one loss per sample.",
                )
            if tuple(x.shape) not in ((), (rows,)):
                raise NetworkError(
                    f"__call__ returned a loss of shape {tuple(x.shape)} for {rows} samples.",
                    f"one number, (), or one per sample, ({rows},)",
                    "take the mean, or squeeze the extra axes.",
                )


class MeasuredGradients:
    """Gradients of a batch, for measurement only. They are compiled, and recompiled when a number
    that the losses treat as a constant has changed."""

    def __init__(self, algorithm: AgentAlgorithm, jit: bool) -> None:
        self.algorithm, self.jit = algorithm, jit
        self.constants = FrozenConstants(algorithm.agent)
        recorded = self.constants.recorded(algorithm.losses)
        self._losses = recorded if algorithm.inputs.compiles else algorithm.losses
        self._run: Callable[[Batch], AnyArray] | None = None

    def __call__(self, batch: Batch) -> AnyArray:
        if self._run is None or self.constants.changed():
            self.constants.forget()
            algorithm = self.algorithm
            self._run = algorithm.backend.joint_gradients(
                algorithm.optimizers, self._traced, self.jit
            )
        return self._run(batch._replace(settings=self.algorithm.inputs.settings(1)))

    def _traced(self, batch: Batch) -> tuple[list[Array], dict[str, Array]]:
        first = batch._replace(settings={n: x[0] for n, x in batch.settings.items()})
        with self.algorithm.inputs.of(first, self.constants):
            return self._losses(batch)


class PrioritizedReplay:
    """Interface of a loss to prioritized replay, `agent.prioritized_replay`: it reports TD errors,
    and for PPO ratios, and reads importance weights. Reports are outputs of the compiled update,
    not side effects.

    weight: within a loss, the importance weight of each sample, [B]. tandem weights a loss with one
    value per sample; a loss that is already a mean can apply the weights itself.
    """

    def __init__(self) -> None:
        self.weight: Array = ()
        self.sampler: Any = None  # of the current or last training
        self.columns: Sequence[Sequence[int]] = []  # environments of each process
        self._reports: dict[str, Array] = {}

    def update(self, TD: Array, ratio: Array | None = None) -> None:
        """Report the TD errors of a loss's samples, [B] or [B, 1], and for PPO their probability
        ratios."""
        self._reports = {"TD": TD} if ratio is None else {"TD": TD, "ratio": ratio}

    update_TD = update

    @property
    def TD(self) -> AnyArray:
        """The last reported TD error of each transition in the pool, the oldest first; float32
        [n]."""
        return self._scored().term("TD")

    @property
    def ratio(self) -> AnyArray:
        """The last reported ratio of each transition in the pool, the oldest first; float32 [n]."""
        return self._scored().term("ratio")

    def powers(self, p: int | None = None) -> AnyArray:
        """Return (score + epsilon) ** alpha of each transition in the pool, or in the environments
        of process p; float64 [n]. Sampling is proportional to it. Ones without priorities; empty
        before the first training."""
        if self.sampler is None:
            return np.ones(0)
        if p is not None and not 0 <= p < len(self.columns):
            raise SettingError(
                f"p={p} with {len(self.columns)} processes.",
                f"a number from 0 to {len(self.columns) - 1}",
                "leave p out for the whole pool, or train with more processes.",
            )
        envs = None if p is None else self.columns[p]
        if isinstance(self.sampler, ScoredSampler):
            return self.sampler.powers(envs)
        return np.ones(len(self.sampler.ring.rows(envs)))

    def _scored(self) -> ScoredSampler:
        if not isinstance(self.sampler, ScoredSampler):
            raise SettingError(
                "this agent has no priorities.",
                "an agent trained with PR=True",
                "call set(PR=True, ...) first.",
            )
        return self.sampler

    def begin(self, weight: Array) -> None:
        """Prepare for a loss with the importance weights of its samples [B]."""
        self.weight, self._reports = weight, {}

    def reported(self, names: tuple[str, ...], rows: int) -> dict[str, Array]:
        """Return the values that the loss reported, [rows] each, without gradients. Raises
        SettingError if they do not fit the priorities."""
        reports, self._reports, self.weight = self._reports, {}, ()
        if not names:
            return {}
        if set(reports) != set(names):
            raise SettingError(
                f"the loss reported {', '.join(reports) or 'nothing'} to prioritized_replay.",
                f"{' and '.join(names)} for each sample",
                f"call self.prioritized_replay.update({', '.join(names)}) in __call__, before it "
                "returns.",
            )
        for name, x in reports.items():
            if tuple(x.shape) not in ((rows,), (rows, 1)):
                raise SettingError(
                    f"{name} has shape {tuple(x.shape)} for {rows} samples.",
                    f"one per sample: ({rows},)",
                    "report it before the mean.",
                )
        return {
            name: ops.of(x).stop_gradient(ops.of(x).reshape(x, (rows,)))
            for name, x in reports.items()
        }


class FunctionGoals:
    """Hindsight goals judged by `reward_done_func(next_state, goal) -> (reward, done)`.

    The function is tried on a whole batch. If the results differ from those of single items, it is
    called for each item, and a warning says so once.
    """

    def __init__(self, function: Callable[[Array, Array], Any]) -> None:
        self.function = function
        self._takes_batches: bool | None = None  # None: unknown

    def achieved(self, obs: Tree) -> Array:
        return obs.get(ACHIEVED, obs[OBSERVATION])

    def put(self, obs: Tree, goal: Array) -> Tree:
        return {**obs, GOAL: goal.astype(obs[GOAL].dtype)}

    def judge(self, next_obs: Tree, goal: Array, info: object) -> tuple[Array, Array]:
        """Return (reward float32 [B], done bool [B])."""
        state = next_obs[OBSERVATION]
        if self._takes_batches:
            return self._batch(state, goal)
        single = [self.function(s, g) for s, g in zip(state, goal, strict=True)]
        reward, done = (
            np.array([np.asarray(one[i]).reshape(()) for one in single]) for i in (0, 1)
        )
        judged = reward.astype(np.float32), done.astype(np.bool_)
        if self._takes_batches is None and len(goal) > 1:
            self._takes_batches = self._agrees(state, goal, judged)
        return judged

    def _batch(self, state: Array, goal: Array) -> tuple[AnyArray, AnyArray]:
        reward, done = self.function(state, goal)
        return np.asarray(reward, np.float32), np.asarray(done, np.bool_)

    def _agrees(self, state: Array, goal: Array, judged: tuple[AnyArray, AnyArray]) -> bool:
        """Return whether the function gives the same results for a batch as for its items."""
        try:
            both = self._batch(state, goal)
            if all(
                x.shape == y.shape and np.allclose(x, y) for x, y in zip(both, judged, strict=True)
            ):
                return True
            why = (
                f"for {len(goal)} items it gave shapes {both[0].shape} and {both[1].shape}, or "
                "other values than one by one"
            )
        except Exception as error:  # any error of a function written for single items
            why = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"reward_done_func does not support batches ({why}), so it is called for each item, "
            "which is slower. Compute over the last axis, with np.where instead of if.",
            stacklevel=2,
        )
        return False


def team_reduction(agent: Any, elsewhere: bool) -> Callable[[Any, Any], Any]:
    """Return the agent's `reward_done_func_ma`. If environments step in other processes, it is
    bound to a copy of the agent that holds only plain data."""
    if elsewhere:
        agent = copy.copy(agent)
        for name in [name for name, value in vars(agent).items() if not _plain(value)]:
            vars(agent).pop(name)
    return agent.reward_done_func_ma


def _plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, PLAIN)
