"""What a wheel and an sdist have to hold: `python -m tests.distribution FOLDER`, by `make dist`."""

import sys
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from tests.helpers import ROOT

PACKAGE = ROOT / "src" / "tandem"
DATA = ("py.typed", "zoo/*.toml")  # in the package, beside its modules
# of an sdist
TOP = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO", "README.md"}
TOP |= {"benchmarks", "constraints-lowest.txt", "constraints.txt", "docs", "pyproject.toml"}
# hatchling puts .gitignore in: what is built from an sdist leaves out the same
TOP |= {"src", "tests", ".gitignore"}
# what work leaves behind, wherever it lies
LEFT = ("__pycache__", ".venv", "*.pyc", "*.egg-info", ".*_cache", ".hypothesis", "*.part")
LARGEST = 3 * 2**20  # bytes of either file: what grows beyond that is not source


def sources() -> set[str]:
    """The files of the package, by their paths in it."""
    kinds = ("**/*.py", *DATA)
    return {p.relative_to(PACKAGE).as_posix() for kind in kinds for p in PACKAGE.glob(kind)}


def wheel_faults(wheel: Path) -> Iterator[str]:
    """What is wrong with a wheel."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        entry = [n for n in names if n.endswith(".dist-info/entry_points.txt")]
        commands = file.read(entry[0]).decode() if entry else ""
    info = {n for n in names if n.split("/")[0].endswith(".dist-info")}
    wanted = {f"tandem/{n}" for n in sources()}
    yield from (f"{wheel.name} is without {n}" for n in sorted(wanted - names))
    yield from (f"{wheel.name} has {n}" for n in sorted(names - info - wanted))
    if "tandem = tandem.cli:main" not in commands:
        yield f"{wheel.name} has no command tandem"
    if not any(n.endswith("/licenses/LICENSE") for n in info):
        yield f"{wheel.name} is without its licence"
    yield from _size_faults(wheel)


def sdist_faults(sdist: Path) -> Iterator[str]:
    """What is wrong with an sdist."""
    with tarfile.open(sdist) as file:
        members = file.getmembers()
    yield from (f"{sdist.name} has {m.name}, no file" for m in members if not m.isfile())
    names = {PurePosixPath(*PurePosixPath(m.name).parts[1:]) for m in members}
    tops = {n.parts[0] for n in names}
    yield from (f"{sdist.name} is without {n}" for n in sorted(TOP - tops))
    yield from (f"{sdist.name} has {n}" for n in sorted(tops - TOP))
    wanted = {PurePosixPath("src/tandem", n) for n in sources()}
    for room in ("tests", "benchmarks", "docs"):
        python = (p.relative_to(ROOT).as_posix() for p in (ROOT / room).rglob("*.py"))
        wanted |= {PurePosixPath(n) for n in python}
    wanted.add(PurePosixPath("tests/data/checkpoints/ppo/checkpoints/last.zip"))
    yield from (f"{sdist.name} is without {n}" for n in sorted(map(str, wanted - names)))
    for name in sorted(map(str, names)):
        if any(fnmatchcase(part, kind) for part in name.split("/") for kind in LEFT):
            yield f"{sdist.name} has {name}"
    yield from _size_faults(sdist)


def _size_faults(file: Path) -> Iterator[str]:
    if (size := file.stat().st_size) > LARGEST:
        yield f"{file.name} has {size:,} bytes, more than {LARGEST:,}"


def main(folder: Path) -> int:
    """Looks into the only wheel and the only sdist of a folder; prints what is wrong."""
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(f"{folder} has {len(wheels)} wheels and {len(sdists)} sdists, not one of each")
        return 1
    faults = [*wheel_faults(wheels[0]), *sdist_faults(sdists[0])]
    print(*faults, sep="\n" if faults else "", end="\n" if faults else "")
    for file in (*wheels, *sdists):
        print(f"{file}: {file.stat().st_size:,} bytes")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
