"""`tandem list`."""

from __future__ import annotations

import sys

from tandem import algorithms, backends, plugins, zoo
from tandem.algorithms import own
from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.envs import ids
from tandem.errors import PluginError
from tandem.plugins import Plugin
from tandem.runs import config_file, plugin_writers
from tandem.trainer import TAKEN
from tandem.zoo import files

ABOUT = """List algorithms, environments with tuned settings, plug-ins, and installed backends."""
PARTS = {
    "jax": "keras jax",
    "tensorflow": "keras tensorflow",
    "torch": "torch",
    "keras-torch": "keras torch",
}


def run(words: list[str]) -> int:
    """Prints what there is."""
    make_parser().read(words)
    echo("algorithms")
    for name, kind in algorithms.built_in().items():
        about = " ".join((sys.modules[kind.__module__].__doc__ or "").split())
        echo(f"  {name:<12}{about[: about.find(')') + 1]}")
    added, broken = _added()
    if added:
        echo("\nof installed packages")
        for line in added:
            echo(f"  {line}")
    if broken:
        echo("\nof installed packages, and not to be used")
        for fault in broken:
            echo(f"  {fault.happened}\n    Fix: {fault.fix}")
    echo("\ntuned settings (`tandem train ALGORITHM ENV --help all` shows them, with their source)")
    for name in algorithms.names():
        if tuned := sorted(zoo.environments(name)):
            echo(f"  {name:<12}{'  '.join(tuned)}")
        if other := zoo.named(name):
            echo(f"  {'':<12}with --entry: {', '.join(sorted(other))}")
    echo("\nfamilies of environments, which settings above are for")
    for family, held in zoo.families().items():
        echo(f"  {family}: {'  '.join(held)}")
    echo("\nengines")
    versions = config_file.versions()
    for name, parts in PARTS.items():
        if name in backends.installed():
            found = [
                f"{p} {versions.get(p) or versions.get(f'{p}-cpu', '')}" for p in parts.split()
            ]
            echo(f"  {name:<12}{', '.join(found)}")
        else:
            extra = "torch,jax" if name == "keras-torch" else name
            echo(f"  {name:<12}not installed: pip install 'tandem-rl[{extra}]'")
    return 0


def make_parser() -> Parser:
    """The arguments of the command."""
    return Parser("list", ABOUT)


def _added() -> tuple[list[str], list[PluginError]]:
    """What installed packages bring, in lines, and what is wrong with the rest."""
    lines: list[str] = []
    broken: dict[str, PluginError] = {}
    for group, described in DESCRIBED.items():
        for plugin in plugins.found(group).values():
            try:
                lines.append(f"{described(plugin)} ({plugin.source})")
            except PluginError as error:
                broken[str(error)] = error
    for name in algorithms.names():
        faults = [*zoo.faults(name), *files.read(name).clashes.values()]
        broken |= {str(fault): fault for fault in faults}
    return lines, list(broken.values())


def _algorithm(plugin: Plugin) -> str:
    plugin.refuse_clash(plugin.name in algorithms.NAMES)
    kind = own.checked(plugin.name, TAKEN)
    about = " ".join((kind.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    return f"algorithm {plugin.name}{': ' * bool(about)}{about}"


def _environments(plugin: Plugin) -> str:
    return f"environments {', '.join(ids.registered(plugin)) or 'none'}"


def _writer(plugin: Plugin) -> str:
    plugin_writers.check([plugin.name])
    return f"writer {plugin.name}: --writer {plugin.name}"


def _settings(plugin: Plugin) -> str:
    known = files.names(plugin)
    strange = [n for n in known if n != files.FAMILIES and n not in algorithms.names()]
    if strange:
        raise plugin.fault(
            f"has settings of {', '.join(strange)}, which are no algorithms here.",
            "a file for each algorithm, called ALGORITHM.toml",
            "rename the file, or install what brings the algorithm",
        )
    return f"settings of {', '.join(n for n in known if n != files.FAMILIES)}"


DESCRIBED = {
    "algorithms": _algorithm,
    "environments": _environments,
    "writers": _writer,
    "zoo": _settings,
}
