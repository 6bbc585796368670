"""`python -m benchmarks.learn --row ROW`: trains a row of learn_rows.py, seed by seed, into
benchmarks/results/learn.csv and learn.md. Without a row: says what is missing, and how long it
should take.

Runs live in $TANDEM_RUNS/ROW/seed-N, by default in the user's cache folder: a clean work tree does
not lose them. A finished one is not run again, an interrupted one goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import learn_curves, learn_page, learn_rows, tables
from benchmarks.learn_rows import ROWS, Learned
from benchmarks.learn_tables import entry, markdown, measured, merged, missing, read, text_of, write
from benchmarks.measure import KERAS, ONE_THREAD, ROOT

FINAL_EPISODES = 200
SMOKE: dict[str, Any] = {
    "eval_every": 300,
    "eval_episodes": 2,
    "final_episodes": 2,
    "checkpoint_seconds": 1.0,
}


@dataclass(frozen=True)
class Places:
    """Where runs and results are."""

    runs: Path
    results: Path
    smoke: bool = False

    def run(self, row: Learned, seed: int) -> Path:
        return self.runs / row.name / f"seed-{seed}"


def kept() -> Path:
    """Where runs are kept: TANDEM_RUNS, else the user's cache folder."""
    if own := os.environ.get("TANDEM_RUNS"):
        return Path(own).expanduser().resolve()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "tandem" / "learn"


def main(arguments: list[str] | None = None) -> int:
    """Trains what was asked for; 0 if every row was finished, whatever its score."""
    args = _parse(arguments)
    if args.list:
        print("\n".join(f"{row.name:24} {row.title}, {row.owed}, {row.framework}" for row in ROWS))
        return 0
    smoke = kept() / "smoke"  # its scores do not belong among the results
    places = (
        Places(smoke / "runs", smoke, True)
        if args.smoke
        else Places(kept(), ROOT / "benchmarks" / "results")
    )
    if args.out:
        places = replace(places, runs=Path(args.out) / "runs", results=Path(args.out))
    if args.one is not None:
        train(prepared(learn_rows.find(args.row[0]), args.smoke), args.one, places)
        return 0
    names = [r.name for r in ROWS] if args.all else args.row
    if not names:
        print(missing(read(places.results / "learn.csv")))
        return 0
    whole = [_row(prepared(learn_rows.find(name), args.smoke), args, places) for name in names]
    print(f"Written: {places.results / 'learn.md'}")
    return 0 if all(whole) else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn", description=__doc__)
    parser.add_argument(
        "--row",
        action="append",
        choices=[r.name for r in ROWS],
        help="only this row; may be repeated",
    )
    parser.add_argument("--all", action="store_true", help="every row, one after the other")
    parser.add_argument(
        "--missing", action="store_true", help="only seeds that have no line in learn.csv yet"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="seeds that train side by side, each on one thread"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="throw finished and interrupted runs away and start over",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60.0,
        help="the most that a row may take; the next call goes on",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="a smoke test: runs of 600 steps, into a folder of their own",
    )
    parser.add_argument(
        "--out",
        help="folder for runs and results instead of $TANDEM_RUNS and benchmarks/results",
    )
    parser.add_argument("--list", action="store_true", help="the rows, and nothing else")
    # train this seed of the row, in this process
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.jobs < 1 or args.minutes <= 0:
        parser.error("--jobs and --minutes have to be positive")
    return args


def prepared(row: Learned, smoke: bool) -> Learned:
    """The row as it is, or so short that it says only whether everything holds together."""
    return replace(row, steps=600, settings={**row.settings, **SMOKE}) if smoke else row


# --- One seed -------------------------------------------------------------------------------------


def finished(folder: Path, steps: int) -> bool:
    """Whether the run in a folder has reached its length and was scored."""
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(result.get("env_steps", 0) >= steps)


def train(row: Learned, seed: int, places: Places) -> None:
    """Trains one seed in this process, or goes on with it; scores it if it gets to its end."""
    from tandem.trainer import session

    folder = places.run(row, seed)
    if (folder / "checkpoints" / "last.zip").is_file():
        run = session(resume=folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)  # it stopped before its first checkpoint
        options = {"final_episodes": FINAL_EPISODES, "plots": False, **row.settings}
        run = session(
            row.algorithm,
            row.env,
            framework=row.framework,
            steps=row.steps,
            seed=seed,
            out=folder,
            **options,
        )
    for _ in run:
        continue
    if run.loop.env_steps >= row.steps:
        run.result()


# --- A row ----------------------------------------------------------------------------------------


def _row(row: Learned, args: Any, places: Places) -> bool:
    """Trains the seeds of a row that are not finished, and writes down what is; whether all are."""
    print(f"{row.name}: {row.title}, {row.framework}", flush=True)
    if args.again:
        shutil.rmtree(places.runs / row.name, ignore_errors=True)
    told = measured(row, read(places.results / "learn.csv")) if args.missing else set()

    def over(seed: int) -> bool:
        return seed in told or finished(places.run(row, seed), row.steps)

    todo = [seed for seed in row.seeds if not over(seed)]

    def start(seed: int) -> subprocess.Popen[bytes]:
        return _start(row, seed, args, places)

    def done(seed: int, code: int) -> None:
        _record(row, places)
        state = (
            "finished"
            if finished(places.run(row, seed), row.steps)
            else "interrupted; the same command goes on"
        )
        print(
            f"  seed {seed}: {state if code == 0 else f'failed with exit code {code}'}", flush=True
        )

    side_by_side(todo, args.jobs, start, done, time.monotonic() + 60 * args.minutes)
    _record(row, places)
    return all(over(seed) for seed in row.seeds)


def _start(row: Learned, seed: int, args: Any, places: Places) -> subprocess.Popen[bytes]:
    env = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"} | ONE_THREAD
    if backend := KERAS.get(row.framework):
        env["KERAS_BACKEND"] = backend
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "benchmarks.learn", "--row", row.name, "--one", str(seed)]
    command += [
        *(["--smoke"] if places.smoke else []),
        *(["--out", str(places.results)] if args.out else []),
    ]
    return subprocess.Popen(command, cwd=ROOT, env=env)


def side_by_side(
    seeds: Sequence[int],
    jobs: int,
    start: Callable[[int], Any],
    done: Callable[[int, int], None],
    deadline: float,
    pause: float = 0.2,
) -> None:
    """Keeps `jobs` processes going until all seeds are through, or the deadline (time.monotonic()):
    then they are asked to end, which they do with a checkpoint, and no further one begins. An
    interrupt ends them likewise."""
    waiting, running, asked = list(seeds), dict[int, Any](), False
    try:
        while running or (waiting and not asked):
            while waiting and len(running) < jobs and not asked:
                seed = waiting.pop(0)
                running[seed] = start(seed)
            time.sleep(pause)
            for seed, process in list(running.items()):
                if process.poll() is not None:
                    del running[seed]
                    done(seed, process.returncode)
            if not asked and time.monotonic() > deadline:
                asked = True
                for process in running.values():
                    process.send_signal(signal.SIGTERM)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        for process in running.values():
            process.wait()


def _record(row: Learned, places: Places) -> None:
    """learn.csv, learn.md, evaluations.csv and the curves with all that is finished of the row."""
    done = {
        seed: places.run(row, seed)
        for seed in row.seeds
        if finished(places.run(row, seed), row.steps)
    }
    kept = places.results / "evaluations.csv"
    seen = [line for seed in done for line in learn_curves.evaluations(row, seed, done[seed])]
    told = merged(read(kept), seen)
    tables.write(kept, text_of(learn_curves.COLUMNS, told))
    if done:
        learn_curves.draw(row, told, places.results / "curves" / f"{row.name}.png")
    new = [entry(row, seed, folder) for seed, folder in done.items()]
    table = merged(read(places.results / "learn.csv"), new)
    write(places.results / "learn.csv", places.results / "learn.md", table, markdown(table))
    if places.results == learn_page.RESULTS:
        learn_page.main()  # the pages name the curves that there are


if __name__ == "__main__":
    sys.exit(main())
