"""`tandem cache`."""

from __future__ import annotations

import shutil

from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.platforms import user_folder

ABOUT = """Show the cache folders and sizes of compiled updates, by backend; --empty deletes the
caches. tandem keeps PyTorch's cache below half a gigabyte."""


def run(words: list[str]) -> int:
    """Print each backend's cache folder and size."""
    args = make_parser().read(words)
    for engine in ("torch", "jax"):
        cache = user_folder("cache")
        folder = None if cache is None else cache / engine
        if folder is None or not folder.is_dir():
            echo(f"{engine}: nothing compiled")
            continue
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        if args.empty:
            shutil.rmtree(folder)
        echo(f"{engine}: {size / 1e6:.1f} MB in {folder}{', deleted' * args.empty}")
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser("cache", ABOUT, ("tandem cache", "tandem cache --empty"))
    parser.add_argument("--empty", action="store_true", help="delete the cache")
    return parser
