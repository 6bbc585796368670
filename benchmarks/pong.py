"""`python -m benchmarks.pong`: PPO in EnvPool's Pong, ours on torch beside a single-file program
for torch, by the settings of CleanRL's for EnvPool: 8 games x 128 steps, 4 epochs of 4 minibatches,
the Nature CNN shared by actor and critic. Into benchmarks/results/pong.json and pong.md.

Needs `pip install envpool`; on one core, with nothing else running."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.measure import ROOT, last_core, last_line

GAMES, ROLLOUT, BATCH, EPOCHS = 8, 128, 256, 4
RATE, GAMMA, TRACE, CLIP, ENTROPY, VALUE, NORM = 2.5e-4, 0.99, 0.95, 0.1, 0.01, 0.5, 0.5
WHO = ("tandem", "tandem, compiled", "single file")


def ours(blocks: int, compiled: bool) -> float:
    """Environment steps a second of our run; gradients compiled, or not."""
    import tandem
    from tandem.learning.events import BatchEnd
    from tandem.trainer import resolve

    entry = resolve("ppo", "ALE/Pong-v5", {})[0]
    given = {n: getattr(entry, n) for n in entry.__dataclass_fields__}
    rows = GAMES * ROLLOUT
    run = tandem.session(
        "ppo",
        "envpool/Pong-v5",
        framework="torch",
        env_kwargs={"num_threads": 1},
        compile="yes" if compiled else "no",
        eval_episodes=0,
        **given | {"steps": (2 + blocks) * rows},
    )
    began = mark = 0.0
    for event in run:
        if isinstance(event, BatchEnd) and not began and event.env_steps >= 2 * rows:
            began, mark = perf_counter(), event.env_steps
    return (run.loop.env_steps - mark) / (perf_counter() - began)


def single_file(blocks: int) -> float:
    """The same of a program of its own."""
    import envpool
    import torch
    from torch import nn

    def layer(made: Any, gain: float = 2**0.5) -> Any:
        nn.init.orthogonal_(made.weight, gain)
        nn.init.constant_(made.bias, 0.0)
        return made

    games = envpool.make(
        "Pong-v5",
        env_type="gym",
        num_envs=GAMES,
        num_threads=1,
        episodic_life=True,
        reward_clip=True,
        seed=0,
    )
    choices = games.action_space.n
    body = nn.Sequential(
        layer(nn.Conv2d(4, 32, 8, 4)),
        nn.ReLU(),
        layer(nn.Conv2d(32, 64, 4, 2)),
        nn.ReLU(),
        layer(nn.Conv2d(64, 64, 3, 1)),
        nn.ReLU(),
        nn.Flatten(),
        layer(nn.Linear(64 * 7 * 7, 512)),
        nn.ReLU(),
    )
    actor, critic = layer(nn.Linear(512, choices), 0.01), layer(nn.Linear(512, 1), 1.0)
    weights = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(weights, lr=RATE, eps=1e-5)
    shape, rng = (ROLLOUT, GAMES), np.random.default_rng(0)
    obs = torch.zeros((*shape, 4, 84, 84))
    actions = torch.zeros(shape, dtype=torch.long)
    log_probs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    seen = torch.Tensor(_first(games.reset()))
    done, total, began = torch.zeros(GAMES), 2 + blocks, 0.0
    for block in range(total):
        if block == 2:
            began = perf_counter()
        optimizer.param_groups[0]["lr"] = RATE * (1 - block / total)
        for t in range(ROLLOUT):
            obs[t], dones[t] = seen, done
            with torch.no_grad():
                hidden = body(seen / 255.0)
                policy = torch.distributions.Categorical(logits=actor(hidden))
                actions[t] = policy.sample()
                log_probs[t] = policy.log_prob(actions[t])
                values[t] = critic(hidden).flatten()
            after, reward, over, *more = games.step(actions[t].numpy())
            over = over | more[0] if len(more) == 2 else over
            rewards[t] = torch.as_tensor(reward)
            seen, done = torch.Tensor(after), torch.Tensor(np.asarray(over))
        with torch.no_grad():
            following, last = critic(body(seen / 255.0)).flatten(), torch.zeros(GAMES)
            advantages, goes_on = torch.zeros_like(rewards), 1.0 - done
            for t in reversed(range(ROLLOUT)):
                delta = rewards[t] + GAMMA * following * goes_on - values[t]
                last = delta + GAMMA * TRACE * goes_on * last
                advantages[t], following, goes_on = last, values[t], 1.0 - dones[t]
        flat = [x.reshape(-1, *x.shape[2:]) for x in (obs, actions, log_probs, advantages, values)]
        targets = flat[3] + flat[4]
        for _ in range(EPOCHS):
            order = rng.permutation(GAMES * ROLLOUT)
            for start in range(0, len(order), BATCH):
                at = order[start : start + BATCH]
                hidden = body(flat[0][at] / 255.0)
                policy = torch.distributions.Categorical(logits=actor(hidden))
                ratio = (policy.log_prob(flat[1][at]) - flat[2][at]).exp()
                gain = flat[3][at]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
                loss = torch.max(-gain * ratio, -gain * clipped).mean()
                error = 0.5 * ((critic(hidden).flatten() - targets[at]) ** 2).mean()
                loss = loss - ENTROPY * policy.entropy().mean() + VALUE * error
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(weights, NORM)
                optimizer.step()
    return blocks * GAMES * ROLLOUT / (perf_counter() - began)


def _first(given: Any) -> Any:
    return given[0] if isinstance(given, tuple) else given


def main(arguments: list[str] | None = None) -> int:
    """Measures all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pong", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="of which the median counts")
    parser.add_argument("--blocks", type=int, default=6, help="rollouts, and their updates")
    parser.add_argument("--out", help="folder for the results")
    parser.add_argument("--one", choices=WHO, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        found = (
            single_file(args.blocks)
            if args.one == "single file"
            else ours(args.blocks, "compiled" in args.one)
        )
        print(found)
        return 0
    runs: dict[str, list[float]] = {who: [] for who in WHO}
    for repeat in range(args.repeats):
        for who in WHO if repeat % 2 == 0 else reversed(WHO):
            runs[who].append(_spawned(who, args.blocks))
            print(f"  {repeat + 1} {who}: {runs[who][-1]:,.0f} steps/s", flush=True)
    _write(runs, Path(args.out) if args.out else ROOT / "benchmarks" / "results")
    return 0


def _spawned(who: str, blocks: int) -> float:
    command = ("benchmarks.pong", "--one", who, "--blocks", blocks)
    return float(last_line(*command, core=last_core()))


def _write(runs: dict[str, list[float]], out: Path) -> None:
    about, peer = tables.about(), median(runs["single file"])
    lines = ["# PPO in EnvPool's Pong", ""]
    lines += ["Environment steps per second on one CPU core (`python -m benchmarks.pong`).", ""]
    lines += ["| | steps/s | × single file |", "|---|--:|--:|"]
    for who, speeds in runs.items():
        lines.append(f"| {who} | {median(speeds):,.0f} | {median(speeds) / peer:.2f} |")
    lines += [
        "",
        "The compiled row uses torch.compile. The single file is a PPO program in the style of "
        "CleanRL, in `benchmarks/pong.py`.",
    ]
    lines += ["", f"Medians. {tables.origin(about)}"]
    tables.save(out, "pong", about | {"seed": 0, "found": runs}, lines)


if __name__ == "__main__":
    sys.exit(main())
