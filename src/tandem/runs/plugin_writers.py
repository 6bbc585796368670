"""Writers from installed packages: entry points of the group `tandem.writers`.

Each is called with the run folder and the config, as in config.json, and also with TEXT for
--writer NAME=TEXT; it returns a `runs.writers.Writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tandem import plugins
from tandem.errors import SettingError, UnknownNameError, misfit
from tandem.runs.writers import Row
from tandem.types import JSONDict

GROUP = "writers"
OURS = {  # built-in writers with their own flag -> how to enable them
    "csv": "leave it out: progress.csv is always written.",
    "mlflow": "--mlflow EXPERIMENT (mlflow=).",
    "tensorboard": "leave it out: it is written unless --no-tensorboard (tensorboard=False).",
    "wandb": "--wandb PROJECT (wandb=).",
}
METHODS = ("write", "rewind", "close")


def check(asked: Iterable[str]) -> None:
    """Raise UnknownNameError, PluginError or SettingError for writers that are unknown, broken or
    given twice."""
    names = [named.partition("=")[0] for named in asked]
    for named in asked:
        _maker(named)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise SettingError(
            f"the writer {twice[0]} was given {names.count(twice[0])} times.",
            "each writer once",
            f"leave one --writer {twice[0]} out.",
        )


class PluginWriter:
    """Writer created by an entry point. Its errors are raised as PluginError."""

    def __init__(self, named: str, folder: Path, config: JSONDict) -> None:
        self._plugin, make, text = _maker(named)
        self._writer = self._tried(make, folder, config, *text)
        _expect_methods(self._plugin, self._writer)

    def write(self, row: Row) -> None:
        self._tried(self._writer.write, dict(row))

    def rewind(self, env_steps: int) -> None:
        self._tried(self._writer.rewind, env_steps)

    def close(self) -> None:
        self._tried(self._writer.close)

    def _tried(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # the code of a package can raise anything
            what = getattr(function, "__name__", "it")
            raise self._plugin.fault(
                f"failed in {what}: {type(error).__name__}: {error}",
                "a writer that accepts the rows of a run",
                "see its documentation for what it needs, fix it, or leave --writer "
                f"{self._plugin.name} out; to resume a run without it, add --writer ''",
            ) from error


def _expect_methods(plugin: plugins.Plugin, writer: Any) -> None:
    """Raise PluginError for an object or class that lacks a writer's methods."""
    if missing := [name for name in METHODS if not callable(getattr(writer, name, None))]:
        raise plugin.fault(
            f"is {writer!r}, which has no {', '.join(missing)}.",
            "a class with write(row), rewind(env_steps) and close(), or a function that makes one",
            "add these methods (docs/advanced/extending.md)",
        )


def _maker(named: str) -> tuple[plugins.Plugin, Callable[..., Any], list[str]]:
    """Return the plug-in for NAME or NAME=TEXT, the callable that makes its writer, and [TEXT] or
    []."""
    name, equals, text = named.partition("=")
    brought = plugins.found(GROUP)
    if name not in brought:
        fix = OURS.get(name, "")
        if not fix and not brought:
            fix = "install a package that brings it, or leave --writer out."
        expected = "" if brought else "a writer of an installed package, and none is installed"
        raise UnknownNameError("writer", name, brought, fix, expected)
    plugin = brought[name]
    plugin.refuse_clash(name in OURS)
    make = plugin.load()
    if not callable(make):
        raise plugin.fault(
            f"is {make!r}.",
            "a class or function, as MODULE:NAME, that makes a writer",
            "name one (docs/advanced/extending.md)",
        )
    if isinstance(make, type):
        _expect_methods(plugin, make)
    if why := misfit(make, Path(), {}):
        raise plugin.fault(
            f"cannot be called with a folder and a config: {why}.",
            "a class or function of (folder, config), or of (folder, config, text='')",
            "give it these arguments (docs/advanced/extending.md)",
        )
    if equals and (why := misfit(make, Path(), {}, text)):
        raise SettingError(
            f"--writer {named}: {plugin.title} takes no text ({why}).",
            f"--writer {name}",
            f"give --writer {name}, without ={text}.",
        )
    return plugin, make, [text] if equals else []
