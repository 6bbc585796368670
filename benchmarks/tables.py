"""From measurements to tables: medians, factors, merging with earlier measurements, writing."""

from __future__ import annotations

import json
import math
import os
import platform
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Pair
from benchmarks.rows import ENGINES, NAMES, PEERS, ROWS, Reach

Data = dict[str, Any]


def summary(pairs: list[Pair], clock: str = "wall") -> Data:
    """Medians over the repeats of one contestant."""
    speeds = [p.steps_per_second(clock) for p in pairs]
    good = [s for s in speeds if not math.isnan(s)]
    per_update = [
        s * p.updates_per_step for s, p in zip(speeds, pairs, strict=True) if not math.isnan(s)
    ]
    firsts = [r.first for p in pairs for r in (p.short, p.long) if r.first is not None]
    shares = [p.share_of_core for p in pairs if not math.isnan(p.share_of_core)]
    return {
        "steps_per_second": median(good) if good else None,
        "spread": (max(good) - min(good)) / median(good) if good else None,
        "updates_per_second": median(per_update) if per_update else None,
        "startup": median([r.startup for p in pairs for r in (p.short, p.long)]),
        "first_updates": median(firsts) if firsts else None,
        "share_of_core": median(shares) if shares else None,
        "clock": clock,
        "steps": [pairs[0].short.steps, pairs[0].long.steps],
        "pairs": [p.to_json() for p in pairs],
    }


def factor(contestants: Mapping[str, Data], engine: str, peer: str) -> float | None:
    """How many times as fast the engine is; None where one of them was not measured."""
    ours, theirs = (contestants.get(name, {}).get("steps_per_second") for name in (engine, peer))
    return ours / theirs if ours and theirs else None


def share_of_limit(speed: float | None, limit: Data | None) -> float | None:
    """(bare environment + bare matrix products) / total, by the environment step."""
    return (limit["environment"] + limit["products"]) * speed if limit and speed else None


def merged(old: Data, new: Data) -> Data:
    """`new` on top of `old`, row by row: factors are of what was measured side by side, so a row is
    replaced as a whole."""
    return {**old, **new, "rows": {**old.get("rows", {}), **new.get("rows", {})}}


def load(path: Path) -> Data:
    """What was measured before; nothing where there is no such file."""
    data: Data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return data


def write(path: Path, text: str) -> None:
    """Writes a file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def save(folder: Path, name: str, data: Data, lines: list[str]) -> None:
    """Writes measurements and their page."""
    write(folder / f"{name}.json", json.dumps(data, indent=1) + "\n")
    write(folder / f"{name}.md", "\n".join(lines) + "\n")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def about() -> Data:
    """When it was measured, and of what, and on what."""
    from tandem.runs.config_file import commit

    origin = {"date": now(), "commit": commit(), "machine": machine()}
    return {**origin, "versions": versions()}


def origin(about: Data) -> str:
    """The same as a sentence."""
    machine = about["machine"]
    where = f"{machine['processor']}, {machine['cores']} cores"
    return f"{about['date']}, commit {about['commit']}, {where}."


def machine() -> Data:
    """What it was measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [
            line
            for line in info.read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return {"processor": model, "cores": os.cpu_count()}


def versions() -> dict[str, str]:
    """Of everything that takes part."""
    from tandem.runs.config_file import versions as own

    installed = own()
    for name in ("jaxlib", "stable-baselines3", "sb3-contrib", "sbx-rl", "flax"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


# --- Markdown -------------------------------------------------------------------------------------

HEAD = (
    "| | steps/s | spread | updates/s | × SB3 | × SBX | start-up s | first updates s "
    "| share of the limit |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)
METHOD = """`make bench` measures these speeds; `make bench ARGS="--row NAME"` measures one of them.

Each run is a separate process on one core with one thread, without evaluations, checkpoints or
logging. The libraries take turns. Speed is the slope between a short run (at least {seconds:g} s)
and a run three times as long, so start-up and compilation do not count. Numbers are medians of the
rounds.

| column | meaning |
|---|---|
| spread | (largest − smallest) / median |
| × SB3, × SBX | speed relative to Stable-Baselines3 and SBX in the same rounds |
| start-up s | seconds from the command to the start of the run, including imports |
| first updates s | seconds from there to the end of the first updates, including compilation (for \
tandem on torch, loading from its cache: compilation takes 10 to 40 s, once) |
| share of the limit | time of the bare environment and matrix products / total time |"""


def markdown(data: Data) -> str:
    """The whole report."""
    lines = [
        "# Speed",
        "",
        METHOD.format(seconds=data.get("seconds", 5)),
        "",
    ]
    for row in ROWS:
        if entry := data.get("rows", {}).get(row.name):
            lines += [f"## {row.name}", "", f"{row.title}.", ""]
            lines += _reach(entry) if isinstance(row, Reach) else _speed(entry)
            lines += ["", *([row.notes, ""] if row.notes else []), _origin(entry), ""]
    return "\n".join(lines).rstrip() + "\n"


def _speed(entry: Data) -> list[str]:
    lines, measured = [HEAD], entry["contestants"]
    for name in (*ENGINES, *PEERS):
        if name not in measured:
            continue
        one, ours = measured[name], name in ENGINES
        factors = {p: factor(measured, name, p) if ours else None for p in PEERS}
        cells = [
            NAMES[name],
            _number(one["steps_per_second"]),
            _percent(one["spread"]),
            _number(one["updates_per_second"]),
            *(_times(factors[p]) for p in PEERS),
            _seconds(one["startup"]),
            _seconds(one["first_updates"]),
            _percent(share_of_limit(one["steps_per_second"], entry.get("limit"))),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if limit := entry.get("limit"):
        lines += [
            "",
            f"Limit: each environment step takes {limit['environment'] * 1e6:.2f} µs in the "
            f"environment and {limit['products'] * 1e6:.2f} µs in matrix products.",
        ]
    busy = [NAMES[n] for n, one in measured.items() if (one.get("share_of_core") or 1.0) < 0.95]
    if by_processor := [NAMES[n] for n, one in measured.items() if one.get("clock") == "cpu"]:
        lines += ["", f"Measured in CPU time instead of wall time: {', '.join(by_processor)}."]
    if busy:
        lines += ["", f"Other processes shared the core during: {', '.join(busy)}."]
    return lines


def _reach(entry: Data) -> list[str]:
    lines = ["| | seconds (median) | each seed | steps |", "|---|--:|---|---|"]
    middle = {name: median_reached(one["runs"]) for name, one in entry["contestants"].items()}
    for name, seconds in sorted(middle.items(), key=lambda item: item[1]):
        runs = entry["contestants"][name]["runs"]
        each = ", ".join("never" if r["seconds"] is None else f"{r['seconds']:.1f}" for r in runs)
        steps = ", ".join("–" if r["steps"] is None else f"{r['steps']:,}" for r in runs)
        lines.append(
            f"| {NAMES[name]} | {'never' if seconds == math.inf else f'{seconds:.1f}'} | {each} | "
            f"{steps} |"
        )
    return lines


def median_reached(runs: list[Data]) -> float:
    """The median of the seconds, where a run that never got there took forever."""
    return median([math.inf if r["seconds"] is None else r["seconds"] for r in runs])


def _origin(entry: Data) -> str:
    where, installed = entry.get("machine", {}), entry.get("versions", {})
    known = ", ".join(f"{n} {v}" for n, v in sorted(installed.items()) if n != "platform")
    rounds = max(len(c.get("pairs") or c.get("runs") or ()) for c in entry["contestants"].values())
    return (
        f"{rounds} round{'s' * (rounds > 1)}, measured {entry.get('date', '')} "
        f"at commit {str(entry.get('commit', ''))[:10]}, seed "
        f"{entry.get('seed', 0)}, on "
        f"{where.get('processor', '?')}, {where.get('cores', '?')} cores; {known}."
    )


def _number(x: float | None) -> str:
    return "–" if x is None else f"{x:,.0f}"


def _percent(x: float | None) -> str:
    return "–" if x is None else f"{100 * x:.0f} %"


def _times(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}"


def _seconds(x: float | None) -> str:
    return "–" if x is None else f"{x:.1f}"
