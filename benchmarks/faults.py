"""`python -m benchmarks.faults run`: which faults the test suite finds. Each fault of faults.toml
and each mutation of mutations.csv is made in a copy of the repository, and the tests run that may
notice it: files named after its module first, then those in the folder of its package and those
that import it, then those that import it through one other module; in each group quick tests before
slow ones. The first failure ends it. Results are appended to a file, and what is in the file is
not run again.

`draw` draws the mutations anew. `check` lists the places that no longer exist. `compare OLD NEW`
lists what the results OLD found and the results NEW did not.
"""

from __future__ import annotations

import argparse
import ast
import csv
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.mutations import ROOT, SOURCE, Fault, every_fault, sample, sources, with_fault

COLUMNS = ("name", "result", "test", "seconds", "file", "tests")
QUICK = "not slow and not learns and not thorough"
SLOW = "slow and not learns and not thorough"
SILENCE = 100.0  # seconds without a finished test, after which a run that is ended has hung
ALONE = 300.0  # seconds for a test by itself, without the fault
MARK = "TANDEM_FAULT"  # in the environment of all processes of a run
MENTIONED = re.compile(r"\btandem(?:\.\w+)+|from (tandem[\w.]*) import ([^\n(]+|\([^)]*\))")
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
TOOK = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(tests/\S+?\.py)::", re.MULTILINE)
HOME = re.compile(r'"(\w+)": \("(tandem[\w.]*)"')  # of a public name, in tandem/__init__.py
stopping = threading.Event()


# Which tests


class Imports:
    """Which modules of tandem the source and the tests below a folder import."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = {module_of(file) for file in sources(root)}
        homes = HOME.findall((root / SOURCE / "__init__.py").read_text("utf-8"))
        self.homes = {f"tandem.{name}": module for name, module in homes}
        self.of_source = {module_of(file): self._of_source(root / file) for file in sources(root)}
        files = sorted((root / "tests").rglob("*.py"))
        self.texts = {f.relative_to(root).as_posix(): f.read_text("utf-8") for f in files}
        self.of_tests = {
            file: self._of_test(file) for file in self.texts if Path(file).name.startswith("test_")
        }

    def _known(self, name: str) -> str:
        """The module that a dotted name is in."""
        name = self.homes.get(name, name)
        while name not in self.modules and "." in name:
            name = name.rpartition(".")[0]
        return name

    def _of_source(self, path: Path) -> set[str]:
        """Of a source file; a name that is put together, as in import_module(f"tandem.cli.{name}"),
        may be that of any module that it begins."""
        found = set[str]()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {self._known(f"{node.module}.{alias.name}") for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {self._known(alias.name) for alias in node.names}
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                begin = str(node.values[0].value)
                if begin.startswith("tandem."):
                    found |= {module for module in self.modules if module.startswith(begin)}
        return found

    def _of_test(self, file: str) -> set[str]:
        """Of a test file, its snippets included, and the files of tests that it names."""
        folder, seen, found = Path(file).parent.as_posix(), set[str](), set[str]()
        todo = [file]
        while todo:
            text = self.texts[seen_now := todo.pop()]
            seen.add(seen_now)
            for match in MENTIONED.finditer(text):
                module, names = match.groups()
                inner = re.findall(r"\w+", names) if names else []
                found |= {self._known(f"{module}.{n}") for n in inner} or {self._known(match[0])}
            for other in self.texts:
                path = Path(other)
                if other not in seen and not path.name.startswith(("test_", "__", "conftest")):
                    near = path.parent.as_posix().startswith(folder) and folder != "tests"
                    dotted = path.with_suffix("").as_posix().replace("/", ".")
                    if dotted in text or (near and re.search(rf"\b{path.stem}\b", text)):
                        todo.append(other)
        return found

    def stages(self, file: str, seconds: dict[str, float]) -> list[tuple[list[str], str]]:
        """(test files, expression for -m) to run in turn for a fault in a source file."""
        module = module_of(file)
        package, stem = (module.split(".") + [""])[1], module.rpartition(".")[2]
        through = {m for m, imported in self.of_source.items() if module in imported}
        named, near, far = list[str](), list[str](), list[str]()
        for test, imported in self.of_tests.items():
            name = Path(test).stem.removeprefix("test_")
            own = test.startswith((f"tests/{package}/", f"tests/test_{package}"))
            if name in (stem, stem.rstrip("s"), f"{stem}s") or name.startswith(f"{stem}_"):
                named.append(test)
            elif own or module in imported:
                near.append(test)
            elif through & imported:
                far.append(test)
        stages = [
            (sorted(files, key=lambda f: (module not in self.of_tests[f], seconds.get(f, 0.0), f)))
            for files in (named, near, far)
        ]
        order = [(0, QUICK), (1, QUICK), (0, SLOW), (1, SLOW), (2, QUICK), (2, SLOW)]
        return [(stages[i], marks) for i, marks in order if stages[i]]


def module_of(file: str) -> str:
    """tandem.replay.buffer, of src/tandem/replay/buffer.py."""
    parts = Path(file).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# Running them


class Copy:
    """A copy of the repository, with the tests of the checkout `tests_from`."""

    broken: ClassVar[set[str]] = set()  # tests that fail without a fault
    sound: ClassVar[set[str]] = set()  # tests that do not

    def __init__(self, tests_from: Path, python: list[str]) -> None:
        """python: the command that runs Python."""
        self.python, self.took = python, 0.0  # seconds of pytest
        self.base = Path(tempfile.mkdtemp(prefix="faults-"))  # short: sockets lie below it
        self.root = self.base / "repo"
        for source, of_tests in ((ROOT, False), (tests_from, True)):
            command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            listed = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
            for name in filter(None, listed.stdout.split("\0")):
                if name.startswith("tests/") == of_tests and (source / name).is_file():
                    (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source / name, self.root / name)
        if (ROOT / ".venv").exists():
            (self.root / ".venv").symlink_to(ROOT / ".venv")
        self.imports = Imports(self.root)

    def judge(self, fault: Fault, limit: float, seconds: dict[str, float]) -> dict[str, Any]:
        """The result for a fault, after at most `limit` seconds. seconds: of each test file, where
        they are known."""
        row: dict[str, Any] = {"name": fault.name, "result": "not found", "test": "", "seconds": 0}
        if (place := with_fault(fault, self.root)) is None:
            return row | {"result": "gone", "file": fault.file}
        file, text = place
        self.took, stages = 0.0, self.imports.stages(file, seconds)
        while stages and not row["test"]:
            with self._changed(file, text):
                test = self._failing(*stages[0], limit - self.took)
            if test and self._is_sound(test):
                row |= {"result": "found", "test": test}
            elif self.took >= limit or stopping.is_set():
                row["result"] = f"not found in {limit:g} s"
                break
            elif not test:
                stages.pop(0)
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
        if test not in self.sound | self.broken:
            whole = ["--collect-only"] if test.endswith(".py") else []
            failing = self._failing([test, *whole], "not learns and not thorough", ALONE)
            if not stopping.is_set():
                (self.broken if failing else self.sound).add(test)
        return test in self.sound

    def _failing(self, tests: list[str], marks: str, limit: float) -> str:
        """The first test that fails, or that was running when pytest died or had hung; "" if there
        is none within `limit` seconds."""
        known = [f"--deselect={test}" for test in sorted(self.broken)]
        known += [f"--ignore={test}" for test in sorted(self.broken) if test.endswith(".py")]
        command = [*self.python, "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", "-n", "0"]
        path = f"{self.root / 'src'}{os.pathsep}{self.root}"
        (self.base / "tmp").mkdir(exist_ok=True)
        own = {MARK: str(self.base), "PYTHONPATH": path, "TMPDIR": str(self.base / "tmp")}
        own["PYTHONUNBUFFERED"] = "1"
        written = self.base / "out.txt"
        with written.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(
                [*command, "-m", marks, *known, *tests], cwd=self.root, env=os.environ | own,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
            began = said = time.monotonic()
            size, waited = 0, True  # for the command to begin, which may wait for its turn
            while process.poll() is None and not stopping.is_set():
                time.sleep(0.2)
                now = time.monotonic()
                if written.stat().st_size > size:
                    began = now if waited else began
                    said, size, waited = now, written.stat().st_size, False
                if now - began > limit and not waited:
                    break
        status, now = process.poll(), time.monotonic()
        self.took += now - began
        self._end(process)
        text = written.read_text("utf-8", errors="replace")
        if (status is None and now - said < SILENCE) or status in (0, 5) or stopping.is_set():
            return ""
        failed = FAILED.findall(text) or re.findall(r"^(tests/\S+::.+?) +$", text, re.MULTILINE)
        if not failed:
            raise RuntimeError(f"pytest ended with {status}:\n{text[-3000:]}")
        return str(failed[-1])

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Ends everything that a run has started, also in sessions of its own."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        mark = f"{MARK}={self.base}\0".encode()
        for file in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or is another user's
                if mark in file.read_bytes():
                    os.kill(int(file.parent.name), signal.SIGKILL)
        shutil.rmtree(self.base / "tmp", ignore_errors=True)


def run(args: argparse.Namespace) -> None:
    """Judges all faults that the file of results has not."""
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    done, lock = {row["name"] for row in rows(args.out)}, threading.Lock()
    waiting = [
        f
        for f in every_fault()
        if f.name not in done and any(fnmatch(f.name, x) for x in args.only or ["*"])
    ]
    seconds = defaultdict[str, float](float)
    if args.durations is not None:
        for took, file in TOOK.findall(args.durations.read_text("utf-8")):
            seconds[file] += float(took)

    def work() -> None:
        copy = Copy(args.tests_from, shlex.split(args.python))
        try:
            while not stopping.is_set():
                with lock:
                    if not waiting:
                        return
                    fault = waiting.pop(0)
                row = copy.judge(fault, args.limit, seconds)
                if not stopping.is_set():
                    with lock:
                        write(args.out, row | {"tests": args.tests})
                    print(row["name"], row["result"], row["test"], row["seconds"], flush=True)
        finally:
            shutil.rmtree(copy.base, ignore_errors=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        for future in [pool.submit(work) for _ in range(args.jobs)]:
            future.result()


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
    runs.add_argument("--only", nargs="*", metavar="NAME", help="names, or patterns such as m0*")
    runs.add_argument("--out", type=Path, default=Path("faults.csv"))
    runs.add_argument("--tests", default="suite", help="what the results call these tests")
    runs.add_argument("--tests-from", type=Path, default=ROOT, metavar="DIR", help="a checkout")
    runs.add_argument("--durations", type=Path, help="output of pytest --durations=0")
    runs.add_argument("--limit", type=float, default=240.0, help="seconds for each fault")
    runs.add_argument("--jobs", type=int, default=1)
    runs.add_argument("--python", default=sys.executable, help="the command that runs the tests")
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
        print(*(f"{f.name} {f.file} {f.scope}" for f in gone), sep="\n")
    else:
        return int(compare(args.old, args.new) > 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
