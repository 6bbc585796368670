"""`tandem find`."""

from __future__ import annotations

import argparse
import json
from shlex import quote
from typing import Any

from tandem import algorithms
from tandem.cli import train_arguments
from tandem.cli.output import echo, say, shown
from tandem.cli.parser import (
    Parser,
    code_flags,
    env_kwargs_argument,
    import_argument,
    network_argument,
)
from tandem.errors import SettingError, UnknownNameError
from tandem.runs.progress_line import duration
from tandem.tuning import search
from tandem.zoo import owners

KINDS = {
    "lr": "the best learning rate of an algorithm",
    "optimizer": "the best optimizer of an algorithm, each with several learning rates",
    "best": "the best of several algorithms, or of several values of settings",
}
ABOUT = """Find {}. Each trial is a full run of --steps environment steps; all trials use the same
seeds and run in parallel processes. The score is the mean return of the second half of the
evaluations. A plot and a table go into a new folder: runs/find-…, or --out."""
EXAMPLES = {
    "lr": (
        "tandem find lr ppo CartPole-v1",
        "tandem find lr dqn CartPole-v1 --start-lr 1e-4 --end-lr 1e-2 --points 5 --seeds 3",
    ),
    "optimizer": ("tandem find optimizer a2c CartPole-v1 --steps 20000",),
    "best": (
        "tandem find best ppo dqn a2c CartPole-v1 --steps 20000 --seeds 3",
        "tandem find best ppo CartPole-v1 --vary gamma=0.9,0.98,0.99 --vary entropy=0,0.01",
    ),
}
RATES = {"lr": ("1e-5", "1e-1", 9), "optimizer": ("1e-4", "1e-1", 4)}  # --start-lr, --end-lr, …


def run(words: list[str]) -> int:
    """Run trials, and print a line for each and the resulting `tandem train` command."""
    if not words or words[0] in ("-h", "--help"):
        echo("usage: tandem find WHAT ...\n")
        echo("\n".join(f"  tandem find {name:<10}{what}" for name, what in KINDS.items()))
        echo("\n`tandem find WHAT --help` shows the arguments of each.")
        return 0 if words else 2
    kind, *rest = words
    if kind not in KINDS:
        raise UnknownNameError("`tandem find` subcommand", kind, KINDS)
    args = _arguments(kind, rest)
    names, env = args.names[:-1], args.names[-1]
    more: dict[str, Any] = {
        "steps": None if args.steps is None else train_arguments.whole("steps", args.steps, 1),
        "seeds": 1 if args.seeds is None else train_arguments.whole("seeds", args.seeds, 1),
        "seed": args.seed,
        "processes": None
        if args.processes is None
        else train_arguments.whole("processes", args.processes),
        "out": args.out or search.default_folder(f"find-{kind}", names, env),
        "framework": args.framework,
        "device": args.device,
        "env_kwargs": args.env_kwargs,
        "network": args.network,
        **train_arguments.given(args),
    }
    if not args.quiet:
        more |= {"begun": say, "told": _told}
    if kind == "best":
        found = search.find_best(names, env, vary=_varied(args.vary), **more)
    else:
        span = {"start_lr": args.start_lr, "end_lr": args.end_lr, "points": args.points}
        if kind == "lr":
            found = search.find_lr(names[0], env, setting=args.setting, **span, **more)
        else:
            found = search.find_optimizer(names[0], env, **span, **more)
    _conclude(found, env, args.env_kwargs, train_arguments.given(args), code_flags(args))
    return 0


def _told(trial: search.Trial) -> None:
    label = trial.candidate.label
    say(f"{label:<36} return {trial}   {duration(trial.seconds)}")


def _conclude(
    found: search.Found,
    env: str,
    env_kwargs: dict[str, Any] | None,
    shared: dict[str, Any],
    code: str,
) -> None:
    best = found.best.candidate
    echo(f"best: {best.label}, return {found.best}")
    if found.ties:
        echo(
            f"{len(found.ties)} trials have this score: {'; '.join(found.ties)}. The first one is "
            "chosen; other --steps or more --seeds can separate them."
        )
    elif found.edge:
        flag = {"lowest": "--start-lr", "highest": "--end-lr"}[found.edge]
        echo(f"That is the {found.edge} learning rate that was tried: see further with {flag}.")
    echo(f"picture: {shown(found.picture)}")
    shared = {n: v for n, v in shared.items() if n not in best.without}
    kind = best.kind or algorithms.get(best.algorithm)
    words = [search.as_flag(n, x, kind) for n, x in shared.items()]
    words += [] if env_kwargs is None else [f"--env-kwargs {quote(json.dumps(env_kwargs))}"]
    command = ["tandem train", best.algorithm, quote(env), best.flags(), *words]
    echo("Next:\n  " + " ".join(word for word in command if word) + code)


def _varied(vary: list[str]) -> dict[str, list[str]]:
    """Return values by setting name, parsed from NAME=VALUE,VALUE."""
    found: dict[str, list[str]] = {}
    for text in vary:
        name, equals, values = text.partition("=")
        each = [v.strip() for v in values.split(",")]
        if not equals or not name or not all(each):
            raise SettingError(
                f"--vary {text}",
                "a setting and values to try, NAME=VALUE,VALUE",
                "--vary gamma=0.9,0.99",
            )
        found[name.strip().replace("-", "_")] = each
    return found


def _arguments(kind: str, words: list[str]) -> argparse.Namespace:
    """Parse and return the arguments."""
    parser = make_parser(kind)
    title = "settings of {} in all trials [default]"
    train_arguments.settings_flags(parser, words, title, "run options")
    args = parser.read(words)
    names, env = args.names[:-1], args.names[-1] if args.names else None
    if not names and env in algorithms.names():
        names, env = [env], None
    _complete(kind, names, env)
    for name in names:
        owners.refuse(name, train_arguments.given(args), command=f"find {kind}")
    return args


def _complete(kind: str, names: list[str], env: str | None) -> None:
    """Raise an error if the algorithm or the environment is missing or unknown."""
    example = EXAMPLES[kind][0]
    for name in names:
        if name not in algorithms.names() and env in algorithms.names():
            fix = f"write the environment last: tandem find {kind} {env} {name}"
            raise UnknownNameError("algorithm", name, algorithms.names(), fix)
        algorithms.get(name)
    if not names or env is None:
        raise SettingError(
            f"`tandem find {kind}` needs an {'environment' if names else 'algorithm'}.",
            f"tandem find {kind} ALGORITHM{'…' if kind == 'best' else ''} ENV",
            example,
        )
    if kind != "best" and len(names) > 1:
        raise SettingError(
            f"`tandem find {kind}` got {len(names)} algorithms: {', '.join(names)}.",
            "one algorithm and an environment",
            f"compare them: tandem find best {' '.join(names)} {env}",
        )


def make_parser(kind: str) -> Parser:
    """Return the parser of this command, without the flags that depend on the algorithm."""
    parser = Parser(f"find {kind}", ABOUT.format(KINDS[kind]), EXAMPLES[kind])
    several = "ALGORITHM" if kind != "best" else "ALGORITHM…"
    parser.add_argument(
        "names",
        nargs="*",
        metavar=f"{several} ENV",
        help=f"of {', '.join(algorithms.names())}; and an environment id",
    )
    if kind in RATES:
        start, end, points = RATES[kind]
        parser.add_argument(
            "--start-lr", default=start, metavar="X", help=f"lowest learning rate [{start}]"
        )
        parser.add_argument(
            "--end-lr", default=end, metavar="X", help=f"highest learning rate [{end}]"
        )
        parser.add_argument(
            "--points", default=points, metavar="N", help=f"number of learning rates [{points}]"
        )
    if kind == "lr":
        parser.add_argument(
            "--setting",
            default="learning_rate",
            metavar="NAME",
            help="learning rate to search, such as actor_learning_rate [learning_rate]",
        )
    if kind == "best":
        parser.add_argument(
            "--vary",
            action="append",
            default=[],
            metavar="NAME=V,V",
            help="setting and values to try; repeat the flag to try all combinations",
        )
    parser.add_argument(
        "--steps", metavar="N", help="environment steps per run [a tenth of the usual steps]"
    )
    parser.add_argument(
        "--seeds", metavar="K", help="runs per trial, with consecutive seeds from --seed [1]"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="first random seed [0]")
    parser.add_argument("--processes", metavar="N", help="parallel runs [number of cores]")
    env_kwargs_argument(parser)
    network_argument(parser)
    import_argument(parser)
    parser.add_argument(
        "--framework",
        metavar="NAME",
        help="torch, tensorflow, jax or keras-torch [fastest installed]",
    )
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu or cuda [auto]")
    parser.add_argument("--out", metavar="DIR", help="folder to create [runs/find-…]")
    parser.add_argument("--quiet", action="store_true", help="do not print a line for each trial")
    return parser
