"""`python -m benchmarks.compiled_learn`: scores of compiled runs, three seeds each, and curves of
ten seeds beside those of runs that are stepped on the host. Into
benchmarks/results/compiled_learn.json and compiled_learn.md."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.measure import ROOT, last_line

SCORES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "PPO CartPole-v1": ("ppo", "tandem/CartPole-v1", {}),
    "DQN CartPole-v1": ("dqn", "tandem/CartPole-v1", {}),
    "SAC Pendulum-v1": ("sac", "tandem/Pendulum-v1", {}),
}
# of packages that may not be installed; the environment's own returns
OTHERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "PPO pgx/2048": (
        "ppo",
        "pgx/2048",
        {"steps": 1_000_000, "envs": 64, "rollout": 64, "batch_size": 512, "epochs": 4},
    ),
    "PPO brax/inverted_pendulum": (
        "ppo",
        "brax/inverted_pendulum",
        {"steps": 500_000, "envs": 32, "rollout": 64, "batch_size": 256, "epochs": 10},
    ),
}
CURVES, STEPS, EVERY, T95 = 10, 30_000, 2_500, 2.262  # Student's t for ten
SEEDS = 3


def one(algorithm: str, env: str, given: dict[str, Any], seed: int) -> dict[str, Any]:
    """What a run by the zoo's settings comes to: its score, and its evaluations."""
    import tandem
    from tandem import trainer
    from tandem.learning.events import EvaluationEnd

    named = env.removeprefix("tandem/")
    entry = trainer.resolve(algorithm, named, {})[0]
    zoo = {n: getattr(entry, n) for n in entry.__dataclass_fields__}
    curve: list[tuple[int, float]] = []

    def told(event: Any) -> None:
        if isinstance(event, EvaluationEnd):
            curve.append((event.env_steps, event.evaluation.mean))

    mode = "auto" if env == named and "/" not in env else "compiled"
    settings = zoo | {"vectorization": mode} | given
    result = tandem.train(
        algorithm, env, framework="jax", seed=seed, callbacks=[told], final_episodes=100, **settings
    )
    random = _random(env) if env.startswith(("pgx", "brax")) else None
    return {"score": result.evaluation.mean, "curve": curve, "random": random}


def _random(env: str) -> float:
    """The mean return of a player who moves at random."""
    from tandem.envs.actions import random_actions
    from tandem.envs.factory import vectorize

    envs, rng, returns = vectorize(env, 50), np.random.default_rng(0), []
    obs, scores = envs.reset(), np.zeros(50)
    while len(returns) < 200:
        step = envs.step(random_actions(envs.action, 50, rng, obs))
        scores += step.reward
        for i, _ in step.final:
            returns.append(scores[i])
            scores[i] = 0.0
        obs = step.obs
    return float(np.mean(returns))


def _spawned(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        last_line("benchmarks.compiled_learn", *words, contestant="jax")
    )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Makes all runs; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compiled_learn", description=__doc__
    )
    parser.add_argument("--row", action="append", choices=[*SCORES, *OTHERS, "curves"])
    parser.add_argument("--out", help="folder for the results")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        algorithm, env, given, seed = args.one
        print(json.dumps(one(algorithm, env, json.loads(given), int(seed))))
        return 0
    out = Path(args.out) if args.out else ROOT / "benchmarks" / "results"
    file = out / "compiled_learn.json"
    found = json.loads(file.read_text(encoding="utf-8"))["found"] if file.exists() else {}
    for name in args.row or [*SCORES, "curves"]:
        rows: dict[str, list[Any]] = {}
        runs = [(name, *SCORES[name])] if name in SCORES else []
        runs += [(name, *OTHERS[name])] if name in OTHERS else []
        if name == "curves":
            given = {"stop_at": STEPS, "eval_every": EVERY}
            runs = [
                (how, "ppo", env, given)
                for how, env in (("compiled", "tandem/CartPole-v1"), ("stepped", "CartPole-v1"))
            ]
        for how, algorithm, env, given in runs:
            rows[how] = []
            for seed in range(CURVES if name == "curves" else SEEDS):
                run = _spawned("--one", algorithm, env, json.dumps(given), seed)
                rows[how].append(run)
                print(f"  {name}, {how}, seed {seed}: {run['score']:.1f}", flush=True)
        found[name] = rows
        _write(found, out)
    return 0


def area(run: dict[str, Any]) -> float:
    """The mean of a run's evaluations over its first steps."""
    return float(np.mean([mean for steps, mean in run["curve"] if steps <= STEPS + EVERY // 2]))


def _write(found: dict[str, Any], out: Path) -> None:
    lines = [
        "# Scores of compiled runs",
        "",
        "Mean returns of each seed's best checkpoint (`python -m benchmarks.compiled_learn`).",
        "",
    ]
    lines += ["| run | score of each seed, 100 episodes | random agent |", "|---|---|--:|"]
    for name in SCORES:
        if name in found:
            scores = ", ".join(f"{run['score']:.1f}" for run in found[name][name])
            lines.append(f"| {name} | {scores} | |")
    for name in OTHERS:
        if name in found:
            runs = found[name][name]
            scores = ", ".join(f"{run['score']:.1f}" for run in runs)
            lines.append(f"| {name} | {scores} | {runs[0]['random']:.1f} |")
    if curves := found.get("curves"):
        lines += ["", "Mean return of PPO's evaluations on CartPole-v1 over the first"]
        lines += [f"{STEPS:,} steps, with its 95 % confidence interval over {CURVES} seeds:", ""]
        for how, runs in curves.items():
            areas = np.array([area(run) for run in runs])
            band = T95 * areas.std(ddof=1) / len(areas) ** 0.5
            lines.append(f"- {how}: {areas.mean():.1f} ± {band:.1f}")
    about = tables.about()
    lines += ["", tables.origin(about)]
    tables.save(out, "compiled_learn", about | {"found": found}, lines)


if __name__ == "__main__":
    sys.exit(main())
