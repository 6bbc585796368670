"""Parallel training of several agents, each in its own process; the best one is returned
trained."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle

from tandem.agents.agent_checkpoint import RECORDS
from tandem.agents.contract import as_list, check_count
from tandem.agents.rl import BaseAgent
from tandem.agents.user_functions import PrioritizedReplay
from tandem.errors import SettingError, TandemError, one_of
from tandem.learning.parallel.choice import cores
from tandem.streams import say
from tandem.tuning.finders import best_of, checked_agent, described, ties, told
from tandem.tuning.trials import METRICS, TrialArguments, TrialResult, layout_of, train_agent
from tandem.types import JSONDict
from tandem.workers.jobs import FunctionCall, results

NUMBERS = (bool, int, float, str)  # types of agent attributes that are returned
# attributes of an agent that stay in this process, which also writes its files
HERE: dict[str, object] = {
    "_assembly": None,
    "_layout": None,
    "_restored": None,
    "_rotation": None,
    "_rotation_state": None,
    "path": None,
    "patience": None,
    "parallel_dump": False,
}


class ParallelFinder:
    """Trains several agents at a time, in separate processes, and finds the one with the highest
    mean return or the lowest mean loss. That agent takes over the trained weights, optimizer, pool
    and records. The others stay unchanged.

    optimizers: one per agent, or a list if it takes several.

    After `find`: logs, a dict of best_reward or best_loss, best_opt, best_agent, best_index, times;
    rewards, losses, dicts with a list per agent, by its number.
    """

    def __init__(self, agents: Sequence[BaseAgent], optimizers: Sequence[object]) -> None:
        self.agents, self.optimizers = [checked_agent(a) for a in agents], list(optimizers)
        if len(self.agents) != len(self.optimizers) or not self.agents:
            raise SettingError(
                f"{len(self.agents)} agents and {len(self.optimizers)} optimizers.",
                "at least one agent, and one optimizer (or a list, if it takes several) for each",
                "give one optimizer for each agent.",
            )
        if len({id(agent) for agent in self.agents}) < len(self.agents):
            raise SettingError(
                "the same agent was given twice.",
                "a separate object for each agent",
                "use OptFinder for one agent with several optimizers.",
            )
        self.rewards: dict[int, list[float]] = {}
        self.losses: dict[int, list[float]] = {}
        self.logs: dict[str, Any] = {"best_reward": -1e9, "best_loss": 1e9}
        self.episodes = 1
        self.metrics = "reward"

    def find(
        self,
        train_loss: object = None,
        pool_network: bool = True,
        processes: int | None = None,
        processes_her: int | None = None,
        processes_pr: int | None = None,
        strategy: object = None,
        episodes: int = 1,
        metrics: str = "reward",
        jit_compile: bool = True,
        p: int | None = None,
        *,
        parallel: int | None = None,
        again: int = 3,
    ) -> BaseAgent:
        """Train each agent for `episodes` episodes and return the best one.

        Args:
            processes: Processes in which each agent steps its environments; None: 1 if several
                agents are trained at a time.
            strategy: Each agent divides its updates among as many devices as the strategy has.
            episodes: Episodes per agent.
            metrics: "reward" or "loss".
            p: 0 suppresses the line for each agent.
            parallel: Number of agents trained at a time; None: the number of cores.
            again: How many trainings to repeat if their processes die; a warning names each.

        The other arguments are those of `train`. On an error all agents stay unchanged.

        Raises:
            SettingError: An agent cannot be sent to another process; raised before anything runs.
            WorkerError: A process raised an error, or processes died too often.
            NonFiniteError: No agent finished.
        """
        one_of("metrics", metrics, METRICS)
        check_count("episodes", episodes, none=False)
        check_count("parallel", parallel)
        check_count("again", again, 0, none=False)
        at_once = min(len(self.agents), cores() if parallel is None else parallel)
        processes = 1 if processes is None and at_once > 1 else processes
        arguments = TrialArguments(
            train_loss,
            pool_network,
            processes,
            processes_her,
            processes_pr,
            jit_compile=jit_compile,
            strategy=strategy,
        )
        folder = TemporaryDirectory(prefix="tandem-")
        calls = [
            self._call(i, arguments, episodes, Path(folder.name)) for i in range(len(self.agents))
        ]

        def note(i: int, result: tuple[TrialResult, JSONDict]) -> None:
            self.rewards[i], self.losses[i] = result[0].rewards, result[0].losses
            if p != 0:
                say(told(i, len(calls), self._name(i), result[0]))

        self.rewards, self.losses, self.episodes, self.metrics = {}, {}, episodes, metrics
        self.logs = {"best_reward": -1e9, "best_loss": 1e9}
        ended = results(calls, at_once, note, again, most=1)
        outcomes = [TrialResult(*result[0]) for result in ended]
        best = best_of(outcomes, metrics)
        self._take_over(best, ended[best][1], folder)
        self.logs |= {
            f"best_{metrics}": outcomes[best].score(metrics),
            "best_opt": self.optimizers[best],
            "best_agent": self.agents[best],
            "best_index": best,
            "times": [outcome.seconds for outcome in outcomes],
        }
        if p != 0:
            say(f"best agent:{self._name(best)}{ties(outcomes, best, metrics)}")
        return self.agents[best]

    def _name(self, i: int) -> str:
        return f"agent {i + 1} ({type(self.agents[i]).__name__}, {described(self.optimizers[i])})"

    def _call(self, i: int, arguments: TrialArguments, episodes: int, folder: Path) -> FunctionCall:
        """Return the training of an agent as a call for another process. Raises SettingError if it
        cannot be sent there."""
        agent, optimizer = self.agents[i], self.optimizers[i]
        agent._set_arguments("find")
        train, begun = arguments.of(agent), None
        if "strategy" in train:  # it cannot be pickled: send its number of devices
            train["strategy"] = layout_of(agent, train["strategy"]).count
        if _goes_on(agent, optimizer):
            begun = folder / f"begin-{i}"
            agent.save(begun)
        try:
            _importable(type(agent))
            with _with(agent, prioritized_replay=PrioritizedReplay(), **HERE):
                engine, packed = pack(agent, optimizer, train, devices=train.get("strategy", 1))
        except Exception as error:  # pickling can raise anything
            why = error.happened if isinstance(error, TandemError) else error
            raise SettingError(
                f"{self._name(i)} cannot be sent to another process: {str(why).strip()[:300]}",
                "an agent whose class, environment, networks and optimizer can be pickled or "
                "imported by name",
                "define its classes at the top level of a module or script, and create what "
                "cannot be pickled (locks, open files) where it is used.",
            ) from error
        return FunctionCall(
            self._name(i), trial, (engine, packed, episodes, begun, folder / f"end-{i}")
        )

    def _take_over(self, i: int, numbers: JSONDict, folder: TemporaryDirectory[str]) -> None:
        """Restore the agent from its trained state."""
        agent = self.agents[i]
        agent.optimizer = self.optimizers[i]
        agent.restore(Path(folder.name) / f"end-{i}")
        vars(agent).update(numbers)
        # the next `train` of the agent reads the file
        weakref.finalize(agent, folder.cleanup)


AgentFinder = ParallelFinder  # alias


# Sent to and run in other processes


def trial(
    engine: object, packed: bytes, episodes: int, begun: Path | None, ended: Path
) -> tuple[TrialResult, JSONDict]:
    """Train a packed agent, save it to the file `ended`, and return its outcome and its changed
    plain attributes. begun: a file with the training to continue."""
    agent, optimizer, train = cloudpickle.loads(packed)
    if begun is not None:
        agent.restore(begun)
    before = _numbers(agent)
    agent.optimizer = optimizer
    outcome = train_agent(agent, train, optimizer, episodes)
    agent.save(ended)
    changed = {n: x for n, x in _numbers(agent).items() if n not in before or before[n] != x}
    return outcome, changed


def pack(agent: BaseAgent, *values: object, devices: int = 1) -> tuple[object, bytes]:
    """Return the backend to select in the agent's process, or None, and a pickle of the agent and
    the values. devices: number of devices of that backend."""
    if agent.torch:
        return None, cloudpickle.dumps((agent, *values))
    travel = importlib.import_module("tandem.backends.keras_travel")
    return travel.engine(devices), travel.packed(agent, *values)


def _goes_on(agent: BaseAgent, optimizer: object) -> bool:
    """Return True if earlier training continues with this optimizer; with another one only the
    weights are kept."""
    if agent._assembly is not None:
        return agent._assembly.fits(agent.env, as_list(optimizer))
    return agent._restored is not None and agent.optimizer is optimizer


@contextmanager
def _with(agent: BaseAgent, **attributes: object) -> Iterator[None]:
    """Set these attributes of the agent temporarily."""
    before = dict(vars(agent))
    vars(agent).update(attributes)
    try:
        yield
    finally:
        vars(agent).clear()
        vars(agent).update(before)


def _numbers(agent: BaseAgent) -> JSONDict:
    """Return the plain attributes of the agent, except its built-in ones."""
    own = {*RECORDS, "_loss", "time", "path", "patience", "parallel_dump", "stop_training"}
    return {n: x for n, x in vars(agent).items() if isinstance(x, NUMBERS) and n not in own}


def _importable(kind: type) -> None:
    """Raise TypeError for a class that would be pickled by name but that no other process can
    import, as its module exists only in memory."""
    module = kind.__module__
    if module == "__main__" or "<locals>" in kind.__qualname__:
        return  # pickled by value
    found = None
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(module)
    if found is None or (found.origin is None and found.submodule_search_locations is None):
        raise TypeError(f"its class is {module}.{kind.__qualname__}, but {module} has no file")
    if module not in sys.modules:
        raise TypeError(f"its class is from {module}, which is no longer imported")
