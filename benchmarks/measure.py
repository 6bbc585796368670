"""Measuring in processes of their own, each kept to one core and one thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import rows
from benchmarks.rows import PEERS, Reach, Row

ROOT = Path(__file__).parent.parent
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "PJRT_NPROC": "1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}
KERAS = {"jax": "jax", "tensorflow": "tensorflow", "keras-torch": "torch"}


@dataclass(frozen=True)
class Run:
    """One measured run: seconds until it was constructed (imports included), until its first
    updates were done, of its whole loop by the clock and by the processor; environment steps and
    updates made."""

    startup: float
    first: float | None
    loop: float
    cpu: float
    steps: int
    updates: int


@dataclass(frozen=True)
class Pair:
    """A short run and one three times as long: their difference has neither start-up nor
    compilation in it."""

    short: Run
    long: Run

    def steps_per_second(self, clock: str = "wall") -> float:
        """By the wall's clock, or by the processor's, which stands still while others use the core
        ("cpu")."""
        took = (
            self.long.loop - self.short.loop if clock == "wall" else self.long.cpu - self.short.cpu
        )
        return (self.long.steps - self.short.steps) / took if took > 0 else float("nan")

    @property
    def updates_per_step(self) -> float:
        return (self.long.updates - self.short.updates) / (self.long.steps - self.short.steps)

    @property
    def share_of_core(self) -> float:
        """How much of the clock's time the core worked for us; under 1 where others used it too."""
        took = self.long.loop - self.short.loop
        return (self.long.cpu - self.short.cpu) / took if took > 0 else float("nan")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Pair:
        return cls(Run(**data["short"]), Run(**data["long"]))


def job(row: Row | Reach, contestant: str, steps: int, seed: int) -> dict[str, Any]:
    """What the worker has to be told for one run."""
    settings = rows.resolved(row, steps)
    description: dict[str, Any] = {
        "kind": "peer" if contestant in PEERS else "ours",
        "contestant": contestant,
        "algorithm": row.algorithm,
        "env": row.env,
        "envs": settings.envs,
        "steps": settings.steps,
        "seed": seed,
    }
    if contestant in PEERS:
        from benchmarks.peers import theirs, translate

        description["algorithm"] = theirs(row.algorithm, settings)
        description["keywords"] = translate(contestant, row.algorithm, settings)
    else:
        # A run that is long enough to be measured is long enough to be compiled; one to 475 decides
        # for itself, as a user's.
        compiled = contestant.startswith("torch") and isinstance(row, Row)
        description["settings"] = {**row.settings, **({"compile": "yes"} if compiled else {})}
        description["layers"] = settings.hidden, settings.activation
    if isinstance(row, Reach):
        description |= {
            "kind": description["kind"] + "-reach",
            "score": row.score,
            "eval_every": row.eval_every,
        }
    return description


def bare_job(row: Row) -> dict[str, Any]:
    """What the worker has to be told to measure the row's limit."""
    import gymnasium

    from tandem.envs import atari

    settings, game = rows.resolved(row), atari.is_atari(row.env)
    env = atari.make(row.env) if game else gymnasium.make(row.env)
    actions = int(getattr(env.action_space, "n", 0)) or env.action_space.shape[0]
    return {
        "kind": "limit",
        "env": row.env,
        "envs": settings.envs,
        "native": settings.vectorization == "native",
        "products": rows.products(
            row.algorithm, settings, 0 if game else env.observation_space.shape[0], actions
        ),
    }


def last_core() -> int | None:
    """The core to measure on, or None where processes cannot be kept to one."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else None


def spawn(
    job: dict[str, Any],
    core: int | None,
    timeout: float = 3_600.0,
    python: str = sys.executable,
    module: str = "benchmarks.worker",
) -> dict[str, Any]:
    """Runs a job in a new process; RuntimeError with what it said if it fails."""
    env = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"} | ONE_THREAD
    if backend := KERAS.get(job.get("contestant", "")):
        env["KERAS_BACKEND"] = backend
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    told = json.dumps({**job, "core": core, "spawned": time.monotonic()})
    done = subprocess.run(
        [python, "-m", module, told],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"measuring {job.get('contestant', job['kind'])} failed:\n{done.stderr[-4_000:]}"
        )
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def last_line(*words: object, core: int | None = None, contestant: str = "", **env: str) -> str:
    """The last line that `python -m WORDS` prints, on one thread. env: more environment
    variables."""
    places = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    given = os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    if backend := KERAS.get(contestant):
        given["KERAS_BACKEND"] = backend
    pin = (lambda: os.sched_setaffinity(0, {core})) if core is not None else None
    command = [sys.executable, "-m", *map(str, words)]
    out = subprocess.check_output(
        command, cwd=ROOT, env={**given, **env}, text=True, preexec_fn=pin
    )
    return (out.splitlines() or [""])[-1]


def calibrated(measure: Callable[[int], Run], start: int, seconds: float) -> int:
    """A length for the short run: one whose loop, first updates apart, takes at least `seconds`."""
    steps = start
    for _ in range(10):
        run = measure(steps)
        took = run.loop - (run.first or 0.0)
        if took >= seconds:
            return steps
        steps = int(steps * min(20.0, max(1.5, 1.25 * seconds / max(took, 1e-3))))
    raise RuntimeError(f"{steps} steps still take less than {seconds} s.")


def alternating(contestants: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    """Everyone once a repeat, there and back again, so that a drift of the machine meets all
    alike."""
    for repeat in range(repeats):
        for contestant in contestants if repeat % 2 == 0 else reversed(contestants):
            yield repeat, contestant


def check_updates(row: Row, contestant: str, pair: Pair) -> None:
    """RuntimeError unless both runs made the updates that the settings ask for: the comparison
    would be of different work."""
    settings = rows.resolved(row)
    for run in (pair.short, pair.long):
        expected = rows.updates(settings, run.steps)
        # Where environments reset in a step of their own, a block has a few environment steps less;
        # the last may be begun.
        resets = settings.vectorization == "native" and contestant not in PEERS
        slack = 0.1 * expected + rows.updates(settings, rows.block(settings)) if resets else 0
        if not expected <= run.updates <= expected + slack:
            raise RuntimeError(
                f"{contestant} made {run.updates} updates in {run.steps} steps of {row.name}; the "
                f"settings ask for {expected}."
            )
