"""From a user's agent and what `set` was told to a loop of the house: the flags choose parts, and
no part asks for flags."""

from __future__ import annotations

import operator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from tandem import backends
from tandem.agents import contract, environments
from tandem.agents.acting import AgentActor, explorers
from tandem.agents.algorithm import AgentAlgorithm
from tandem.agents.choices import Choices
from tandem.agents.forward import Forward
from tandem.agents.goals import JudgedGoals
from tandem.agents.learner import Drop, PhaseLearner, UpdateSchedule, Windows, empty, keep
from tandem.backends.reach import reach
from tandem.backends.variables import flat
from tandem.envs.factory import make, separate
from tandem.envs.goals import joined, with_goal
from tandem.envs.plain import Plain, adapted
from tandem.envs.stepped import Stepped
from tandem.errors import EngineError, SettingError
from tandem.learning.loop import Loop
from tandem.learning.seeds import Generators, derived
from tandem.parallel.remote import Remote
from tandem.replay.buffer import Ring
from tandem.replay.hindsight import DictGoals, Hindsight
from tandem.replay.samplers import DistinctSampler, PassSampler
from tandem.replay.scored import ScoredSampler
from tandem.replay.triplets import TripletDraws
from tandem.spaces import Leaf, flatten_observation
from tandem.types import Array, Batch, Tree, leaves, tree_map

PASSES = 10  # of PPO over what it collected


class Assembly:
    """A loop, and the parts of it that the door speaks to."""

    def __init__(
        self, agent: Any, choices: Choices, optimizers: list[Any], torch: bool, processes: int = 1
    ) -> None:
        contract.members(agent, choices, torch)
        self.agent, self.choices, self.processes, self._made_for = (
            agent,
            choices,
            processes,
            (agent.env, optimizers),
        )
        self._open, self._entered = ExitStack(), 0
        generators = Generators(agent.seed)
        self.backend = backends.make(
            engine(torch), device(agent, torch), seed=derived(agent.seed, "framework")
        )
        self.see = joined if choices.HER else (lambda obs: obs)
        self.environments = self._environments()
        self._first = self._batch()
        reached = reach(agent)
        if any(getattr(m, "built", True) is False for m in reached.modules.values()):
            self._build()
            reached = reach(agent)
        self.backend.adopt(reached)
        groups = contract.groups(agent.param, len(optimizers) or 1)
        self.optimizers = [
            self.backend.wrap_optimizer(str(i), o, g)
            for i, (o, g) in enumerate(zip(optimizers, groups, strict=False))
        ]
        gamma = 1.0 if choices.steps == 1 else _gamma(agent)
        reports = () if not choices.PR else (("TD", "ratio") if choices.PPO else ("TD",))
        n = self.environments.n
        self.algorithm = AgentAlgorithm(
            agent, self.backend, self.optimizers, n, gamma, reports, choices.IRL
        )
        if choices.TRL:
            self._first = tree_map(lambda x: np.stack([x, x], 1), self._first)
        taken = contract.lengths(self.backend.networks.values(), self._first)
        contract.rehearse(self.algorithm, self.backend, self._first, taken)
        agents = leaves(self._first.obs)[0].shape[1] if choices.MARL else 1
        forwards = [self._forward(f) for f in self._functions(agents)]
        explore = explorers(choices, self.environments.action, n, agents, generators)
        self.actor = AgentActor(
            forwards,
            self.see,
            explore,
            self.environments.action,
            joint=choices.MARL,
            irl=choices.IRL,
        )
        self.learner = self._learner(generators)
        agent.prioritized_replay.sampler = self.learner.sampler
        self.loop = Loop(
            self.algorithm,
            self.backend,
            self.environments,
            generators,
            actor=self.actor,
            learner=self.learner,
        )

    def is_for(self, env: Any) -> bool:
        """Whether it was made for this environment, or these."""
        return self._made_for[0] is env

    def fits(self, env: Any, optimizers: list[Any]) -> bool:
        """Whether it was made for these."""
        before = self._made_for
        return (
            self.is_for(env)
            and len(before[1]) == len(optimizers)
            and all(map(operator.is_, before[1], optimizers))
        )

    def windows(self, given: dict[str, Any]) -> None:
        """How much of the pool goes, and when: the arguments of `train`."""
        c, agent = self.choices, self.agent
        size = (
            given["window_size"]
            if given["window_size"] is not None
            else getattr(agent, "window_size", None)
        )
        self.learner.trim = Windows(c.size, size, given["clearing_freq"], given["window_size_"])
        if c.PR:
            function = getattr(agent, "window_size_fn", None) or getattr(
                agent, "window_size_func", None
            )
            self.learner.renew = Drop(
                function, given["window_size_ppo" if c.PPO else "window_size_pr"]
            )

    def act(self, obs: Tree) -> Any:
        """The action for one observation as the environment gives it, without exploration."""
        spec, seen = (
            self.environments.observation,
            flatten_observation(self.environments.observation_space, obs),
        )
        if isinstance(spec, dict):
            one: Tree = {key: np.asarray(seen[key], leaf.dtype)[None] for key, leaf in spec.items()}
        else:
            one = np.asarray(seen, spec.dtype)[None]
        action = self.actor.best(one)[0]
        return action + self.environments.action.start if self.environments.action.sizes else action

    def stage(self, mode: str | None = None) -> Any:
        """An environment of its own to play in; with `mode` one that draws."""
        inner = self.environments.first
        spec = getattr(inner, "spec", None)
        if mode is not None and spec is not None and not self.choices.HER and not self.choices.MARL:
            import gymnasium

            return gymnasium.make(spec, render_mode=mode)
        return separate(inner)

    def __enter__(self) -> Assembly:
        """Optimizers are as training needs them, until the end; a callback may save the agent
        meanwhile."""
        if not self._entered:
            for optimizer in self.optimizers:
                self._open.enter_context(optimizer)
        self._entered += 1
        return self

    def __exit__(self, *exception: Any) -> None:
        self._entered -= 1
        if not self._entered:
            self._open.close()

    # Parts

    def _forward(self, function: Any) -> Any:
        """`action` as training calls it: compiled, where the engine does that and the agent lets
        it."""
        if not self.agent.jit_action:
            return partial(self.backend.call, function)
        return (
            self.backend.forward(function)
            if self.backend.framework == "torch"
            else Forward(self.agent, self.backend, function)
        )

    def _environments(self) -> Stepped | Remote:
        agent, choices = self.agent, self.choices
        given = environments.as_many(contract.environments(agent), self.processes)
        if len(set(map(id, given))) < len(given):
            raise SettingError(
                "agent.env has the same environment twice.",
                "one object for each",
                "make them one by one.",
            )
        reduce = environments.reduction(agent, self.processes) if choices.MARL else None
        made = []
        for env in given:
            space, env = None, make(env) if isinstance(env, str) else env
            if getattr(env, "action_space", None) is None or choices.MARL:
                space = self._action_space(env)
            env = adapted(env, reduce=reduce, action_space=space)
            made.append(with_goal(env) if choices.HER else env)
        return environments.vector(
            type(agent).__name__, made, derived(agent.seed, "environments"), self.processes
        )

    def _action_space(self, env: Any) -> Any:
        """The actions of an environment that does not say: what comes of the first observation."""
        from gymnasium import spaces

        plain = Plain(env, action_space=spaces.Discrete(2))
        first = with_goal(plain) if self.choices.HER else plain
        seen = self.see(tree_map(lambda x: np.asarray(x)[None], first.reset(seed=0)[0]))
        agents = seen.shape[1] if self.choices.MARL else 1
        parts = [seen[:, i] for i in range(agents)] if self.choices.MARL else [seen]
        outs = [
            self.backend.call(f, x) for f, x in zip(self._functions(agents), parts, strict=True)
        ]
        outs = [out[1] if self.choices.IRL else out for out in outs]
        if self.choices.policy is not None:
            sizes = [int(out.shape[-1]) for out in outs]
            return spaces.MultiDiscrete(sizes) if self.choices.MARL else spaces.Discrete(sizes[0])
        if np.issubdtype(outs[0].dtype, np.integer):
            raise SettingError(
                f"{type(env).__name__} has no action_space, and `action` returns whole numbers.",
                "a space that says how many actions there are",
                "set env.action_space = gymnasium.spaces.Discrete(n).",
            )
        shape = (agents, *outs[0].shape[1:]) if self.choices.MARL else outs[0].shape[1:]
        return spaces.Box(-np.inf, np.inf, shape, np.float32)

    def _functions(self, agents: int) -> list[Any]:
        action = self.agent.action
        return (
            [lambda s, i=i: action(s, i) for i in range(agents)] if self.choices.MARL else [action]
        )

    def _batch(self) -> Batch:
        """A batch of one row, of the first observation, for looking at the loss."""
        obs = self.environments.reset()
        first = tree_map(lambda x: np.array(x[:1]), obs)
        action, seen = (
            np.zeros((1, *self.environments.action.shape), self.environments.action.dtype),
            self.see(first),
        )
        one = np.ones(1, np.float32)
        extra = {"irl": self._extra(seen)} if self.choices.IRL else {}
        return Batch(seen, action, one, one, seen, extra=extra)

    def _extra(self, seen: Tree) -> Array:
        """What `action` gives beside the output."""
        out = self.backend.call(self.agent.action, seen)
        if not isinstance(out, tuple) or len(out) != 2:
            raise SettingError(
                f"action returned a {type(out).__name__}.",
                "(extra, output), for IRL=True",
                "return both as a tuple.",
            )
        found: Array = out[0]
        return found

    def _build(self) -> None:
        """Calls the loss once as it is, for networks that are built only when they are first
        called."""
        algorithm = AgentAlgorithm(
            self.agent, self.backend, [], self.environments.n, 1.0, (), self.choices.IRL
        )
        self.backend.call(lambda batch: algorithm.losses(batch)[0][0], self._first)

    def _learner(self, generators: Generators) -> PhaseLearner:
        c, env = self.choices, self.environments
        extra = {"irl": self._leaf()} if c.IRL else {}
        ring = Ring(c.size, env.n, env.observation, env.action, extra=extra)
        sampler: Any
        if c.PR:
            initial = {"TD": c.initial_TD} | ({"ratio": c.initial_ratio} if c.PPO else {})
            eps = 1e-7 if c.epsilon is None else c.epsilon
            sampler = ScoredSampler(ring, initial, share=c.lambda_, alpha=c.alpha, eps=eps)
        else:
            sampler = (
                PassSampler(ring)
                if c.PPO
                else TripletDraws(ring)
                if c.TRL
                else DistinctSampler(ring)
            )
        relabel = None
        if c.HER:
            relabel = Hindsight(ring, self._goals(), 1.0, k=c.k, strategy=c.strategy).relabel  # type: ignore[arg-type]
        phases = None if c.PPO else c.update_steps
        rhythm = UpdateSchedule(
            c.minibatch,
            c.update_steps if c.PPO else None,
            c.num_updates,
            PASSES,
            phases,
            c.update_batches,
        )
        return PhaseLearner(
            self.algorithm,
            self.backend,
            generators,
            sampler,
            rhythm,
            see=self.see,
            relabel=relabel,
            renew=empty if c.PPO else keep,
            trim=keep,
            fetch=sampler.triplets.transitions if c.TRL else partial(ring.transitions, n=c.steps),
            beta=c.beta,
        )

    def _goals(self) -> Any:
        if (function := getattr(self.agent, "reward_done_func", None)) is not None:
            return JudgedGoals(function)
        env = contract.environments(self.agent)[0]
        inner = env.unwrapped
        return DictGoals(inner.compute_reward, getattr(inner, "compute_terminated", None))

    def _leaf(self) -> Leaf:
        x = self._extra(self._first.obs)
        return Leaf("box", tuple(x.shape[1:]), "float32" if x.dtype.kind == "f" else str(x.dtype))


def engine(torch: bool) -> str:
    """The engine of the agent's networks. EngineError for Keras on PyTorch."""
    if torch:
        return "torch"
    running = backends.running() or backends.choose()
    if running in ("torch", "keras-torch"):
        raise EngineError(
            "RL trains Keras agents on TensorFlow and JAX; this process has imported Keras on "
            "torch.",
            "another engine of Keras's, or PyTorch itself",
            "set KERAS_BACKEND=jax before anything imports keras, or subclass RL_pytorch.",
        )
    return running


def device(agent: Any, torch: bool) -> str:
    """Where the agent's networks are."""
    if not torch:
        return "auto"
    first = next((p for p in flat(agent.param) if hasattr(p, "device")), None)
    return "cpu" if first is None else str(first.device.type)


def _gamma(agent: Any) -> float:
    gamma = getattr(agent, "gamma", None)
    if gamma is None or not 0 < float(gamma) <= 1:
        raise SettingError(
            f"num_steps is more than 1, and self.gamma is {gamma!r}.",
            "the discount of one step, in (0, 1], which rewards of n-step transitions are summed "
            "with",
            "set self.gamma = 0.99.",
        )
    return float(gamma)
