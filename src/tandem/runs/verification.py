"""Verification that retraining reproduces a run, fingerprint by fingerprint."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tandem import backends
from tandem.algorithms import own
from tandem.backends import process
from tandem.envs.vector_source import VectorSource
from tandem.errors import ResumeError, RunFolderError
from tandem.learning import config
from tandem.learning.parallel.choice import has_gpu
from tandem.learning.vectors import env_of
from tandem.runs import checkpoint, config_file, start
from tandem.runs import trust as trusts
from tandem.runs.callbacks import Callback
from tandem.runs.environments import Made
from tandem.runs.folder import Run
from tandem.runs.session import Session
from tandem.runs.trust import Names
from tandem.settings import shell_path


class Difference(NamedTuple):
    """The first row that differs. `row` counts from 1, below the header."""

    row: int
    env_steps: int
    expected: str
    found: str


class Verification(NamedTuple):
    """Number of compared rows, the last compared step, the first difference, and packages whose
    versions have changed: {name: (then, now)}."""

    rows: int
    env_steps: int
    difference: Difference | None
    versions: dict[str, tuple[str, str]]


@process.restored()
def verify(
    folder: str | Path,
    steps: int | None = None,
    env: Any = None,
    network: Any = None,
    callbacks: Iterable[Callback] = (),
    algorithm: Any = None,
    optimizer: Any = None,
    env_kwargs: Any = None,
    trust: bool = False,
    wrappers: Any = None,
) -> Verification:
    """Retrain the run in `folder` for `steps` environment steps (None: as many as it has) and
    compare its rows.

    env, network, algorithm, optimizer: the objects that were passed to the run from Python, if any.
    env, network, env_kwargs and wrappers may repeat names of config.json; trust allows all of them,
    as in `tandem.train`. Raises ResumeError if required ones are missing or the run cannot be
    reproduced, RunFolderError if there is nothing to compare.
    """
    folder = Path(folder)
    run = Run(folder)
    again = "tandem.runs.verification.verify(folder, algorithm={0}) (tandem verify --algorithm)."
    package = config_file.package_of(run.config, "algorithm")
    kind, _ = own.of_file(run.config["algorithm"], algorithm, folder, again, ResumeError, package)
    vector = (env.path or None) if isinstance(env, VectorSource) else None
    path = network if isinstance(network, str) else None
    names = Names(env, vector, env_kwargs, path, trust=trust, wrappers=wrappers)
    command, signed = f"tandem verify {{}}{shell_path(folder)}", run.config.get("signature")
    trusts.expect(run.config, folder, signed, names, command, ResumeError, "--env ")
    if env is None:
        config_file.expect_env(run.config, folder, ResumeError)
    conf = config.changed(config.from_json(run.config, kind), {})  # validates it
    trusts.expect_same(conf, folder, names)
    if conf.network:
        network = backends.named_network(conf.network, conf.framework)
    given = {"env": env, "network": network, "optimizer": optimizer}
    for name, value in given.items():
        if getattr(conf, f"own_{name}") and value is None:
            raise ResumeError(
                f"the run {folder} was trained with {name}= passed from Python.",
                f"the same {name}=",
                f"verify it in Python: tandem.runs.verification.verify(folder, {name}=...).",
            )
    if conf.extended_from:
        raise ResumeError(
            f"the run {folder} was extended from {conf.extended_from} to {conf.settings.steps} "
            "steps.",
            "a run with its original length and schedules",
            "verify one that was not extended.",
        )
    others = int(conf.options.learners) - 1
    if others and conf.options.staleness != others:
        raise ResumeError(
            f"the run {folder} had {others + 1} actor-learners, whose gradients were applied in "
            "order of arrival.",
            f"a reproducible run: with --staleness {others}, they take turns",
            "verify one that was trained that way.",
        )
    expected = [
        (int(s), f) for s, f in zip(run.column("env_steps"), run.table["fingerprint"], strict=True)
    ]
    end = expected[-1][0] if steps is None else steps
    expected = [row for row in expected if row[0] <= end]
    if not expected:
        raise RunFolderError(
            f"{folder} has no row up to step {end}.",
            "at least one row to compare",
            "give more --steps.",
        )
    if conf.inexact:
        raise ResumeError(
            f"the run {folder} was resumed on {', then '.join(conf.inexact)}.",
            "a run on the same devices and number of threads throughout",
            "verify one that was not resumed on others.",
        )
    if conf.restarted_at:
        raise ResumeError(
            f"the run {folder} was resumed in new episodes at "
            f"step{'s' * (len(conf.restarted_at) > 1)} {', '.join(map(str, conf.restarted_at))}.",
            "a run whose episodes were resumed exactly",
            "verify one that was trained without interruption.",
        )
    if conf.device == "cuda" and not has_gpu():
        raise ResumeError(
            f"the run {folder} was trained on a GPU, and none is available.",
            "the same device, since others round differently",
            "verify it on the machine that trained it.",
        )
    given |= {"env": env_of(conf, env)}
    actual = _again(conf, given, expected[-1][0], callbacks, _calls(folder))
    now = config_file.versions()
    versions = {n: (v, now.get(n, "missing")) for n, v in conf.versions.items() if now.get(n) != v}
    return Verification(
        len(expected), expected[-1][0], _first_difference(expected, actual), versions
    )


def _calls(folder: Path) -> list[Made]:
    """Return the calls made in the run's environments, from its last checkpoint."""
    path = folder / "checkpoints" / "last.zip"
    stored = checkpoint.read(path).data["session"].get("calls", []) if path.exists() else []
    return [Made.read(call) for call in stored]


def _again(
    conf: config.Config,
    own: dict[str, Any],
    stop_at: int,
    callbacks: Iterable[Callback],
    calls: list[Made],
) -> list[tuple[int, str]]:
    """Return (step, fingerprint) of each row of the run, retrained with these environment calls.
    Evaluations have one episode: only their times matter."""
    options = replace(
        conf.options,
        tensorboard=False,
        wandb="",
        mlflow="",
        writer=(),
        plots=False,
        keep=0,
        eval_episodes=min(1, conf.options.eval_episodes),
    )
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            replace(conf, options=options),
            own["env"],
            folder=Path(folder) / "run",
            network=own["network"],
            optimizer=own["optimizer"],
            callbacks=callbacks,
            start=start.again(conf.start),
        )
        session.environments.repeat(calls)
        for event in session.events(stop_at):
            session.environments.follow(event)
        session.close()
        again = Run(Path(folder) / "run")
    return [
        (int(s), f)
        for s, f in zip(again.column("env_steps"), again.table["fingerprint"], strict=True)
    ]


def _first_difference(
    expected: list[tuple[int, str]], actual: list[tuple[int, str]]
) -> Difference | None:
    """Return the first differing row. Rows are compared in order: identical runs have them at the
    same steps."""
    for i, (step, fingerprint) in enumerate(expected):
        other = actual[i] if i < len(actual) else (step, "no row")
        if other != (step, fingerprint):
            shown = other[1] if other[0] == step else f"a row at step {other[0]} instead"
            return Difference(i + 1, step, fingerprint, shown)
    return None
