"""Collecting experience and dropping it from the pool: the number of processes that step the user's
environments, actions for all of them from the output of `action` and a policy or noise, and which
transitions leave the pool."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np

from tandem.agents.contract import SetArguments, as_list
from tandem.errors import NetworkError, SettingError, TandemError
from tandem.exploration import Policy, RandomProcess
from tandem.learning.parallel.choice import cores
from tandem.replay.samplers import Sampler
from tandem.spaces import Leaf
from tandem.types import AnyArray, Array, JSONDict, Tree, leaves

TRANSFER = 150e-6  # extra seconds per step with several processes
# Upper bound of a worker's resident bytes with a small environment: 41 MiB were measured
WORKER = 64 * 2**20
TRIAL = 50  # steps timed

Rows = int | Callable[..., Any] | None  # a number, or a user's function that returns it
Columns = Sequence[Sequence[int]]  # the environment indices of each process
Forward = Callable[[Array], Any]  # `action`: states [N, ...] -> its outputs [N, ...], NumPy


# Environments, in one or several processes


def choose_processes(env: object, processes: int | None, pool_network: bool) -> tuple[int, str]:
    """Return the number of processes that step the agent's environments, and the reason ("" if
    there was no choice). None chooses the fastest number by timing a copy."""
    envs = as_list(env)
    if not pool_network or processes == 1:
        return 1, ""
    if processes is not None:
        return processes, ""
    if len(envs) < 2 or isinstance(envs[0], str):
        return 1, ""
    available = cores()
    try:
        step = step_seconds(copied(envs[0]))
    except (TandemError, AttributeError, TypeError, ValueError) as error:
        return 1, (
            f"1 process: a copy of the environment could not be tried ({type(error).__name__})"
        )
    times = {
        p: ceil(len(envs) / p) * step + (TRANSFER if p > 1 else 0)
        for p in range(1, min(available, len(envs)) + 1)
    }
    # several processes must be 10% faster than one
    best = min(times, key=lambda p: times[p] * (1.0 if p == 1 else 1.1))
    return (
        best,
        f"{best} process{'es' * (best > 1)} for {len(envs)} environments on {available} cores: "
        f"a step of one environment takes {step * 1e6:.0f} µs",
    )


def most_processes(pool: int, pool_size: int, minimum: int, memory: float) -> int:
    """Return the largest number of processes, up to the number of cores, for which a pool of `pool`
    bytes and `pool_size` transitions leaves memory (bytes) for workers, and each process has
    `minimum` transitions; at least 1."""
    within = [
        n
        for n in range(1, cores() + 1)
        if ceil(pool_size / n) >= minimum and pool + (n - 1) * WORKER <= memory
    ]
    return max(within, default=1)


def step_seconds(env: Any) -> float:
    """Return the mean time per step with random actions, in seconds."""
    env.action_space.seed(0)
    env.reset()
    began = perf_counter()
    for _ in range(TRIAL):
        step = env.step(env.action_space.sample())
        if any(np.any(ended) for ended in step[2:-1]):
            env.reset()
    return (perf_counter() - began) / TRIAL


def one_for_each(envs: list[Any], processes: int) -> list[Any]:
    """Return at least as many environments as processes, copying a single one."""
    if len(envs) == 1 and processes > 1:
        return [envs[0], *(copied(envs[0]) for _ in range(processes - 1))]
    return envs


def copied(env: Any) -> Any:
    """Return a copy of an environment. Raises SettingError if it cannot be copied."""
    if isinstance(env, str):
        return env
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise SettingError(
            f"the environment {type(env).__name__} cannot be copied: {error}",
            "an environment for each process",
            "give a list of them as agent.env, or processes=1 to train.",
        ) from error


# Actions


class Explorer:
    """Exploration: turns the output of `action` into actions. This base class does not explore.

    sources: policies or noise processes; their state is saved if their class is part of tandem.
    """

    def __init__(self, sources: Sequence[Any] = ()) -> None:
        self.sources = sources

    def __call__(self, values: AnyArray, step: int) -> AnyArray:
        """Return actions [N, ...] for outputs [N, ...] at environment step `step`."""
        return values

    def restart(self, env: int) -> None:
        """Start an episode in environment `env`."""

    def state(self) -> list[JSONDict | None] | None:
        """Return the state as JSON data."""
        own = (Policy, RandomProcess)
        return [s.state() if isinstance(s, own) else None for s in self.sources] or None

    def load_state(self, state: list[JSONDict | None] | None) -> None:
        if self.sources:
            for source, inner in zip(self.sources, state or (), strict=True):
                if inner is not None:
                    source.load_state(inner)


class AgentActor:
    """Actor for N environments with one forward function, or one for each of several agents.

    preprocess: converts observations to inputs of `action`. explorers: one per agent. irl: `action`
    returns (extra, output), and extra is stored with the step.
    """

    def __init__(
        self,
        forwards: list[Forward],
        preprocess: Callable[[Tree], Tree],
        explorers: Sequence[Explorer],
        leaf: Leaf,
        *,
        joint: bool,
        irl: bool,
    ) -> None:
        self.forwards, self.preprocess, self.explorers = forwards, preprocess, explorers
        self.leaf, self.joint, self.irl = leaf, joint, irl
        self.steps = 0  # over all environments
        bounded = leaf.kind == "box" and leaf.bounded
        self._bounds = list(leaf.bounds) if bounded else []
        self._checked = False

    def act(self, obs: Tree, state: Tree, noise: Tree) -> tuple[Array, dict[str, Array], Tree]:
        """Return (actions [N, ...], values to store with the step, the unchanged state)."""
        pairs = [self._act_one(i, part) for i, part in enumerate(self._parts(obs))]
        action = self._join([action for action, _ in pairs])
        self.steps += len(action)
        if not self._checked:
            self._check(action)
        return action, {"irl": pairs[0][1]} if self.irl else {}, state

    def best(self, obs: Tree) -> Array:
        """Return actions without exploration. This is the argmax of the output if a policy chooses
        actions, or if the output has one value per choice, as before `set`; else the output
        itself."""
        actions = []
        values = 2 + len(self.leaf.shape) if self.leaf.kind == "discrete" else None
        parts = self._parts(obs)
        for forward, part, explorer in zip(self.forwards, parts, self.explorers, strict=True):
            out = forward(part)[1] if self.irl else forward(part)
            chosen = isinstance(explorer, PolicyExplorer) or (not self.joint and out.ndim == values)
            actions.append(out.argmax(-1) if chosen else out)
        return self._join(actions)

    def _parts(self, obs: Tree) -> list[Tree]:
        """Return the input of each agent's `action`."""
        obs = self.preprocess(obs)
        return [obs[:, i] for i in range(len(self.forwards))] if self.joint else [obs]

    def _join(self, actions: list[Array]) -> Array:
        """Combine the actions of all agents for the environment, clipped to its bounds."""
        action = np.stack(actions, 1) if self.joint else actions[0]
        return np.clip(action, *self._bounds) if self._bounds else action

    def initial_state(self, n: int) -> Tree:
        return ()

    def restart(self, env: int) -> None:
        """Start an episode in environment `env`."""
        for explorer in self.explorers:
            explorer.restart(env)

    def _act_one(self, i: int, obs: Tree) -> tuple[Array, Array]:
        """Return (actions of agent i, the extra values from `action`)."""
        out, extra = self.forwards[i](obs), ()
        rows = leaves(obs)[0].shape[0]
        if self.irl:
            extra, out = out
        if out.shape[:1] != (rows,):
            raise NetworkError(
                f"action returned an array of shape {out.shape} for {rows} observations.",
                f"one row per observation: ({rows}, ...)",
                "keep the batch axis in `action`: return the network's output as it is.",
            )
        return self.explorers[i](out, self.steps), extra

    def _check(self, action: Array) -> None:
        if action.shape != (len(action), *self.leaf.shape):
            raise NetworkError(
                f"the actions have shape {action.shape}.",
                f"shape {(len(action), *self.leaf.shape)}, for the environment's actions of shape "
                f"{self.leaf.shape}",
                "give noise instead of a policy, which is for discrete actions."
                if isinstance(self.explorers[0], PolicyExplorer)
                else "return the action itself from `action`, or give a policy, which chooses by "
                "one number per action.",
            )
        self._checked = True

    def state(self) -> JSONDict:
        """Return the state as JSON data."""
        return {"steps": self.steps, "explore": [e.state() for e in self.explorers]}

    def load_state(self, state: JSONDict) -> None:
        self.steps = state["steps"]
        for explorer, inner in zip(self.explorers, state["explore"], strict=True):
            explorer.load_state(inner)


class PolicyExplorer(Explorer):
    """Explorer in which a policy chooses actions. policies: one, or one per environment, from
    `tandem.exploration` or any object with `select_action(values)` or `select_action(values,
    step)`. choices: the number of actions."""

    def __init__(self, policies: list[Any], choices: int | None) -> None:
        super().__init__(policies)
        self.choices = choices
        self._take_step = [_takes_step(policy) for policy in policies]

    def __call__(self, values: AnyArray, step: int) -> AnyArray:
        if values.ndim != 2 or (self.choices is not None and values.shape[1] != self.choices):
            raise NetworkError(
                f"action returned an array of shape {values.shape} for the policy to choose from.",
                f"shape ({len(values)}, {self.choices or 'number of actions'}): one number per "
                "action",
                "return action values or probabilities from `action`, or give noise instead of a "
                "policy.",
            )
        if len(self.sources) == 1 and isinstance(self.sources[0], Policy):
            return np.asarray(self.sources[0].choose(values, step))
        repeats = len(values) if len(self.sources) == 1 else 1
        each = list(zip(self.sources, self._take_step, strict=True)) * repeats
        rows = zip(each, values, strict=True)
        return np.array([p.select_action(row, *[step] * takes) for (p, takes), row in rows])


class NoiseExplorer(Explorer):
    """Explorer that adds noise. sources: a process per environment."""

    def __call__(self, values: AnyArray, step: int) -> AnyArray:
        noise = np.stack([process.sample() for process in self.sources])
        try:
            return np.asarray(values + np.broadcast_to(noise, values.shape), np.float32)
        except ValueError as error:
            raise SettingError(
                f"noise has shape {noise.shape[1:]} for actions of shape {values.shape[1:]}.",
                "one number, or one per component of an action",
                f"set size={values.shape[1:]} in the noise process.",
            ) from error

    def restart(self, env: int) -> None:
        _reset(self.sources[env])


def make_explorers(
    arguments: SetArguments,
    leaf: Leaf,
    envs: int,
    agents: int,
    generator: Callable[[str], np.random.Generator],
) -> list[Explorer]:
    """Return one explorer per agent, in `envs` environments. Unseeded policies and processes are
    seeded from the run's seed. Raises SettingError for a list of another length."""
    chooses = arguments.policy is not None
    sources = as_list(arguments.policy if chooses else arguments.noise)
    if not sources:
        return [Explorer()] * agents
    expected = agents if agents > 1 else envs
    if len(sources) not in (1, expected):
        raise SettingError(
            f"{len(sources)} policies or noise processes.",
            f"one, or one for each of {expected} {'agents' if agents > 1 else 'environments'}",
            "give one, or one for each.",
        )
    for i, source in enumerate(sources):
        if not getattr(source, "seeded", True):
            source.rng = generator(f"explore/{i}")
    explorers: list[Explorer] = []
    for agent in range(agents):
        own = sources if agents == 1 else [sources[agent % len(sources)]]
        if chooses:
            sizes = leaf.sizes[agent if len(leaf.sizes) > 1 else 0] if leaf.sizes else None
            explorers.append(PolicyExplorer(own, sizes))
        else:
            shape = leaf.shape[1:] if agents > 1 else leaf.shape
            explorers.append(NoiseExplorer(_processes(own, shape, envs)))
    return explorers


def _processes(processes: list[Any], shape: tuple[int, ...], envs: int) -> list[Any]:
    """Return one noise process per environment. A scalar process is expanded to the shape of an
    action, as it would otherwise explore only along a diagonal."""
    for process in processes:
        if getattr(process, "size", None) == 1 and shape not in ((), (1,)):
            process.size = shape
            _reset(process)
    if len(processes) == envs:
        return processes
    first = processes[0]
    copies = [copy.copy(first) for _ in range(envs - 1)]
    if hasattr(first, "rng"):
        for process, rng in zip(copies, first.rng.spawn(envs - 1), strict=True):
            process.rng = rng
    return [first, *copies]


def _reset(process: Any) -> None:
    """Reset a process at the start of an episode, if it has reset_states."""
    if callable(reset := getattr(process, "reset_states", None)):
        reset()


def _takes_step(policy: Any) -> bool:
    """Return whether the policy takes the step as a second argument; a user's policy need not."""
    parameters = inspect.signature(policy.select_action).parameters.values()
    positional = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    return positional > 1 or any(p.kind == p.VAR_POSITIONAL for p in parameters)


# Dropping transitions from the pool


def keep_all(sampler: Sampler) -> None:
    """Keep the whole pool: the algorithm can learn from old transitions."""


def forget_all(sampler: Sampler) -> None:
    """Empty the pool: its transitions come from an outdated policy."""
    sampler.forget()


def slide_window(
    sampler: Sampler, size: Rows, every: int | None, periodic: int | None, columns: Columns
) -> None:
    """Drop the oldest transitions while new ones arrive: `size` of them when the pool is full (the
    ring drops one by itself), and `periodic` of them after every `every` stored ones."""
    ring = sampler.ring
    if size is not None and len(ring) >= ring.capacity:
        forget_oldest(sampler, size, columns, 1)
    stored = ring.time * ring.envs  # in total, including before a checkpoint
    if every is not None and periodic:
        times = stored // every - (stored - ring.envs) // every
        sampler.forget_rows(times * periodic)


def forget_oldest(sampler: Sampler, rows: Rows, columns: Columns, least: int = 0) -> None:
    """Drop the oldest transitions of all environments: `rows`, but at least `least`, or the number
    that a user's function returns. A function with a parameter is called with each process index,
    and applies to that process's environments. columns: the environments of each process."""
    if not callable(rows):
        sampler.forget_rows(max(least, rows or 0))
    elif not inspect.signature(rows).parameters:
        sampler.forget_rows(max(least, int(rows() or 0)))
    else:
        for p, envs in enumerate(columns):
            sampler.forget_rows(max(least, int(rows(p) or 0)), envs)
