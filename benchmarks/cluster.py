"""`python -m benchmarks.cluster --peer-python PYTHON`: runs with two runners on Ray beside our own
pool of two workers and beside RLlib with two environment runners, in turn, and what handing
transitions over takes; into benchmarks/results/cluster.json and cluster.md. On two cores, with
nothing else running. RLlib is installed for PYTHON, in an environment of its own, since it insists
on another Gymnasium:

    python3 -m venv V; V/bin/pip install torch==2.13.0  # first, and a build for processors: else
    gigabytes for GPUs follow V/bin/pip install 'ray[rllib]==2.60.0'
    'gymnasium[classic-control,mujoco]==1.2.2' 'mujoco<3.12'"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks import measure, tables
from benchmarks.bench import MODULES
from benchmarks.cluster_rows import ROWS, RUNNERS, ClusterRow, find
from benchmarks.measure import ROOT, alternating
from benchmarks.rows import ENGINES, NAMES

PEER = "rllib"
WAYS: dict[str, dict[str, Any]] = {  # behind an engine's name: who collects
    # a cluster of its own, whatever else runs here
    "runners": {
        "runners": RUNNERS,
        "cluster": "local",
    },
    "pool": {"workers": RUNNERS},
    "alone": {},
}
SAID = {"runners": "2 runners on Ray", "pool": "worker pool, 2 workers", "alone": "one process"}
OURS = tuple(f"{engine}-{way}" for engine in ENGINES for way in WAYS)
USUAL = ("jax-runners", "jax-pool", "torch-runners", "torch-pool", PEER)
TITLES = {
    **{f"{e}-{w}": f"{NAMES[e]}, {SAID[w]}" for e in ENGINES for w in WAYS},
    PEER: "RLlib, 2 environment runners",
}
HANDING = "handing-over"
# how far updates per step may be from what is asked for: RLlib's rounds are some steps longer than
# they should be
SLACK = 0.05
# steps between two of RLlib's reports: its own 1,000 for DQN costs it time, and nobody reads them
# here
REPORT = 4_096
QUICK = {"warm": 1_536, "steps": 1_024, "report": 512}  # of a smoke test


def main(arguments: list[str] | None = None) -> int:
    """Measures what was asked for; the exit code."""
    args = _parse(arguments)
    # numbers of a smoke test do not belong among the results
    quick_out = ROOT / "runs" / "bench-quick"
    out = (
        Path(args.out) if args.out else quick_out if args.quick else ROOT / "benchmarks" / "results"
    )
    load = os.getloadavg()[0]
    present = [name for name in args.contestants if here(name, args.peer_python)]
    for name in [name for name in args.contestants if name not in present]:
        print(f"{TITLES[name]}: not here; left out.", file=sys.stderr)
    for name in args.row or [*(row.name for row in ROWS), HANDING]:
        print(name if name == HANDING else f"{name}: {find(name).title}", flush=True)
        if name != HANDING:
            _record(out, name, measured(find(name), present, args), args, load)
        elif find_spec("ray"):
            _record(out, name, handed(args), args, load)
        else:
            print("Ray is not here; left out.", file=sys.stderr)
    print(f"Written: {out / 'cluster.md'}")
    return 0


def here(contestant: str, peer_python: str | None) -> bool:
    """Whether what it needs is installed, and tandem has it."""
    from tandem.learning.config import Options

    if contestant == PEER:
        return bool(peer_python)
    engine, way = contestant.rsplit("-", 1)
    known = way != "runners" or (
        "runners" in {field.name for field in fields(Options)} and find_spec("ray")
    )
    return bool(known and find_spec(MODULES[engine]))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--peer-python",
        help="the Python that RLlib is installed for; without it we are measured alone",
    )
    parser.add_argument(
        "--peer-threads", type=int, default=1, help="threads of torch where RLlib learns"
    )
    names = [*(row.name for row in ROWS), HANDING]
    parser.add_argument(
        "--row", action="append", choices=names, help="only this row; may be repeated"
    )
    parser.add_argument(
        "--contestants",
        type=lambda text: text.split(","),
        default=list(USUAL),
        help=f"of {','.join((*OURS, PEER))}",
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds, of which the median counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: one round of short runs"
    )
    parser.add_argument("--out", help="folder for cluster.json and cluster.md")
    args = parser.parse_args(arguments)
    if unknown := set(args.contestants) - {*OURS, PEER}:
        parser.error(
            f"unknown contestant {', '.join(sorted(unknown))}; expected some of "
            f"{', '.join((*OURS, PEER))}"
        )
    if args.repeats < 1:
        parser.error("--repeats has to be positive")
    return args


def measured(row: ClusterRow, contestants: list[str], args: Any) -> dict[str, Any]:
    """Everyone in turn; {"contestants": {name: its runs}, "ours", "theirs"}."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for repeat, name in alternating(contestants, 1 if args.quick else args.repeats):
        run = one(row, name, args)
        runs[name].append(run)
        check_updates(row, name, run)
        rate, speed = run["updates"] / run["steps"], run["steps"] / run["seconds"]
        print(
            f"  {repeat + 1} {name}: {speed:,.0f} steps/s, {1_000 * rate:.1f} updates per 1,000 "
            "steps",
            flush=True,
        )
    return {
        "contestants": dict(runs),
        "ours": row.ours,
        "theirs": row.theirs,
        "peer_threads": args.peer_threads,
    }


def one(row: ClusterRow, contestant: str, args: Any) -> dict[str, Any]:
    """One run in a process of its own."""
    job = {
        "algorithm": row.algorithm,
        "env": row.env,
        "seed": args.seed,
        "warm": row.warm,
        "steps": row.steps,
        "report": REPORT,
    }
    job |= QUICK if args.quick else {}
    if contestant == PEER:
        return ask(
            {**job, "kind": "run", "settings": row.theirs, "threads": args.peer_threads}, args
        )
    engine, way = contestant.rsplit("-", 1)
    more = {"compile": "yes"} if engine == "torch" else {}  # as in benchmarks.bench: long runs are
    job |= {
        "kind": "ours-cluster",
        "contestant": engine,
        "settings": {**row.ours, **WAYS[way], **more},
    }
    return measure.spawn(job, None)


def ask(job: dict[str, Any], args: Any) -> dict[str, Any]:
    return measure.spawn(
        {"contestant": PEER, **job}, None, python=args.peer_python, module="benchmarks.cluster_peer"
    )


def handed(args: Any) -> dict[str, Any]:
    """Milliseconds of handing transitions over, by each way; {"milliseconds"}."""
    timings = measure.spawn(
        {"kind": HANDING, "contestant": "none", "times": 100 if args.quick else 1_000}, None
    )
    for name, took in timings["milliseconds"].items():
        print(f"  {name}: {median(took):.3f} ms", flush=True)
    return timings


def check_updates(row: ClusterRow, name: str, run: dict[str, Any]) -> None:
    """RuntimeError unless a run made the updates per step that were asked for: the comparison would
    be of different work."""
    rate = run["updates"] / run["steps"]
    if abs(rate - row.updates_per_step) > SLACK * row.updates_per_step:
        raise RuntimeError(
            f"{name} made {rate:.4f} updates per step of {row.name}; asked for are "
            f"{row.updates_per_step:.4f}."
        )


# --- what was found -------------------------------------------------------------------------------


def _record(out: Path, name: str, entry: dict[str, Any], args: Any, load: float) -> None:
    theirs = ask({"kind": "versions"}, args) if PEER in entry.get("contestants", {}) else {}
    origin = tables.about() | {"seed": args.seed, "load": load}
    origin |= {"versions": _versions(), "their_versions": theirs}
    data = tables.merged(tables.load(out / "cluster.json"), {"rows": {name: {**entry, **origin}}})
    tables.write(out / "cluster.json", json.dumps(data, indent=1) + "\n")
    tables.write(out / "cluster.md", markdown(data))


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {
        **tables.versions(),
        **{name: version(name) for name in ("ray", "mujoco") if find_spec(name)},
    }


HEAD = (
    "| | steps/s | spread | updates per 1,000 steps | × worker pool | × RLlib |\n"
    "|---|--:|--:|--:|--:|--:|"
)
METHOD = """DQN and PPO with two processes that collect and one that learns (`python -m
benchmarks.cluster --peer-python PYTHON`). The number of cores is given below; each process has one
thread. Speed is environment steps per second after the first updates past {warm:,} steps, so
start-up and compilation do not count. The libraries take turns, and each run has its own process
and Ray cluster. Numbers are medians of the rounds. Nothing is evaluated, logged or written.
`spread` is (largest − smallest) / median. `updates per 1,000 steps` is counted in each run. A run
whose count differs by more than 5 % is an error.

In the worker pool, two workers collect; for PPO, so does the learning process. On Ray, only the two
runners collect.

RLlib uses its current API stack (modules, learners, environment runners) with the options that its
documentation recommends for speed: a local learner (`num_learners=0`), four environments per
runner, fragments of 32 and 64 steps, no local runner, reports every 4,096 steps, and no evaluation.
It does the same work as tandem, or slightly less: PPO's loss has no KL term, there is no
observation filter (as in tandem), and DQN's target is copied once per round. `training_intensity`
is set to two thirds of the documented value, because RLlib counts one runner too many. Its PPO adds
a row at the end of each fragment, so it makes 2 % more updates. DQN uses `EpisodeReplayBuffer`. The
JSON file has all settings of both libraries."""


def markdown(data: dict[str, Any]) -> str:
    """The whole report."""
    lines = ["# Runners on Ray", "", METHOD.format(warm=ROWS[0].warm), ""]
    for row in ROWS:
        if entry := data.get("rows", {}).get(row.name):
            lines += [
                f"## {row.name}",
                "",
                f"{row.title}; {row.steps:,} steps.",
                "",
                *_table(entry),
                "",
                _origin(entry),
                "",
            ]
    if entry := data.get("rows", {}).get(HANDING):
        lines += [
            f"## {HANDING}",
            "",
            "Time to move 1,000 transitions of 17 floats from a runner to the learner.",
            "",
        ]
        lines += [*_handing(entry["milliseconds"]), "", _origin(entry), ""]
    return "\n".join(lines).rstrip() + "\n"


def speed(runs: list[dict[str, Any]] | None) -> float | None:
    """The median of environment steps a second; None where there are no runs."""
    return median(run["steps"] / run["seconds"] for run in runs) if runs else None


def _table(entry: dict[str, Any]) -> list[str]:
    lines, measured = [HEAD], entry["contestants"]
    for name in (*OURS, PEER):
        if name not in measured:
            continue
        runs, engine = measured[name], name.rpartition("-")[0]
        each, own = [run["steps"] / run["seconds"] for run in runs], speed(runs)
        updates = sum(run["updates"] for run in runs) / sum(run["steps"] for run in runs)
        cells = [
            TITLES[name],
            f"{own:,.0f}",
            f"{100 * (max(each) - min(each)) / own:.0f} %",
            f"{1_000 * updates:.1f}",
        ]
        for peer in (f"{engine}-pool", PEER):
            base = speed(measured.get(peer)) if name not in (peer, PEER) else None
            factor = own / base if base else None
            cells.append("" if factor is None else f"{factor:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", f"Medians of {max(len(runs) for runs in measured.values())}."]


def _handing(milliseconds: dict[str, list[float]]) -> list[str]:
    lines = [
        "| | ms (median) | ms (95th percentile) | repetitions |",
        "|---|--:|--:|--:|",
    ]
    for name, took in milliseconds.items():
        slow = quantiles(took, n=20)[-1] if len(took) > 1 else took[0]
        lines.append(f"| {name} | {median(took):.3f} | {slow:.3f} | {len(took):,} |")
    return lines


def _origin(entry: dict[str, Any]) -> str:
    where = entry["machine"]
    sides = [entry["versions"], entry["their_versions"]]
    ours, theirs = (
        ", ".join(f"{n} {v}" for n, v in sorted(side.items()) if n != "platform") for side in sides
    )
    return (
        f"Measured {entry['date']} at commit {str(entry['commit'])[:10]}, seed {entry['seed']}, "
        f"on {where['processor']}, "
        f"{where['cores']} cores, with a load of {entry['load']:.1f} before; {ours}"
        + (f"; on RLlib's side {theirs}." if theirs else ".")
    )


if __name__ == "__main__":
    sys.exit(main())
