"""Arguments of `tandem train`, which other commands share in part."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tandem import algorithms, zoo
from tandem.algorithms import own
from tandem.algorithms.base import ReplaySettings
from tandem.cli import from_sweep, settings_file
from tandem.cli.parser import (
    HELP,
    Parser,
    flags,
    import_argument,
    network_argument,
    topic_of,
    trust_argument,
    vector_arguments,
    zoo_argument,
)
from tandem.cli.words import value_of
from tandem.envs import atari
from tandem.envs.factory import versioned
from tandem.errors import SettingError, nearest
from tandem.learning.config import RESUMABLE, Options
from tandem.runs import config_file
from tandem.settings import declared, whole_number
from tandem.trainer import TAKEN
from tandem.zoo import other_names, owners

ABOUT = """Train an agent. Settings come from the zoo if it has this algorithm and environment,
otherwise from the algorithm's defaults; flags override both. Curve, checkpoints and logs go into a
new folder."""
EXAMPLES = (
    "tandem train ppo CartPole-v1",
    "tandem train dqn CartPole-v1 --prioritized --learning-rate 1e-3:0",
    "tandem train sac Pendulum-v1 --framework torch --seeds 3",
    "tandem train ppo --vector my_module:make_vector",
    "tandem train my_module:MyAlgorithm CartPole-v1",
    "tandem train --config cartpole.toml --seed 1",
    "tandem train --from-sweep runs/sweep-ppo-CartPole-v1-20250131-120000 --seeds 5",
    "tandem train --resume runs/ppo-CartPole-v1-s0-20250131-120000",
    "tandem train ppo --help settings",
)
SCHEDULES = """X:END:PART is a schedule: linear from X to END over PART of the run
[1], then constant. A PART above 1 ends after the run."""
USUAL = {
    "framework": ("torch, jax or tensorflow", "fastest"),
    "seed": ("random seed", "0"),
    "seeds": ("number of seeds to train", "1"),
    "out": ("folder to create", "runs/…"),
    "config": ("read settings from a file", "none"),
    "resume": ("resume the run in a folder", "none"),
    "start_from": ("initialize from a trained run", "none"),
    "network": ("custom network", "MLP or CNN"),
}
LOGS = ("text", "json")
MAY_CHANGE = "only --stop-at, --out, --steps with --extend, and execution options: " + ", ".join(
    f"--{name.replace('_', '-')}" for name in sorted(RESUMABLE)
)


def arguments(words: list[str]) -> argparse.Namespace:
    """Parse and return the arguments."""
    words = from_sweep.with_config(with_address(words))
    parser, file = make_parser(), value_of("--config", words)
    data = {} if file is None else settings_file.read(Path(file))
    said = str(data.get("algorithm", ""))
    title = "settings of {} [default]"
    kind = settings_flags(parser, words, title, otherwise=said)
    args = parser.read(words)
    args.stop_at = None if args.stop_at is None else whole("stop-at", args.stop_at)
    if args.algorithm is not None and algorithms.is_class(args.algorithm):
        args.algorithm = kind
    if file is not None:
        _fill(args, Path(file), data)
    return args


def _fill(args: argparse.Namespace, path: Path, data: dict[str, Any]) -> None:
    """Fill arguments that a command does not give from its settings file."""
    if args.resume is not None:
        raise SettingError(
            "--config was given with --resume.",
            "only one of them: a resumed run keeps its settings",
            "leave --config out; to start a new run from the file, leave --resume out.",
        )
    settings_file.expect(args, path, data)
    flags_say = given(args)
    said = settings_file.fill(args, path, data)
    if args.env == data.get("env") and {"versions", "origin"} & data.keys():  # of a run or sweep
        config_file.expect_env(data, path, SettingError)
    if args.algorithm is not None and args.env is not None and flags_say:
        for name in zoo.usual_in(args.algorithm, versioned(args.env), said) - flags_say.keys():
            # keep a rescaled schedule, unless --entry selects another entry
            if "entry" in flags_say or getattr(args, name) == said[name]:
                delattr(args, name)


def settings_flags(
    parser: Parser,
    words: Sequence[str],
    title: str = "settings of {}",
    options: str = "run options",
    otherwise: str = "",
    trusted: Sequence[str | None] | None = None,
) -> Any:
    """Add flags for the settings of the algorithms that a command names, or of `otherwise`, and for
    the options, in groups with these titles; help shows the zoo's values. Return the class of the
    first algorithm, or None. trusted: the only classes to import, as module:Class; None: all."""
    group, beside = parser.add_argument_group(), parser.add_argument_group(options)
    own_zoo = value_of("--zoo", words)
    zoo.use(None if own_zoo is None else Path(own_zoo))
    rest, topic = topic_of(words)
    names = parser.algorithms(rest) or [otherwise] * own.is_known(otherwise)
    env, tuned = "", zoo.Entry({}, "")
    if trusted is not None:
        names = [n for n in names if n in trusted or not algorithms.is_class(n)]
    kinds = [own.checked(own.named(n) if algorithms.is_class(n) else n, TAKEN) for n in names]
    group.title, group.description = title.format(", ".join(names)), SCHEDULES if kinds else None
    if kinds and {*HELP} & {*words}:
        env = next((b for a, b in pairwise(rest) if a == names[-1] and b[0] != "-"), "")
        tuned = zoo.entry(names[0], env, value_of("--entry", words) or "") or tuned
    sourced, game = topic == "all", not env or atari.is_atari(env)
    hidden = () if game else tuple(s.name for s in declared(atari.Preprocessing))
    flags(beside, Options(), sourced=sourced, hidden=hidden)
    for kind in kinds:
        parser.values |= flags(group, kind.Settings(), tuned.settings, tuned.source, sourced)
    if not kinds:  # accept common settings, but hide them in help
        flags(group, ReplaySettings())
        for action in group._group_actions:
            action.help = argparse.SUPPRESS
    of_settings = (*group._group_actions, *beside._group_actions)
    parser.settings = frozenset(action.dest for action in of_settings)
    command = parser.prog.removeprefix("tandem ")
    parser.unknown = partial(_refuse_unknown, parser, kinds, command)
    return kinds[0] if kinds else None


def _refuse_unknown(parser: Parser, kinds: list[Any], command: str, flag: str) -> None:
    """Raise an error for a flag of other algorithms or libraries; the parser handles all others."""
    known = parser._option_string_actions
    close, odd = nearest(flag, known, 1), flag.removeprefix("--").replace("-", "_")
    switch = bool(close) and close[0].startswith("--no-") and odd not in other_names.OTHER_NAMES
    if kinds and flag.startswith("--") and not switch:
        taken = [f[2:].replace("-", "_") for f in known if f.startswith("--")]
        owners.refuse(kinds[0], {odd: ""}, taken, command)


def with_address(words: list[str]) -> list[str]:
    """Expand a `--cluster` without an address: the next word is its address only if it looks like
    one."""
    changed = list(words)
    for i, word in enumerate(words):
        if word == "--cluster" and not (
            words[i + 1 :] and (words[i + 1] in ("auto", "local") or ":" in words[i + 1])
        ):
            changed[i] = "--cluster=auto"
    return changed


def make_parser() -> Parser:
    """Return the parser of this command, without the flags that depend on the algorithm."""
    parser = Parser("train", ABOUT, EXAMPLES)
    parser.usual = USUAL
    parser.add_argument(
        "algorithm",
        nargs="?",
        metavar="ALGORITHM",
        help=f"one of {', '.join(algorithms.names())}; or module:Class for a custom one",
    )
    parser.add_argument(
        "env",
        nargs="?",
        metavar="ENV",
        help="id, such as CartPole-v1, or module:Name: an id, class or function in a module "
        "(docs/howto/environments.md)",
    )
    vector_arguments(parser)
    import_argument(parser)
    zoo_argument(parser)
    trust_argument(parser)
    parser.add_argument(
        "--framework",
        metavar="NAME",
        help="torch, tensorflow, jax or keras-torch [fastest installed]",
    )
    network_argument(parser)
    parser.add_argument("--device", metavar="NAME", help="auto, cpu or cuda [auto]")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="read settings from a file by `tandem config` or a run's config.json; flags override",
    )
    parser.add_argument(
        "--from-sweep",
        metavar="DIR",
        help="train with the best settings of this sweep, instead of ALGORITHM ENV",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="random seed [0]")
    parser.add_argument(
        "--seeds",
        metavar="K",
        help="train K runs in parallel, with consecutive seeds from --seed, and plot their curve",
    )
    parser.add_argument("--out", metavar="DIR", help="folder to create [runs/ALGORITHM-ENV-…]")
    parser.add_argument(
        "--start-from",
        metavar="DIR",
        help="initialize from a trained run or checkpoint",
    )
    parser.add_argument(
        "--which",
        metavar="NAME",
        help="with --start-from: best, last or a numbered checkpoint [best]",
    )
    parser.add_argument(
        "--load",
        metavar="PARTS",
        help="with --start-from: comma-separated, of networks, normalization, optimizer, replay; "
        "matching: only what fits [networks,normalization]",
    )
    parser.add_argument(
        "--stop-at",
        metavar="N",
        help="stop after N environment steps; continue later with --resume",
    )
    parser.add_argument(
        "--resume", metavar="DIR", help="resume the run in DIR, instead of ALGORITHM ENV"
    )
    parser.add_argument(
        "--extend",
        action="store_true",
        help="with --resume: allow a larger --steps; schedules keep their final values",
    )
    parser.add_argument(
        "--log",
        default="text",
        metavar="|".join(LOGS),
        help="json: log each event to stdout as one JSON object per line [text]",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    return parser


def whole(flag: str, value: str, least: int = 0) -> int:
    """Return the number that a flag was given. Raises SettingError for anything else."""
    return whole_number(f"--{flag}", value, least)


def given(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings and options given to a command."""
    return {name: value for name, value in vars(args).items() if name in args.settings}
