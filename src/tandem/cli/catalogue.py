"""`tandem list`."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from tandem import algorithms, backends, zoo
from tandem.cli.parser import Parser

ABOUT = (
    "Lists the algorithms, the environments that have tuned settings, and the engines that "
    "are installed."
)
PARTS = {
    "jax": "keras jax",
    "tensorflow": "keras tensorflow",
    "torch": "torch",
    "keras-torch": "keras torch",
}


def run(words: list[str]) -> int:
    """Prints what there is."""
    Parser("list", ABOUT).read(words)
    print("algorithms")
    for name in algorithms.NAMES:
        about = " ".join((sys.modules[algorithms.get(name).__module__].__doc__ or "").split())
        print(f"  {name:<12}{about[: about.find(')') + 1]}")
    print("\ntuned settings (`tandem train ALGORITHM ENV --help` shows them, with their source)")
    for name in algorithms.NAMES:
        print(f"  {name:<12}{'  '.join(sorted(zoo.environments(name)))}")
        if other := zoo.named(name):
            print(f"  {'':<12}with --entry: {', '.join(sorted(other))}")
    print("\nfamilies of environments, which settings above are for")
    for family, ids in zoo.families().items():
        print(f"  {family}: {'  '.join(ids)}")
    print("\nengines")
    for name, parts in PARTS.items():
        if name in backends.installed():
            print(f"  {name:<12}{', '.join(f'{p} {_version(p)}' for p in parts.split())}")
        else:
            extra = "torch,jax" if name == "keras-torch" else name
            print(f"  {name:<12}not installed: pip install 'tandem-rl[{extra}]'")
    return 0


def _version(name: str) -> str:
    for distribution in (name, f"{name}-cpu"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return ""
