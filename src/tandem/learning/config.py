"""A run's configuration: its checked and completed settings, and their JSON format."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field, fields, replace
from shutil import which
from typing import Any, Literal, get_origin, get_type_hints

from tandem import algorithms
from tandem.algorithms import own
from tandem.algorithms.base import Algorithm, ReplaySettings, Settings
from tandem.envs.atari import Preprocessing
from tandem.errors import EngineError, SettingError, note
from tandem.settings import Needs, Schedule, apply, by_name, check_ranges, setting
from tandem.types import JSONDict

REMOTE = Needs(lambda s: s.runners or s.learners != 1, runners=2)
MANY = 30_000  # updates for which torch's compilation pays
SUPERVISED = Needs(lambda s: s.workers or s.runners or s.learners != 1, workers=2)


@dataclass(frozen=True)
class Options(Preprocessing):
    """Options of a run besides the algorithm's settings; those of Atari preprocessing come
    first."""

    eval_every: int = setting(
        0, "environment steps between evaluations; 0: a twentieth of the run", minimum=0
    )
    eval_episodes: int = setting(
        10, "episodes per evaluation; evaluations select the best checkpoint", minimum=0
    )
    final_episodes: int = setting(
        20, "episodes of the final evaluation of the best checkpoint, on different seeds", minimum=1
    )
    eval_envs: int | Literal["auto"] = setting(
        "auto",
        "parallel environments per evaluation (scores do not depend on it); auto: 10 for tandem's "
        "or Gymnasium's classic control, else 1",
        minimum=1,
        resumable=True,
    )
    eval_max_steps: int = setting(
        0,
        "maximum steps per evaluation episode; 0: twice the environment's limit or the longest "
        "training episode, at least 5,000",
        minimum=0,
    )
    log_every: int = setting(
        0, "environment steps between rows of progress.csv; 0: a hundredth of the run", minimum=0
    )
    checkpoint_seconds: float = setting(
        30.0,
        "seconds between checkpoints; longer if writing would take over 5 % of the time",
        minimum=0,
        resumable=True,
    )
    keep: int = setting(
        3,
        "number of numbered checkpoints to keep; each evaluation writes one",
        minimum=0,
        resumable=True,
    )
    save_every: int = setting(
        0,
        "environment steps between permanent checkpoints, also at the start and the end; 0: none",
        minimum=0,
    )
    freeze: tuple[str, ...] = setting(
        (),
        "comma-separated weights to freeze, or beginnings of their names, such as actor.1,critic; "
        "`tandem report` lists the names",
    )
    threads: int = setting(
        1,
        "threads per operation of the backend",
        minimum=1,
        maximum=1024,
        resumable=True,
    )
    compile: Literal["auto", "yes", "no"] = setting(
        "auto",
        "PyTorch only: compile updates; auto: if it saves time",
        resumable=True,
    )
    compile_cache: bool = setting(
        True,
        "cache compiled updates in the user's cache folder for later runs",
        resumable=True,
    )
    entry: str = setting(
        "", "named zoo entry to use, such as rainbow of dqn, instead of the standard one"
    )
    workers: int | Literal["auto"] = setting(
        0, "worker processes that step environments; 0: none; auto: by a short trial", minimum=0
    )
    ahead: int = setting(
        -1,
        "blocks that workers collect ahead of learning; 0: none (synchronous); -1: 1 if "
        "off-policy, else 0",
        minimum=-1,
        needs=Needs(lambda s: s.workers or s.runners, workers=2),
    )
    learners: int | Literal["auto"] = setting(
        1,
        "actor-learner processes, for a3c, acer, impala, nstep_q; 1: this process only; auto: one "
        "per core",
        minimum=1,
        fix="give learners=1 to learn in this process.",
    )
    staleness: int = setting(
        -1,
        "maximum number of updates that a learner's gradient may lag behind; -1: four times "
        "learners",
        minimum=-1,
        needs=Needs(lambda s: s.learners != 1, learners=2),
    )
    devices: int = setting(
        1,
        "number of devices that split each update's batch: GPUs, or parts of the CPU",
        minimum=1,
        resumable=True,
    )
    device_timeout: float = setting(
        120.0,
        "with several devices: seconds that a process may lag behind before it is considered "
        "stuck, plus compilation time",
        minimum=1.0,
        resumable=True,
        needs=Needs(lambda s: s.devices > 1, devices=2),
    )
    opponents: int = setting(
        0,
        "self-play in turn-based two-player games: number of past copies to play against; 0: only "
        "a random player",
        minimum=0,
    )
    snapshot_every: int = setting(
        0,
        "with opponents: environment steps between copies; 0: a hundredth of the run",
        minimum=0,
        needs=Needs(opponents=1),
    )
    runners: int = setting(
        0,
        "actors on a Ray cluster that step environments while this process learns; 0: none",
        minimum=0,
    )
    cluster: str = setting(
        "",
        "Ray cluster for runners and learners: HOST:PORT, or auto: the one running here, else a "
        "new one",
        resumable=True,
        needs=REMOTE,
    )
    runner_cpus: float = setting(
        1.0,
        "CPUs of the cluster per runner or learner",
        minimum=0,
        resumable=True,
        needs=REMOTE,
    )
    worker_patience: float = setting(
        60.0,
        "seconds that a worker may take for a block before it is considered stuck",
        minimum=0,
        resumable=True,
        needs=SUPERVISED,
    )
    worker_restarts: int = setting(
        3,
        "number of lost workers to restart before the run fails with an error",
        minimum=0,
        resumable=True,
        needs=SUPERVISED,
    )
    tensorboard: bool = setting(
        True,
        "write TensorBoard events",
        resumable=True,
    )
    wandb: str = setting(
        "",
        "name of a Weights & Biases project to log to",
        resumable=True,
    )
    mlflow: str = setting(
        "",
        "name of an MLflow experiment to log to",
        resumable=True,
    )
    writer: tuple[str, ...] = setting(
        (),
        "log writers from installed packages, each NAME or NAME=TEXT (`tandem list` shows them)",
        resumable=True,
    )
    plots: bool = setting(
        True,
        "plot curve.png and write an animation at the end",
        resumable=True,
    )


@dataclass(frozen=True)
class Config:
    """Complete configuration of a run, except for code: config.json."""

    algorithm: str  # its name, or module:Class of a custom class
    env: str
    framework: str
    device: str = field(metadata={"resumable": True})
    seed: int
    settings: Any  # the algorithm's Settings
    options: Options
    source: str = ""  # source of the settings
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    # Requirements besides tandem: the package, as "name version", of "algorithm", "env" and
    # "writer NAME" from plug-ins; "env_module": the module of another environment id's class.
    origin: dict[str, str] = field(default_factory=dict)
    env_kwargs: JSONDict = field(default_factory=dict)
    wrappers: list[str] = field(default_factory=list)  # module:Class or module:Class:{JSON}
    network: str = ""  # module:function of a network given by name
    own_network: bool = False  # created by user code, which is required to resume and load
    own_env: bool = False
    own_eval_env: bool = False
    vector: str = ""  # a vector of environments: "own" (given in Python), "id", or module:function
    own_optimizer: bool = False
    optimizer_class: str = ""  # its class; optimizer settings have no effect with it
    device_used: str = ""  # the device that `device` selected
    compiled: str = ""  # the choice of compile="auto"
    extended_from: int = 0  # original length of a run that was extended
    inexact: list[str] = field(default_factory=list)  # changes on resuming that affect rounding
    restarted_at: list[int] = field(default_factory=list)  # steps where episodes were not resumed
    start: JSONDict = field(default_factory=dict)  # the starting point: `runs.start`
    own_algorithm: type[Algorithm] | None = None  # the custom class, which files do not contain

    @property
    def kind(self) -> type[Algorithm]:
        """The algorithm's class."""
        return self.own_algorithm or algorithms.get(self.algorithm)

    def to_json(self) -> JSONDict:
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "own_algorithm"}
        settings = plain(self.settings)
        idle = {"optimizer", *OF_OPTIMIZERS} if self.own_optimizer else set()
        settings = {n: x for n, x in settings.items() if n not in idle}
        return data | {"settings": settings, "options": asdict(self.options)}


# Settings of built-in optimizers. Weight decay is checked separately, with knowledge of the zoo
# entry (backends/backend.py).
OF_OPTIMIZERS = (
    "learning_rate",
    "actor_learning_rate",
    "learning_rate_warmup",
    "rms_decay",
    "rms_epsilon",
    "adam_epsilon",
    "adam_beta1",
)


def refuse_beside_own_optimizer(kind: type[Settings], given: dict[str, Any]) -> None:
    """Raise SettingError for settings of built-in optimizers given with a custom optimizer."""
    usual = kind()
    for name in OF_OPTIMIZERS:
        value = given.get(name)
        if value is not None and hasattr(usual, name) and value != getattr(usual, name):
            raise SettingError(
                f"{name}={value} is not supported with a custom optimizer.",
                "a built-in optimizer, since yours has its own options",
                f"leave {name} out, and pass it to your optimizer.",
            )


# Fields that can change when a run is resumed, from their metadata: see `setting`.
RESUMABLE = frozenset(
    f.name
    for kind in (Config, Options, ReplaySettings)
    for f in fields(kind)
    if f.metadata.get("resumable")
)


def changed(conf: Config, changes: JSONDict) -> Config:
    """Return the Config of a run that is resumed with other values of `RESUMABLE` fields."""
    settings, options = (
        apply(part, {n: x for n, x in changes.items() if hasattr(part, n)})
        for part in (conf.settings, conf.options)
    )
    check_ranges(settings)
    check_ranges(options)
    check_compile(options, conf.framework)
    return replace(
        conf, settings=settings, options=options, device=changes.get("device", conf.device)
    )


# Options that affect rounding.
ROUNDING = ("device", "devices", "threads", "compile")


def executed(conf: Config, device: str, saved: JSONDict) -> Config:
    """Return the Config of a run that is resumed on a device, "cpu" or "cuda", from the data of a
    checkpoint. A note lists the `ROUNDING` options that changed."""
    now = asdict(conf.options) | {"device": device}
    before = now | saved["config"]["options"] | {"device": saved.get("device", device)}
    other = [f"{n}={now[n]!r} after {n}={before[n]!r}" for n in ROUNDING if now[n] != before[n]]
    if other:
        note(f"resumed with {', '.join(other)}: the same except for rounding, no longer bit-exact.")
    return replace(conf, inexact=[*conf.inexact, *other])


def restarted(conf: Config, at: int, why: str) -> Config:
    """Return the Config of a run that continues with new episodes at step `at`, with a note."""
    note(f"{why} The run keeps what it has learned and starts new episodes at step {at:,}.")
    return replace(conf, restarted_at=[*(step for step in conf.restarted_at if step < at), at])


def plain(settings: Settings) -> JSONDict:
    """Return settings as JSON data."""
    return {n: str(x) if isinstance(x, Schedule) else x for n, x in by_name(settings).items()}


def from_json(data: JSONDict, kind: type[Algorithm]) -> Config:
    """Return the Config from data of `to_json`; `kind` is the algorithm's class. Raise TypeError or
    ValueError for other data."""
    hints = get_type_hints(Config)
    hints.pop("own_algorithm")
    rest = {k: v for k, v in data.items() if k in hints and k not in ("settings", "options")}
    for name, value in rest.items():
        if not isinstance(value, get_origin(hints[name]) or hints[name]):
            raise TypeError(f"{name}={value!r}")
    if rest["seed"] < 0:
        raise ValueError(f"seed={rest['seed']}")
    return Config(
        **rest,
        settings=apply(kind.Settings(), data["settings"]),
        options=apply(Options(), data["options"]),
        own_algorithm=None if own.is_known(rest["algorithm"]) else kind,
    )


def check_kept(settings: Settings, options: Options, folder: object) -> None:
    """Raise SettingError for options that need a folder in a run without one."""
    if folder is not None:
        return
    memmap = isinstance(settings, ReplaySettings) and settings.memmap
    uses = {"memmap": memmap, "wandb": options.wandb, "mlflow": options.mlflow}
    uses["writer"] = options.writer
    writes = [name for name, used in uses.items() if used]
    if writes:
        raise SettingError(
            f"{' and '.join(writes)} given for a run without a folder.",
            "a folder for the run's files and logs",
            f"give out='runs/...', or leave {' and '.join(writes)} out.",
        )


def differing(one: JSONDict, other: JSONDict) -> list[str]:
    """Return texts on the settings and options that differ between two configs (JSON data)."""
    if not one:
        return []
    names = []
    for part in ("settings", "options"):
        a, b = one.get(part, {}), other.get(part, {})
        names += [
            f"{n}={a.get(n)!r} (not {b.get(n)!r})"
            for n in dict.fromkeys((*a, *b))
            if a.get(n) != b.get(n)
        ]
    return names + [
        f"{n}={one.get(n)!r}"
        for n in ("algorithm", "env", "framework", "seed")
        if one.get(n) != other.get(n)
    ]


def check_compile(options: Options, framework: str) -> None:
    """Raise SettingError if `compile` is set on a backend without a choice."""
    if framework != "torch" and options.compile != "auto":
        how = "does not compile" if framework == "keras-torch" else "always compiles"
        raise SettingError(
            f"compile={options.compile!r} on {framework}, which {how} updates.",
            "compile= on torch only",
            "leave compile out.",
        )


def compiling(config: Config) -> str:
    """Return the mode in which torch compiles updates: see `torch_calls`."""
    mode: str = config.options.compile
    compilers = "g++", "clang++", os.environ.get("CXX", "g++")
    if mode == "auto" and config.compiled:
        mode = {"yes": "as before", "no": "no"}[config.compiled]
    if config.framework != "torch" or mode == "no":
        return "no"
    if sys.platform == "win32" or not any(which(name) for name in compilers):
        if mode == "yes":
            raise EngineError(
                "compile='yes' requires a C++ compiler, and none was found.",
                "g++ or clang++, which torch uses to compile (not on Windows)",
                "leave compile out, or install one: apt install g++.",
            )
        if config.settings.steps * config.settings.update_rate > MANY:
            note("updates are not compiled, since there is no C++ compiler (apt install g++).")
        return "no"
    if int(config.options.devices) > 1:
        if mode == "yes":
            note("compile='yes' has no effect: updates on several devices are not compiled.")
        return "no"
    return mode
