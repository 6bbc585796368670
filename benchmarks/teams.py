"""`python -m benchmarks.teams --peer-python PYTHON`: MAPPO and MADDPG on simple_spread beside
XuanCe's and beside the bare environment, in turn, into benchmarks/results/teams.json and teams.md.
XuanCe and mpe2 are installed for PYTHON."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import measure, tables
from benchmarks.bench import MODULES
from benchmarks.measure import ROOT, Pair, Run, alternating
from benchmarks.rows import ENGINES, NAMES
from benchmarks.teams_rows import ROWS, TeamRow, find

# the last behind an engine's name: mpe2 itself steps its environments
PEER = "xuance"
BARE = "bare"
PLAIN = "-plain"
OURS = tuple(engine + worlds for worlds in ("", PLAIN) for engine in ENGINES)
USUAL = ("jax", "tensorflow", "torch", "jax-plain", PEER)
TITLES = {
    **NAMES,
    **{f"{n}{PLAIN}": f"{title}, mpe2's own worlds" for n, title in NAMES.items()},
    PEER: "XuanCe",
}
SLACK = 0.05  # how far updates per step may differ: a run may begin or end between two of them
# times as many steps for those who step all worlds at once: else a run would be over in half a
# second
LONGER = 20
QUICK = 3  # how many times as short the runs of a smoke test are
RUN = ("startup", "first", "loop", "cpu", "steps", "updates")


def main(arguments: list[str] | None = None) -> int:
    """Measures what was asked for; the exit code."""
    args = _parse(arguments)
    # numbers of a smoke test do not belong among the results
    quick_out = ROOT / "runs" / "bench-quick"
    out = (
        Path(args.out) if args.out else quick_out if args.quick else ROOT / "benchmarks" / "results"
    )
    core = measure.last_core() if args.core is None else args.core
    present = [
        name
        for name in args.contestants
        if (args.peer_python if name == PEER else find_spec(MODULES[name.removesuffix(PLAIN)]))
    ]
    for name in [name for name in args.contestants if name not in present]:
        print(f"{TITLES[name]} is not here; left out.", file=sys.stderr)
    for name in args.row or [row.name for row in ROWS]:
        row = find(name)
        print(f"{row.name}: {row.title}", flush=True)
        _record(out, row, _measured(row, present, args, core), args, core)
    print(f"Written: {out / 'teams.md'}")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.teams", description=__doc__)
    parser.add_argument(
        "--peer-python",
        help="the Python that XuanCe is installed for; without it we are measured alone",
    )
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
        help=f"of {','.join((*OURS, PEER))}",
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds, of which the median counts")
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
        "--quick", action="store_true", help="a smoke test: one round of short runs"
    )
    parser.add_argument("--out", help="folder for teams.json and teams.md")
    args = parser.parse_args(arguments)
    if unknown := set(args.contestants) - {*OURS, PEER}:
        parser.error(
            f"unknown contestant {', '.join(sorted(unknown))}; expected some of "
            f"{', '.join((*OURS, PEER))}"
        )
    if args.repeats < 1:
        parser.error("--repeats has to be positive")
    return args


def _measured(row: TeamRow, contestants: list[str], args: Any, core: int | None) -> dict[str, Any]:
    """Everyone and the bare environment in turn; {"contestants", "bare", "theirs"}."""
    pairs: dict[str, list[Pair]] = defaultdict(list)
    speeds: list[float] = []
    their_settings: dict[str, Any] = {}
    steps = row.steps // QUICK if args.quick else row.steps
    for repeat, name in alternating([*contestants, BARE], 1 if args.quick else args.repeats):
        if name == BARE:
            speeds.append(
                measure.spawn({"kind": "bare-team", "clock": args.clock}, core)["steps_per_second"]
            )
            print(f"  {repeat + 1} {name}: {speeds[-1]:,.0f} steps/s", flush=True)
            continue
        whole = steps if name == PEER or name.endswith(PLAIN) else LONGER * steps
        reports = [one(row, name, n, args, core) for n in (whole, 3 * whole)]
        their_settings = reports[-1].get("settings", their_settings)
        pairs[name].append(Pair(*(Run(**{n: f[n] for n in RUN}) for f in reports)))
        last = pairs[name][-1]
        print(
            f"  {repeat + 1} {name}: {last.steps_per_second(args.clock):,.0f} steps/s, "
            f"{last.share_of_core:.0%} of the core",
            flush=True,
        )
    check_updates(row, pairs)
    return {
        "contestants": {n: tables.summary(p, args.clock) for n, p in pairs.items()},
        "bare": speeds,
        "theirs": their_settings,
    }


def one(row: TeamRow, contestant: str, steps: int, args: Any, core: int | None) -> dict[str, Any]:
    """One run in a process of its own."""
    job = {"algorithm": row.algorithm, "steps": steps, "seed": args.seed}
    if contestant == PEER:
        return _ask({**job, "kind": "run", "settings": row.theirs}, args, core)
    engine = contestant.removesuffix(PLAIN)
    more = {"compile": "yes"} if engine == "torch" else {}  # as in benchmarks.bench: long runs are
    more |= {"vectorization": "plain"} if engine != contestant else {}
    job |= {"kind": "ours-team", "contestant": engine, "settings": {**row.ours, **more}}
    return measure.spawn(job, core)


def _ask(job: dict[str, Any], args: Any, core: int | None) -> dict[str, Any]:
    return measure.spawn(
        {"contestant": PEER, **job}, core, python=args.peer_python, module="benchmarks.teams_peer"
    )


def check_updates(row: TeamRow, pairs: dict[str, list[Pair]]) -> None:
    """RuntimeError unless everyone made as many updates per step: the comparison would be of
    different work."""
    rates = {name: rounds[0].updates_per_step for name, rounds in pairs.items()}
    if rates and max(rates.values()) > (1 + SLACK) * min(rates.values()):
        raise RuntimeError(f"updates per step of {row.name} differ: {rates}.")


# --- what was found -------------------------------------------------------------------------------


def _record(out: Path, row: TeamRow, entry: dict[str, Any], args: Any, core: int | None) -> None:
    theirs = _ask({"kind": "versions"}, args, core) if PEER in entry["contestants"] else {}
    origin = tables.about() | {"seed": args.seed, "their_versions": theirs}
    origin |= {"repeats": len(entry["bare"])}
    data = tables.merged(tables.load(out / "teams.json"), {"rows": {row.name: {**entry, **origin}}})
    tables.write(out / "teams.json", json.dumps(data, indent=1) + "\n")
    tables.write(out / "teams.md", markdown(data))


HEAD = (
    "| | steps/s | spread | × XuanCe | / bare environment | updates per 1,000 steps "
    "| start-up s |\n"
    "|---|--:|--:|--:|--:|--:|--:|"
)
METHOD = """MAPPO and MADDPG on simple_spread_v3: three agents, continuous actions, episodes of 25
steps (`python -m benchmarks.teams --peer-python PYTHON`). A step is one step of the whole team in
one environment.

Each run is a separate process on one core with one thread, without evaluations, checkpoints or
logging. The libraries take turns. Speed is the slope between a short run and a run three times as
long, so start-up and compilation do not count. Numbers are medians of the rounds. `spread` is
(largest − smallest) / median. `/ bare environment` is the speed relative to mpe2's environment
alone, stepped with random actions in one process.

tandem steps all environments together in arrays, with bit-identical results
(`tandem.envs.particles`), so it can exceed 100 %. "mpe2's own worlds" is tandem with
`--vectorization plain`. Runs that step all environments together make twenty times as many steps,
so that they last as long as the others.

XuanCe uses the settings from its own files for simple_spread_v3, with these exceptions: the
settings in a row's title, environments in the main process, no layer normalization (MAPPO), and
relu instead of leaky_relu (MADDPG), which tandem does not have. Three differences remain. Its first
MADDPG actions are the policy's with noise. Its critics receive all observations and the agent's
index. Its MAPPO network receives the agent's identity after the first layer. The JSON file has all
of XuanCe's settings."""


def markdown(data: dict[str, Any]) -> str:
    """The whole report."""
    lines = ["# Multi-agent speed", "", METHOD, ""]
    for row in ROWS:
        if entry := data.get("rows", {}).get(row.name):
            lines += [f"## {row.name}", "", f"{row.title}.", "", *_table(entry), ""]
            lines += [*([row.notes, ""] if row.notes else []), _origin(entry), ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(entry: dict[str, Any]) -> list[str]:
    lines, measured, bare = [HEAD], entry["contestants"], median(entry["bare"])
    for name in (*OURS, PEER):
        if name not in measured:
            continue
        summary = measured[name]
        speed, pair = summary["steps_per_second"], Pair.of(summary["pairs"][0])
        factor = tables.factor(measured, name, PEER) if name != PEER else None
        cells = [
            TITLES[name],
            "–" if speed is None else f"{speed:,.0f}",
            "–" if summary["spread"] is None else f"{100 * summary['spread']:.0f} %",
            "" if factor is None else f"{factor:.2f}",
            "–" if speed is None else f"{100 * speed / bare:.0f} %",
            f"{1_000 * pair.updates_per_step:.1f}",
            f"{summary['startup']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"Bare environment: {bare:,.0f} steps/s, {1e6 / bare:,.0f} µs each."]
    if by_processor := [TITLES[n] for n, one in measured.items() if one.get("clock") == "cpu"]:
        lines += ["", f"Measured in CPU time instead of wall time: {', '.join(by_processor)}."]
    if busy := [
        TITLES[n] for n, one in measured.items() if (one.get("share_of_core") or 1.0) < 0.95
    ]:
        lines += ["", f"Other processes shared the core during: {', '.join(busy)}."]
    return lines


def _origin(entry: dict[str, Any]) -> str:
    where = entry["machine"]
    sides = [entry["versions"], entry["their_versions"]]
    ours, theirs = (
        ", ".join(f"{n} {v}" for n, v in sorted(side.items()) if n != "platform") for side in sides
    )
    return (
        f"Medians of {entry['repeats']}. Measured {entry['date']} at commit "
        f"{str(entry['commit'])[:10]}, seed {entry['seed']}, "
        f"on {where['processor']}, {where['cores']} cores; {ours}"
        + (f"; on XuanCe's side {theirs}." if theirs else ".")
    )


if __name__ == "__main__":
    sys.exit(main())
