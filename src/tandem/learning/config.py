"""What a run was told: its settings, checked and completed, and the file that keeps them."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_origin, get_type_hints

from tandem.envs.atari import Preprocessing
from tandem.errors import SettingError
from tandem.settings import Schedule, apply, setting


@dataclass(frozen=True)
class Options(Preprocessing):
    """What a run does beside learning; and, first, what is done to an Atari game."""

    eval_every: int = setting(0, "environment steps between evaluations; 0: a twentieth of the run")
    eval_episodes: int = setting(
        10, "episodes of each evaluation, which choose the best checkpoint"
    )
    final_episodes: int = setting(
        20, "episodes that score the best checkpoint at the end, on other seeds"
    )
    log_every: int = setting(
        0, "environment steps between rows of progress.csv; 0: a hundredth of the run"
    )
    checkpoint_seconds: float = setting(
        30.0, "seconds between checkpoints; stretched where writing would take over 5 %"
    )
    keep: int = setting(3, "how many numbered checkpoints to keep, one an evaluation")
    save_every: int = setting(
        0, "environment steps between checkpoints that stay, a first and a last one too; 0: none"
    )
    threads: int = setting(1, "threads of one operation of the framework")
    compile: Literal["auto", "yes", "no"] = setting(
        "auto", "torch only: compile gradients; auto: where the run is long enough"
    )
    workers: int | Literal["auto"] = setting(
        0, "processes that step environments beside this one; 0: none; auto: by a trial"
    )
    ahead: int = setting(
        -1,
        "blocks that workers collect while earlier ones are learned from; 0: none; -1: 1 if "
        "off-policy",
    )
    learners: int | Literal["auto"] = setting(
        1,
        "processes that each collect and take gradients, for a3c, acer, impala, nstep_q; 1: this "
        "one; auto: as many as cores",
    )
    staleness: int = setting(
        -1,
        "most updates that a learner's gradient may be behind; -1: four times as many as learners",
    )
    opponents: int = setting(
        0,
        "past copies of itself that it plays against, in games of two players who move in turn; "
        "0: a random player alone",
    )
    snapshot_every: int = setting(
        0, "environment steps between such copies; 0: a hundredth of the run"
    )
    runners: int = setting(
        0, "actors on a Ray cluster that step environments, while this process learns; 0: none"
    )
    cluster: str = setting(
        "",
        "where runners and learners live: HOST:PORT of a Ray cluster, or auto: one that runs "
        "here, else a new one",
    )
    runner_cpus: float = setting(1.0, "CPUs of the cluster that each runner or learner is given")
    worker_patience: float = setting(
        60.0, "seconds that a worker may take for a block before it counts as stuck"
    )
    worker_restarts: int = setting(
        3, "how many lost workers are started anew in a run, before it ends with an error"
    )
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
    return {
        f.name: str(v) if isinstance(v := getattr(settings, f.name), Schedule) else v
        for f in fields(settings)
    }


def from_json(data: dict[str, Any], kind: type) -> Config:
    """The Config that `to_json` wrote; `kind` is the algorithm's Settings. TypeError or ValueError
    for other data."""
    hints = get_type_hints(Config)
    rest = {k: v for k, v in data.items() if k in hints and k not in ("settings", "options")}
    for name, value in rest.items():
        if not isinstance(value, get_origin(hints[name]) or hints[name]):
            raise TypeError(f"{name}={value!r}")
    if rest["seed"] < 0:
        raise ValueError(f"seed={rest['seed']}")
    return Config(
        **rest, settings=apply(kind(), data["settings"]), options=apply(Options(), data["options"])
    )


def check_kept(settings: Any, options: Options, folder: Any) -> None:
    """SettingError where a run without a folder is to write into one."""
    if folder is None and (
        said := [
            n for n in ("memmap", "wandb") if getattr(settings, n, False) or getattr(options, n, "")
        ]
    ):
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
        found += [
            f"{n}={a.get(n)!r} (not {b.get(n)!r})"
            for n in dict.fromkeys((*a, *b))
            if a.get(n) != b.get(n)
        ]
    return found + [
        f"{n}={one.get(n)!r}"
        for n in ("algorithm", "env", "framework", "seed")
        if one.get(n) != other.get(n)
    ]


POSITIVE = (
    "steps",
    "envs",
    "batch_size",
    "buffer_size",
    "train_every",
    "rollout",
    "epochs",
    "n_step",
    "target_every",
    "policy_delay",
    "embedding",
    "threads",
    "final_episodes",
    "frame_stack",
    "frame_skip",
    "replay_size",
    "target_updates",
    "conjugate_steps",
    "backtracks",
)
FRACTIONS = (
    "gamma",
    "gae_lambda",
    "tau",
    "priority_alpha",
    "rms_decay",
    "average_tau",
    "shrink",
    "epsilon",
    "priority_beta",
)
NOT_NEGATIVE = (
    "learning_starts",
    "max_kl",
    "value_clip",
    "value_weight",
    "eval_every",
    "eval_episodes",
    "log_every",
    "checkpoint_seconds",
    "keep",
    "opponents",
    "snapshot_every",
    "worker_restarts",
    "exploration",
    "smoothing",
    "smoothing_clip",
    "noop_max",
    "hyper",
    "logit_penalty",
    "value_huber",
    "recurrent",
    "sequence",
    "runners",
    "runner_cpus",
    "save_every",
    "replay_ratio",
    "replay_starts",
    "rho",
    "c",
    "truncation",
    "kl",
    "damping",
    "radius",
    "clip",
    "temperature",
)
ABOVE_0 = {  # name -> a usual value
    "adam_epsilon": "1e-8", "rms_epsilon": "1e-5",  # a weight without a gradient would become 0 / 0
    "initial_temperature": "1.0", "max_grad_norm": "0.5",
}  # fmt: skip
# Gradients whose norm is finite are below 1.9e19 in float32, so no step of this size times one of
# them overflows: weights stay finite without being looked at after each update.
LARGEST_RATE = 1e6


def check_ranges(settings: Any) -> None:
    """Refuses settings and options outside of their range, whatever algorithm they are of."""
    for names, least in ((POSITIVE, 1), (NOT_NEGATIVE, 0)):
        for name in names:
            if min(_values(value := getattr(settings, name, 1))) < least:
                raise SettingError(
                    f"setting {name}={value}.",
                    f"at least {least}",
                    "give a number that is not smaller.",
                )
    for name in FRACTIONS:
        low, *_, high = sorted((0.0, *_values(value := getattr(settings, name, 0)), 1.0))
        if low < 0 or high > 1:
            raise SettingError(f"setting {name}={value}.", "between 0 and 1", "give a fraction.")
    if isinstance(settings, Options):
        return
    if any(units < 1 for units in settings.hidden):
        raise SettingError(
            f"setting hidden={settings.hidden}.", "layers of at least 1 unit", "try 64,64."
        )
    if (
        getattr(settings, "updates_per_call", 1) < -1
        or getattr(settings, "updates_per_call", 1) == 0
    ):
        raise SettingError(
            f"setting updates_per_call={settings.updates_per_call}.",
            "at least 1, or -1: one for each step",
            "try 1.",
        )
    for name, usual in ABOVE_0.items():
        if min(_values(value := getattr(settings, name, 1))) <= 0:
            raise SettingError(f"setting {name}={value}.", "a number above 0", f"try {usual}.")
    for name in ("learning_rate", "actor_learning_rate"):
        rate = getattr(settings, name, settings.learning_rate)
        if not 0 < rate.start <= LARGEST_RATE or not 0 <= (rate.end or 0) <= LARGEST_RATE:
            raise SettingError(
                f"setting {name}={rate}.",
                f"a step size above 0 and up to {LARGEST_RATE:g}, or a schedule",
                "try 3e-4.",
            )


def _values(value: Any) -> tuple[float, ...]:
    """The numbers that a setting takes: of a schedule its ends, of "auto" none that could be out of
    range."""
    if isinstance(value, Schedule):
        return (value.start, value.start if value.end is None else value.end)
    return (1,) if isinstance(value, str) else (value,)


def compiles(config: Config, optimizers_known: bool) -> bool:
    """Whether torch should compile its gradients: asked for, or worth its some 10 s: a long run of
    known networks, and a C++ compiler. Not for recurrent ones, whose graph grows with the sequence.
    Decided from the settings alone, so that a run and its resumption decide alike."""
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
