"""Fingerprints of 79 short runs, to show that a change leaves results identical to the bit.

    python -m benchmarks.fingerprints --out FILE        # about 7 minutes on one core
    python -m benchmarks.fingerprints --against FILE    # exits with 1 at the first difference

A fingerprint is a hash of every array in `last.zip` and of every column of `progress.csv` that is
not a time; for programs of the agent API, of every array of the saved agent and of the callbacks in
their order. Each run is made twice: without a stop, and stopped in the middle and resumed. Compare
files of one machine with the same versions only: others round differently.

The runs of another commit: PYTHONPATH=/path/of/its/checkout/src.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.measure import ONE_THREAD
from tandem.testing.goal_games import BitFlip

FRAMEWORKS = ("torch", "jax", "tensorflow")
TIMES = {"seconds"}  # columns of progress.csv
ENVIRONMENT = ONE_THREAD | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

Parts = dict[str, str]  # name of an array or a column -> hash


@dataclass(frozen=True)
class Training:
    """A run of the trainer API."""

    framework: str
    algorithm: str
    env: Any
    settings: dict[str, Any]

    def fingerprints(self, folder: Path) -> tuple[Parts, Parts]:
        """The parts of the run without a stop, and of the one that was resumed."""
        import tandem

        off = {"plots": False, "tensorboard": False, "eval_episodes": 1, "final_episodes": 1}
        every = {"log_every": 100, "eval_every": 150}
        given = {"framework": self.framework, "seed": 3, **off, **every, **self.settings}
        whole, resumed = folder / "whole", folder / "resumed"
        tandem.train(self.algorithm, self.env, out=whole, **given)
        half = self.settings["steps"] // 2
        tandem.train(self.algorithm, self.env, out=resumed, stop_at=half, **given)
        again = {} if isinstance(self.env, str) else {"env": self.env}
        tandem.train(resume=resumed, **again)
        return run_parts(whole), run_parts(resumed)


@dataclass(frozen=True)
class Program:
    """A program of the agent API: an agent of `tandem.examples` and how it trains."""

    framework: str
    module: str
    arguments: tuple[Any, ...]
    set: dict[str, Any]  # policy and noise: name of the class in tandem.exploration and arguments
    episodes: int
    batches: int = 0  # stop after this many, in a callback; 0: no callbacks of batches
    kind: str = ""  # the class; else as the module is called
    train: dict[str, Any] = field(default_factory=dict)

    def fingerprints(self, folder: Path) -> tuple[Parts, Parts]:
        """The parts of the program without a stop, and of the one that was resumed."""
        agent, calls = self.agent(), Calls(self.batches > 0)
        self.trained(agent, calls, self.episodes)
        whole = agent_parts(agent, calls, folder / "whole.zip")
        agent, calls = self.agent(), Calls(self.batches > 0)
        calls.stop_at, calls.agent = self.batches or self.episodes // 2, agent
        self.trained(agent, calls, self.episodes)
        agent.save(str(folder / "half.zip"))
        done = len(agent.reward_list)
        agent, calls.agent = self.agent(), None
        agent.restore(str(folder / "half.zip"))
        self.trained(agent, calls, self.episodes - done)
        return whole, agent_parts(agent, calls, folder / "resumed.zip")

    def agent(self) -> Any:
        if self.framework == "torch":
            import_module("torch").manual_seed(3)
        else:
            import_module("keras").utils.set_random_seed(3)
        api = "pytorch" if self.framework == "torch" else "keras"
        module = import_module(f"tandem.examples.{api}.{self.module}")
        agent = getattr(module, self.kind or self.module.rpartition(".")[2])(*self.arguments)
        agent.seed = 3
        exploration, given = import_module("tandem.exploration"), dict(self.set)
        for name in given.keys() & {"policy", "noise"}:
            kind, *arguments = given[name]
            given[name] = getattr(exploration, kind)(*arguments)
        agent.set(**given)
        return agent

    def trained(self, agent: Any, calls: Calls, episodes: int) -> None:
        agent.callbacks = [calls]
        params = agent.param if isinstance(agent.param[0], (list, tuple)) else [agent.param]
        if self.framework == "torch":
            optimizers = [import_module("torch").optim.Adam(param, 1e-3) for param in params]
        else:
            optimizers = [import_module("keras").optimizers.Adam(1e-3) for _ in params]
        optimizer = optimizers if len(optimizers) > 1 else optimizers[0]
        agent.train(optimizer=optimizer, episodes=episodes, **self.train)


class Calls:
    """A callback that records its calls, and stops the training of `agent` at one of them."""

    def __init__(self, batches: bool) -> None:
        self.calls: list[Any] = []
        self.ends, self.stop_at, self.agent = 0, 0, None
        if batches:
            self.on_batch_begin, self.on_batch_end = self._batch_begin, self._batch_end

    def on_episode_begin(self, number: int, logs: dict[str, Any]) -> None:
        self.calls.append("episode begins")  # numbered from the start of each `train`

    def on_episode_end(self, number: int, logs: dict[str, Any]) -> None:
        self.calls.append(["episode ends", *(float(logs[name]) for name in sorted(logs))])
        if not hasattr(self, "on_batch_end"):
            self._ended()

    def _batch_begin(self, number: int, logs: dict[str, Any]) -> None:
        self.calls.append(["batch begins", number])

    def _batch_end(self, number: int, logs: dict[str, Any]) -> None:
        self.calls.append(["batch ends", number, float(logs["loss"])])
        self._ended()

    def _ended(self) -> None:
        self.ends += 1
        if self.ends == self.stop_at and self.agent is not None:
            self.agent.stop_training = True


CARTPOLE, PENDULUM, SPREAD = "CartPole-v1", "Pendulum-v1", "mpe/simple_spread_v3"
SMALL: dict[str, Any] = {"hidden": (16, 16), "steps": 640}
ROLLOUT = {**SMALL, "envs": 4, "rollout": 10}
EPOCHS = {**ROLLOUT, "epochs": 2, "batch_size": 20}
REPLAYED = {**ROLLOUT, "replay_starts": 4, "replay_size": 40}
# the buffer wraps around, and the stop in the middle is after that
REPLAY = {**SMALL, "envs": 2, "learning_starts": 40, "train_every": 8, "updates_per_call": 4}
REPLAY |= {"batch_size": 16, "buffer_size": 200}
TARGETS = {"target_every": 50}
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "a2c": (CARTPOLE, ROLLOUT),
    "a3c": (CARTPOLE, ROLLOUT),
    "acer": (CARTPOLE, REPLAYED),
    "crossq": (PENDULUM, REPLAY),
    "ddpg": (PENDULUM, REPLAY),
    "dqn": (CARTPOLE, {**REPLAY, **TARGETS}),
    "impala": (CARTPOLE, REPLAYED),
    "maddpg": (SPREAD, REPLAY),
    "mappo": (SPREAD, EPOCHS),
    "mat": (SPREAD, {**EPOCHS, "hidden": (16,), "embedding": 16}),
    "nstep_q": (CARTPOLE, {**ROLLOUT, "target_updates": 10}),
    "ppo": (PENDULUM, EPOCHS),
    "pqn": (CARTPOLE, EPOCHS),
    "qmix": (SPREAD, {**REPLAY, **TARGETS, "embedding": 8, "hyper": 16}),
    "sac": (PENDULUM, REPLAY),
    "td3": (PENDULUM, REPLAY),
    "tqc": (PENDULUM, REPLAY),
    "trpo": (CARTPOLE, EPOCHS),
    "vdn": (SPREAD, {**REPLAY, **TARGETS}),
}
RECURRENT = {"recurrent": 8, "sequence": 5}
OPTIONS: dict[str, Training] = {
    name: Training(name.rpartition("-")[2], algorithm, env, {**ALGORITHMS[algorithm][1], **more})
    for name, algorithm, env, more in (
        ("recurrent-ppo-torch", "ppo", CARTPOLE, RECURRENT),
        ("recurrent-sac-jax", "sac", PENDULUM, {**RECURRENT, "sequence": 4, "memory": "lstm"}),
        ("prioritized-dqn-torch", "dqn", CARTPOLE, {"prioritized": True, "dueling": True}),
        ("n-step-td3-tensorflow", "td3", PENDULUM, {"n_step": 3}),
        ("hindsight-dqn-torch", "dqn", BitFlip, {"hindsight": "future"}),
        ("gsde-sac-torch", "sac", PENDULUM, {"action_noise": "gsde", "sde_sample_freq": 8}),
        ("rnd-ppo-torch", "ppo", CARTPOLE, {"intrinsic": "rnd", "rnd_features": 8}),
        ("devices-ppo-torch", "ppo", CARTPOLE, {"devices": 2, "device": "cpu"}),
        ("devices-dqn-jax", "dqn", CARTPOLE, {"devices": 2, "device": "cpu"}),
        ("devices-ppo-tensorflow", "ppo", CARTPOLE, {"devices": 2, "device": "cpu"}),
        ("workers-ppo-torch", "ppo", CARTPOLE, {"workers": 2, "envs": 6}),
        # Its checkpoint holds the noise of a worker's last random block, which nothing reads any
        # more, and a resumed run does not have: four arrays differ then.
        ("asynchronous-sac-jax", "sac", PENDULUM, {"workers": 2, "ahead": 2}),
        ("learners-a3c-torch", "a3c", CARTPOLE, {"learners": 2, "staleness": 1}),
        ("compiled-ppo-jax", "ppo", "tandem/CartPole-v1", {"vectorization": "compiled"}),
        ("compiled-dqn-jax", "dqn", "tandem/CartPole-v1", {"vectorization": "compiled"}),
        ("selfplay-ppo-torch", "ppo", "tandem/TicTacToe-v0", {"opponents": 3}),
    )
}
POOL = {"pool_size": 150, "batch": 16}
PROGRAMS: dict[str, Program] = {
    "agent-value-jax": Program(
        "jax",
        "DQN",
        (4, 16, 2),
        {**POOL, "policy": ("EpsGreedyQPolicy", 0.2), "PR": True, "num_steps": 2, "num_updates": 2},
        episodes=16,
    ),
    "agent-policy-torch": Program(
        "torch",
        "DDPG",
        (16, 0.2, 0.98, 0.005),
        {**POOL, "noise": ("GaussianWhiteNoiseProcess",), "num_updates": 1},
        episodes=2,
        batches=250,
    ),
    "agent-ppo-tensorflow": Program(
        "tensorflow",
        "PPO",
        (4, 16, 2, 0.2, 0.01),
        {"policy": ("SoftmaxPolicy",), "batch": 16, "update_steps": 64, "PPO": True},
        episodes=12,
    ),
    "agent-her-torch": Program(
        "torch",
        "DDPG_HER",
        (16, 0.1, 0.98, 0.005),
        {**POOL, "noise": ("GaussianWhiteNoiseProcess",), "num_updates": 1, "HER": True},
        episodes=6,
        kind="DDPG",
    ),
    "agent-team-jax": Program(
        "jax",
        "MADDPG",
        (16, 0.1, 0.98, 0.005),
        {**POOL, "policy": ("SoftmaxPolicy",), "num_updates": 1, "MARL": True},
        episodes=10,
        batches=100,
        kind="DDPG",
    ),
    "agent-pool-torch": Program(
        "torch",
        "pool_network.DQN",
        (4, 16, 2, 4),
        {**POOL, "policy": ("EpsGreedyQPolicy", 0.2), "num_updates": 1, "update_batches": 20},
        episodes=16,
        train={"processes": 2},
    ),
}
PLAIN: dict[str, Training] = {
    f"{name}-{framework}": Training(framework, name, *ALGORITHMS[name])
    for framework in FRAMEWORKS
    for name in ALGORITHMS
}
RUNS: dict[str, Training | Program] = {**PLAIN, **OPTIONS, **PROGRAMS}


def arrays_of(file: Path) -> Iterator[tuple[str, str]]:
    """Name and hash of every array of a checkpoint."""
    with zipfile.ZipFile(file) as archive:
        for member in sorted(n for n in archive.namelist() if n.endswith(".safetensors")):
            data = archive.read(member)
            start = 8 + int.from_bytes(data[:8], "little")
            for name, of in sorted(json.loads(data[8:start]).items()):
                if name != "__metadata__":
                    first, last = (start + offset for offset in of["data_offsets"])
                    kind = f"{of['dtype']}{of['shape']}".encode()
                    yield f"{member.partition('.')[0]}/{name}", digest(kind, data[first:last])


def run_parts(folder: Path) -> Parts:
    """The parts of a run's fingerprint."""
    with (folder / "progress.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    columns = zip(header, zip(*rows, strict=True), strict=True)
    parts = {f"column/{n}": digest(json.dumps(x).encode()) for n, x in columns if n not in TIMES}
    return parts | dict(arrays_of(folder / "checkpoints" / "last.zip"))


def agent_parts(agent: Any, calls: Calls, file: Path) -> Parts:
    """The parts of the fingerprint of a program of the agent API."""
    agent.save(str(file))
    return {"callbacks": digest(json.dumps(calls.calls).encode())} | dict(arrays_of(file))


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:8]


def whole(parts: Parts) -> str:
    """The fingerprint."""
    return hashlib.sha256(json.dumps(sorted(parts.items())).encode()).hexdigest()[:16]


def difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    """The first part that differs, and how many do; empty if none does."""
    names = list(dict.fromkeys([*expected, *found]))
    other = [name for name in names if expected.get(name) != found.get(name)]
    if not other:
        return ""
    lacks = "" if other[0] in found else " (is gone)"
    new = "" if other[0] in expected else " (is new)"
    return f"{other[0]}{lacks}{new}; {len(other)} of {len(names)} differ"


def made(name: str) -> dict[str, Any]:
    """Makes a run in this process: its line of the file, or why it failed."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            parts, resumed = RUNS[name].fingerprints(Path(folder))
    except Exception:
        return {"name": name, "failed": traceback.format_exc()}
    line = {"name": name, "final": whole(parts), "resumed": whole(resumed)}
    return line | {"resumed_differs": difference(parts, resumed), "parts": parts}


def made_apart(names: Iterable[str], cache: str) -> Iterator[dict[str, Any]]:
    """Makes runs in another process, one after the other; a line for each, as it is there. cache:
    a folder for what JAX compiles, and for keys."""
    given = {"JAX_COMPILATION_CACHE_DIR": f"{cache}/jax", "XDG_STATE_HOME": f"{cache}/state"}
    framework = RUNS[next(iter(names))].framework
    if framework != "torch":
        given["KERAS_BACKEND"] = framework
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fingerprints", "--here", *names],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **ENVIRONMENT, **given},
        )
        assert child.stdout is not None
        for text in child.stdout:
            yield json.loads(text)
        if child.wait() != 0:
            log.seek(0)
            raise RuntimeError(f"{' '.join(names)}: ended with {child.returncode}:\n{log.read()}")


def make_here(names: Iterable[str]) -> None:
    """Makes runs in this process, and prints their lines; everything else goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)  # programs of the agent API print
        for name in names:
            print(json.dumps(made(name)), file=lines, flush=True)


def about() -> dict[str, Any]:
    """Machine, versions and the library's commit: the first line of the file."""
    import tandem

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(tandem.__file__).parent), *words, "--", "."]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = "+" if git("status", "--porcelain") else ""
    commit = git("log", "-1", "--format=%h") + changed  # the last one of the library itself
    return {"commit": commit, "machine": tables.machine()["processor"], **tables.versions()}


def compared(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """What differs from an earlier file, a sentence for each run."""
    before, told = {line["name"]: line for line in expected[1:]}, []
    for line in found[1:]:
        name, old = line["name"], before.get(line["name"])
        if "failed" in line:
            told.append(f"{name}: failed: {line['failed'].splitlines()[-1]}")
        elif old is None or "failed" in old:
            told.append(f"{name}: is not in the file")
        elif other := difference(old["parts"], line["parts"]):
            told.append(f"{name}: {other}")
        elif old["resumed"] != line["resumed"]:
            told.append(f"{name}, resumed: {line['resumed_differs'] or 'equals the whole run now'}")
    return told


def outcome(line: dict[str, Any]) -> str:
    """What is shown of a run."""
    if "failed" in line:
        return f"failed:\n{line['failed']}"
    other = line["resumed_differs"]
    return f"{line['final']}; resumed: {other}" if other else line["final"]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="fingerprints of 79 short runs")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write them")
    parser.add_argument("--against", type=Path, metavar="FILE", help="fingerprints to compare with")
    parser.add_argument("--only", action="append", metavar="NAME", help="a run, or a part of names")
    parser.add_argument("--here", nargs="+", metavar="NAME", help="make these in this process")
    given = parser.parse_args(argv)
    if given.here:
        make_here(given.here)
        return 0
    names = [n for n in RUNS if not given.only or any(part in n for part in given.only)]
    if not names:
        parser.error(f"--only {' '.join(given.only)}: there is no such run")
    # Trainings of a framework share a process; those with processes and devices have their own.
    shared = [[n for n in names if n in PLAIN and n.endswith(f"-{f}")] for f in FRAMEWORKS]
    groups = [group for group in (*shared, *([n] for n in names if n not in PLAIN)) if group]
    lines, start = [about()], time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        for group in groups:
            for line in made_apart(group, cache):
                lines.append(line)
                took = f"{time.perf_counter() - start:5.0f} s"
                print(took, line["name"], outcome(line), file=sys.stderr, flush=True)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        given.out.write_text(text, encoding="utf-8")
    if not given.against:
        return int(any("failed" in line for line in lines))
    before = [json.loads(x) for x in given.against.read_text(encoding="utf-8").splitlines()]
    for name in lines[0].keys() - {"commit"}:
        if lines[0][name] != before[0].get(name):
            print(f"note: {name} was {before[0].get(name)}, and is {lines[0][name]}")
    told = compared(before, lines)
    print("\n".join(told) or f"{len(lines) - 1} runs are identical")
    return bool(told)


if __name__ == "__main__":
    sys.exit(main())
