"""`python -m benchmarks.faults run`: which faults the test suite finds. Each fault of faults.toml
and each mutation of mutations.csv is made in a copy of the repository, and the tests run that may
notice it, until one fails: first the one that found it `--before`, then files named after its
module, those of its package or that name it, and those that name a module that imports it. Results
are appended to a file, and what is in the file is not run again.

`draw` draws the mutations anew. `check` lists the places that no longer exist. `compare OLD NEW`
lists what the results OLD found and the results NEW did not.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.mutations import ROOT, SOURCE, Fault, every_fault, sample, sources, with_fault

COLUMNS = ("name", "result", "test", "seconds", "file", "tests")
QUICK = "not slow and not learns and not thorough"
SLOW = "slow and not learns and not thorough"
MARK = "TANDEM_FAULT"  # in the environment of all processes of a run
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


def stages(file: str, root: Path) -> list[tuple[list[str], str]]:
    """(test files, expression for -m) to run in turn for a fault in a source file."""
    package, stem = file.removeprefix(f"{SOURCE}/").removesuffix(".py").rpartition("/")[::2]
    stem = package.rpartition("/")[2] if stem == "__init__" else stem
    own = tuple(f"tests/{name}" for name in (f"{package}/", f"test_{package}") if package)
    texts = {f: (root / f).read_text("utf-8") for f in sources(root)}
    through = {stem, *(Path(f).stem for f, text in texts.items() if imports(text, stem))}
    named, near, far = list[str](), list[str](), list[str]()
    for path in sorted((root / "tests").rglob("test_*.py")):
        test = path.relative_to(root).as_posix()
        text = "".join(p.read_text("utf-8") for p in (path, *helpers(path, root)))
        if stem.rstrip("s") in path.stem:
            named.append(test)
        elif test.startswith(own) or imports(text, stem):
            near.append(test)
        elif any(imports(text, name) for name in through):
            far.append(test)
    order = [(named, QUICK), (near, QUICK), (named, SLOW), (near, SLOW), (far, QUICK), (far, SLOW)]
    return [(files, marks) for files, marks in order if files]


def imports(text: str, stem: str) -> bool:
    """Whether a file's text imports a module of tandem with this name, or something of it."""
    return bool(re.search(rf"from tandem[\w.]* import .*\b{stem}\b|tandem[\w.]*\.{stem}\b", text))


def helpers(test: Path, root: Path) -> list[Path]:
    """The files in a test's folder, and in its folder of snippets, that are no tests."""
    if test.parent == root / "tests":
        return []
    return [p for p in test.parent.rglob("*.py") if not p.name.startswith("test_")]


class Copy:
    """A copy of the repository, with the tests of the checkout `tests_from`."""

    def __init__(self, tests_from: Path) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="faults-"))  # short: sockets lie below it
        self.root, self.took = self.base / "repo", 0.0
        self.sound = dict[str, bool]()  # whether tests that have failed pass without a fault
        for source, of_tests in ((ROOT, False), (tests_from, True)):
            command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            listed = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
            for name in filter(None, listed.stdout.split("\0")):
                if name.startswith("tests/") == of_tests and (source / name).is_file():
                    (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source / name, self.root / name)
        if (ROOT / ".venv").exists():
            (self.root / ".venv").symlink_to(ROOT / ".venv")

    def judge(self, fault: Fault, limit: float, before: str) -> dict[str, Any]:
        """The result for a fault, after at most `limit` seconds of pytest."""
        row: dict[str, Any] = {"name": fault.name, "result": "not found", "test": "", "seconds": 0}
        if (place := with_fault(fault, self.root)) is None:
            return row | {"result": "gone", "file": fault.file}
        file, text = place
        todo = [([before], "")] if (self.root / before.split("::")[0]).is_file() else []
        todo += stages(file, self.root)
        self.took = 0.0
        while todo and not row["test"]:
            with self._changed(file, text):
                test = self._failing(*todo[0], limit - self.took)
            if test and self._is_sound(test):
                row |= {"result": "found", "test": test}
            elif self.took >= limit:
                row["result"] = f"not found in {limit:g} s"
                break
            elif not test:
                todo.pop(0)
        return row | {"file": file, "seconds": round(self.took)}

    @contextmanager
    def _changed(self, file: str, text: str) -> Iterator[None]:
        path = self.root / file
        original = path.read_text("utf-8")

        def put(now: str) -> None:
            path.write_text(now, encoding="utf-8")
            # Python goes by size and second, in which two versions may agree
            Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

        put(text)
        try:
            yield
        finally:
            put(original)

    def _is_sound(self, test: str) -> bool:
        """Whether a test passes without a fault."""
        if test not in self.sound:
            self.sound[test] = not self._failing([test], "", 300.0)
        return self.sound[test]

    def _failing(self, tests: list[str], marks: str, limit: float) -> str:
        """The first test that fails, or that was running when pytest died; "" if there is none
        within `limit` seconds."""
        broken = [f"--deselect={test}" for test, sound in self.sound.items() if not sound]
        command = [sys.executable, "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", "-n", "0"]
        temporary = self.base / "tmp"
        temporary.mkdir(exist_ok=True)
        own = {MARK: str(self.base), "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
        own["PYTHONPATH"] = f"{self.root / 'src'}{os.pathsep}{self.root}"
        written, began, status = self.base / "out.txt", time.monotonic(), None
        with written.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(
                [*command, "-m", marks, *broken, *tests], cwd=self.root, env=os.environ | own,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(max(limit, 0.0))
        self.took += time.monotonic() - began
        self._end()
        process.wait()
        shutil.rmtree(temporary, ignore_errors=True)
        text = written.read_text("utf-8", errors="replace")
        if status in (None, 0, 5) or "no tests ran" in text:  # 5: none was selected
            return ""
        failed = FAILED.findall(text) or re.findall(r"^(tests/\S+::.+?) +$", text, re.MULTILINE)
        if not failed:
            raise RuntimeError(f"pytest ended with {status}:\n{text[-3000:]}")
        return str(failed[-1])

    def _end(self) -> None:
        """Ends everything that a run has started, also in sessions of its own."""
        mark = f"{MARK}={self.base}\0".encode()
        for file in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or is another user's
                if mark in file.read_bytes():
                    os.kill(int(file.parent.name), signal.SIGKILL)


def run(args: argparse.Namespace) -> None:
    """Judges all faults that the file of results does not have."""
    done = {row["name"] for row in rows(args.out)}
    before = {row["name"]: row["test"] for row in rows(args.before)} if args.before else {}
    copy = Copy(args.tests_from)
    try:
        for fault in every_fault():
            if fault.name not in done and any(fnmatch(fault.name, x) for x in args.only):
                row = copy.judge(fault, args.limit, before.get(fault.name, ""))
                write(args.out, row | {"tests": args.tests})
                print(row["name"], row["result"], row["test"], row["seconds"], flush=True)
    finally:
        copy._end()
        shutil.rmtree(copy.base, ignore_errors=True)


def rows(path: Path) -> list[dict[str, str]]:
    """The results in a file; none if there is no such file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, row: dict[str, Any]) -> None:
    """Appends a result."""
    is_new = not path.is_file()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def compare(old: Path, new: Path) -> int:
    """Prints what was found before and is not now; how much that is."""
    now = {row["name"]: row for row in rows(new)}
    lost = [row for row in rows(old) if row["result"] == "found"]
    lost = [row for row in lost if now.get(row["name"], {"result": "found"})["result"] != "found"]
    for row in lost:
        print(row["name"], row["file"], now[row["name"]]["result"], "- found by", row["test"])
    return len(lost)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--only", nargs="*", metavar="NAME", default=["*"], help="such as m0*")
    runs.add_argument("--out", type=Path, default=Path("faults.csv"))
    runs.add_argument("--before", type=Path, metavar="FILE", help="results of an earlier suite")
    runs.add_argument("--tests", default="suite", help="what the results call these tests")
    runs.add_argument("--tests-from", type=Path, default=ROOT, metavar="DIR", help="a checkout")
    runs.add_argument("--limit", type=float, default=240.0, help="seconds for each fault")
    draw = commands.add_parser("draw")
    draw.add_argument("--seed", type=int, default=0)
    draw.add_argument("--count", type=int, default=150)
    commands.add_parser("check")
    compares = commands.add_parser("compare")
    compares.add_argument("old", type=Path)
    compares.add_argument("new", type=Path)
    args = parser.parse_args(arguments)
    if args.command == "run":
        run(args)
    elif args.command == "draw":
        sample(args.seed, args.count)
    elif args.command == "check":
        gone = [f for f in every_fault() if with_fault(f, ROOT) is None]
        print(*(f"{f.name} {f.file}" for f in gone), sep="\n")
    else:
        return int(compare(args.old, args.new) > 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
