"""Trial trainings of an agent: each starts from the same state and leaves the agent unchanged,
however it ends."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

from tandem.agents import agent_checkpoint
from tandem.agents.assembly import Assembly
from tandem.agents.contract import as_list
from tandem.agents.distributed import variables_of
from tandem.agents.reach import held, reach
from tandem.agents.rl import BaseAgent
from tandem.backends.variables import flat, read
from tandem.errors import NonFiniteError, SettingError
from tandem.learning.loop import broken_off
from tandem.learning.parallel.remote import Remote
from tandem.runs import checkpoint
from tandem.runs.signals import Signals, raise_again
from tandem.tuning.snapshot import Snapshot, is_unbuilt
from tandem.types import AnyArray

METRICS = ("reward", "loss")


@dataclass(frozen=True)
class TrialArguments:
    """Arguments of a trial training: those that `find` shares with `train`."""

    train_loss: object = None
    pool_network: bool = True
    processes: int | None = None
    processes_her: int | None = None
    processes_pr: int | None = None
    random: bool = False
    jit_compile: bool = True
    strategy: object = None

    def of(self, agent: BaseAgent) -> dict[str, Any]:
        """Return the arguments of the agent's `train`, or of `distributed_training` with a
        strategy. Raises SettingError for those that its framework does not support."""
        arguments = dict(vars(self))
        if self.strategy is None:
            arguments.pop("strategy")
        if agent.torch:
            if arguments.pop("train_loss") is not None:
                raise SettingError(
                    f"train_loss={self.train_loss!r} is not supported by {type(agent).__name__}, "
                    "a PyTorch agent.",
                    "a Keras metric for tandem.RL agents only; others use the mean loss",
                    "leave train_loss out.",
                )
            arguments.pop("jit_compile")  # nothing to compile
        return arguments


class TrialResult(NamedTuple):
    """Result of a trial: the return and the mean loss of each episode."""

    rewards: list[float]
    losses: list[float]
    seconds: float
    fault: str = ""  # if it ended early: what was not finite

    def score(self, metrics: str) -> float:
        """Return the mean reward or loss; the worst possible value for a trial with a fault or
        without an episode."""
        values = self.rewards if metrics == "reward" else self.losses
        if self.fault or not values:
            return -float("inf") if metrics == "reward" else float("inf")
        return float(sum(values) / len(values))


@dataclass(frozen=True)
class Kept(checkpoint.Checkpoint):
    """A checkpoint held only in memory."""

    groups: checkpoint.Groups

    def group(self, name: str) -> dict[str, AnyArray]:
        """Return the arrays of one group."""
        return dict(self.groups[name])


class Trials:
    """Trial trainings of an agent.

    Environments are copied for each trial. No file is written, and `criterion` and `patience` do
    not apply; the agent's callbacks are called.
    """

    def __init__(self, agent: BaseAgent, optimizers: Iterable[object], arguments: TrialArguments):
        self.agent, self.train_arguments = agent, arguments.of(agent)
        layout = layout_of(agent, arguments.strategy)
        self._scope: Callable[[], AbstractContextManager[object]] = (
            nullcontext if layout is None else layout.scope
        )
        self.optimizers = [as_list(one) for one in optimizers]
        self.set_arguments = agent._set_arguments("find")
        self._others = (agent.prioritized_replay, arguments.train_loss)
        self._copied = True  # the environments could be copied
        agent._start_size()  # looked up in the training that trials remove
        with self._scope():
            self._build()
            self._before = self._snapshot()

    def train(
        self,
        optimizer: object,
        episodes: int | None,
        callback: object = None,
        num_updates: int | None = None,
        goes_on: bool = False,
    ) -> TrialResult:
        """Train the agent with this optimizer (or these), return the result, and restore the agent.
        goes_on: start with the pool and the optimizer state of previous training instead of an
        empty pool."""
        agent, before = self.agent, self.agent._assembly
        try:
            env = self._environments()
            agent._restored = self._kept(before) if goes_on else None
            agent._assembly = agent._rotation = agent._rotation_state = None
            agent._layout = None  # the trial gets its own devices
            agent.path = agent.patience = None
            agent._adjusted = copy.deepcopy(agent._adjusted)
            agent.stop_training = False
            agent.optimizer, agent.env = optimizer, env
            agent.callbacks = [*agent.callbacks, *([] if callback is None else [callback])]
            updates = self.set_arguments.num_updates if num_updates is None else num_updates
            agent._arguments = replace(self.set_arguments, criterion=None, num_updates=updates)
            return train_agent(agent, self.train_arguments, optimizer, episodes)
        finally:
            with self._scope():
                self._end()

    def _end(self) -> None:
        """Restore the agent. A signal that arrives meanwhile is raised afterwards."""
        came: list[str] = []
        with Signals(came.append):
            made, self.agent._assembly = self.agent._assembly, None
            self._before.restore()
            if made is not None:
                self._close(made)
        if came:
            raise_again(came[0])

    def _close(self, made: Assembly) -> None:
        made.backend.close()
        if self._copied:
            made.environments.close()
        elif isinstance(made.environments, Remote):
            made.environments.group.end()

    def _snapshot(self) -> Snapshot:
        arguments = self.set_arguments
        # visited before the agent, through which only the user's own objects are followed
        roots = [x for x in (*self._others, self.agent) if x is not None]
        more = [*as_list(arguments.policy), *as_list(arguments.noise)]
        return Snapshot(*roots, *more, *flat(self.optimizers))

    def _build(self) -> None:
        """Build networks and optimizers that are otherwise built on first use: a state that does
        not exist yet cannot be restored."""
        modules = reach(self.agent).modules.values()
        if not any(is_unbuilt(x) for x in (*modules, *flat(self.optimizers))):
            return
        agent, before = self.agent, self._snapshot()
        try:
            agent.env = self._environments()
            for optimizers in self.optimizers:
                self._close(Assembly(agent, self.set_arguments, optimizers))
        finally:
            before.restore()

    def _kept(self, assembly: Assembly | None) -> Kept | None:
        """Return the state of the training without its running episodes; None before any
        training."""
        agent = self.agent
        if assembly is not None:
            with assembly:
                data, groups = agent_checkpoint.whole(agent, assembly, agent._saves_pools)
        elif agent._restored is not None:  # restored and not trained since
            data, groups = agent_checkpoint.whole_untrained(agent, agent._restored)
        else:
            return None
        loop = broken_off(data["loop"])
        # current values of the agent's variables take precedence
        now = held(reach(agent))
        current = dict(zip(now, read(now.values()), strict=True))
        groups = groups | {"engine": groups["engine"] | current}
        return Kept(agent_checkpoint.as_path("memory"), data | {"loop": loop}, groups)

    def _environments(self) -> object:
        """Return copies of the agent's environments, or the originals if they cannot be copied and
        have no episode running. Raises SettingError if one has."""
        try:
            return copy.deepcopy(self.agent.env)
        except Exception as error:
            self._copied = False
            if self.agent._assembly is None:
                return self.agent.env
            raise SettingError(
                f"the agent's environment cannot be copied ({type(error).__name__}: {error}) in "
                "the middle of a training episode.",
                "an environment that supports copy.deepcopy, so that trials do not change it",
                "make it copyable, or call find before the agent's first train.",
            ) from error


def train_agent(
    agent: BaseAgent, arguments: dict[str, Any], optimizer: object, episodes: int | None
) -> TrialResult:
    """Train an agent with arguments from `TrialArguments.of` and return the result. Prints
    nothing."""
    name = "distributed_training" if "strategy" in arguments else "train"
    rewards, losses = len(agent.reward_list), len(agent.loss_list)
    began, fault = perf_counter(), ""
    try:
        getattr(agent, name)(**arguments, optimizer=optimizer, episodes=episodes, p=0)
    except NonFiniteError as error:
        fault = error.happened
    seconds = perf_counter() - began
    return TrialResult(agent.reward_list[rewards:], agent.loss_list[losses:], seconds, fault)


def layout_of(agent: BaseAgent, strategy: object) -> Any:
    """Return the devices of a strategy; None without one. Raises SettingError if the agent was not
    created in its scope."""
    if strategy is None:
        return None
    layout = agent._layout_of(strategy)
    layout.check(variables_of(agent), [])
    return layout
