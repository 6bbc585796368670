"""Assembly of a training loop from a user's agent and the arguments of `set`. Flags select
components here; no component checks flags itself."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem import backends
from tandem.agents import built_networks, collection, contract
from tandem.agents.adaptive.loss_inputs import adapts
from tandem.agents.contract import AgentMembers, SetArguments, TrainArguments, as_list
from tandem.agents.custom_loop import CustomLoop
from tandem.agents.reach import naming_precision, reach
from tandem.agents.rounds import Rounds
from tandem.agents.training import PhaseLearner, UpdateSchedule
from tandem.agents.user_functions import (
    AgentAlgorithm,
    CompiledAction,
    FunctionGoals,
    team_reduction,
)
from tandem.backends import process
from tandem.backends.broadcast_check import check_losses
from tandem.backends.variables import flat
from tandem.envs.factory import make, separate
from tandem.envs.goals import joined, with_goal
from tandem.envs.opening import look, opening
from tandem.envs.plain import Plain, as_gymnasium
from tandem.envs.stepped import Stepped
from tandem.envs.vector import episode_seed
from tandem.errors import EngineError, SettingError
from tandem.learning.collect.ahead import AheadCollector
from tandem.learning.collect.collector import Collector
from tandem.learning.collect.trained_agent import rows_of
from tandem.learning.loop import Loop
from tandem.learning.parallel.env_factory import divide
from tandem.learning.parallel.remote import Remote
from tandem.learning.seeds import Generators, derived
from tandem.replay.buffer import Ring
from tandem.replay.hindsight import DictGoals, Goals, Hindsight
from tandem.replay.samplers import DistinctSampler, PassSampler
from tandem.replay.scored import ScoredSampler
from tandem.replay.triplets import TripletSampler
from tandem.spaces import Leaf
from tandem.types import Array, Batch, Tree, leaves, tree_map

PASSES = 10  # of PPO over the collected steps


class Assembly:
    """A training loop and its components that the agent uses: environments, actor, learner,
    optimizers."""

    @process.restored()
    def __init__(
        self,
        agent: AgentMembers,
        arguments: SetArguments,
        optimizers: list[Any],
        processes: int = 1,
        beside: bool = False,
        layout: Any = None,
    ) -> None:
        """Build the loop. beside: the environments' processes step them while this one learns.
        layout: several devices that share each minibatch."""
        contract.check_members(agent, arguments)
        self.agent, self.arguments, self.processes = agent, arguments, processes
        self.beside, self.layout = beside, layout
        self._made_for = agent.env, optimizers
        self._open, self._entered = ExitStack(), 0
        # returns the pool's priorities at the start of the phase; None once called
        self.start_powers: Callable[[], Array] | None = None
        # each worker has its own environments, exploration and random streams
        rank = 0 if layout is None else layout.rank
        self.seed = derived(agent.seed, f"worker {rank}") if rank else agent.seed
        generators = Generators(self.seed)
        seed = derived(self.seed, "framework")
        where: dict[str, Any] = {"layout": layout}
        if agent.torch and layout is not None:  # each device has its own process
            where = {"devices": layout.count, "rank": layout.index}
            seed += layout.index
        self.backend = backends.make(engine(agent.torch), device(agent), seed=seed, **where)
        self.preprocess = joined if arguments.HER else (lambda obs: obs)
        self.environments = self._environments()
        # by process
        self.columns = [
            range(first, first + count) for first, count in divide(self.environments.n, processes)
        ]
        example = self._example()
        agents = leaves(example.obs)[0].shape[1] if arguments.MARL else 1
        if built_networks.hook_of(agent):
            parts = [example.obs[:, i] for i in range(agents)] if arguments.MARL else [example.obs]
            for action, part in zip(self._actions(agents), parts, strict=True):
                self._outputs(action, part)
        # collect networks and variables once all of them are built
        reached = reach(agent)
        if any(getattr(m, "built", True) is False for m in reached.modules.values()):
            self._build(example)
            reached = reach(agent)
        self.backend.adopt(reached.modules, reached.variables)
        groups = contract.param_groups(agent.param, len(optimizers) or 1)
        self.optimizers = [
            self.backend.wrap_optimizer(str(i), optimizer, group)
            for i, (optimizer, group) in enumerate(zip(optimizers, groups, strict=False))
        ]
        # check the loss before training starts
        gamma = 1.0 if arguments.steps == 1 else _gamma(agent)
        reports = () if not arguments.PR else ("TD", "ratio") if arguments.PPO else ("TD",)
        n, leaf = self.environments.n, self.environments.action
        self.algorithm = AgentAlgorithm(
            agent, self.backend, self.optimizers, n, gamma, reports, arguments.IRL
        )
        batch = tree_map(lambda x: np.stack([x, x], 1), example) if arguments.TRL else example
        with naming_precision(agent):
            check_losses(self.algorithm.losses, self.backend, self.optimizers, batch)
        self._batch = batch
        if adapts(agent):
            self.algorithm.inputs.choose(batch)
        # the training loop
        self.actor = collection.AgentActor(
            [self._forward(function) for function in self._actions(agents)],
            self.preprocess,
            collection.make_explorers(arguments, leaf, n, agents, generators),
            leaf,
            joint=arguments.MARL,
            irl=arguments.IRL,
        )
        self.learner = self._learner(generators, batch)
        if layout is not None and layout.by_rounds:
            self.learner.rounds = Rounds(layout)
            if agent.has_own_loop:
                self.learner.loop = CustomLoop(agent, gamma, arguments.IRL)
        agent.prioritized_replay.sampler = self.learner.sampler
        agent.prioritized_replay.columns = self.columns
        self.loop = Loop(
            self.algorithm,
            self.backend,
            self.environments,
            generators,
            actor=self.actor,
            learner=self.learner,
            collector=AheadCollector if beside else Collector,
        )
        if agent.torch and layout is not None:
            layout.begin(self)

    def is_for(self, env: object) -> bool:
        """Return whether this assembly was made for this environment or list of environments."""
        return self._made_for[0] is env

    def fits(self, env: object, optimizers: list[Any]) -> bool:
        """Return whether this assembly was made for this environment and these optimizers."""
        own = self._made_for[1]
        same = len(own) == len(optimizers) and all(map(operator.is_, own, optimizers))
        return same and self.is_for(env)

    def stays(self, arguments: SetArguments, processes: int, beside: bool, layout: Any) -> bool:
        """Return whether this assembly can be reused for training with these options."""
        before = self.arguments.minibatch, self.processes, self.beside, self.layout
        same = before == (arguments.minibatch, processes, beside, layout)
        return same and bool(self.backend.usable) and not self.environments.gone

    def check_copies(self, processes: int) -> None:
        """Raise SettingError if a different number of processes would change the number of copies
        of a single environment, since the pool has columns for each copy."""
        envs, n = as_list(self.agent.env), self.environments.n
        if len(envs) == 1 and processes != n:
            copies = f"{n} copies" if n > 1 else "it"
            raise SettingError(
                f"processes={processes} for a single environment, but the pool belongs to "
                f"{copies}.",
                "as many processes as before, each with a copy of the environment",
                f"give processes={n} and leave pool_network out to continue; or call set again, "
                "which starts with an empty pool. A list of environments works with any number "
                "of processes.",
            )

    def set_windows(self, train: TrainArguments) -> None:
        """Set how many episodes are collected, and how many transitions are dropped from the pool
        and when."""
        schedule = self.learner.schedule
        schedule.store_episodes = None if self.arguments.PPO else train.num_store
        if schedule.rollout_episodes is not None:
            schedule.rollout_episodes = train.num_store or 1
        agent, size = self.agent, train.window_size
        if size is None:
            size = getattr(agent, "window_size", None)
        self.learner.on_new_rows = partial(
            collection.slide_window,
            size=size,
            every=train.clearing_freq,
            periodic=train.window_size_,
            columns=self.columns,
        )
        if self.arguments.PR:
            function = getattr(agent, "window_size_fn", None)
            function = function or getattr(agent, "window_size_func", None)
            rows = train.window_size_ppo if self.arguments.PPO else train.window_size_pr
            self.learner.after_update_param = partial(
                collection.forget_oldest,
                rows=rows if function is None else function,
                columns=self.columns,
            )

    def moves(self, name: str) -> None:
        """Register that a rule changed an attribute of the agent, or a number of an optimizer, of
        this name. Compiled code takes it as an input from now on."""
        if self.algorithm.inputs.take_in(name, self._batch):
            self.learner.compile_anew()

    def act(self, obs: Tree) -> Array:
        """Return the action for one observation of the environment, without exploration."""
        envs = self.environments
        flattened = envs.flatten(obs)
        action = self.actor.best(rows_of(envs.observation, flattened)[0])[0]
        return action + envs.action.start if envs.action.sizes else action

    def play_env(self, mode: str | None = None) -> Any:
        """Return a separate environment to play in; with `mode`, one that renders."""
        env = self.environments.first
        spec = getattr(env, "spec", None)
        if mode is None or spec is None or self.arguments.HER or self.arguments.MARL:
            return separate(env)
        return gymnasium.make(spec, render_mode=mode)

    def __enter__(self) -> Self:
        """Put optimizers into their training state until the outermost `with` ends. Nests: a
        callback that saves the agent enters again."""
        if not self._entered:
            self._open.enter_context(process.restored(self.backend))
            for optimizer in self.optimizers:
                self._open.enter_context(optimizer)
        self._entered += 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._open.close()

    # Components

    def _actions(self, agents: int) -> list[Callable[..., Any]]:
        """Return `action` for each agent, as the user wrote it."""
        action = self.agent.action
        if not self.arguments.MARL:
            return [action]
        return [lambda s, i=i: action(s, i) for i in range(agents)]

    def _forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `action` as training calls it, with NumPy inputs and outputs. It is compiled if
        the backend supports that and the agent allows it."""
        if not self.agent.jit_action:
            return partial(self.backend.call, function)
        if self.backend.framework != "torch":
            return CompiledAction(self.agent, self.backend, function)
        return self.backend.forward(function)

    def _environments(self) -> Stepped | Remote:
        agent, arguments = self.agent, self.arguments
        envs = collection.one_for_each(as_list(agent.env), self.processes)
        if len(set(map(id, envs))) < len(envs):
            raise SettingError(
                "agent.env contains the same environment twice.",
                "a separate object for each",
                "create them one by one.",
            )
        elsewhere = self.processes > 1 or self.beside
        reduction = team_reduction(agent, elsewhere) if arguments.MARL else None
        adapted_envs = []
        name, seed = type(agent).__name__, derived(self.seed, "environments")
        for i, env in enumerate(envs):
            if isinstance(env, str):
                env = make(env)
                weakref.finalize(self, env.close)  # the next training may continue in it
            with opening(episode_seed(seed, i, 0), env):
                if getattr(env, "action_space", None) is None or arguments.MARL:
                    env = Plain(env, action_space=spaces.Discrete(2), reduce=reduction)
                    env.action_space = self._action_space(env)
                else:
                    env = as_gymnasium(env, reduce=reduction)
                adapted_envs.append(with_goal(env) if arguments.HER else env)
        if not elsewhere:
            return Stepped(name, adapted_envs, seed)
        return Remote(name, adapted_envs, seed, self.processes, beside=self.beside)

    def _action_space(self, env: Plain) -> gymnasium.Space:
        """Return the action space of an environment without one, inferred from the output of
        `action` for its first observation."""
        joint = self.arguments.MARL
        first = with_goal(env) if self.arguments.HER else env
        obs = self.preprocess(tree_map(lambda x: np.asarray(x)[None], look(first)[0]))
        parts = [obs[:, i] for i in range(obs.shape[1])] if joint else [obs]
        outs = [
            self._outputs(action, x)
            for action, x in zip(self._actions(len(parts)), parts, strict=True)
        ]
        outs = [out[1] if self.arguments.IRL else out for out in outs]
        if self.arguments.policy is not None:
            sizes = [int(out.shape[-1]) for out in outs]
            return spaces.MultiDiscrete(sizes) if joint else spaces.Discrete(sizes[0])
        if np.issubdtype(outs[0].dtype, np.integer):
            raise SettingError(
                f"{type(env.inner).__name__} has no action_space, and `action` returns integers.",
                "a space with the number of actions",
                "set env.action_space = gymnasium.spaces.Discrete(n).",
            )
        shape = (len(parts), *outs[0].shape[1:]) if joint else outs[0].shape[1:]
        return spaces.Box(-np.inf, np.inf, shape, np.float32)

    def _outputs(self, action: Callable[..., Any], obs: Tree) -> Any:
        """Return the output of `action`, after building its networks if necessary."""
        with naming_precision(self.agent):
            return built_networks.acted(self.agent, lambda: self.backend.call(action, obs))

    def _example(self) -> Batch:
        """Return a batch with one row, the first observation, to check the loss with."""
        leaf = self.environments.action
        obs = self.preprocess(tree_map(lambda x: np.array(x[:1]), self.environments.reset()))
        action, one = np.zeros((1, *leaf.shape), leaf.dtype), np.ones(1, np.float32)
        extra = {"irl": self._extra(obs)} if self.arguments.IRL else {}
        return Batch(obs, action, one, one, obs, extra=extra)

    def _extra(self, obs: Tree) -> Array:
        """Return the extra values that `action` returns in addition to its output."""
        out = self._outputs(self.agent.action, obs)
        if not isinstance(out, tuple) or len(out) != 2:
            raise SettingError(
                f"action returned a {type(out).__name__}.",
                "(extra, output) with IRL=True",
                "return both as a tuple.",
            )
        return out[0]

    def _build(self, example: Batch) -> None:
        """Call the loss once uncompiled, for networks that are built on their first call."""
        algorithm = AgentAlgorithm(
            self.agent, self.backend, [], self.environments.n, 1.0, (), self.arguments.IRL
        )
        self.backend.call(lambda batch: algorithm.losses(batch)[0][0], example)

    def _learner(self, generators: Generators, example: Batch) -> PhaseLearner:
        a, env = self.arguments, self.environments
        extra = {}
        if a.IRL:
            x = self._extra(example.obs)
            dtype = "float32" if x.dtype.kind == "f" else str(x.dtype)
            extra["irl"] = Leaf("box", tuple(x.shape[1:]), dtype)
        ring = Ring(held(a, env.n), env.n, env.observation, env.action, extra=extra, terminal=True)
        sampler: ScoredSampler | PassSampler | TripletSampler | DistinctSampler
        fetch: Callable[..., Batch] = partial(ring.transitions, n=a.steps)
        if a.PR:
            initial = {"TD": a.initial_TD} | ({"ratio": a.initial_ratio} if a.PPO else {})
            eps = 1e-7 if a.epsilon is None else a.epsilon
            sampler = ScoredSampler(ring, initial, share=a.lambda_, alpha=a.alpha, eps=eps)
        elif a.PPO:
            sampler = PassSampler(ring)
        elif a.TRL:
            sampler = TripletSampler(ring)
            fetch = sampler.transitions
        else:
            sampler = DistinctSampler(ring)
        relabel = None
        if a.HER:
            relabel = Hindsight(ring, self._goals(), k=a.k, strategy=a.strategy).relabel  # type: ignore[arg-type]
        schedule = UpdateSchedule(
            batch_size=a.minibatch,
            rollout_steps=a.update_steps if a.PPO else None,
            updates_per_phase=a.num_updates,
            passes=PASSES,
            sync_phases=None if a.PPO else a.update_steps,
            sync_updates=a.update_batches,
            beside=self.beside,
            rollout_episodes=1 if a.PPO and a.update_steps is None else None,
        )
        return PhaseLearner(
            self.algorithm,
            self.backend,
            generators,
            sampler,
            schedule,
            preprocess=self.preprocess,
            relabel=relabel,
            fetch=fetch,
            beta=a.beta,
            after_update_param=collection.forget_all if a.PPO else collection.keep_all,
        )

    def _goals(self) -> Goals:
        if (function := getattr(self.agent, "reward_done_func", None)) is not None:
            return FunctionGoals(function)
        env = as_list(self.agent.env)[0].unwrapped
        return DictGoals(env.compute_reward, getattr(env, "compute_terminated", None))


def held(arguments: SetArguments, envs: int) -> int:
    """Return the number of transitions in a pool of `pool_size`, the same for each of `envs`
    environments. Raises SettingError if a minibatch, or the steps of a PPO phase, do not fit."""
    held = arguments.size // envs * envs
    least = arguments.minibatch
    if arguments.PPO:
        least = max(least, -(-(arguments.update_steps or 0) // envs) * envs)
    if held < max(least, envs):
        raise SettingError(
            f"pool_size={arguments.size} holds {held // envs} transitions of each of {envs} "
            f"environments, {held} in all; batch={arguments.minibatch}, "
            f"update_steps={arguments.update_steps}.",
            "a pool large enough for a minibatch, one transition of each environment and, with "
            "PPO, the steps of a phase",
            f"set pool_size={-(-max(least, envs) // envs) * envs}, or more.",
        )
    return held


def engine(torch: bool) -> str:
    """Return the backend of the agent's networks. Raises EngineError for Keras on PyTorch."""
    if torch:
        return "torch"
    running = backends.running() or backends.choose()
    if running in ("torch", "keras-torch"):
        raise EngineError(
            "RL trains Keras agents on TensorFlow or JAX, but this process has imported Keras "
            "with the torch backend.",
            "another Keras backend, or plain PyTorch",
            "set KERAS_BACKEND=jax before anything imports keras, or subclass RL_pytorch.",
        )
    return running


def device(agent: AgentMembers) -> str:
    """Return the device of the agent's networks."""
    if not agent.torch:
        return "auto"
    first = next((p for p in flat(agent.param) if hasattr(p, "device")), None)
    return "cpu" if first is None else str(first.device.type)


def _gamma(agent: AgentMembers) -> float:
    """Return the discount per step. Raises SettingError if the agent has no valid one."""
    gamma = getattr(agent, "gamma", None)
    if gamma is None or not 0 < float(gamma) <= 1:
        raise SettingError(
            f"num_steps is greater than 1, but self.gamma is {gamma!r}.",
            "the discount factor of n-step returns, in (0, 1]",
            "set self.gamma = 0.99.",
        )
    return float(gamma)
