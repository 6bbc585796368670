"""What a run was told: its settings, checked and completed, and the file that keeps them."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from numbers import Integral
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tandem import algorithms
from tandem.algorithms.base import Schedule, setting
from tandem.collect.atari import Preprocessing
from tandem.errors import RunFolderError, SettingError, TandemError, UnknownNameError
from tandem.training import files
from tandem.training.checkpoint import Checkpoint, damaged


@dataclass(frozen=True)
class Options(Preprocessing):
    """What a run does beside learning; and, first, what is done to an Atari game."""

    eval_every: int = setting(0, "environment steps between evaluations; 0: a twentieth of the run")
    eval_episodes: int = setting(10, "episodes of each evaluation, which choose the best checkpoint")
    final_episodes: int = setting(20, "episodes that score the best checkpoint at the end, on other seeds")
    log_every: int = setting(0, "environment steps between rows of progress.csv; 0: a hundredth of the run")
    checkpoint_seconds: float = setting(30.0, "seconds between checkpoints; stretched where writing would take over 5 %")
    keep: int = setting(3, "how many numbered checkpoints to keep, one an evaluation")
    save_every: int = setting(0, "environment steps between checkpoints that stay, a first and a last one too; 0: none")
    threads: int = setting(1, "threads of one operation of the framework")
    compile: Literal["auto", "yes", "no"] = setting("auto", "torch only: compile gradients; auto: where the run is long enough")
    workers: int | Literal["auto"] = setting(0, "processes that step environments beside this one; 0: none; auto: by a trial")
    ahead: int = setting(-1, "blocks that workers collect while earlier ones are learned from; 0: none; -1: 1 if off-policy")
    learners: int | Literal["auto"] = setting(
        1, "processes that each collect and take gradients, for a3c, acer, impala, nstep_q; 1: this one; auto: as many as cores"
    )
    staleness: int = setting(-1, "most updates that a learner's gradient may be behind; -1: four times as many as learners")
    opponents: int = setting(
        0, "past copies of itself that it plays against, in games of two players who move in turn; 0: a random player alone"
    )
    snapshot_every: int = setting(0, "environment steps between such copies; 0: a hundredth of the run")
    runners: int = setting(0, "actors on a Ray cluster that step environments, while this process learns; 0: none")
    cluster: str = setting(
        "", "where runners and learners live: HOST:PORT of a Ray cluster, or auto: one that runs here, else a new one"
    )
    runner_cpus: float = setting(1.0, "CPUs of the cluster that each runner or learner is given")
    worker_patience: float = setting(60.0, "seconds that a worker may take for a block before it counts as stuck")
    worker_restarts: int = setting(3, "how many lost workers are started anew in a run, before it ends with an error")
    tensorboard: bool = setting(True, "write TensorBoard events")
    wandb: str = setting("", "name of a Weights & Biases project to log to")
    plots: bool = setting(True, "draw curve.png and an animation at the end")


@dataclass(frozen=True)
class Config:
    """Everything that a run is made of, apart from code: config.json."""

    algorithm: str
    env: str
    framework: str
    device: str
    seed: int
    settings: Any  # the algorithm's Settings
    options: Options
    source: str = ""  # where the settings come from
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    own_network: bool = False  # made by the user's code, which resuming and loading need again
    own_env: bool = False
    own_optimizer: bool = False
    extended_from: int = 0  # the length that the run began with, where it was extended

    def to_json(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        return data | {"settings": plain(self.settings), "options": asdict(self.options)}


def plain(settings: Any) -> dict[str, Any]:
    """Settings as JSON data."""
    return {f.name: str(v) if isinstance(v := getattr(settings, f.name), Schedule) else v for f in fields(settings)}


def from_json(data: dict[str, Any], kind: type) -> Config:
    """The Config that `to_json` wrote; `kind` is the algorithm's Settings. TypeError or ValueError for other data."""
    hints = get_type_hints(Config)
    rest = {k: v for k, v in data.items() if k in hints and k not in ("settings", "options")}
    for name, value in rest.items():
        if not isinstance(value, get_origin(hints[name]) or hints[name]):
            raise TypeError(f"{name}={value!r}")
    if rest["seed"] < 0:
        raise ValueError(f"seed={rest['seed']}")
    return Config(**rest, settings=apply(kind(), data["settings"]), options=apply(Options(), data["options"]))


def of(saved: Checkpoint) -> Config:
    """The Config that a checkpoint was written with. CheckpointError where it holds none."""
    try:
        return from_json(saved.data["config"], algorithms.get(saved.data["config"]["algorithm"]).Settings)
    except TandemError:
        raise
    except Exception as error:  # whatever data that tandem did not write comes to
        raise damaged(saved.path, error) from error


def read(folder: Path) -> dict[str, Any]:
    """What config.json says, or nothing where it cannot be read: the checkpoint says the same."""
    try:
        data = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def save(config: Config, folder: Path) -> None:
    """Writes config.json. RunFolderError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", config.to_json())
    except OSError as error:
        raise RunFolderError(
            f"cannot write {folder}: {error}.", "a folder that can be written", "choose another with --out."
        ) from error


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Writes data for people and programs to read, at once or not at all."""
    with files.replacing(path) as file:
        file.write((json.dumps(data, indent=2) + "\n").encode())


def apply(settings: Any, given: dict[str, Any]) -> Any:
    """`settings` with what is given, checked and converted field by field.

    Raises UnknownNameError for a name that is no setting, SettingError for a value of the wrong type.
    """
    hints, names = get_type_hints(type(settings)), [f.name for f in fields(settings)]
    for name in given:
        if name not in names:
            raise UnknownNameError("setting", name, names)
    return replace(settings, **{n: convert(n, v, hints[n]) for n, v in given.items()})


def convert(name: str, value: Any, hint: Any) -> Any:
    """A value for a setting of type `hint`, from what a program or a command line gave."""
    try:
        return _converted(value, hint)
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingError(
            f"setting {name}={value!r} (a {type(value).__name__}).", describe_type(hint), "give a value of that kind."
        ) from error


def whole(name: str, value: Any, least: int = 0) -> int:
    """A whole number that is not below `least`. SettingError for anything else."""
    number: int = convert(name, value, int)
    if number < least:
        raise SettingError(f"setting {name}={value}.", f"at least {least}", "give a number that is not smaller.")
    return number


def path(name: str, value: Any) -> Path:
    """A path, from text or a Path. SettingError for anything else."""
    if not value or not isinstance(value, (str, os.PathLike)):
        raise SettingError(f"{name}={value!r} (a {type(value).__name__}).", "a path, as text or a pathlib.Path", "give one.")
    return Path(value)


def _converted(value: Any, hint: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in inner:
            raise ValueError(value)
        return value
    if origin in (Union, UnionType):
        for choice in inner:
            try:
                return _converted(value, choice)
            except (TypeError, ValueError):
                continue
        raise ValueError(value)
    if hint is Schedule:
        return Schedule.parse(value)
    if origin is tuple:
        parts = value.replace(",", " ").split() if isinstance(value, str) else value
        return tuple(_converted(p, inner[0]) for p in ([parts] if isinstance(parts, int) else parts))
    if hint is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        if not isinstance(value, bool):
            raise TypeError(value)
        return value
    if isinstance(value, bool):
        raise TypeError(value)
    if hint is int:
        if isinstance(value, Integral):  # NumPy's too; all their digits, of which a float would lose some
            return int(value)
        number = float(value)
        if number != int(number):
            raise ValueError(value)
        return int(number)
    if hint is float and not math.isfinite(float(value)):
        raise ValueError(value)
    if hint is str and not isinstance(value, str):
        raise TypeError(value)
    return hint(value)


def check_kept(settings: Any, options: Options, folder: Any) -> None:
    """SettingError where a run without a folder is to write into one."""
    if folder is None and (said := [n for n in ("memmap", "wandb") if getattr(settings, n, False) or getattr(options, n, "")]):
        raise SettingError(
            f"{' and '.join(said)} of a run that keeps nothing.",
            "a folder, which the files and logs of a run live in",
            f"give out='runs/...', or leave {' and '.join(said)} out.",
        )


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Which settings and options of two configs (as JSON data) are not the same, in words."""
    if not one:
        return []
    found = []
    for part in ("settings", "options"):
        a, b = one.get(part, {}), other.get(part, {})
        found += [f"{n}={a.get(n)!r} (not {b.get(n)!r})" for n in dict.fromkeys((*a, *b)) if a.get(n) != b.get(n)]
    return found + [f"{n}={one.get(n)!r}" for n in ("algorithm", "env", "framework", "seed") if one.get(n) != other.get(n)]


def describe_type(hint: Any) -> str:
    """A setting's type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Union, UnionType):
        return " or ".join(describe_type(t) for t in inner)
    if hint is Schedule:
        return "a number, or a schedule 'start:end' or 'start:end:fraction'"
    if origin is tuple:
        return "whole numbers, as in 64,64"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(hint, str(hint))


POSITIVE = (
    "steps", "envs", "batch_size", "buffer_size", "train_every", "rollout", "epochs", "n_step", "target_every",
    "policy_delay", "embedding", "threads", "final_episodes", "frame_stack", "frame_skip",
    "replay_size", "target_updates", "conjugate_steps", "backtracks",
)  # fmt: skip
FRACTIONS = ("gamma", "gae_lambda", "tau", "priority_alpha", "rms_decay", "average_tau", "shrink", "epsilon", "priority_beta")
NOT_NEGATIVE = (
    "learning_starts", "max_kl", "value_clip", "value_weight", "eval_every", "eval_episodes", "log_every", "checkpoint_seconds",
    "keep", "opponents", "snapshot_every", "worker_restarts", "exploration", "smoothing", "smoothing_clip", "noop_max", "hyper",
    "logit_penalty", "value_huber",
    "recurrent", "sequence", "runners", "runner_cpus", "save_every", "replay_ratio", "replay_starts", "rho", "c", "truncation",
    "kl", "damping", "radius", "clip", "temperature",
)  # fmt: skip
ABOVE_0 = {  # name -> a usual value
    "adam_epsilon": "1e-8", "rms_epsilon": "1e-5",  # a weight without a gradient would become 0 / 0
    "initial_temperature": "1.0", "max_grad_norm": "0.5",
}  # fmt: skip
# Gradients whose norm is finite are below 1.9e19 in float32, so no step of this size times one of them overflows: weights stay
# finite without being looked at after each update.
LARGEST_RATE = 1e6


def check_ranges(settings: Any) -> None:
    """Refuses settings and options outside of their range, whatever algorithm they are of."""
    for names, least in ((POSITIVE, 1), (NOT_NEGATIVE, 0)):
        for name in names:
            if min(_values(value := getattr(settings, name, 1))) < least:
                raise SettingError(f"setting {name}={value}.", f"at least {least}", "give a number that is not smaller.")
    for name in FRACTIONS:
        low, *_, high = sorted((0.0, *_values(value := getattr(settings, name, 0)), 1.0))
        if low < 0 or high > 1:
            raise SettingError(f"setting {name}={value}.", "between 0 and 1", "give a fraction.")
    if isinstance(settings, Options):
        return
    if any(units < 1 for units in settings.hidden):
        raise SettingError(f"setting hidden={settings.hidden}.", "layers of at least 1 unit", "try 64,64.")
    if getattr(settings, "updates_per_call", 1) < -1 or getattr(settings, "updates_per_call", 1) == 0:
        raise SettingError(
            f"setting updates_per_call={settings.updates_per_call}.", "at least 1, or -1: one for each step", "try 1."
        )
    for name, usual in ABOVE_0.items():
        if min(_values(value := getattr(settings, name, 1))) <= 0:
            raise SettingError(f"setting {name}={value}.", "a number above 0", f"try {usual}.")
    for name in ("learning_rate", "actor_learning_rate"):
        rate = getattr(settings, name, settings.learning_rate)
        if not 0 < rate.start <= LARGEST_RATE or not 0 <= (rate.end or 0) <= LARGEST_RATE:
            raise SettingError(
                f"setting {name}={rate}.", f"a step size above 0 and up to {LARGEST_RATE:g}, or a schedule", "try 3e-4."
            )


def _values(value: Any) -> tuple[float, ...]:
    """The numbers that a setting takes: of a schedule its ends, of "auto" none that could be out of range."""
    if isinstance(value, Schedule):
        return (value.start, value.start if value.end is None else value.end)
    return (1,) if isinstance(value, str) else (value,)


def versions() -> dict[str, str]:
    """Of Python, tandem and what it may have run on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("tandem-rl", "numpy", "gymnasium", "torch", "keras", "tensorflow", "tensorflow-cpu", "jax"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit of the working directory, where that is a git checkout."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def compiles(config: Config, optimizers_known: bool) -> bool:
    """Whether torch should compile its gradients: asked for, or worth its some 10 s: a long run of known networks, and a C++
    compiler. Not for recurrent ones, whose graph grows with the sequence. Decided from the settings alone, so that a run and
    its resumption decide alike."""
    from shutil import which

    if config.framework != "torch" or config.options.compile == "no":
        return False
    if config.options.compile == "yes":
        return True
    s = config.settings
    compiler = any(which(c) for c in ("g++", "clang++", os.environ.get("CXX", "g++")))
    return (
        optimizers_known
        and not getattr(s, "recurrent", 0)
        and compiler
        and sys.platform != "win32"
        and s.steps * s.updates_per_step >= 50_000
    )
