"""`python -m benchmarks.learn_peer`: learning curves of ours and of Stable-Baselines3 with the same
settings (the zoo's entry), seed by seed, into benchmarks/results/learn_peer.json, learn_peer.md and
a picture a row.

Every run is a process with one thread; one that is in learn_peer.json is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.measure import KERAS, ONE_THREAD, ROOT
from tandem import algorithms

RESULTS = ROOT / "benchmarks" / "results"
RUNS = ROOT / "runs" / "learn_peer"  # while they are made
LIBRARIES = {"ours": "tandem", "sb3": "Stable-Baselines3"}
SEEDS = (0, 1, 2)
LOCK = Lock()  # of the results
ENGINE = "jax"
POINTS = 10  # evaluations of a run
EPISODES = 10  # of an evaluation, and
FINAL = 50  # of the last policy, in the end


@dataclass(frozen=True)
class Compared:
    """A zoo entry, and how many steps of it are run."""

    name: str
    algorithm: str
    env: str
    steps: int


ROWS = (
    Compared("ppo-lunarlander", "ppo", "LunarLander-v3", 1_000_000),
    Compared("ppo-lunarlander-continuous", "ppo", "LunarLanderContinuous-v3", 500_000),
    Compared("ppo-bipedalwalker", "ppo", "BipedalWalker-v3", 500_000),
)


def main(arguments: list[str] | None = None) -> int:
    """Runs what is not finished, and writes down what is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn_peer", description=__doc__)
    parser.add_argument("--row", action="append", choices=[row.name for row in ROWS])
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, each on one thread")
    parser.add_argument("--one", nargs=2, metavar=("LIBRARY", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    rows = [row for row in ROWS if not args.row or row.name in args.row]
    if args.one:
        _one(rows[0], args.one[0], int(args.one[1]))
        return 0
    todo = [
        (row, library, seed)
        for row in rows
        for seed in SEEDS
        for library in LIBRARIES
        if str(seed) not in _known().get(row.name, {}).get(library, {})
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        codes = list(pool.map(lambda run: _start(*run), todo))
    for row in rows:
        _draw(row)
    return 1 if any(codes) else 0


def _path(row: Compared, library: str, seed: int) -> Path:
    return RUNS / row.name / f"{library}-{seed}.json"


def _start(row: Compared, library: str, seed: int) -> int:
    env = os.environ | ONE_THREAD | {"KERAS_BACKEND": KERAS[ENGINE]}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "benchmarks.learn_peer", "--row", row.name]
    code = subprocess.call([*command, "--one", library, str(seed)], cwd=ROOT, env=env)
    if code == 0:
        _keep(row, library, seed)
    print(
        f"{row.name} {library} seed {seed}: {'done' if code == 0 else f'exit {code}'}", flush=True
    )
    return code


def _one(row: Compared, library: str, seed: int) -> None:
    began = time.monotonic()
    found = {"ours": _ours, "sb3": _sb3}[library](row, seed)
    found |= {"seconds": round(time.monotonic() - began), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    path = _path(row, library, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found), encoding="utf-8")


def _ours(row: Compared, seed: int) -> dict[str, Any]:
    from tandem.learning.events import EvaluationEnd
    from tandem.trainer import session

    run = session(
        row.algorithm,
        row.env,
        framework=ENGINE,
        steps=row.steps,
        seed=seed,
        eval_every=row.steps // POINTS,
        eval_episodes=EPISODES,
        final_episodes=FINAL,
    )
    curve = [
        (event.env_steps, event.evaluation.mean)
        for event in run
        if isinstance(event, EvaluationEnd)
    ]
    return {"curve": curve, "last": run.result()["last_eval_mean"]}


def _sb3(row: Compared, seed: int) -> dict[str, Any]:
    peers.hide_tensorflow()
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    from tandem.trainer import resolve

    settings = resolve(row.algorithm, row.env, {"steps": row.steps})[0]
    observations, rewards = settings.normalize_observations, settings.normalize_rewards
    plain = replace(settings, normalize_observations=False, normalize_rewards=False)
    envs = peers.environments(row.env, settings.envs, seed)
    judge = peers.environments(row.env, EPISODES, seed + 1_000)
    if observations or rewards:
        flags = {"norm_obs": observations, "gamma": settings.gamma}
        envs = VecNormalize(envs, norm_reward=rewards, **flags)
        judge = VecNormalize(judge, norm_reward=False, training=False, **flags)
    keywords = peers.translate("sb3", row.algorithm, plain)
    model = peers.agent("sb3", row.algorithm, keywords, envs, seed)
    folder = RUNS / row.name / f"sb3-{seed}"
    callback = EvalCallback(
        judge,
        log_path=str(folder),
        n_eval_episodes=EPISODES,
        eval_freq=row.steps // POINTS // settings.envs,  # counted in calls of step
        deterministic=True,
        verbose=0,
    )
    model.learn(row.steps, callback=callback, log_interval=None)
    if observations or rewards:
        judge.obs_rms = envs.obs_rms
    last, _ = evaluate_policy(model, judge, FINAL)
    found = np.load(folder / "evaluations.npz")
    means = found["results"].mean(axis=1).tolist()
    return {"curve": list(zip(found["timesteps"].tolist(), means, strict=True)), "last": last}


# --- What they say together -----------------------------------------------------------------------


def _known() -> dict[str, Any]:
    """Of each row and library the runs that are finished, by seed."""
    if not (path := RESULTS / "learn_peer.json").is_file():
        return {}
    rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def _keep(row: Compared, library: str, seed: int) -> None:
    """Adds a run that is finished, and writes everything down."""
    from tandem.runs.config_file import commit

    found = json.loads(_path(row, library, seed).read_text(encoding="utf-8"))
    with LOCK:
        rows = _known()
        runs = rows.setdefault(row.name, {}).setdefault(library, {})
        runs[str(seed)] = found | {"commit": commit()[:10]}
        _write({x.name: rows[x.name] for x in ROWS if x.name in rows})


def _draw(row: Compared) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    known = _known().get(row.name, {})
    for color, (library, title) in zip(("tab:blue", "tab:orange"), LIBRARIES.items(), strict=True):
        for number, run in enumerate(known.get(library, {}).values()):
            axes.plot(*np.transpose(run["curve"]), color=color, label=None if number else title)
    axes.set_title(
        f"{algorithms.title(row.algorithm)} {row.env}, the same settings, a line for each seed"
    )
    axes.set_xlabel("environment steps")
    axes.set_ylabel(f"mean return of {EPISODES} greedy episodes")
    axes.legend()
    figure.savefig(RESULTS / "curves" / f"peer-{row.name}.png", dpi=100)
    plt.close(figure)


def _write(rows: dict[str, Any]) -> None:
    (RESULTS / "learn_peer.json").write_text(
        json.dumps({"engine": ENGINE, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    lines = [
        "# Scores compared with Stable-Baselines3",
        "",
        f"Mean return of the final policy over {FINAL} greedy episodes for each of the seeds "
        f"{', '.join(map(str, SEEDS))}. Both libraries use the zoo's settings (`python -m "
        "benchmarks.learn_peer`).",
        "",
        "| row | steps | tandem (jax) | Stable-Baselines3 | curves |",
        "|---|---|---|---|---|",
    ]
    for row in ROWS:
        if row.name not in rows:
            continue
        cells = [
            ", ".join(f"{run['last']:.0f}" for _, run in sorted(rows[row.name].get(x, {}).items()))
            for x in LIBRARIES
        ]
        picture = f"[figure](curves/peer-{row.name}.png)"
        lines.append(
            f"| {algorithms.title(row.algorithm)} {row.env} | {row.steps:,} | {cells[0]} "
            f"| {cells[1]} | {picture} |"
        )
    (RESULTS / "learn_peer.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
