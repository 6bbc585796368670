"""`make_trainer` and `make_evaluator`: training and evaluation with the arguments that drlbox
documents.

    make_trainer("a3c", env_maker=lambda: gymnasium.make("CartPole-v1"),
                 feature_maker=my_feature).run()

a3c, acer, impala and dqn have all documented arguments with their documented defaults. Their losses
are summed over a batch, as the default learning rate and gradient norm assume. Other algorithms
accept the arguments that they share with these, with their own defaults, and any of their settings
by name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from tandem import algorithms, spaces, trainer
from tandem.algorithms.own import name_of
from tandem.drlbox import own_networks
from tandem.drlbox.arguments import (
    DOCUMENTED,
    ENTRIES,
    TRAINERS,
    Arguments,
    EvaluatorArguments,
    SharedArguments,
    TrainerArguments,
    checked,
    documented,
)
from tandem.envs.action_masks import with_masks
from tandem.envs.episode_budget import EpisodeBudget, default_budget
from tandem.envs.factory import environment_name, make, spaces_of
from tandem.envs.opening import opening, reset
from tandem.errors import SettingError, UnknownNameError, at_least, one_of
from tandem.learning.collect.trained_agent import Agent
from tandem.learning.config import OF_OPTIMIZERS, Options
from tandem.learning.events import Evaluation
from tandem.learning.figures import figures
from tandem.learning.parallel import choice
from tandem.math.masks import evenly, masked
from tandem.runs.notebook import progress as live_progress
from tandem.settings import apply, hints_of, idle
from tandem.streams import say
from tandem.types import Array, Tree, tree_map

OPTIONS = {f.name for f in fields(Options)}
OURS = {"seed", "framework"}  # arguments of `tandem.train` that trainers accept, too


def make_trainer(algorithm: str, **arguments: Any) -> Trainer:
    """Return a trainer, whose `run()` trains.

    Args:
        algorithm: "a3c", "acer", "impala", "dqn" (multi-step Q-learning), or any other algorithm of
            tandem.
        **arguments: drlbox's arguments.

    Raises:
        UnknownNameError: for an unknown algorithm or argument.
        SettingError: for invalid values.
    """
    return Trainer(algorithm, arguments)


def make_evaluator(algorithm: str, **arguments: Any) -> Evaluator:
    """Return an evaluator, whose `run()` plays and returns an Evaluation. algorithm: "ac" (for a3c
    and impala), "acer", "dqn", or any other algorithm of tandem."""
    return Evaluator(algorithm, arguments)


class Trainer:
    """Trainer, as returned by make_trainer."""

    def __init__(self, algorithm: str, arguments: Arguments) -> None:
        self.name = _as_known(algorithm)
        self.documented = self.name in TRAINERS
        if not self.documented and self.name not in algorithms.names():
            raise UnknownNameError("algorithm", algorithm, [*TRAINERS, *algorithms.names()])
        self.algorithm = DOCUMENTED.get(self.name, self.name)
        self.names = {f.name for f in fields(algorithms.get(self.algorithm).Settings)}
        more = OPTIONS | OURS | (set() if self.documented else self.names)
        kind = TRAINERS.get(self.name, TrainerArguments)
        self.arguments = checked(kind, f"make_trainer({algorithm!r})", arguments, more)
        self.given = arguments  # arguments not left to their defaults

    def run(self) -> trainer.Result:
        """Train, and return the agent, its folder (None without save_dir) and its evaluation."""
        a, settings = self.arguments, self.settings()
        env_maker = _env_maker(a)
        network = _network(a, self.algorithm)
        options: Arguments = {"eval_episodes": 0, "plots": False}
        if a.num_parallel is not None or self.documented:
            options["learners"] = self.processes()
        if a.save_dir is not None:
            with closing(make(env_maker)) as env:
                options["out"] = numbered(Path(a.save_dir), environment_name(env))
            options["save_every"] = a.save_interval
        if a.load_model is not None and not str(a.load_model).endswith(own_networks.KERAS_FILES):
            options["start_from"] = a.load_model
        options |= {n: value for n, value in self.given.items() if n in OURS}
        try:
            run = trainer.session(
                self.algorithm,
                env_maker,
                network=network,
                callbacks=[live_progress()] if a.verbose else [],
                catch_signals=a.catch_signal,
                **(options | self._without_idle(settings)),
            )
        except SettingError as error:
            if not self.documented:
                raise
            raise documented(type(a), error) from error
        return trainer.complete(run)

    def _without_idle(self, settings: Arguments) -> Arguments:
        """Return the settings without documented defaults that the user did not give and that have
        no effect."""
        given = set[str]()
        for f in fields(self.arguments):
            if f.name in self.given and (setting := f.metadata.get("becomes", f.name)):
                value = self.given[f.name]
                given |= set(setting(value)) if callable(setting) else {setting}
        kind = algorithms.get(self.algorithm).Settings
        own, left = {n: x for n, x in settings.items() if n in hints_of(kind)}, set[str]()
        if not isinstance(own.get("optimizer", ""), str):  # an optimizer object
            del own["optimizer"]
            left |= set(OF_OPTIMIZERS)
        left |= idle(apply(kind(), own)).keys()
        left -= given | set(self.given)
        return {n: x for n, x in settings.items() if n not in left}

    def processes(self) -> int:
        """Return the number of processes that learn."""
        if self.arguments.num_parallel is not None:
            return self.arguments.num_parallel
        asked = self.given.get("learners", "auto")
        if not self.documented or self.given.get("workers"):
            asked = self.given.get("learners", 1)
        return choice.cores() if asked == "auto" else asked

    def settings(self) -> Arguments:
        """Return the arguments as settings of the algorithm and options of the run, by name.

        Raises:
            SettingError: for an argument without a corresponding setting.
        """
        becomes = {
            f.name: f.metadata["becomes"] for f in fields(self.arguments) if "becomes" in f.metadata
        }
        # a documented algorithm has the documented defaults; another keeps its own, and a setting
        # of the same name takes precedence
        translated = list(becomes)
        if not self.documented:
            translated = [n for n in self.given if n in becomes and n not in self.names]
        settings: Arguments = {}
        unfit: list[str] = []
        for name in translated:
            value, setting = getattr(self.arguments, name), becomes[name]
            if self.documented and name in ENTRIES:
                value = ENTRIES[name] | (value or {})
            part = setting(value) if callable(setting) else {setting: value}
            if not part.keys() <= self.names:
                unfit.append(name)
            settings |= part
        if unfit:
            raise SettingError(
                f"{self.name} does not support {', '.join(unfit)}.",
                "the arguments that it shares with a3c and dqn, and its own settings",
                f"leave {', '.join(unfit)} out; `tandem train {self.algorithm} --help settings` "
                "lists its settings.",
            )
        if self.documented:
            settings |= self.arguments.implied(self.processes())
        own = self.names - set(translated) | OPTIONS
        return settings | {name: value for name, value in self.given.items() if name in own}


class Evaluator:
    """Evaluator, as returned by make_evaluator."""

    def __init__(self, algorithm: str, arguments: Arguments) -> None:
        self.name = _as_known(algorithm)
        self.algorithm = {"ac": "a3c", **DOCUMENTED}.get(self.name, self.name)
        known = ["ac", *DOCUMENTED, *algorithms.names()]
        if self.name not in known:
            raise UnknownNameError("algorithm", algorithm, known)
        self.arguments = a = checked(
            EvaluatorArguments, f"make_evaluator({algorithm!r})", arguments
        )
        at_least("num_episodes", a.num_episodes, 1)
        at_least("render_timestep", a.render_timestep or 0, 0)
        at_least("seed", a.seed, 0)
        at_least("max_steps", a.max_steps, 0)
        one_of("policy_type", a.policy_type, ("stochastic", "greedy"))
        if not 0 <= a.policy_eps <= 1:
            raise SettingError(
                f"policy_eps={a.policy_eps!r}.",
                "a number from 0 to 1",
                "leave it out, or give policy_eps=0.05.",
            )
        if a.load_model is None:
            raise SettingError(
                "load_model was not given.",
                "a model to evaluate",
                "give load_model='runs/…' (a run folder) or a .keras file.",
            )

    def run(self) -> Evaluation:
        """Play num_episodes episodes one after the other, and return their Evaluation."""
        a = self.arguments
        with opening(int(np.random.default_rng(a.seed).integers(2**31))):
            (made,) = with_masks([_env_maker(a)()])
        env = EpisodeBudget(made, a.max_steps or default_budget(made))
        rng = np.random.default_rng(a.seed)
        agent = self.agent(env)
        agent.seed(a.seed)
        returns: list[float] = []
        lengths: list[int] = []
        cut = 0
        with closing(env):
            for episode in range(a.num_episodes):
                score, length = self._play(env, agent, rng, int(rng.integers(2**31)))
                returns.append(score)
                lengths.append(length)
                cut += env.cut
                if a.verbose:
                    ended = f", cut at {length:,} steps (max_steps)" if env.cut else ""
                    say(f"episode {episode + 1}: {figures(score)}{ended}")
        evaluation = Evaluation.of(returns, lengths, cut=cut)
        if a.verbose:
            say(f"mean of {a.num_episodes} episodes: {figures(evaluation.mean)}")
        return evaluation

    def agent(self, env: gymnasium.Env) -> Agent:
        """Return the agent to evaluate, from a checkpoint or a Keras model."""
        a, path = self.arguments, str(self.arguments.load_model)
        if not path.endswith(own_networks.KERAS_FILES):
            agent = trainer.load(path, network=_network(a, self.algorithm), env=lambda: env)
            asked, trained = algorithms.get(self.algorithm, agent.action), agent.algorithm
            if (asked.acting, asked.valued) != (trained.acting, trained.valued):
                name = name_of(trained)
                raise SettingError(
                    f"make_evaluator({self.name!r}) was given load_model={path!r}, which {name} "
                    "trained.",
                    f"a model trained by {self.name}",
                    f"use make_evaluator({name!r}), or give another path.",
                )
            return agent
        observation = spaces.observation_spec(env.observation_space)
        action = spaces.action_leaf(env.action_space, observation)
        kind = algorithms.get(self.algorithm, action)
        kind.check(observation, action, kind.Settings())
        (role,) = kind.acting
        network = own_networks.forward(own_networks.read_whole(path, a.load_model_custom))
        return Agent(
            kind, kind.Settings(), observation, action, {role: network}, f"{self.name} {path}"
        )

    def _play(
        self, env: gymnasium.Env, agent: Agent, rng: np.random.Generator, seed: int
    ) -> tuple[float, int]:
        """Return the undiscounted return of one episode and its length."""
        a, score, length, over = self.arguments, 0.0, 0, False
        obs, _ = reset(env, seed=seed)
        while not over:
            if a.render_timestep is not None:
                env.render()
                time.sleep(a.render_timestep)
            obs, reward, terminated, truncated, _ = env.step(self._action(agent, obs, rng))
            score += np.asarray(reward).item()
            length, over = length + 1, terminated or truncated
        if a.render_end:
            env.render()
        return score, length

    def _action(self, agent: Agent, obs: Tree, rng: np.random.Generator) -> Array:
        """Return the action for one observation, according to policy_type and policy_eps."""
        a, action = self.arguments, agent.action
        greedy = a.policy_type == "greedy"
        if greedy and action.kind == "box":
            raise SettingError(
                "policy_type='greedy' is not supported for continuous actions.",
                "'stochastic'",
                "leave policy_type out.",
            )
        rows = tree_map(lambda x: np.asarray(x)[None], obs)
        if greedy and rng.random() < a.policy_eps:
            return action.start + evenly(rng.random((1, action.width)), rows, action)[0]
        if not greedy and agent.algorithm.valued:  # sample from a softmax of the values
            (network,) = agent.networks.values()
            values: Any = agent.algorithm.distribution(agent.settings, action)
            out = masked(values.of(network, rows), rows, action)
            return action.start + values.sample(out, values.noise(rng, (1,)))[0]
        return agent.act(obs, deterministic=greedy)


def _as_known(algorithm: Any) -> str:
    """Return the name of an algorithm, in lower case unless a registered name has capitals."""
    name = str(algorithm)
    return name if name in algorithms.names() else name.lower()


def numbered(folder: Path, env: str) -> Path:
    """Return folder/<env>-run<k>, where k is one more than the largest existing number."""
    name = env.replace("/", "-").replace(":", "-")
    matches = [
        re.fullmatch(rf"{re.escape(name)}-run(\d+)", p.name) for p in folder.glob(f"{name}-run*")
    ]
    return folder / f"{name}-run{max((int(m[1]) for m in matches if m), default=0) + 1}"


class _Converted(gymnasium.wrappers.TransformObservation):  # type: ignore[misc]
    """TransformObservation that passes no `options` to `reset`, as some environments do not accept
    them."""

    def reset(self, **kwargs: Any) -> Any:
        obs, info = self.env.reset(**kwargs)
        return self.observation(obs), info


def _env_maker(a: SharedArguments) -> Callable[[], gymnasium.Env]:
    """Return a function that creates environments whose observations are inputs of the network."""
    if a.env_maker is None:
        raise SettingError(
            "env_maker was not given.",
            "a function that makes an environment",
            "give env_maker=lambda: gymnasium.make('CartPole-v1'), for example.",
        )
    maker, convert = a.env_maker, a.state_to_input
    if convert is None:
        return lambda: make(maker)
    with closing(make(maker)) as env:
        example = np.asarray(convert(reset(env, seed=0)[0]))
    dtype = example.dtype if example.dtype == np.uint8 else np.dtype(np.float32)
    low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
    space = gymnasium.spaces.Box(low, high, example.shape, dtype.type)
    # uint8 is not cast: values that do not fit raise an error when environments are stepped
    cast = None if dtype == np.uint8 else dtype
    return lambda: _Converted(make(maker), lambda x: np.asarray(convert(x), cast), space)


def _network(a: SharedArguments, algorithm: str) -> Any:
    """Return the `network` argument of a run: the model from a file, from model_maker or
    feature_maker, or None for the default network."""
    path, env_maker = str(a.load_model or ""), a.env_maker
    model_maker, feature_maker = a.model_maker, a.feature_maker
    if path.endswith(own_networks.KERAS_FILES):
        return {"net": lambda _: own_networks.read_whole(path, a.load_model_custom)}
    if model_maker is not None:

        def model(_: object) -> Any:
            with closing(make(env_maker)) as env:
                return own_networks.whole(model_maker(_with_plain_numbers(env)))

        return dict.fromkeys(algorithms.get(algorithm).acting, model)
    if feature_maker is None:
        return None
    space = spaces_of(env_maker)[0]
    return lambda _: own_networks.body(feature_maker(space))


def _with_plain_numbers(env: gymnasium.Env) -> gymnasium.Env:
    """Return the environment with its number of actions as a Python int, since Keras 3 builds no
    layer with np.int64 units."""
    if hasattr(env.action_space, "n"):
        env.action_space.n = int(env.action_space.n)
    return env
