"""Shared parts of the commands that read a run: its checkpoint, its agent, its environment."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from tandem import trainer
from tandem.algorithms import own
from tandem.cli.parser import (
    import_argument,
    network_argument,
    trust_argument,
    vector_arguments,
)
from tandem.envs import envpool
from tandem.envs.factory import make
from tandem.envs.vector_source import brought, named
from tandem.envs.wrapped import wrapped
from tandem.errors import RunFolderError, SettingError, UnknownNameError, note
from tandem.runs import checkpoint, config_file, trust
from tandem.runs.folder import run_folder
from tandem.types import JSONDict


class Loaded(NamedTuple):
    """An agent, its checkpoint file, and its run's folder and config."""

    agent: Any
    file: Path
    folder: Path
    config: JSONDict

    @property
    def env(self) -> Any:
        """The training environment as accepted by `make`, or a vector environment. Raises
        SettingError if only a program can create it."""
        self.expect_id("tandem.evaluate({}, env)")
        config_file.expect_env(self.config, self.folder)
        kwargs = self.config.get("env_kwargs")
        if (vector := self.config.get("vector")) == "id":
            return brought(self.named)[0]
        if vector:
            return wrapped(named(vector, kwargs), self.config.get("wrappers"))
        return partial(make, self.named, kwargs) if kwargs else self.named

    @property
    def named(self) -> Any:
        """The environment by name, with its wrappers."""
        return wrapped(self.config["env"], self.config.get("wrappers"))

    def expect_id(self, code: str) -> None:
        """Raise SettingError if only Python code can create the environment; the fix is the
        equivalent `code`, with the agent in place of {}."""
        if self.config["own_env"] or self.config.get("vector") == "own":
            raise SettingError(
                f"{self.folder} was trained in an environment that was passed from Python "
                f"({self.config['env']}).",
                "an environment with a Gymnasium id",
                f"do it in Python: {code.format(f'tandem.load({str(self.folder)!r})')}.",
            )


def find(path: str, which: str) -> Path:
    """Return the checkpoint file of a run folder, or the file itself."""
    location = Path(path)
    if not location.is_file():
        run_folder(location)
        names = sorted(f.stem for f in (location / "checkpoints").glob("*.zip"))
        # "best" falls back to "last" until a best one is chosen
        if which != "best" and which not in names:
            raise UnknownNameError(f"checkpoint in {location}:", which, names)
    return checkpoint.find(location, which)


def load(args: argparse.Namespace, command: str = "") -> Loaded:
    """Return the agent of the run folder or checkpoint file in a command's arguments.

    command: its name if it creates the environment; names that may lead to code are then checked,
    and overridden by the arguments. The name of a network in the file is imported only if this user
    wrote it, or the command repeats or trusts it.
    """
    location, file = Path(args.folder), find(args.folder, args.which)
    folder = location if location.is_dir() else checkpoint.folder_of(location)
    saved = checkpoint.read(file).data
    config = saved["config"]
    if command and (calls := saved.get("session", {}).get("calls")):
        names = ", ".join(dict.fromkeys(call[0] for *_, call in calls))
        note(
            f"training called {names} in the environment, but `tandem {command}` makes it as it "
            "was at first: --env-kwargs or --wrapper can set another start."
        )
    written = config_file.read(folder)
    config_file.refuse_other_env(folder, written, config)
    algorithm, trusted = own_class(args.algorithm), getattr(args, "trust", False)
    agent = trainer.load(file, network=args.network, algorithm=algorithm, trust=trusted)
    agent.distrust = None  # `_repeated` checks the environment
    if command:
        config |= _repeated(args, config, folder, written.get("signature"), command)
        agent.env_kwargs, agent.wrappers = config["env_kwargs"], config.get("wrappers") or []
    return Loaded(agent, file, folder, config)


def names_of(args: argparse.Namespace) -> trust.Names:
    """Return the names of the environment in a command's arguments, and --trust."""
    cluster = getattr(args, "cluster", None)
    given = args.env, args.vector, args.env_kwargs, args.network, cluster, args.trust
    return trust.Names(*given, args.wrappers)


def _repeated(
    args: argparse.Namespace, config: JSONDict, folder: Path, signature: Any, command: str
) -> JSONDict:
    """Return a run's config with the environment entries overridden by the arguments. Raises
    RunFolderError if a name in the file may lead to code and is not repeated."""
    names, again = names_of(args), f"tandem {command} {{}}{quote(args.folder)}"
    changed: JSONDict = {}
    if names.env_kwargs is not None:
        is_other = names.vector is not None or names.env not in (None, config["env"])
        kept = {} if is_other else config.get("env_kwargs") or {}
        changed = {"env_kwargs": {**kept, **names.env_kwargs}}
    if names.wrappers is not None:
        changed |= {"wrappers": names.wrappers}
    if names.vector is not None:
        changed |= {"wrappers": names.wrappers or []}
        changed |= {"env": names.vector, "vector": names.vector, "own_env": False}
    elif names.env is not None:
        vector = "id" if envpool.is_id(names.env) else ""
        changed |= {"env": names.env, "vector": vector, "own_env": False}
    data: JSONDict = {"env_kwargs": {}} | config | changed
    played = data | {"options": {}}  # commands that play use no cluster
    trust.expect(config, folder, signature, names, again, RunFolderError, "--env ", played)
    return data


def own_class(path: str | None) -> Any:
    """Return the class named as module:Class; None for None."""
    return None if path is None else own.checked(own.named(path), trainer.TAKEN)


def own_argument(parser: Any) -> None:
    """Add the argument for the class of a custom algorithm."""
    parser.add_argument(
        "--algorithm",
        metavar="MODULE:CLASS",
        help="class of a custom algorithm that trained the run",
    )


def deterministic_argument(parser: Any) -> None:
    """Add the argument for deterministic or sampled actions."""
    parser.add_argument(
        "--deterministic",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="use the best actions; --no-deterministic: sample, as in training [yes]",
    )


def env_arguments(parser: Any) -> None:
    """Add the arguments that repeat or trust the names of a run's environment."""
    parser.add_argument("--env", metavar="ENV", help="environment [as in the run]")
    vector_arguments(parser)
    trust_argument(parser)


def arguments(parser: Any) -> None:
    """Add the arguments that select the agent."""
    own_argument(parser)
    network_argument(parser)
    import_argument(parser)
    parser.add_argument("folder", metavar="DIR", help="run folder, or one of its checkpoints")
    parser.add_argument(
        "--which",
        default="best",
        metavar="NAME",
        help="checkpoint: best, last, or a numbered one such as step-000010000 [best]",
    )
