"""An agent with any algorithm of tandem, which learns from steps that runners send."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tandem import backends, spaces
from tandem.algorithms import own
from tandem.algorithms.base import Algorithm
from tandem.backends import process
from tandem.cluster.agent_host import Agent
from tandem.cluster.sampler import SamplerConfig, TrajectorySampler, join_blocks
from tandem.envs.factory import EnvLike
from tandem.errors import SettingError, UnknownNameError, note
from tandem.learning.build import Spaces, build, network_there
from tandem.learning.collect.actor import PolicyActor, fixed, forwards, publish, redraw
from tandem.learning.collect.evaluation import evaluate, side_by_side
from tandem.learning.collect.trajectories import split_environments, split_steps
from tandem.learning.config import Config
from tandem.learning.events import Evaluation
from tandem.learning.learners import Span
from tandem.learning.loop import learner_of
from tandem.learning.seeds import Generators, derived
from tandem.networks import plan as plans
from tandem.networks import serial
from tandem.networks.users import refuse_old_critics
from tandem.runs import checkpoint
from tandem.spaces import Leaf, Spec
from tandem.types import AnyArray, Array, JSONDict, State, Trajectory, Tree
from tandem.vector_actions import vector_space
from tandem.zoo import resolve

# minimum steps per block from another process: a message costs as much as tens of steps
MIN_REMOTE_BLOCK = 16
# ratio of block length to the window of n_step or sequence, which is cut at the ends of blocks
WINDOWS_PER_BLOCK = 8


class AlgorithmAgent(Agent):
    """Agent that acts and learns as in `tandem.train`, with the same losses, buffers, exploration
    and schedules.

    `choose_action` and `update` take the observation, reward and so on of one environment, or of n
    environments at once. With several runners of n environments each, on-policy algorithms learn
    once there are `envs` columns of `rollout` steps, and runners wait for that. Other algorithms
    learn from each block as it arrives, `updates_per_call` times per `train_every` steps.

    The agent has a part that can act elsewhere (`portable`): get_agent(name, act="local") acts in
    the runner, without a message per step, and without a framework if all layer types are
    supported. With sync=False this is always the case.

    Args:
        algorithm: Name of an algorithm, as listed by tandem list.
        observation_space: Observation space of one environment; for a team, that of
            `tandem.envs.team.team(env)`.
        action_space: Likewise.
        rewards_space: Likewise, if the rewards of each agent are given.
        framework: As in train.
        network: As in train.
        device: As in train.
        seed: As in train.
        **settings: Settings of the algorithm. `steps` is the horizon of its schedules, and `envs`
            the number of columns of steps to learn from at once, ideally the number of environments
            in all runners.

    Raises:
        TandemError: as in train, for invalid names, settings and spaces.
    """

    caller = ""  # the current caller; set by the host
    restarted = False  # whether it replaces a lost agent; set by the host

    @process.restored()
    def __init__(
        self,
        sync: bool = True,
        *,
        algorithm: str | type[Algorithm],
        observation_space: object,
        action_space: object,
        rewards_space: Any = None,
        framework: str | None = None,
        network: object = None,
        device: str = "auto",
        seed: int = 0,
        **settings: object,
    ) -> None:
        super().__init__(sync)
        self.config = _config(algorithm, settings, framework, device, seed, network is not None)
        observation = _without_stacks(spaces.observation_spec(observation_space))
        taken = None if rewards_space is not None else vector_space(action_space)
        leaf = spaces.action_leaf(action_space if taken is None else taken, observation)
        self._spaces = Spaces(observation, leaf, observation_space)
        self._generators = Generators(seed)
        self.algorithm = build(self.config, self._spaces, self._generators, network)
        self._settings = self.algorithm.settings
        backend = self._backend = self.algorithm.backend
        roles = tuple(dict.fromkeys((*self.algorithm.acting, *self.algorithm.preparing)))
        remote_network = partial(network_there, self.config, self._spaces, network)
        self._networks = forwards(backend, roles, remote_network)
        self.learner = learner_of(
            self.algorithm, observation, leaf, self._generators, self._networks
        )
        self.env_steps, self.metrics = 0, dict[str, float]()
        self._team_rewards = () if rewards_space is None else tuple(rewards_space.shape)
        self._samplers: dict[str, TrajectorySampler] = {}
        self._members: set[str] = set()  # callers that send steps
        # members that have sent a block not yet learned from
        self._waiting: set[str] = set()
        self._queues: dict[int, list[tuple[str, Trajectory]]] = {}  # by length: columns of steps
        self._owners: list[str] = []  # of the columns learned from last
        self._publish_weights()

    # Acting

    def choose_action(self, state: Tree) -> Array:
        """Return the environment's action for one observation, or [n, ...] for n of them, with the
        algorithm's exploration."""
        return self._sampler().choose_action(state)

    def update(
        self,
        state: Tree,
        action: Array,
        reward: Array,
        next_state: Tree,
        done: Array,
        truncated: Array = None,
    ) -> None:
        """Record one step of each environment, and learn when a block of them is full; see
        `TrajectorySampler.update`."""
        self.join(self.caller)
        block = self._sampler().update(state, action, reward, next_state, done, truncated)
        if block is not None:
            self._sampler().set_progress(self.learn_from(block))

    def finish(self) -> None:
        """Learn from the steps of an incomplete block, if the algorithm supports it."""
        sampler = self._samplers.get(self.caller)
        if sampler is not None and (rest := sampler.finish()) is not None:
            sampler.set_progress(self.learn_from(rest))

    def portable(self, caller: str) -> TrajectorySampler:
        """Return the part that acts elsewhere and produces blocks for `learn_from`."""
        networks = {role: self._networks[role] for role in self.algorithm.acting}
        return TrajectorySampler(self._sampler_config(remote=True), networks, f"acting/{caller}")

    def _sampler(self) -> TrajectorySampler:
        if self.caller not in self._samplers:
            stream = f"acting/{self.caller}" if self._samplers else "acting"
            config = self._sampler_config(remote=False)
            self._samplers[self.caller] = TrajectorySampler(
                config, self._networks, stream, self.restarted
            )
        return self._samplers[self.caller]

    def _sampler_config(self, remote: bool) -> SamplerConfig:
        settings, steps, needs = self._settings, self.learner.block, self.algorithm.needs
        if needs == "transitions":
            window = max(settings.n_step, self.algorithm.sequence + settings.burn_in)
            least = MIN_REMOTE_BLOCK if remote else 1
            if window > 1:
                least = max(least, WINDOWS_PER_BLOCK * window)
            steps *= -(-least // steps)
        extras = self.algorithm.buffer_extras(self._spaces.action)
        return SamplerConfig(
            algorithm_class=type(self.algorithm),
            settings=settings,
            observation=self._spaces.observation,
            action=self._spaces.action,
            steps=steps,
            lockstep=needs == "rollouts",
            whole_blocks=needs != "transitions",
            seed=self.config.seed,
            team_rewards=self._team_rewards,
            team_rewards_required="rewards" in extras
            or getattr(settings, "rewards", "team") == "own",
        )

    # Learning

    def learn_from(self, block: Trajectory) -> dict[str, int]:
        """Add a block [T, n, ...], and learn once there are `envs` columns of its length. Returns
        the agent's progress for `TrajectorySampler.set_progress`."""
        steps, count, learned = len(block.reward), self._settings.envs, False
        self.join(self.caller)
        queue = self._queues.setdefault(steps, [])
        queue += [(self.caller, column) for column in split_environments(block)]
        while len(queue) >= count:
            entries, queue[:count] = sorted(queue[:count], key=lambda entry: entry[0]), []
            with process.restored(self._backend):
                self._learn(entries)
            learned = True
        if self.algorithm.needs == "rollouts":
            self._waiting = set() if learned else self._waiting | {self.caller}
            self._release_waiting()
        return {"env_steps": self.env_steps, "members": len(self._members)}

    def join(self, caller: str) -> None:
        """Register a caller that will send steps, for which the others wait. A caller that only
        acts does not join."""
        self._members.add(caller)

    def leave(self, caller: str) -> None:
        """Remove a caller that sends no more steps, so that no other waits for it."""
        self._members.discard(caller)
        self._waiting.discard(caller)
        self._release_waiting()

    def must_wait(self, caller: str) -> bool:
        """Return whether a caller has to wait for steps of others."""
        return caller in self._waiting

    def _release_waiting(self) -> None:
        if self._waiting >= self._members:
            # no remaining member can send the missing steps: release all
            self._waiting = set()

    def _learn(self, entries: list[tuple[str, Trajectory]]) -> None:
        """Learn from columns of steps, each with the caller that sent it."""
        owners, block = [owner for owner, _ in entries], join_blocks([part for _, part in entries])
        # a column from another runner than before continues with another episode
        pairs = enumerate(zip(owners, self._owners, strict=False))
        if changed := [i for i, (new, old) in pairs if new != old]:
            if self.algorithm.needs == "rollouts":
                self.learner.break_off(changed)
            memory = self.algorithm.memory
            if isinstance(memory, np.ndarray):
                self.algorithm.memory = np.zeros_like(memory)
            elif self.algorithm.sequence and isinstance(memory, dict):
                for state in memory.values():
                    state[changed] = 0
        self._owners, before = owners, self.learner.updates
        transitions = self.algorithm.needs == "transitions"
        for part in split_steps(block, self.learner.block) if transitions else [block]:
            begin = self.env_steps
            self.env_steps += int(np.count_nonzero(part.valid))
            metrics = self.learner.learn(part, Span(begin, self.env_steps, self._settings.steps))
            self.metrics = metrics or self.metrics
        if self.learner.updates > before or self.algorithm.preparing:
            self._publish_weights()
            self._sync_model()

    def _publish_weights(self) -> None:
        """Publish new weights, and new parameter noise if used, to all actors in this process."""
        noisy = self._settings.noisy
        if noisy != "no":
            redraw(self._backend, self._networks, noisy, self._generators("noise/acting"))
        publish(self._backend, self._networks)

    def _sync_model(self) -> None:
        networks: dict[str, Any] = self._networks
        self._fire({role: networks[role].weights for role in self.algorithm.acting})

    @property
    def updates(self) -> int:
        """Number of updates so far."""
        return self.learner.updates

    # After training

    def evaluate(
        self, env: EnvLike, episodes: int = 10, seed: int = 0, max_steps: int = 0
    ) -> Evaluation:
        """Return the agent's deterministic returns in an environment (an id, or a callable that
        creates one), without learning; max_steps as in `tandem.evaluate`."""
        algorithm, weights = type(self.algorithm), self._weights()
        networks = {role: fixed(self._backend.networks[role], w) for role, w in weights.items()}
        actor = PolicyActor(algorithm, self._settings, self._spaces.action, networks)
        mode = algorithm.action_mode(self._settings, self._spaces.action)
        seed = derived(seed, "evaluate")
        many = side_by_side(env)
        played = evaluate(
            actor, env, episodes, seed, action_mode=mode, environments=many, max_steps=max_steps
        )
        return Evaluation.of(*played)

    def save(self, path: str | Path) -> str:
        """Save the agent as a checkpoint for `tandem.load`, on the agent's machine. Returns the
        path."""
        acting = {r: self._backend.networks[r].plan for r in self.algorithm.acting}
        data = {
            "config": self.config.to_json(),
            "observation": spaces.to_json(self._spaces.observation),
            "observation_space": spaces.outline(self._spaces.observation_space),
            "action": spaces.to_json(self._spaces.action),
            "plans": {r: None if p is None else serial.to_json(p) for r, p in acting.items()},
            "whole": False,
        }
        weights = {f"{r}/{n}": w for r, own in self._weights().items() for n, w in own.items()}
        checkpoint.write(Path(path), data, {"networks": weights})
        return str(path)

    def _weights(self) -> dict[str, plans.Weights]:
        return {role: self._backend.networks[role].mean() for role in self.algorithm.acting}

    def state(self) -> State:
        """Return networks, optimizers, counters, generators, running statistics and the replay
        buffer."""
        learner, learned = self.learner.state(True)
        data = {
            "learner": learner,
            "generators": self._generators.state(),
            "env_steps": self.env_steps,
        }
        arrays = {f"engine/{n}": x for n, x in self._backend.state().items()}
        return data, arrays | {f"learner/{n}": x for n, x in learned.items()}

    def load_state(self, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Restore the result of `state`."""
        refuse_old_critics(plans.select(arrays, "engine"), self._backend.networks)
        self._backend.load_state(plans.select(arrays, "engine"))
        self.learner.load_state(data["learner"], plans.select(arrays, "learner"))
        self._generators.load_state(data["generators"])
        self.env_steps = data["env_steps"]
        self._publish_weights()


def _config(
    algorithm: str | type[Algorithm],
    settings: dict[str, Any],
    framework: str | None,
    device: str,
    seed: int,
    own_network: bool,
) -> Config:
    """Check the agent's arguments, and return them as a Config."""
    algorithm_class, algorithm = own.checked(algorithm), own.name_of(algorithm)
    known = [f.name for f in fields(algorithm_class.Settings)]
    for name in settings:
        if name not in known:
            raise UnknownNameError(f"setting of {algorithm}", name, known)
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise SettingError(f"seed={seed!r}.", "a whole number, at least 0", "give seed=0.")
    chosen, options, _, notes = resolve(algorithm_class, "", settings)
    note(*notes)
    return Config(
        algorithm,
        "cluster",
        backends.choose(framework),
        device,
        seed,
        chosen,
        options,
        "arguments of AlgorithmAgent",
        own_network=own_network,
        own_algorithm=None if own.is_known(algorithm) else algorithm_class,
    )


def _without_stacks(observation: Spec) -> Spec:
    """Store stacked images whole: the blocks of several runners arrive in no fixed order."""
    if isinstance(observation, Leaf):
        return replace(observation, stack=0)
    return {name: replace(leaf, stack=0) for name, leaf in observation.items()}
