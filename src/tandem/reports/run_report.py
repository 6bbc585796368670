"""Report of a run as one self-contained HTML file: no network access, no other file, no script."""

from __future__ import annotations

import json
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from tandem import algorithms
from tandem.errors import PluginError, TandemError, UnknownNameError
from tandem.learning.config import Options, plain
from tandem.learning.figures import figures, mean_and_std
from tandem.reports import plots
from tandem.runs import checkpoint, config_file
from tandem.runs.atomic_files import writing
from tandem.runs.folder import Run, describe
from tandem.runs.progress_line import duration
from tandem.runs.trust import wrapper_flags
from tandem.settings import as_path, declared, flag, shell_path
from tandem.types import JSONDict
from tandem.zoo import resolve

# On narrow screens long paths wrap, images shrink, and wide tables scroll in a box of their own, so
# that the page itself does not scroll sideways.
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62em; margin: 2em auto;
padding: 0 1em; } h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.15em; margin: 2em 0 .5em; } p.lead { color: #555; margin-top: .2em; }
h1, p, summary { overflow-wrap: anywhere; }
img { max-width: 100%; height: auto; vertical-align: top; } div.wide { overflow-x: auto; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15em 1.2em .15em 0;
vertical-align: top; } th { color: #555; font-weight: 600; } tr.mark { font-weight: 600; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.text { min-width: 16em; }
pre { background: #f4f4f4; padding: .8em; white-space: pre-wrap; overflow-wrap: anywhere; }
div.bar { background: #0072B2; height: .9em; } summary { cursor: pointer; }
"""
# a browser may only load images embedded in the file
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
PROGRAMS = {  # objects that no command can pass, by entry of config.json
    "own_env": "environment",
    "own_network": "network",
    "own_eval_env": "environment of evaluations",
    "own_optimizer": "optimizer",
}


def report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write one HTML file about a run: its result, learning curve, animation, evaluations, time
    shares, all settings, versions, and the command that repeats it.

    Args:
        folder: The run folder, complete or not.
        out: The file; None: report.html in the folder.

    Returns:
        The path of the file.

    Raises:
        RunFolderError: The folder is not a run, or the file cannot be written.
    """
    run = Run(as_path("folder", folder))
    out = run.folder / "report.html" if out is None else as_path("out", out)
    page = _page(run)
    with writing(out):
        out.write_text(page, encoding="utf-8")
    return out


def command_of(config: JSONDict) -> str:
    """Return the command that repeats a run, from its config.json; if only a program can, a shell
    comment that lists the objects it passed."""
    brought = [what for key, what in PROGRAMS.items() if config.get(key)]
    brought += ["agent to start from"] if config.get("start", {}).get("from") == "" else []
    if brought or config.get("vector") == "own":
        return f"# made by a program, which gave: {', '.join(brought) or 'a vector'}"
    config = {"settings": {}, "options": {}, **config}
    steps, extended = config["settings"].get("steps"), config.get("extended_from")
    given = {**config["settings"], **config["options"]}
    given.pop("eval_envs", None)  # the number chosen for "auto", which affects no score
    given |= {"compile": c} if (c := config.get("compiled")) else {}
    if extended:
        given["steps"] = extended
    words = ["tandem", "train", quote(config["algorithm"])]
    words += [f"--vector {quote(v)}"] if (v := _function(config)) else [quote(config["env"])]
    words += [imported.strip()] if (imported := import_of(config)) else []
    words += [found.strip()] if (found := wrapper_flags(config)) else []
    if kwargs := config.get("env_kwargs"):
        words.append(f"--env-kwargs {quote(json.dumps(kwargs))}")
    words.append(flag("framework", config["framework"]))
    words += [flag("network", config["network"])] if config.get("network") else []
    words += [flag("device", d)] if (d := config.get("device", "auto")) != "auto" else []
    words += [flag("seed", config["seed"])] if config.get("seed") else []
    before = _before(config)
    words += [flag(n, x) for n, x in given.items() if x is not None and before.get(n, ...) != x]
    if start := config.get("start"):
        words += [flag("start_from", start["from"]), flag("which", start["which"])]
        words.append(flag("load", ",".join(start["load"])))
    command = " ".join(words)
    if extended:
        command += f"\ntandem train --resume DIR --steps {quote(str(steps))} --extend{imported}"
    return command


def import_of(config: JSONDict) -> str:
    """Return the flag that commands on a run need to register the id of its environment."""
    module = config_file.module_of(config)
    return f" --import {module}" if module else ""


def _function(config: JSONDict) -> str:
    """Return the module:function of a vector environment."""
    vector = str(config.get("vector") or "")
    return vector if ":" in vector else ""


def _kind(config: JSONDict) -> Any:
    """Return the class of the run's algorithm; None if it is a custom one, or of a package that is
    not usable here."""
    try:
        return algorithms.get(config["algorithm"])
    except (PluginError, UnknownNameError):
        return None


def _before(config: JSONDict) -> dict[str, Any]:
    """Return the settings and options of a run with only the entry and the steps given: those of
    the zoo's entry, or the defaults. {} if the algorithm is unknown here."""
    if _kind(config) is None:
        return {}
    where, entry = (config["algorithm"], config["env"]), config["options"].get("entry", "")
    usual = resolve(*where, {"entry": entry})[0].steps
    steps = config["settings"].get("steps", usual)
    chosen, options, *_ = resolve(*where, {"entry": entry, "steps": steps})
    values: dict[str, Any] = json.loads(json.dumps({**plain(chosen), **asdict(options)}))
    return values | {"entry": "", "steps": usual}


# --- the page -------------------------------------------------------------------------------------


def _page(run: Run) -> str:
    title = describe(run, ("algorithm", "env", "framework", "seed"))
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p class='lead'>{escape(_outcome(run))}</p>",
        _curve(run),
        _animation(run),
        "<h2>Evaluations</h2>",
        _evaluations(run),
        "<h2>Time</h2>",
        _time(run.result),
        "<h2>Command</h2>",
        f"<pre>{escape(command_of(run.config))}</pre>",
        "<h2>Settings</h2>",
        *_settings(run.config),
        *_start(run.config),
        *_networks(run.folder),
        "<h2>Versions</h2>",
        _versions(run.config),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            "<html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )


def _outcome(run: Run) -> str:
    """Return a sentence on the outcome of the run."""
    result = run.result
    if not result:
        steps = int(run.column("env_steps")[-1])
        return (
            f"Not complete: {steps:,} of {run.config.get('settings', {}).get('steps', 0):,} steps."
        )
    speed = f"{result.get('steps_per_second', 0):,.0f} steps/s"
    text = f"{result['env_steps']:,} steps in {duration(result.get('seconds', 0.0))}, {speed}."
    for which, key in (("best", "eval"), ("last", "last_eval")):
        if (mean := result.get(f"{key}_mean")) is not None:
            cut = f" ({n} of them cut)" if (n := result.get(f"{key}_cut")) else ""
            episodes = f"{result['eval_episodes']} episodes{cut}"
            scored = mean_and_std(mean, result[f"{key}_std"])
            if (rate := result.get(f"{key}_success_rate")) is not None:
                episodes += f", {rate:.0%} successful"
            text += f" The {which} checkpoint: {scored}, {episodes}."
    trained, rate = (run.column(name)[-1] for name in ("return_mean", "success_rate"))
    if result.get("eval_mean") is None and np.isfinite(trained):
        successful = f", {rate:.0%} successful" if np.isfinite(rate) else ""
        text += f" The latest training episodes: mean return {figures(trained)}{successful}."
    return text


def _curve(run: Run) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            drawn = plots.curve([run.folder], Path(folder) / "curve.svg").read_bytes()
        except TandemError as error:
            return f"<p>No curve: {escape(error.happened)}</p>"
    return _image("svg+xml", drawn, "learning curve", 720)


def _animation(run: Run) -> str:
    file = run.folder / "animation.gif"
    if not file.is_file():
        command = f"tandem watch {shell_path(run.folder)} --out {shell_path(file)}"
        command, how = command + import_of(run.config), ""
        if run.config.get("own_env") or run.config.get("vector"):  # no command can make these
            command = f"tandem.load({str(run.folder)!r}).play(env).save({str(file)!r})"
            how = ", in Python, with an env that was made with render_mode='rgb_array'"
        return f"<p>No animation; to make one{how}: <code>{escape(command)}</code></p>"
    return _image("gif", file.read_bytes(), "the best agent at play", 400)


def _image(kind: str, data: bytes, text: str, width: int) -> str:
    source = f"data:image/{kind};base64,{b64encode(data).decode()}"
    return f"<img src='{source}' alt='{escape(text)}' width='{width}'>"


def _evaluations(run: Run) -> str:
    names = ["env_steps", "updates", "episodes", "seconds", "eval_mean", "eval_std", "eval_cut"]
    head = ["steps", "updates", "episodes", "seconds", "mean return", "deviation", "cut"]
    if "eval_success_rate" in run.table:
        names, head = [*names, "eval_success_rate"], [*head, "success"]
    table = np.stack([run.column(name) for name in names], axis=1)
    table = table[np.isfinite(run.column("eval_mean"))]
    if not len(table):
        return "<p>There was none.</p>"
    best = np.flatnonzero(table[:, 4] == table[:, 4].max())[-1]  # the later of equal ones
    rows = [
        [*(_number(x, 0) for x in row[:3]), _number(row[3], 1)]
        + [*(_score(x) for x in row[4:6]), _number(row[6], 0), *(f"{x:.0%}" for x in row[7:])]
        + ["best" if i == best else ""]
        for i, row in enumerate(table)
    ]
    return _table([*head, ""], rows, {int(best)}, numbers=len(head))


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if np.isfinite(value) else ""


def _score(value: float) -> str:
    return figures(value) if np.isfinite(value) else ""


def _time(result: JSONDict) -> str:
    shares = result.get("shares")
    if not shares:
        return "<p>Not recorded: the run is not complete, or of an earlier version.</p>"
    total = max(result.get("seconds", 0.0), sum(shares.values()), 1e-9)
    parts = {**shares, "other": total - sum(shares.values())}
    rows = [
        f"<tr><td>{escape(name)}</td><td class='number'>{seconds:,.1f} s</td>"
        f"<td class='number'>{seconds / total:.0%}</td>"
        f"<td><div class='bar' style='width: {20 * seconds / total:.2f}em'></div></td></tr>"
        for name, seconds in parts.items()
    ]
    return _boxed(rows)


def _settings(config: JSONDict) -> Iterable[str]:
    """Yield a table of the algorithm's settings, and one of the run's options."""
    yield f"<p>From {escape(str(config.get('source') or 'the defaults'))}, and what was given.</p>"
    trained = _kind(config)
    parts = {
        "settings": None if trained is None else trained.Settings,
        "options": Options,
    }
    for part, kind in parts.items():
        said = {} if kind is None else {d.name: d for d in declared(kind)}
        rows, marked = [], set()
        for i, (name, value) in enumerate(config.get(part, {}).items()):
            default, meaning = (
                (_shown(said[name].default), said[name].help) if name in said else ("", "")
            )
            rows.append([name, _shown(value), default, meaning])
            if name in said and _shown(value) != default:
                marked.add(i)
        table = _table((part[:-1], "value", "default", "meaning"), rows, marked)
        heading = f"{part}: {len(rows)}, of which {len(marked)} are not the default"
        is_open = " open" if part == "settings" else ""
        yield f"<details{is_open}><summary>{heading}</summary>{table}</details>"


def _start(config: JSONDict) -> Iterable[str]:
    """Yield the chain of runs that the run started from."""
    names = ("from", "which", "algorithm", "env", "env_kwargs", "steps", "load", "fingerprint")
    rows, start = [], config.get("start", {})
    while start:
        rows.append([_shown(start.get(name, "")) for name in names])
        start = start.get("before", {})
    if rows:
        yield "<h2>Started from</h2>"
        yield _table(names, rows, set())


def _networks(folder: Path) -> Iterable[str]:
    """Yield a table of the weights of each network, by the names that `freeze` takes."""
    try:
        networks = checkpoint.read(checkpoint.find(folder)).data.get("parts", {})
    except TandemError:
        return
    rows = [
        [f"{network}.{name}", " × ".join(map(str, shape))]
        for network, shapes in networks.items()
        for name, shape in shapes.items()
        if not network.endswith("_target")
    ]
    if rows:
        table = _table(("weights", "shape"), rows, set())
        yield f"<details><summary>weights: {len(rows)}</summary>{table}</details>"


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _versions(config: JSONDict) -> str:
    rows = [[name, str(text)] for name, text in config.get("versions", {}).items()]
    rows += [["commit of the working directory", c]] if (c := config.get("commit")) else []
    return _table((), rows, set())


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], marked: set[int], numbers: int = 0
) -> str:
    """Return an HTML table; the first `numbers` columns are numeric, the rows in `marked` are
    highlighted."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = [f"<tr>{cells}</tr>"] if head else []
    for i, row in enumerate(rows):
        cells = "".join(
            f"<td{_class(at < numbers, text)}>{escape(text)}</td>" for at, text in enumerate(row)
        )
        lines.append(f"<tr{' class=mark' if i in marked else ''}>{cells}</tr>")
    return _boxed(lines)


def _class(is_number: bool, text: str) -> str:
    """Return the class of a cell: sentences get a minimum width, to stay readable on narrow
    screens."""
    return " class=number" if is_number else " class=text" if len(text) > 40 else ""


def _boxed(lines: Sequence[str]) -> str:
    """Return a table in a box: if the table is too wide, the box scrolls and not the page."""
    return f"<div class='wide'><table>{''.join(lines)}</table></div>"
