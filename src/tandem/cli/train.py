"""`tandem train`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tandem import algorithms, trainer, zoo
from tandem.algorithms.own import name_of
from tandem.cli import from_sweep, seeds, seeds_command, told
from tandem.cli.output import echo, stream
from tandem.cli.train_arguments import LOGS, MAY_CHANGE, arguments, given, whole
from tandem.cli.train_arguments import make_parser as make_parser  # every command has one
from tandem.envs.vector_source import named
from tandem.errors import ResumeError, SettingError, UnknownNameError, one_of
from tandem.learning.config import RESUMABLE
from tandem.learning.launch import Launch, find
from tandem.runs.folder import result_of
from tandem.runs.json_log import JsonLog
from tandem.runs.new_folders import default_folder
from tandem.runs.progress_line import Progress


def run(words: list[str]) -> int:
    """Train one run or several, and print the results. Of processes launched together, the first
    does so, and the others take part in its updates."""
    launch = find()
    if launch is None:
        return _run(words)
    if launch.rank:
        return launch.follow()
    with launch:
        return _run(words, launch)


def _run(words: list[str], launch: Launch | None = None) -> int:
    args = arguments(words)
    if launch is not None:
        args.framework = args.framework or (None if args.resume else "torch")
        if getattr(args, "devices", None) is None:
            args.devices = str(launch.count)
    if args.resume is None:
        _complete(args)
    _expect_log(args)
    if args.seeds is not None and launch is not None:
        raise SettingError(
            f"--seeds {args.seeds} is not supported with processes that were launched together.",
            "one run that they train together",
            "launch each seed separately, with --seed instead of --seeds.",
        )
    if args.seeds is not None:
        return _several(args, words)
    if args.resume is not None and seeds_command.is_in(args.resume):
        return seeds.resumed(args, words, Path(args.resume))
    session = _session(args, args.seed, args.out)
    steps = session.config.settings.steps
    if session.loop.env_steps >= steps and (result := result_of(session.folder, steps)):
        session.close()
        if isinstance(log := session.callbacks[0], JsonLog):
            log.line("result", result)
            return 0
        echo(
            f"{args.resume} has all of its {steps:,} steps. To extend it: --steps {2 * steps} "
            "--extend"
        )
        return 0
    told.begun(session, args.quiet)
    return told.ended(session, trainer.complete(session, args.stop_at), args.imported)


def _expect_log(args: argparse.Namespace) -> None:
    """Raise an error for an unknown --log format, and for JSON lines of several runs in one
    stream."""
    one_of("log", args.log, LOGS)
    if args.log == "json" and (
        args.seeds is not None or (args.resume and seeds_command.is_in(args.resume))
    ):
        raise SettingError(
            "--log json was given for several runs.",
            "a single run",
            "run each seed separately (--seed, or --resume of its folder), or leave --log out: "
            "each run logs to its .log file.",
        )


def _several(args: argparse.Namespace, words: list[str]) -> int:
    """Train runs with different seeds, in subfolders of one folder, and plot their curve."""
    count = whole("seeds", args.seeds, 1)
    if args.resume is not None:
        raise SettingError(
            "--seeds was given with --resume.",
            "--seeds with new runs only",
            "leave it out: the folder sets the number of seeds.",
        )
    first = args.seed or 0
    numbers = f"{first}-{first + count - 1}"
    parent = args.out or default_folder(name_of(args.algorithm), _env_name(args), numbers)
    return seeds.several(args, from_sweep.with_config(words), Path(parent), count)


def _session(args: argparse.Namespace, seed: int | None, out: str | Path | None) -> Any:
    """Return the session, with its progress display or log."""
    is_json = args.log == "json"
    shown = JsonLog(0, args.quiet, stream=stream()) if is_json else Progress(0, args.quiet)
    session = _begun_or_resumed(args, seed, out, shown)
    if isinstance(shown, JsonLog):
        session.table.more.append(shown)
    return session


def _begun_or_resumed(
    args: argparse.Namespace, seed: int | None, out: str | Path | None, callback: Any
) -> Any:
    overrides = given(args)
    callbacks = [callback]
    if args.resume is not None:
        fixed = ("framework", "seed", "start_from", "which", "load")
        odd = [
            f"--{n.replace('_', '-')}"
            for n in (*fixed, *overrides)
            if n not in ("steps", *RESUMABLE) and getattr(args, n) is not None
        ]
        if odd:
            raise ResumeError(
                f"--resume was given with {', '.join(odd)}.",
                MAY_CHANGE,
                "leave them out: a resumed run keeps the settings in its config.json.",
            )
        steps = whole("steps", overrides["steps"]) if "steps" in overrides else None
        where = {n: overrides[n] for n in RESUMABLE if n in overrides}
        return trainer.session(
            args.algorithm,
            args.env if args.vector is None else named(args.vector, args.env_kwargs),
            env_kwargs=args.env_kwargs,
            wrappers=args.wrappers,
            network=args.network,
            trust=args.trust,
            resume=args.resume,
            device=args.device,
            steps=steps,
            out=out,
            extend=args.extend,
            callbacks=callbacks,
            **where,
        )
    out = out or default_folder(name_of(args.algorithm), _env_name(args), seed or 0)
    places = {
        "framework": args.framework,
        "network": args.network,
        "device": args.device,
        "seed": seed or 0,
        "env_kwargs": args.env_kwargs,
        "wrappers": args.wrappers,
        "out": out,
        "extend": args.extend,
        "trust": args.trust and args.config is None,
    }
    begins = ("start_from", "which", "load")
    places |= {n: x for n in begins if (x := getattr(args, n)) is not None}
    env = args.env if args.vector is None else named(args.vector, args.env_kwargs)
    return trainer.session(args.algorithm, env, callbacks=callbacks, **places, **overrides)


def _env_name(args: argparse.Namespace) -> str:
    """Return the environment's part of a new run's folder name."""
    return str(args.env or args.vector.replace(":", "."))


def _complete(args: argparse.Namespace) -> None:
    """Raise an error if the algorithm or the environment is missing."""
    if args.algorithm is None:
        raise SettingError(
            "`tandem train` needs an algorithm and an environment.",
            f"tandem train ALGORITHM ENV, with ALGORITHM one of {', '.join(algorithms.names())}",
            "tandem train ppo CartPole-v1; `tandem list` shows more.",
        )
    known = algorithms.names()
    if args.algorithm not in known and args.env in known:
        fix = f"write the algorithm first: tandem train {args.env} {args.algorithm}"
        raise UnknownNameError("algorithm", args.algorithm, known, fix)
    algorithms.get(args.algorithm)
    name = name_of(args.algorithm)
    if args.env is not None and args.vector is not None:
        raise SettingError(
            f"{args.env} was given with --vector {args.vector}.",
            "only one of them",
            f"leave {args.env} out; the --vector function takes arguments by --env-kwargs.",
        )
    if args.env is None and args.vector is None:
        entries = zoo.environments(name)
        tuned = f"; there are tuned settings for {', '.join(entries)}" if entries else ""
        raise SettingError(
            f"`tandem train {name}` needs an environment.",
            f"a Gymnasium id{tuned}",
            f"tandem train {name} {next(iter(entries), 'CartPole-v1')}",
        )
