"""`python -m benchmarks.bench`: our speed beside Stable-Baselines3 and SBX, into
benchmarks/results/speed.json and speed.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import measure, rows, tables
from benchmarks.measure import ROOT, Pair, Run, alternating, calibrated, check_updates
from benchmarks.rows import ENGINES, PEERS, ROWS, USUAL, Reach, Row

MODULES = {
    "sb3": "stable_baselines3",
    "sbx": "sbx",
    "jax": "jax",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "torch-custom": "torch",
    "keras-torch": "torch",
}


def main(arguments: list[str] | None = None) -> int:
    """Measures what was asked for; the exit code."""
    args = _parse(arguments)
    # numbers of a smoke test do not belong among the results
    quick_out = ROOT / "runs" / "bench-quick"
    out = (
        Path(args.out) if args.out else quick_out if args.quick else ROOT / "benchmarks" / "results"
    )
    present = [name for name in args.contestants if find_spec(MODULES[name])]
    for name in sorted(set(args.contestants) - set(present)):
        print(f"{rows.NAMES[name]} is not installed here; left out.", file=sys.stderr)
    core = measure.last_core() if args.core is None else args.core
    for name in args.row or [row.name for row in ROWS]:
        row = rows.find(name)
        print(f"{row.name}: {row.title}", flush=True)
        entry = (
            _reach(row, present, args, core)
            if isinstance(row, Reach)
            else _speed(row, present, args, core)
        )
        _record(out, row, entry, args)
    print(
        (out / "speed.md").read_text(encoding="utf-8")
        if args.show
        else f"Written: {out / 'speed.md'}"
    )
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__)
    parser.add_argument(
        "--row",
        action="append",
        choices=[r.name for r in ROWS],
        help="only this row; may be repeated",
    )
    parser.add_argument(
        "--contestants",
        type=lambda text: text.split(","),
        default=list(USUAL),
        help=f"of {','.join((*ENGINES, *PEERS))}",
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="runs of each length, of which the median counts"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="least length of a short run")
    parser.add_argument(
        "--seeds", type=int, default=3, help="seeds of the rows that wait for a score"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--core", type=int, help="number of the core to measure on (default: the last)"
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: the processor's time, for a machine in use by others",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: one repeat of very short runs"
    )
    parser.add_argument("--out", help="folder for speed.json and speed.md")
    parser.add_argument("--show", action="store_true", help="print the table at the end")
    args = parser.parse_args(arguments)
    if unknown := set(args.contestants) - set(MODULES):
        parser.error(
            f"unknown contestant {', '.join(sorted(unknown))}; expected some of "
            f"{', '.join(MODULES)}"
        )
    if args.repeats < 1 or args.seeds < 1 or args.seconds <= 0:
        parser.error("--repeats, --seeds and --seconds have to be positive")
    return args


def _speed(row: Row, contestants: list[str], args: Any, core: int | None) -> dict[str, Any]:
    """Measures a row; {"contestants", "limit"}."""

    def run(contestant: str, steps: int) -> Run:
        return Run(**measure.spawn(measure.job(row, contestant, steps, args.seed), core))

    def calibrating(contestant: str, steps: int) -> Run:
        return run(contestant, rows.rounded(settings, steps))

    settings, lengths = rows.resolved(row), {}
    contestants = [name for name in contestants if name not in row.without]
    for name in contestants:
        wanted = (
            row.quick
            if args.quick
            else calibrated(partial(calibrating, name), row.start, args.seconds)
        )
        lengths[name] = rows.rounded(settings, wanted)
        print(f"  {name}: {lengths[name]:,} and {3 * lengths[name]:,} steps", flush=True)
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for repeat, name in alternating(contestants, 1 if args.quick else args.repeats):
        pair = Pair(run(name, lengths[name]), run(name, 3 * lengths[name]))
        check_updates(row, name, pair)
        pairs[name].append(pair)
        print(
            f"  {repeat + 1} {name}: {pair.steps_per_second(args.clock):,.0f} steps/s, "
            f"{pair.share_of_core:.0%} of the core",
            flush=True,
        )
    return {
        "contestants": {n: tables.summary(p, args.clock) for n, p in pairs.items()},
        "limit": _limit(row, core),
    }


def _limit(row: Row, core: int | None) -> dict[str, float] | None:
    return measure.spawn(measure.bare_job(row), core) if find_spec("jax") else None


def _reach(row: Reach, contestants: list[str], args: Any, core: int | None) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for repeat, name in alternating(contestants, 1 if args.quick else args.seeds):
        told = measure.job(row, name, row_steps(row, args.quick), args.seed + repeat)
        runs[name].append({**measure.spawn(told, core), "seed": args.seed + repeat})
        print(f"  seed {args.seed + repeat} {name}: {runs[name][-1]['seconds']} s", flush=True)
    return {"contestants": {name: {"runs": entry} for name, entry in runs.items()}}


def row_steps(row: Reach, quick: bool) -> int:
    """The length of a run that waits for a score: the zoo's, or two evaluations of a smoke test."""
    return 2 * row.eval_every if quick else 0


def _record(out: Path, row: Row | Reach, entry: dict[str, Any], args: Any) -> None:
    about = tables.about() | {"seed": args.seed}
    new = {"seconds": args.seconds, "rows": {row.name: {**entry, **about}}}
    data = tables.merged(tables.load(out / "speed.json"), new)
    tables.write(out / "speed.json", json.dumps(data, indent=1) + "\n")
    tables.write(out / "speed.md", tables.markdown(data))


if __name__ == "__main__":
    sys.exit(main())
