"""Output of `tandem train` on a run: text, or JSON lines."""

from __future__ import annotations

from typing import Any

from tandem.algorithms import own
from tandem.cli.output import echo, shown
from tandem.cli.parser import with_import
from tandem.learning.devices import purpose
from tandem.learning.figures import mean_and_std
from tandem.runs.folder import result_of
from tandem.runs.json_log import JsonLog
from tandem.runs.progress_line import duration
from tandem.runs.result import Result
from tandem.runs.signals import exit_code
from tandem.settings import shell_path


def begun(session: Any, quiet: bool) -> None:
    """Print the run that starts or resumes."""
    devices = purpose(session.backend)
    if isinstance(log := session.callbacks[0], JsonLog):
        notes = [*([devices] if devices else []), *session.notes]
        log.line("run", _outline(session) | {"notes": notes})
        return
    if not quiet:
        c, done = session.config, session.loop.env_steps
        went = f", from step {done:,} on" if done else ""
        echo(
            f"{c.algorithm} on {c.env}, {c.framework}, seed {c.seed}, {c.settings.steps:,} "
            f"steps{went}; settings: {c.source}"
        )
        if devices:
            echo(devices)
        echo(f"run: {shown(session.folder)}", flush=True)


def _outline(session: Any) -> dict[str, Any]:
    """Return the description of the run for the first line of a stream."""
    c = session.config
    said = {name: getattr(c, name) for name in ("algorithm", "env", "framework", "seed", "source")}
    return {
        **said,
        "steps": c.settings.steps,
        "env_steps": session.loop.env_steps,
        "folder": str(session.folder),
    }


def ended(session: Any, result: Result, imported: str | None = None) -> int:
    """Print the result of a session and how to continue; return the exit code. imported: the module
    of --import, which other commands need, too."""
    if isinstance(log := session.callbacks[0], JsonLog):
        if result.summary:
            log.line("result", {**result.summary, "folder": str(result.folder)})
        return _code(result.reason)
    if code := _code(result.reason):
        _stopped(result, session.config, imported)
        return code
    s, conf = result.summary, session.config
    speed = f"{s['steps_per_second']:,.0f} steps/s"
    echo(
        f"{conf.algorithm} on {conf.env}, {conf.framework}, seed {conf.seed}: "
        f"{s['env_steps']:,} steps in {duration(s['seconds'])} ({speed})"
    )
    if s["eval_episodes"]:
        echo(f"  best checkpoint  {result.evaluation}, on fresh seeds")
        cut = f", {s['last_eval_cut']} of them cut" if s["last_eval_cut"] else ""
        scored = mean_and_std(s["last_eval_mean"], s["last_eval_std"])
        echo(f"  last checkpoint  {scored}, on the same{cut}")
    there = (
        "curve.png",
        "animation.gif",
        "progress.csv",
        "result.json",
        "checkpoints/best.zip",
        "checkpoints/last.zip",
    )
    echo(
        f"{shown(result.folder)}:\n  "
        + "  ".join(name for name in there if (session.folder / name).is_file())
    )
    rest = (
        ""
        if s["env_steps"] < conf.settings.steps
        else f" --steps {2 * conf.settings.steps} --extend"
    )
    echo("Next:")
    resume, with_it = _again(conf, imported)
    lines = (f"watch {{}}{with_it}", f"evaluate {{}} --episodes 100{with_it}", resume + rest)
    for line in lines[bool(conf.vector) :]:  # only single environments can be watched
        echo("  tandem " + line.format(shell_path(shown(result.folder))))
    return 0


def _again(conf: Any, imported: str | None) -> tuple[str, str]:
    """Return (the command that resumes a run in {}, the flags that other commands need)."""
    more = with_import(imported)
    if own.is_known(conf.algorithm):
        return f"train --resume {{}}{more}", more
    resume = f"train {conf.algorithm} --resume {{}}{more}"
    return resume, f" --algorithm {conf.algorithm}{more}"


def _stopped(result: Result, conf: Any, imported: str | None) -> None:
    """Print how to resume a run that a signal ended, if it is not complete."""
    if result.folder is not None and result_of(result.folder, conf.settings.steps):
        echo(f"Stopped by {result.reason} after the last step; some plots may be missing.")
    else:
        command = f"tandem {_again(conf, imported)[0].format(shell_path(shown(result.folder)))}"
        echo(f"Stopped by {result.reason} and saved. To resume:\n  {command}")


def _code(reason: str) -> int:
    """Return the exit code of the signal that ended the run, else 0."""
    return exit_code(reason) if reason.startswith("SIG") else 0
