"""`python -m benchmarks.learn_peer`: learning curves of ours and of Stable-Baselines3 (its contrib
package included) with the same settings, those of the zoo's entry, seed by seed, into
benchmarks/results/learn_peer.json, learn_peer.md and a picture a row.

Every run is a process with one thread; one that is in learn_peer.json is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from benchmarks import peers, tables
from benchmarks.learn_tables import STUDENT
from benchmarks.measure import KERAS, ONE_THREAD, ROOT
from tandem import algorithms

RESULTS = ROOT / "benchmarks" / "results"
RUNS = ROOT / "runs" / "learn_peer"  # while they are made
LIBRARIES = {"ours": "tandem", "sb3": "Stable-Baselines3"}
LOCK = Lock()  # of the results
ENGINE = "jax"
POINTS = 10  # evaluations of a run
EPISODES = 10  # of an evaluation, and
FINAL = 50  # of the last policy, in the end


@dataclass(frozen=True)
class Compared:
    """A zoo entry, how many steps of it are run, and settings that the peer needs."""

    name: str
    algorithm: str
    env: str
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)

    def resolved(self) -> Any:
        """The settings of both."""
        from tandem.trainer import resolve

        return resolve(self.algorithm, self.env, {"steps": self.steps, **self.settings})[0]

    def plain(self) -> Any:
        """Those of the peer's agent; its environments normalize."""
        return replace(self.resolved(), normalize_observations=False, normalize_rewards=False)


ROWS = (
    Compared("ppo-halfcheetah", "ppo", "HalfCheetah-v5", 1_000_000),
    Compared("ppo-hopper", "ppo", "Hopper-v5", 1_000_000),
    Compared("ppo-walker2d", "ppo", "Walker2d-v5", 1_000_000),
    Compared("trpo-hopper", "trpo", "Hopper-v5", 1_000_000),
    Compared("trpo-swimmer", "trpo", "Swimmer-v5", 1_000_000),
    Compared("dqn-cartpole", "dqn", "CartPole-v1", 50_000, {"double": False}),
    Compared("dqn-lunarlander", "dqn", "LunarLander-v3", 100_000, {"double": False}),
    Compared("ppo-lunarlander", "ppo", "LunarLander-v3", 1_000_000),
    Compared("ppo-lunarlander-continuous", "ppo", "LunarLanderContinuous-v3", 500_000),
    Compared("ppo-bipedalwalker", "ppo", "BipedalWalker-v3", 500_000),
)


def main(arguments: list[str] | None = None) -> int:
    """Runs what is not finished, and writes down what is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn_peer", description=__doc__)
    parser.add_argument("--row", action="append", choices=[row.name for row in ROWS])
    parser.add_argument("--seeds", type=int, default=3, help="how many")
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
        for seed in range(args.seeds)
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
        **row.settings,
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

    settings = row.resolved()
    observations, rewards = settings.normalize_observations, settings.normalize_rewards
    envs = peers.environments(row.env, settings.envs, seed)
    judge = peers.environments(row.env, EPISODES, seed + 1_000)
    if observations or rewards:
        flags = {"norm_obs": observations, "gamma": settings.gamma}
        envs = VecNormalize(envs, norm_reward=rewards, **flags)
        judge = VecNormalize(judge, norm_reward=False, training=False, **flags)
    keywords = peers.translate("sb3", row.algorithm, row.plain())
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
        about = {"machine": tables.machine(), "versions": tables.versions()}
        runs[str(seed)] = found | {"commit": commit()[:10], **about}
        _write({x.name: rows[x.name] for x in ROWS if x.name in rows})


def _draw(row: Compared) -> None:
    """The mean of each library over its seeds, with 95 % intervals of Student's t."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    known = _known().get(row.name, {})
    for color, (library, title) in zip(("tab:blue", "tab:orange"), LIBRARIES.items(), strict=True):
        curves = [np.transpose(run["curve"]) for run in known.get(library, {}).values()]
        if not curves:
            continue
        steps = curves[0][0]
        returns = np.array([np.interp(steps, *curve) for curve in curves])
        mean, n = returns.mean(0), len(curves)
        axes.plot(steps, mean, color=color, label=f"{title}, {n} seeds")
        if n > 1:
            half = STUDENT[n - 1] * returns.std(0, ddof=1) / np.sqrt(n)
            axes.fill_between(steps, mean - half, mean + half, color=color, alpha=0.2, linewidth=0)
    axes.set_title(f"{algorithms.title(row.algorithm)} {row.env}, the same settings")
    axes.set_xlabel("environment steps")
    axes.set_ylabel(f"mean return of {EPISODES} greedy episodes")
    axes.legend()
    figure.savefig(RESULTS / "curves" / f"peer-{row.name}.png", dpi=100)
    plt.close(figure)


def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The difference of the means with its 95 % interval (Welch 1947): (value, low, high)."""
    from scipy.stats import ttest_ind

    found = ttest_ind(ours, theirs, equal_var=False)
    interval = found.confidence_interval(0.95)
    return float(np.mean(ours) - np.mean(theirs)), float(interval.low), float(interval.high)


def _write(rows: dict[str, Any]) -> None:
    (RESULTS / "learn_peer.json").write_text(
        json.dumps({"engine": ENGINE, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    lines = [
        "# Scores compared with Stable-Baselines3",
        "",
        f"Mean return of the last policy over {FINAL} greedy episodes, a number for each seed, and "
        "the median seconds of a run on one core. Both libraries use the settings of tandem's zoo; "
        "DQN is without double targets and TRPO without gradient clipping, as Stable-Baselines3 "
        "and sb3-contrib have them. The last column is the difference of the means with its 95 % "
        f"interval (Welch's t). Of {len(rows)} such intervals, one in twenty excludes 0 by "
        "chance. `python -m benchmarks.learn_peer --seeds 5` makes the table.",
        "",
        "| row | steps | tandem (jax) | s | Stable-Baselines3 | s | difference | curves |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        if row.name not in rows:
            continue
        runs = [
            [run for _, run in sorted(rows[row.name].get(library, {}).items())]
            for library in LIBRARIES
        ]
        scores = [[run["last"] for run in each] for each in runs]
        cells = [
            f"{', '.join(f'{x:.0f}' for x in each)} | {np.median([r['seconds'] for r in of]):.0f}"
            if each
            else " | "
            for each, of in zip(scores, runs, strict=True)
        ]
        apart = ""
        if min(map(len, scores)) > 1:
            value, low, high = difference(*scores)
            apart = f"{value:+.0f} ({low:+.0f} to {high:+.0f})"
        curve = f"curves/peer-{row.name}.png"
        picture = f"[figure]({curve})" if (RESULTS / curve).is_file() else ""
        lines.append(
            f"| {algorithms.title(row.algorithm)} {row.env} | {row.steps:,} | {cells[0]} "
            f"| {cells[1]} | {apart} | {picture} |"
        )
    (RESULTS / "learn_peer.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
