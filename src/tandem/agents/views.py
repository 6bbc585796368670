"""Attributes of an agent that documented programs read: the arguments of `set`, the pool, counters.

An attribute of the same name in a subclass, in its class or assigned to the instance, takes
precedence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tandem.agents.agent_checkpoint import SavedAgent
from tandem.agents.contract import SetArguments
from tandem.envs.goals import OBSERVATION
from tandem.types import AnyArray, Array, Batch, Tree


class View:
    """Read-only attribute, computed when read, unless the object has another attribute of that
    name."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self.read, self.__doc__ = read, read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, agent: Any, owner: type) -> Any:
        if agent is None:
            return self
        # torch modules store submodules and parameters separately
        for kind in type(agent).__mro__:
            if (look := vars(kind).get("__getattr__")) is not None:
                try:
                    return look(agent, self.name)
                except AttributeError:
                    break
        return self.read(agent)


def _argument(name: str) -> View:
    def read(agent: SavedAgent) -> Any:
        arguments: SetArguments | None = agent._arguments
        return None if arguments is None else getattr(arguments, name)

    read.__doc__ = f"The argument `{name}` of `set`; None before `set`."
    return View(read)


def _moving(name: str, rule: str) -> View:
    def read(agent: SavedAgent) -> Any:
        arguments: SetArguments | None = agent._arguments
        given = None if arguments is None else getattr(arguments, name)
        if arguments is None or given is None or (name == "alpha" and not arguments.PR):
            return given
        if agent._assembly is not None:
            return _in_use(agent._assembly.learner, name, arguments.PPO)
        # restored, and not trained since
        moves = rule != "freq" or name == "update_batches" or arguments.update_batches is None
        moved = agent._adjusted.values.get(rule, ()) if moves and not agent._anew else ()
        return type(given)(moved[0]) if moved else given

    read.__doc__ = f"`{name}` of `set`, or its current value if a rule changes it; None before."
    return View(read)


def _in_use(learner: Any, name: str, ppo: bool) -> float | None:
    """Return the value that training currently uses."""
    schedule = learner.schedule
    if name == "alpha":
        return learner.sampler.alpha
    if name == "num_updates":
        return schedule.updates_per_phase
    if name == "update_batches":
        return schedule.sync_updates
    return schedule.rollout_steps if ppo else schedule.sync_phases


def _counter(name: str) -> View:
    def read(agent: SavedAgent) -> int:
        assembly = agent._assembly
        return 0 if assembly is None else int(getattr(assembly.learner, name))

    return View(read)


def _pool(part: Callable[[Batch, float], AnyArray | list[AnyArray]]) -> View:
    def read(agent: SavedAgent) -> AnyArray | list[AnyArray]:
        assembly = agent._assembly
        if assembly is None or not len(assembly.learner.ring):
            return np.zeros(0, np.float32)
        ring, n = assembly.learner.ring, assembly.arguments.steps
        ids = np.arange(ring.oldest, ring.newest + 1)
        ids = ids[ring.valid.take(ring.position(ids))]
        return part(ring.transitions(ids, n), assembly.algorithm.settings.gamma)

    return View(read)


def _state(obs: Tree) -> Array:
    """Return the observation; of one with a goal, only the observation part."""
    return obs[OBSERVATION] if isinstance(obs, dict) and OBSERVATION in obs else obs


class AttributeViews:
    """Read-only attributes of an agent. Those of the pool are new arrays [n, ...] of its
    transitions, the oldest first: n-step transitions with num_steps, states without goals with HER,
    actions as the list that a loss receives with IRL. They are empty before the first `train`."""

    policy, noise = _argument("policy"), _argument("noise")
    num_steps, num_updates = _argument("num_steps"), _moving("num_updates", "num_updates")
    update_batches = _moving("update_batches", "freq")
    update_steps = _moving("update_steps", "freq")
    trial_count, criterion = _argument("trial_count"), _argument("criterion")
    PPO, HER, MARL = _argument("PPO"), _argument("HER"), _argument("MARL")
    PR, IRL, TRL = _argument("PR"), _argument("IRL"), _argument("TRL")
    initial_ratio, initial_TD = _argument("initial_ratio"), _argument("initial_TD")
    lambda_, alpha = _argument("lambda_"), _moving("alpha", "alpha")

    batch_counter = _counter("updates")  # minibatches so far
    step_counter = _counter("phases")  # training phases so far

    state_pool = _pool(lambda batch, gamma: _state(batch.obs))
    next_state_pool = _pool(lambda batch, gamma: _state(batch.next_obs))
    action_pool = _pool(
        lambda batch, gamma: [batch.extra["irl"], batch.action] if batch.extra else batch.action
    )
    reward_pool = _pool(lambda batch, gamma: batch.reward)
    done_pool = _pool(lambda batch, gamma: 1 - batch.discount / np.float32(gamma))

    @View
    def pool_size(self: Any) -> int | None:
        """Capacity of the pool in transitions."""
        return None if self._arguments is None else int(self._arguments.size)

    @View
    def batch(self: Any) -> int | None:
        """Number of transitions in the next minibatch."""
        if self._assembly is not None:
            return int(self._assembly.learner.schedule.batch_size)
        return None if self._arguments is None else int(self._arguments.minibatch)

    @View
    def epsilon(self: Any) -> float | None:
        """Constant added to priorities."""
        if self._arguments is None:
            return None
        given = self._arguments.epsilon
        return 1e-7 if given is None else float(given)

    @View
    def processes(self: Any) -> int | None:
        """Number of processes that step the environments."""
        return None if self._assembly is None else int(self._assembly.processes)

    @View
    def loss(self: Any) -> float | None:
        """Mean loss of the last episode that had updates."""
        return self._loss
