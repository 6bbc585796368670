"""`python -m benchmarks.tabular`: the zoo's entries for games whose best play is known, over three
seeds, into benchmarks/results/tabular.json and tabular.md.

Where a game tells its transitions (`env.P`), the greedy policy's expected return from the start is
exact: the solution of its linear equations, beside what value iteration finds, both undiscounted;
and the same with the entry's discount, which prefers those that arrive sooner.
Blackjack is played for 20,000 episodes. Policies are those after the last step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import gymnasium
import numpy as np

from benchmarks.measure import ROOT

RESULTS = ROOT / "benchmarks" / "results"
# environment -> (algorithm, what the value is to reach, in parts of the best or as it is)
ROWS = {
    "FrozenLake-v1": ("dqn", 0.98),
    "FrozenLake8x8-v1": ("dqn", 0.98),
    "CliffWalking-v1": ("dqn", -13.0),
    "Taxi-v4": ("dqn", 0.98),
    "Blackjack-v1": ("ppo", -0.06),
}
EPISODES = 20_000
SEEDS = (0, 1, 2)


def main(arguments: list[str] | None = None) -> int:
    """Trains and evaluates; 1 where a seed falls short."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabular", description=__doc__)
    parser.add_argument("--env", action="append", choices=list(ROWS))
    parser.add_argument("--framework", default="jax")
    args = parser.parse_args(arguments)
    path = RESULTS / "tabular.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for env in args.env or ROWS:
        known[env] = [_one(env, seed, args.framework) for seed in SEEDS]
        print(env, known[env], flush=True)
        path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    _write(known)
    return 0 if all(_reached(env, run) for env, runs in known.items() for run in runs) else 1


def _one(env: str, seed: int, framework: str) -> dict[str, Any]:
    import tandem

    # No evaluation before the last step: otherwise the agent is the best of twenty, by ten games
    # each, of which chance has a part.
    result = tandem.train(
        ROWS[env][0], env, framework=framework, seed=seed, eval_every=10**9, progress=False
    )
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    found = {"seed": seed, "steps": result.summary["env_steps"], "commit": commit[:10]}
    if env == "Blackjack-v1":
        return found | {"value": _played(env, result.agent), "best": None}
    value, best = exact(env, result.agent, 1.0)
    discounted, of = exact(env, result.agent, result.agent.settings.gamma)
    return found | {"value": value, "best": best, "discounted": discounted / of}


def exact(env: str, agent: Any, gamma: float) -> tuple[float, float]:
    """What an agent's greedy policy is worth from the start of a game that tells its transitions,
    and what the best one is."""
    game = gymnasium.make(env).unwrapped
    states, actions = game.observation_space.n, game.action_space.n
    then, paid = np.zeros((states, actions, states)), np.zeros((states, actions))
    for s in range(states):
        for a in range(actions):
            for p, after, reward, over in game.P[s][a]:
                paid[s, a] += p * reward
                then[s, a, after] += p * (not over)
    best = np.zeros(states)
    while True:
        better = (paid + gamma * then @ best).max(1)
        if np.abs(better - best).max() < 1e-10:
            break
        best = better
    shown = [
        {"obs": s, "action_mask": game.action_mask(s)} if isinstance(agent.observation, dict) else s
        for s in range(states)
    ]
    greedy = np.array([int(agent.act(x)) for x in shown])
    every = np.arange(states)
    # a policy that goes in circles for ever has no undiscounted value but in the limit
    near = min(gamma, 1.0 - 1e-9)
    value = np.linalg.solve(np.eye(states) - near * then[every, greedy], paid[every, greedy])
    start = np.asarray(game.initial_state_distrib)
    return float(start @ value), float(start @ best)


def _played(env: str, agent: Any) -> float:
    game, total, choice = gymnasium.make(env), 0.0, dict[Any, int]()
    game.reset(seed=1)
    for _ in range(EPISODES):
        (obs, _), over = game.reset(), False
        while not over:
            if obs not in choice:
                choice[obs] = int(agent.act(obs))
            obs, reward, over, _, _ = game.step(choice[obs])
        total += float(reward)
    return total / EPISODES


def _reached(env: str, run: dict[str, Any]) -> bool:
    least = ROWS[env][1]
    return bool(run["value"] >= (least * run["best"] if 0 < least < 1 else least - 1e-3))


def _write(known: dict[str, list[dict[str, Any]]]) -> None:
    lines = [
        "# Tasks with known optimal policies",
        "",
        "Expected return of each seed's final greedy policy, with the zoo's settings (`python -m "
        "benchmarks.tabular`).",
        "",
        "| environment | algorithm | steps | return | optimal | discounted return / optimal |",
        "|---|---|--:|---|--:|---|",
    ]
    for env, runs in known.items():
        algorithm = ROWS[env][0]
        values = ", ".join(f"{run['value']:.4f}" for run in runs)
        best = "" if runs[0]["best"] is None else f"{runs[0]['best']:.4f}"
        discounted = ", ".join(f"{run['discounted']:.0%}" for run in runs if "discounted" in run)
        lines.append(
            f"| {env} | {algorithm} | {runs[0]['steps']:,} | {values} | {best} | {discounted} |"
        )
    lines += [
        "",
        f"Returns are exact, except for Blackjack (mean over {EPISODES:,} games). "
        f"Written {datetime.now(UTC):%Y-%m-%d}.",
        "",
    ]
    (RESULTS / "tabular.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
