"""`tandem list`."""

from __future__ import annotations

import json
import sys

from tandem import algorithms, backends, plugins, zoo
from tandem.algorithms import own
from tandem.cli.output import echo, table
from tandem.cli.parser import Parser
from tandem.envs import ids
from tandem.errors import PluginError, UnknownNameError, nearest
from tandem.plugins import Plugin
from tandem.runs import config_file, plugin_writers
from tandem.trainer import TAKEN
from tandem.types import JSONDict
from tandem.zoo import files

ABOUT = (
    "List the algorithms, what installed packages add, and the installed frameworks; with the name "
    "of an algorithm or an environment, the tuned settings for it."
)
EXAMPLES = ("tandem list", "tandem list ppo", "tandem list LunarLander-v3", "tandem list --json")
PARTS = {
    "jax": "keras jax",
    "tensorflow": "keras tensorflow",
    "torch": "torch",
    "keras-torch": "keras torch",
}


def run(words: list[str]) -> int:
    """Print the list."""
    args = make_parser().read(words)
    if args.name is None:
        found, show = _everything(), _show_everything
    elif args.name in algorithms.names():
        found, show = _algorithm_named(args.name), _show_algorithm
    else:
        found, show = _environment(args.name), _show_environment
    if args.json:
        echo(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        show(found)
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser("list", ABOUT, EXAMPLES)
    parser.add_argument(
        "name", nargs="?", metavar="ALGORITHM|ENV", help="show the tuned settings for this"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _everything() -> JSONDict:
    kinds = {name: _about(kind) for name, kind in algorithms.built_in().items()}
    versions, added, broken = config_file.versions(), *_added()
    engines = {
        name: {p: versions.get(p) or versions.get(f"{p}-cpu", "") for p in parts.split()}
        if name in backends.installed()
        else None
        for name, parts in PARTS.items()
    }
    faults = [{"fault": fault.happened, "fix": fault.fix} for fault in broken]
    return {"algorithms": kinds, "plugins": added, "broken": faults, "frameworks": engines}


def _show_everything(found: JSONDict) -> None:
    table(((name, *about) for name, about in found["algorithms"].items()), ("algorithm", "", ""))
    if found["plugins"]:
        echo("\nfrom installed packages")
        table(("", line) for line in found["plugins"])
    if found["broken"]:
        echo("\nfrom installed packages, but unusable")
        for fault in found["broken"]:
            echo(f"  {fault['fault']}\n    Fix: {fault['fix']}")
    echo()
    rows = []
    for name, parts in found["frameworks"].items():
        extra = "torch,jax" if name == "keras-torch" else name
        there = ", ".join(f"{n} {v}" for n, v in (parts or {}).items())
        rows.append((name, there or f"not installed: pip install 'tandem-rl[{extra}]'"))
    table(rows, ("framework", ""))
    echo("\nTuned settings: `tandem list ALGORITHM` or `tandem list ENV`.")


def _algorithm_named(name: str) -> JSONDict:
    kinds, of = algorithms.built_in(), zoo.families()
    return {
        "algorithm": name,
        "about": _about(kinds[name]) if name in kinds else ["", ""],
        "environments": {env: [*of.get(env, ())] for env in sorted(zoo.environments(name))},
        "entries": sorted(zoo.named(name)),
    }


def _show_algorithm(found: JSONDict) -> None:
    name = found["algorithm"]
    echo(" ".join([name, *filter(None, found["about"])]) + "\n")
    envs = found["environments"].items()
    table(((env, " ".join(held)) for env, held in envs), ("tuned for", "which are"))
    if found["entries"]:
        echo(f"\nother tuned settings, for --entry: {', '.join(found['entries'])}")
    echo(f"\n`tandem train {name} ENV --help all` shows the values and their source.")


def _environment(env: str) -> JSONDict:
    """Return the algorithms with tuned settings for an environment. Raises UnknownNameError if
    there are none."""
    found = {name: zoo.entry(name, env) for name in algorithms.names()}
    tuned = {
        name: {"steps": entry.settings.get("steps"), "source": entry.source}
        for name, entry in found.items()
        if entry is not None
    }
    if not tuned:
        known = {e for name in algorithms.names() for e in zoo.environments(name)}
        known |= {*algorithms.names(), *(i for held in zoo.families().values() for i in held)}
        fix = (
            "" if nearest(env, known) else "train with the defaults, or choose from `tandem list`."
        )
        raise UnknownNameError("algorithm, or environment with tuned settings,", env, known, fix)
    return {"environment": env, "algorithms": tuned}


def _show_environment(found: JSONDict) -> None:
    rows = [
        (name, f"{tuned['steps']:,}" if tuned["steps"] else "", tuned["source"])
        for name, tuned in found["algorithms"].items()
    ]
    table(rows, ("algorithm", "steps", "source"))
    echo(f"\n`tandem train ALGORITHM {found['environment']}` uses these settings.")


def _about(kind: type) -> list[str]:
    """Return an algorithm's full name and paper."""
    text = " ".join((sys.modules[kind.__module__].__doc__ or "").split())
    title, _, paper = text[: text.find(")") + 1].partition(" (")
    return [title, paper.removesuffix(")")]


def _added() -> tuple[list[str], list[PluginError]]:
    """Return lines on the contents of installed packages, and the errors in the others."""
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
