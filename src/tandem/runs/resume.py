"""Resuming a run, as it began or extended to more steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tandem import backends
from tandem.errors import CheckpointError, ResumeError, warn
from tandem.learning import config
from tandem.learning.config import Config
from tandem.learning.vectors import env_of
from tandem.runs import checkpoint, config_file, plugin_writers, trust
from tandem.runs.callbacks import Callback
from tandem.runs.folder import locked, run_folder
from tandem.runs.new_folders import copied
from tandem.runs.session import Session
from tandem.runs.trust import NONE, Names
from tandem.settings import Schedule, shell_path


def resumed(folder: Path, *given: Any, out: Path | None = None, **more: Any) -> Session:
    """Call `_resumed` with the folder locked before anything is read. With `out` the folder is only
    read, and the copy is locked when training starts."""
    folder = run_folder(folder)
    if out is not None:
        return _resumed(folder, *given, out=out, **more)
    lock = locked(folder, "the run")
    try:
        run = _resumed(folder, *given, **more)
    except BaseException:
        del lock  # a stored traceback would keep it alive
        raise
    run.lock = lock
    return run


def _resumed(
    folder: Path,
    own: dict[str, Any],
    steps: int | None,
    extend: bool,
    callbacks: Iterable[Callback],
    changes: dict[str, Any],
    *,
    out: Path | None = None,
    names: Names = NONE,
) -> Session:
    """Return the session that resumes the run in `folder`.

    own: env, eval_env, network and optimizer, required again if the run began with objects passed
    from Python, else None. names: the names of the run that the call repeats, or that it trusts
    them. steps: a larger length, with `extend`. changes: other values of the settings in
    `config.RESUMABLE`; cluster only if the run has processes on one. out: a new folder to continue
    in, as a copy. Raises ResumeError if the run cannot be resumed this way.
    """
    saved = checkpoint.read(_last(folder))
    place = shell_path(folder)
    program, command = f"{{0}}, resume={str(folder)!r}", f"MODULE:{{0}} --resume {place}"
    again = f"tandem.train({program}) (tandem train {command})."
    kind = names.algorithm if isinstance(names.algorithm, type) else None
    conf = config_file.of(saved, kind, again, ResumeError)
    written, data = config_file.read(folder), saved.data["config"]
    config_file.refuse_other_env(folder, written, data)
    trust.expect_same(conf, folder, names)

    command = f"tandem train {conf.algorithm} {{}}--resume {place}"
    trust.expect(data, folder, written.get("signature"), names, command, ResumeError)
    if own["env"] is None:
        config_file.expect_env(data, folder, ResumeError)
    if conf.network:
        own["network"] = backends.named_network(conf.network, conf.framework)
    if changes.get("cluster") and not (conf.options.cluster or conf.options.runners):
        raise ResumeError(
            f"cluster={changes['cluster']!r} was given for the run {folder}, which does not use a "
            "cluster.",
            "the original processes, since they hold the environments",
            "leave cluster out.",
        )
    conf = config.changed(conf, changes)
    if changes.get("writer"):
        plugin_writers.check(conf.options.writer)
        origin = config_file.made_with(conf.algorithm, None, conf.options)["origin"]
        conf = replace(conf, origin=conf.origin | origin)
    config_file.expect_writers(conf.to_json(), folder)
    if changed := config.differing(written, data):
        warn(
            f"{folder / 'config.json'} has {', '.join(changed)}; the run keeps its original "
            "settings, and the file is rewritten."
        )
    for name, value in own.items():
        if getattr(conf, f"own_{name}") and value is None:
            raise ResumeError(
                f"the run {folder} was trained with {name}= passed from Python; it cannot be "
                "rebuilt from the folder alone.",
                f"the same {name}=",
                f"tandem.train(resume={str(folder)!r}, {name}=...)",
            )
    if steps is not None and steps != conf.settings.steps:
        if steps < conf.settings.steps or not extend:
            raise ResumeError(
                f"the run {folder} and its schedules are {conf.settings.steps} steps long, but "
                f"steps={steps} was given.",
                "the same length, or a larger one with extend=True (--extend), where schedules "
                "end at the same step as before",
                f"leave steps out; to end earlier, give stop_at={steps}."
                if steps < conf.settings.steps
                else "leave steps out, or add extend=True.",
            )
        conf = extended(conf, steps)
    folder = folder if out is None else copied(folder, out)
    return Session(
        conf,
        env_of(conf, own["env"]),
        folder=folder,
        network=own["network"],
        optimizer=own["optimizer"],
        callbacks=callbacks,
        resume=saved,
        eval_env=own["eval_env"],
    )


def extended(conf: Config, steps: int) -> Config:
    """Return the same run with `steps` steps. Its schedules end at the same step as before, even if
    that is after the old end, and intervals that were a twentieth or hundredth of the length stay
    as long."""
    before, options = conf.settings.steps, conf.options
    held = {
        f.name: replace(value, fraction=value.fraction * (before / steps))
        for f in fields(conf.settings)
        if isinstance(value := getattr(conf.settings, f.name), Schedule) and value.end is not None
    }
    hundredth = max(1, before // 100)
    return replace(
        conf,
        settings=replace(conf.settings, steps=steps, **held),
        options=replace(
            options,
            eval_every=options.eval_every or max(1, before // 20),
            log_every=options.log_every or hundredth,
            # a new run without opponents rejects this option
            snapshot_every=options.snapshot_every or (hundredth if options.opponents else 0),
        ),
        extended_from=conf.extended_from or before,
    )


def _last(folder: Path) -> Path:
    """Return the checkpoint that holds the whole run."""
    held = folder / "checkpoints"
    if not (held / "last.zip").is_file() and any(held.glob("*.zip")):
        raise CheckpointError(
            f"{held} has no last.zip, which holds the whole run.",
            "the folder of a run, or one that was pushed as resumable (--resumable)",
            "restore last.zip, or push with --resumable and pull again; its agent works as it is.",
        )
    return checkpoint.find(folder, "last")
