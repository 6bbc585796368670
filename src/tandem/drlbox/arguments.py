"""Documented arguments of `make_trainer` and `make_evaluator`: their defaults, the tandem settings
that they translate to, and the checks of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from tandem.errors import SettingError, UnknownNameError

Arguments = dict[str, Any]  # by name
Maker = Callable[[Any], Any]
A = TypeVar("A")

# Algorithms with documented arguments: documented name -> tandem's name.
DOCUMENTED = {"a3c": "a3c", "acer": "acer", "impala": "impala", "dqn": "nstep_q"}
NOISE = {None: "no", "ig": "independent", "fg": "factorised"}
REPLAY = {
    "maxlen": "replay_size",
    "minlen": "replay_starts",
    "alpha": "priority_alpha",
    "beta": "priority_beta",
    "evict_rule": "evict",
}
OPTIMIZER = {"learning_rate": "learning_rate", "epsilon": "adam_epsilon"}
# The documented algorithms' defaults for missing entries of a dict.
ENTRIES: dict[str, Arguments] = {
    "replay_kwargs": {"maxlen": 1000, "minlen": 100},
    "opt_kwargs": {"learning_rate": 1e-4, "epsilon": 1e-4},
}
PATHS = "load_model", "save_dir"
# Types of arguments other than numbers and booleans, except None, and their descriptions.
KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("feature_maker", "model_maker", "state_to_input"), (Callable, "a function")),
    **dict.fromkeys(("replay_kwargs", "opt_kwargs", "load_model_custom"), (dict, "a dict")),
    **dict.fromkeys(PATHS, ((str, Path), "a path")),
    "render_timestep": ((int, float), "a number of seconds"),
}
WORDS = {"bool": "True or False", "int": "a whole number", "float": "a number"}


def becomes(setting: str | Callable[[Any], Arguments], default: Any) -> Any:
    """Return the dataclass field of a documented argument, with its default, and the setting that
    it translates to or a function from its value to settings by name."""
    return field(default=default, metadata={"becomes": setting})


def _renamed(argument: str, names: Mapping[str, str]) -> Callable[[Arguments | None], Arguments]:
    """Return a function that translates a dict of documented entries to settings. It raises
    UnknownNameError for an entry that is not in `names`."""

    def settings(entries: Arguments | None) -> Arguments:
        for name in entries or {}:
            if name not in names:
                raise UnknownNameError(f"entry of {argument}", name, names)
        return {names[name]: value for name, value in (entries or {}).items()}

    return settings


def _replay(kind: str | None) -> Arguments:
    return {"replay": kind or "none"}


@dataclass(frozen=True)
class SharedArguments:
    """Arguments that trainers and evaluators share."""

    env_maker: Callable[[], Any] | None = None  # creates a Gymnasium environment
    state_to_input: Maker | None = None  # converts an observation to the network's input
    load_model: str | Path | None = None  # a run's folder or checkpoint, or a .keras or .h5 file
    load_model_custom: Arguments | None = None  # custom classes in that file
    verbose: bool = False  # print progress
    # observation space -> (Input, feature) or (Input, (feature, feature)). Evaluators need it, or
    # model_maker, only for a checkpoint of such a network.
    feature_maker: Maker | None = None
    model_maker: Maker | None = None  # environment -> full model; overrides feature_maker


@dataclass(frozen=True)
class TrainerArguments(SharedArguments):
    """Arguments that all trainers share, with the documented defaults."""

    # actor-learners; None: one per core if the algorithm supports them
    num_parallel: int | None = None
    port_begin: int = 2220  # ignored: no port is opened
    discount: float = becomes("gamma", 0.99)
    train_steps: int = becomes("steps", 1_000_000)
    rollout_maxlen: int = becomes("rollout", 32)
    batch_size: int = becomes("envs", 1)
    online_learning: bool = becomes("online", True)
    replay_type: str | None = becomes(_replay, None)
    replay_ratio: float = becomes("replay_ratio", 4)
    replay_kwargs: Arguments | None = becomes(_renamed("replay_kwargs", REPLAY), None)
    replay_priority_type: str = becomes("priority", "differential")
    optimizer: Any = becomes("optimizer", "adam")  # or an optimizer object of the framework
    opt_clip_norm: float = becomes("max_grad_norm", 40.0)
    opt_kwargs: Arguments | None = becomes(_renamed("opt_kwargs", OPTIMIZER), None)
    noisynet: Literal["ig", "fg"] | None = becomes(lambda kind: {"noisy": NOISE[kind]}, None)
    save_dir: str | Path | None = None
    save_interval: int = 10_000
    catch_signal: bool = False

    def implied(self, processes: int) -> Arguments:
        """Return settings that no single argument sets."""
        return {"reduction": "sum"}


@dataclass(frozen=True)
class A3CArguments(TrainerArguments):
    a3c_entropy_weight: float = becomes("entropy", 1e-2)

    def implied(self, processes: int) -> Arguments:
        return {"reduction": "sum", "value_weight": 1.0}


@dataclass(frozen=True)
class ACERArguments(A3CArguments):
    replay_type: str | None = becomes(_replay, "uniform")
    acer_kl_weight: float = becomes("kl", 1e-1)
    acer_trunc_max: float = becomes("truncation", 10.0)
    acer_soft_update_ratio: float = becomes("average_tau", 0.05)


@dataclass(frozen=True)
class IMPALAArguments(A3CArguments):
    replay_type: str | None = becomes(_replay, "uniform")
    impala_trunc_rho_max: float = becomes("rho", 1.0)
    impala_trunc_c_max: float = becomes("c", 1.0)


@dataclass(frozen=True)
class DQNArguments(TrainerArguments):
    dqn_double: bool = becomes("double", True)
    dqn_dueling: bool = becomes("dueling", False)
    policy_eps_start: float = 1.0
    policy_eps_end: float = 0.01
    policy_eps_decay_steps: int = 1_000_000
    sync_target_interval: int = becomes("target_updates", 1000)

    def implied(self, processes: int) -> Arguments:
        """Return epsilon as a schedule over a fraction of the run. policy_eps_decay_steps counts
        the steps of one process, train_steps those of all."""
        # max: train_steps=0 raises an error with the other settings
        fraction = self.policy_eps_decay_steps * processes / max(1, self.train_steps)
        epsilon = f"{self.policy_eps_start!r}:{self.policy_eps_end!r}:{fraction!r}"
        return {"reduction": "sum", "epsilon": epsilon}


@dataclass(frozen=True)
class EvaluatorArguments(SharedArguments):
    """Arguments of evaluators, with the documented defaults."""

    render_timestep: float | None = None  # seconds between calls of env.render()
    render_end: bool = False
    num_episodes: int = 20
    policy_type: Literal["stochastic", "greedy"] = "stochastic"
    policy_eps: float = 0.0  # probability of a random action if policy_type is greedy
    seed: int = 0
    # limit per episode; 0: twice the environment's limit, at least 5,000
    max_steps: int = 0


TRAINERS: dict[str, type[TrainerArguments]] = {
    "a3c": A3CArguments,
    "acer": ACERArguments,
    "impala": IMPALAArguments,
    "dqn": DQNArguments,
}


def documented(kind: type[TrainerArguments], error: SettingError) -> SettingError:
    """Return an error about settings that also names the arguments they come from, since a
    documented trainer accepts only these."""
    names = {
        "replay": "replay_type",
        "noisy": "noisynet",
        "epsilon": "policy_eps_start, policy_eps_end and policy_eps_decay_steps",
        **{setting: f"replay_kwargs[{entry!r}]" for entry, setting in REPLAY.items()},
        **{setting: f"opt_kwargs[{entry!r}]" for entry, setting in OPTIMIZER.items()},
    }
    for f in fields(kind):
        if isinstance(setting := f.metadata.get("becomes"), str):
            names[setting] = f.name
    said = re.findall(r"\b(\w+)=", str(error))
    here = [f"{s} is {names[s]}" for s in dict.fromkeys(said) if names.get(s, s) != s]
    if not here:
        return error
    fix = f"{error.fix.removesuffix('.')}; of make_trainer's arguments {', '.join(here)}."
    return type(error)(error.happened, error.expected, fix)


def checked(kind: type[A], where: str, arguments: Arguments, more: Set[str] = frozenset()) -> A:
    """Return the arguments as an instance of `kind`, without those in `more`, which are valid but
    no fields of it. Raises UnknownNameError for any other name, and SettingError for a value of the
    wrong type; their messages begin with `where`."""
    annotations = {f.name: str(f.type) for f in fields(kind)}  # type: ignore[arg-type]
    for name in arguments:
        if name not in annotations.keys() | more:
            raise UnknownNameError(f"argument of {where}", name, annotations.keys() | more)
    own = {name: value for name, value in arguments.items() if name in annotations}
    for name, value in own.items():
        if expected := _misfit(name, annotations[name], value):
            raise SettingError(
                f"{where}: {name}={value!r}.",
                expected,
                f"leave {name} out, or give {expected}.",
            )
    own |= {n: Path(own[n]).absolute() for n in PATHS if own.get(n) is not None}
    return kind(**own)


def _misfit(name: str, annotation: str, value: Any) -> str:
    """Return the expected value of an argument with the wrong type; "" if the value is valid."""
    if name == "noisynet":
        return "" if value in list(NOISE) else "None, 'ig' or 'fg'"
    if name in KINDS:
        types, expected = KINDS[name]
        return "" if value is None or isinstance(value, types) else expected
    fits = True
    if annotation == "bool":
        fits = isinstance(value, bool)
    elif annotation in ("int", "float"):
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = fits and (annotation == "float" or float(value).is_integer())
    return "" if fits else WORDS[annotation]
