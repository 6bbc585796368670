"""`make_trainer` and `make_evaluator`: training and evaluation by the arguments that drlbox
documents.

    make_trainer("a3c", env_maker=lambda: gymnasium.make("CartPole-v1"),
    feature_maker=my_feature).run()

For a3c, acer, impala and dqn all documented arguments have their documented defaults; losses are
summed over a batch, as those defaults (step size, norm of clipping) assume. Other algorithms take
the arguments that they share with these, with their own defaults, and any setting of theirs by its
name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tandem import algorithms, spaces, trainer
from tandem.collect.trained_agent import Agent
from tandem.drlbox import own_networks
from tandem.drlbox.arguments import NOISE, checked
from tandem.envs.action_masks import with_masks
from tandem.envs.factory import environment_name, make, spaces_of
from tandem.errors import SettingError, UnknownNameError
from tandem.learning.config import Options
from tandem.learning.events import Evaluation
from tandem.math.distributions import Categorical
from tandem.math.masks import evenly, masked
from tandem.networks import plan as plans
from tandem.runs import checkpoint
from tandem.runs.progress import Progress
from tandem.types import tree_map

DOCUMENTED = {
    "a3c": "a3c",
    "acer": "acer",
    "impala": "impala",
    "dqn": "nstep_q",
}  # its name -> ours
OURS = ("seed", "framework")  # arguments of `tandem.train` that trainers take as well


@dataclass(frozen=True)
class Shared:
    """Arguments of trainers and evaluators."""

    env_maker: Callable[[], Any] | None = None  # makes a Gymnasium environment
    state_to_input: Callable[[Any], Any] | None = (
        None  # from an observation to what the network takes
    )
    load_model: str | Path | None = None  # a run's folder or checkpoint, or a .keras or .h5 file
    load_model_custom: dict[str, Any] | None = None  # classes for that file
    verbose: bool = False  # say how it goes


def means(setting: str | Callable[[Any], dict[str, Any]], default: Any) -> Any:
    """A documented argument with its default, and what it means: a setting of ours, or settings
    made of its value."""
    return field(default=default, metadata={"means": setting})


def _renamed(what: str, names: dict[str, str]) -> Callable[[dict[str, Any] | None], dict[str, Any]]:
    """What a dict of documented entries means."""

    def settings(given: dict[str, Any] | None) -> dict[str, Any]:
        for name in given or {}:
            if name not in names:
                raise UnknownNameError(f"entry of {what}", name, names)
        return {names[n]: v for n, v in (given or {}).items()}

    return settings


REPLAY = {
    "maxlen": "replay_size",
    "minlen": "replay_starts",
    "alpha": "priority_alpha",
    "evict_rule": "evict",
}
OPTIMIZER = {"learning_rate": "learning_rate", "epsilon": "adam_epsilon"}
# What holds for entries that are not given.
ENTRIES: dict[str, dict[str, Any]] = {
    "replay_kwargs": {"maxlen": 1000, "minlen": 100},
    "opt_kwargs": {"learning_rate": 1e-4, "epsilon": 1e-4},
}


@dataclass(frozen=True)
class Training(Shared):
    """Arguments of all trainers; defaults as documented."""

    feature_maker: Callable[[Any], Any] | None = (
        None  # observation space -> (Input, feature) or (Input, (feature, feature))
    )
    model_maker: Callable[[Any], Any] | None = (
        None  # environment -> whole model; wins over feature_maker
    )
    num_parallel: int | None = (
        None  # actor-learners; None: as many as there are cores, where the algorithm has them
    )
    port_begin: int = 2220  # not needed: nothing listens here
    discount: float = means("gamma", 0.99)
    train_steps: int = means("steps", 1_000_000)
    rollout_maxlen: int = means("rollout", 32)
    batch_size: int = means("envs", 1)
    online_learning: bool = means("online", True)
    replay_type: str | None = means(lambda kind: {"replay": kind or "none"}, None)
    replay_ratio: float = means("replay_ratio", 4)
    replay_kwargs: dict[str, Any] | None = means(_renamed("replay_kwargs", REPLAY), None)
    replay_priority_type: str = means("priority", "differential")
    optimizer: Any = means("optimizer", "adam")  # or an instance of the framework's
    opt_clip_norm: float = means("max_grad_norm", 40.0)
    opt_kwargs: dict[str, Any] | None = means(_renamed("opt_kwargs", OPTIMIZER), None)
    noisynet: Literal["ig", "fg"] | None = means(lambda kind: {"noisy": NOISE[kind]}, None)
    save_dir: str | Path | None = None
    save_interval: int = 10_000
    catch_signal: bool = False

    def implied(self) -> dict[str, Any]:
        """Settings that no argument sets, or several together."""
        return {"reduction": "sum"}


@dataclass(frozen=True)
class A3CTraining(Training):
    a3c_entropy_weight: float = means("entropy", 1e-2)

    def implied(self) -> dict[str, Any]:
        return {"reduction": "sum", "value_weight": 1.0}


@dataclass(frozen=True)
class ACERTraining(A3CTraining):
    replay_type: str | None = means(lambda kind: {"replay": kind or "none"}, "uniform")
    acer_kl_weight: float = means("kl", 1e-1)
    acer_trunc_max: float = means("truncation", 10.0)
    acer_soft_update_ratio: float = means("average_tau", 0.05)


@dataclass(frozen=True)
class IMPALATraining(A3CTraining):
    replay_type: str | None = means(lambda kind: {"replay": kind or "none"}, "uniform")
    impala_trunc_rho_max: float = means("rho", 1.0)
    impala_trunc_c_max: float = means("c", 1.0)


@dataclass(frozen=True)
class DQNTraining(Training):
    dqn_double: bool = means("double", True)
    dqn_dueling: bool = means("dueling", False)
    policy_eps_start: float = 1.0
    policy_eps_end: float = 0.01
    policy_eps_decay_steps: int = 1_000_000
    sync_target_interval: int = means("target_updates", 1000)

    def implied(self) -> dict[str, Any]:
        """Epsilon as a schedule, whose fractions are of the run; one that is longer ends on its
        way."""
        start, end = self.policy_eps_start, self.policy_eps_end
        if self.train_steps < self.policy_eps_decay_steps:
            end = start + self.train_steps / self.policy_eps_decay_steps * (end - start)
        fraction = min(
            1.0, self.policy_eps_decay_steps / max(1, self.train_steps)
        )  # that is refused, but not here
        return {"reduction": "sum", "epsilon": f"{start!r}:{end!r}:{fraction!r}"}


@dataclass(frozen=True)
class Evaluating(Shared):
    """Arguments of evaluators; defaults as documented."""

    feature_maker: Callable[[Any], Any] | None = (
        None  # with model_maker, only for a checkpoint of such a network
    )
    model_maker: Callable[[Any], Any] | None = None
    render_timestep: float | None = None  # seconds between two calls of env.render()
    render_end: bool = False
    num_episodes: int = 20
    policy_type: Literal["stochastic", "greedy"] = "stochastic"
    policy_eps: float = 0.0  # of random actions, where it is greedy
    seed: int = 0


TRAINING: dict[str, type[Training]] = {
    "a3c": A3CTraining,
    "acer": ACERTraining,
    "impala": IMPALATraining,
    "dqn": DQNTraining,
}


def make_trainer(algorithm: str, **arguments: Any) -> Trainer:
    """A trainer; `run()` trains. algorithm: "a3c", "acer", "impala", "dqn" (multi-step Q-learning),
    or any other of ours.

    Raises UnknownNameError for an algorithm or an argument that there is not, SettingError for
    values that do not fit.
    """
    return Trainer(algorithm, arguments)


def make_evaluator(algorithm: str, **arguments: Any) -> Evaluator:
    """An evaluator; `run()` plays, and returns what it measured. algorithm: "ac" (for a3c and
    impala), "acer", "dqn", or any other of ours."""
    return Evaluator(algorithm, arguments)


class Trainer:
    """What make_trainer returns."""

    def __init__(self, algorithm: str, given: dict[str, Any]) -> None:
        self.name = str(algorithm).lower()
        self.algorithm = DOCUMENTED.get(self.name, self.name)
        known = [*TRAINING, *algorithms.NAMES]
        if self.name not in known:
            raise UnknownNameError("algorithm", algorithm, known)
        kind = TRAINING.get(self.name, Training)
        own = (
            set()
            if self.name in TRAINING
            else {f.name for f in fields(algorithms.get(self.algorithm).Settings)}
        )
        own |= {f.name for f in fields(Options)} | set(OURS)
        self.arguments = checked(
            kind, f"make_trainer({algorithm!r})", given, own - {f.name for f in fields(kind)}
        )
        self.given = given

    def run(self) -> trainer.Result:
        """Trains, and returns the agent, its folder (None without save_dir) and its evaluation."""
        a, settings = self.arguments, self.settings()
        env, network, extra = self._environment(), self._network(), {}
        if a.save_dir is not None:
            extra = {
                "out": numbered(Path(a.save_dir), environment_name(env())),
                "save_every": a.save_interval,
            }
        given = (
            {"eval_episodes": 0, "plots": False}
            | self._learners()
            | extra
            | {n: self.given[n] for n in OURS if n in self.given}
            | settings
        )
        run = trainer.session(
            self.algorithm,
            env,
            network=network,
            callbacks=[Progress(0)] if a.verbose else [],
            **given,
        )
        run.catch_signals = a.catch_signal
        if a.load_model is not None and not str(a.load_model).endswith(own_networks.KERAS_FILES):
            saved = checkpoint.read(checkpoint.find(Path(a.load_model), "best"))
            run.begin_with(
                {r: plans.select(saved.group("networks"), r) for r in run.kind.acting}, saved.path
            )
        return trainer.complete(run)

    def settings(self) -> dict[str, Any]:
        """The arguments as settings of the algorithm."""
        documented, found, odd = self.name in TRAINING, dict[str, Any](), []
        own = {f.name for f in fields(algorithms.get(self.algorithm).Settings)}
        meant = {
            f.name: f.metadata["means"] for f in fields(self.arguments) if "means" in f.metadata
        }
        for name in meant if documented else [n for n in self.given if n in meant and n not in own]:
            value = getattr(self.arguments, name)
            if documented and name in ENTRIES:
                value = {**ENTRIES[name], **(value or {})}
            made = meant[name](value) if callable(meant[name]) else {meant[name]: value}
            odd += [] if made.keys() <= own else [name]
            found |= made
        if odd:
            raise SettingError(
                f"{self.name} has nothing that {', '.join(odd)} could set.",
                "the arguments that it shares with a3c and dqn, and its own settings by name",
                f"see `tandem train {self.algorithm} --help`.",
            )
        rest = {n: v for n, v in self.given.items() if n in own and not (documented and n in meant)}
        options = {n: v for n, v in self.given.items() if n in {f.name for f in fields(Options)}}
        return found | (self.arguments.implied() if documented else {}) | rest | options

    def _learners(self) -> dict[str, Any]:
        """As many actor-learners as were asked for, or as there are cores."""
        number = self.arguments.num_parallel
        if number is None:
            return (
                {"learners": "auto"}
                if self.name in TRAINING and not self.given.get("workers")
                else {}
            )
        return {"learners": number}

    def _environment(self) -> Callable[[], Any]:
        return _environment(self.arguments)

    def _network(self) -> Any:
        return _network(self.arguments, self.algorithm)


class Evaluator:
    """What make_evaluator returns."""

    def __init__(self, algorithm: str, given: dict[str, Any]) -> None:
        self.name = str(algorithm).lower()
        self.algorithm = {"ac": "a3c", **DOCUMENTED}.get(self.name, self.name)
        known = ["ac", *DOCUMENTED, *algorithms.NAMES]
        if self.name not in known:
            raise UnknownNameError("algorithm", algorithm, known)
        self.arguments = a = checked(Evaluating, f"make_evaluator({algorithm!r})", given, set())
        for name, fits, wanted in (
            ("num_episodes", a.num_episodes >= 1, "at least 1"),
            ("policy_type", a.policy_type in ("stochastic", "greedy"), "'stochastic' or 'greedy'"),
            ("policy_eps", 0 <= a.policy_eps <= 1, "a number from 0 to 1"),
            ("render_timestep", (a.render_timestep or 0) >= 0, "seconds from 0 on, or None"),
            ("seed", a.seed >= 0, "a whole number from 0 on"),
        ):
            if not fits:
                raise SettingError(
                    f"{name}={getattr(a, name)!r}.",
                    wanted,
                    "leave it out, or give a value of that kind.",
                )
        if self.arguments.load_model is None:
            raise SettingError(
                "load_model was not given.",
                "what to evaluate",
                "load_model='runs/…' or a .keras file.",
            )

    def run(self) -> Evaluation:
        """Plays num_episodes episodes one after the other."""
        a = self.arguments
        (env,) = with_masks([_environment(a)()])
        rng = np.random.default_rng(a.seed)
        agent = self.agent(env)
        agent.seed(a.seed)
        returns: list[float] = []
        lengths: list[int] = []
        try:
            for episode in range(a.num_episodes):
                score, length = self._play(env, agent, rng, int(rng.integers(2**31)))
                returns.append(score)
                lengths.append(length)
                if a.verbose:
                    print(f"episode {episode + 1}: {score:g}", flush=True)
        finally:
            env.close()
        found = Evaluation.of(returns, lengths)
        if a.verbose:
            print(f"mean of {a.num_episodes} episodes: {found.mean:g}", flush=True)
        return found

    def agent(self, env: Any) -> Agent:
        """The agent to evaluate: of a checkpoint, or around a Keras model."""
        a, path = self.arguments, str(self.arguments.load_model)
        if not path.endswith(own_networks.KERAS_FILES):
            found = trainer.load(path, network=_network(a, self.algorithm), env=lambda: env)
            asked = algorithms.get(self.algorithm).of(found.action)
            if (asked.acting, asked.valued) != (found.algorithm.acting, found.algorithm.valued):
                there = found.algorithm.__name__.lower()
                raise SettingError(
                    f"make_evaluator({self.name!r}) with load_model={path!r}, which {there} "
                    "trained.",
                    f"what {self.name} trained",
                    f"use make_evaluator({there!r}), or give another path.",
                )
            return found
        observation = spaces.observation_spec(env.observation_space)
        action = spaces.action_leaf(env.action_space, observation)
        kind = algorithms.get(self.algorithm).of(action)
        kind.check(observation, action)
        (role,) = kind.acting
        network = own_networks.forward(
            own_networks.whole(own_networks.read(path, a.load_model_custom))
        )
        return Agent(
            kind, kind.Settings(), observation, action, {role: network}, f"{self.name} {path}"
        )

    def _play(
        self, env: Any, agent: Agent, rng: np.random.Generator, seed: int
    ) -> tuple[float, int]:
        a, score, length, over = self.arguments, 0.0, 0, False
        obs, _ = env.reset(seed=seed)
        while not over:
            if a.render_timestep is not None:
                env.render()
                time.sleep(a.render_timestep)
            obs, reward, terminated, truncated, _ = env.step(self._action(agent, obs, rng))
            score, length, over = score + float(reward), length + 1, terminated or truncated
        if a.render_end:
            env.render()
        return score, length

    def _action(self, agent: Agent, obs: Any, rng: np.random.Generator) -> Any:
        a, action = self.arguments, agent.action
        if a.policy_type == "greedy" and action.kind == "box":
            raise SettingError(
                "policy_type='greedy' for continuous actions.",
                "'stochastic'",
                "leave policy_type out.",
            )
        rows = tree_map(lambda x: np.asarray(x)[None], obs)
        if a.policy_type == "greedy" and rng.random() < a.policy_eps:
            return action.start + evenly(rng.random((1, action.width)), rows, action)[0]
        if a.policy_type == "stochastic" and agent.algorithm.valued:  # a softmax of the values
            (network,), choice = agent.networks.values(), Categorical(action.sizes[0])
            return (
                action.start
                + choice.sample(masked(network(rows), rows, action), choice.noise(rng, (1,)))[0]
            )
        return agent.act(obs, deterministic=a.policy_type == "greedy")


def numbered(folder: Path, env: str) -> Path:
    """folder/<env>-run<k>, where k is one more than the largest there is."""
    name = env.replace("/", "-").replace(":", "-")
    found = [
        re.fullmatch(rf"{re.escape(name)}-run(\d+)", p.name) for p in folder.glob(f"{name}-run*")
    ]
    return folder / f"{name}-run{max((int(m[1]) for m in found if m), default=0) + 1}"


def _environment(a: Shared) -> Callable[[], Any]:
    """A maker of environments whose observations are what the network takes."""
    if a.env_maker is None:
        raise SettingError(
            "env_maker was not given.",
            "a function that makes an environment",
            "env_maker=lambda: …",
        )
    maker, convert = a.env_maker, a.state_to_input
    if convert is None:
        return lambda: make(maker)
    import gymnasium

    first = make(maker)
    shown = np.asarray(convert(first.reset(seed=0)[0]))
    first.close()
    dtype = shown.dtype if shown.dtype == np.uint8 else np.dtype(np.float32)
    low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
    space = gymnasium.spaces.Box(low, high, shown.shape, dtype.type)

    def converted() -> Any:
        return gymnasium.wrappers.TransformObservation(
            make(maker), lambda x: np.asarray(convert(x), dtype), space
        )

    return converted


def _network(a: Any, algorithm: str) -> Any:
    """`network=`, of what was given: a file's model, model_maker, feature_maker; None for the
    default network."""
    path = str(a.load_model or "")
    env_maker = a.env_maker
    if path.endswith(own_networks.KERAS_FILES):
        return {"net": lambda _: own_networks.whole(own_networks.read(path, a.load_model_custom))}
    if a.model_maker is not None:
        roles = algorithms.get(algorithm).acting
        return {
            role: lambda _: own_networks.whole(a.model_maker(_with_plain_numbers(make(env_maker))))
            for role in roles
        }
    if a.feature_maker is None:
        return None
    space = spaces_of(env_maker)[0]
    return lambda _: own_networks.body(a.feature_maker(space))


def _with_plain_numbers(env: Any) -> Any:
    """The environment, whose number of actions is Python's: Keras 3 builds no layer of np.int64
    units."""
    if hasattr(env.action_space, "n"):
        env.action_space.n = int(env.action_space.n)
    return env
