"""Policies with a memory: what is learned from is what was acted on, to the state; and what one can
do with such an agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import algorithms, trainer
from tandem.cli import main
from tandem.collect.trained_agent import Agent
from tandem.envs import factory
from tandem.errors import NetworkError, SettingError, SpaceError
from tandem.networks.recurrent import Recurrent
from tandem.onnx_export import to_numpy, to_onnx
from tandem.testing import contracts, fakes, team_games
from tandem.testing import environments as games
from tandem.types import Cuts, Trajectory
from tests.helpers import run_python
from tests.runs.shared import in_parts

SIZES: dict[str, Any] = {"recurrent": 6, "hidden": (8,), "envs": 3, "epochs": 2}
SMALL: dict[str, Any] = {"framework": "torch", "rollout": 12, "batch_size": 12, "sequence": 4}
SMALL |= {**SIZES, "eval_every": 72, "eval_episodes": 2, "final_episodes": 2, "plots": False}
# Elsewhere it compiles
ENGINES = [
    "torch",
    pytest.param("jax", marks=pytest.mark.slow),
    *(pytest.param(e, marks=pytest.mark.thorough) for e in ("tensorflow", "keras-torch")),
]

UNROLLED = """
    import json, sys
    import numpy as np
    from tandem import algorithms
    from tandem.algorithms.recurrent_batches import steps
    from tandem.testing import contracts, environments as games

    engine = sys.argv[1]
    for name, memory in (("ppo", "lstm"), ("a2c", "gru")):
        given = {"recurrent": 6, "hidden": (8,), "envs": 3, "rollout": 12, "sequence": 4}
        given |= {"batch_size": 12} if name == "ppo" else {}
        env = lambda: games.Identity(length=5)
        loop = contracts.begin(algorithms.get(name), env, engine, memory=memory, **given)
        algorithm, initial = loop.algorithm, loop.actor.initial_state(3)
        state = {"actor": initial, "critic": initial}
        worst, seen, resets = 0.0, 0, 0
        for rollout in range(2):  # the second begins within episodes
            t = loop.collector.collect(12, *loop._noise(0))
            batch = steps(algorithm.prepare(t, loop.networks))
            for k, role in enumerate(("actor", "critic")):
                network, expected, firsts = loop.networks[role], [], []
                for i in range(12):
                    if i % 4 == 0:
                        firsts.append(state[role])
                    x = {"obs": t.obs[i], "state": state[role], "start": np.zeros(3, np.float32)}
                    out = network(x)
                    expected.append(out)
                    state[role] = np.where(t.last[i][:, None], initial, out[:, -initial.shape[1] :])
                    resets += int(t.last[i].sum())
                # time first: sequence s of 3 x 3 is part s // 3 of environment s % 3
                expected = np.stack(expected).reshape(3, 4, 3, -1).transpose(1, 0, 2, 3)
                given = batch.extra[f"{role}_state"]
                x = {"obs": batch.obs, "state": given, "start": batch.extra["start"]}
                ours = loop.backend.networks[role].predict(x)
                worst = max(worst, float(np.abs(ours - expected.reshape(36, -1)).max()))
                kept = np.concatenate(firsts)
                began = x["start"].reshape(4, 9)[0] == 1  # there the start stands for the state
                worst = max(worst, float(np.abs(np.where(began[:, None], 0, given) - kept).max()))
                seen += int(np.abs(given).max() > 0.01)
        print(json.dumps([worst, seen, resets]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_sequences_put_out_what_was_acted_on(engine: Any) -> None:
    told = run_python(UNROLLED, engine, engine=engine)
    assert len(told) == 2
    for worst, seen, resets in told:
        assert worst < 2e-6
        assert seen == 4 and resets == 2 * 12, "nothing was carried, or nothing ended"


def test_a_stored_sequence_begins_with_the_state_that_acted() -> None:
    """Also where it began within an episode, and where episodes end within it."""
    given = {"recurrent": 4, "memory": "lstm", "hidden": (8,), "envs": 3, "rollout": 7}
    env = lambda: games.Identity(length=5)  # noqa: E731
    loop: Any = contracts.begin(algorithms.get("impala"), env, "torch", **given)
    network, rng, state = loop.networks["net"], np.random.default_rng(0), np.zeros((3, 8))
    outs, states = [], []
    for _ in range(2):
        t = loop.collector.collect(7, *loop._noise(0))
        states.append(state)
        for i in range(7):
            x = {"obs": t.obs[i], "state": state.astype(np.float32)}
            outs.append(network({**x, "start": np.zeros(3, np.float32)}))
            state = np.where(t.last[i][:, None], 0, outs[-1][:, -8:])
        loop.learner.buffer.add(loop.algorithm.prepare(t, loop.networks), rng)
    expected = np.stack(outs).reshape(2, 7, 3, -1).transpose(1, 0, 2, 3).reshape(7, 6, -1)
    slots, batch, _ = loop.learner.buffer.draw(rng, 12, 1.0)
    kept = batch.extra["net_state"]
    np.testing.assert_allclose(kept[0], np.concatenate(states)[slots], atol=1e-6)
    assert kept.shape == (1, 12, 8) and np.abs(kept[0, slots > 2]).max() > 0.01
    assert batch.extra["start"][:, slots > 2].any()
    rows = {"obs": batch.obs.reshape(-1), "start": batch.extra["start"].reshape(-1)}
    ours = loop.backend.networks["net"].predict({**rows, "state": kept[0]})
    np.testing.assert_allclose(ours.reshape(8, 12, -1)[:7], expected[:, slots], atol=2e-6)


def trajectory(obs: list[float], cut: int, reset: int | None) -> Trajectory:
    """One environment whose episode was cut at a step; with `reset`, the row after it only resets
    the environment."""
    n = len(obs) - 1
    rows = np.repeat(np.array(obs, np.float32)[:, None, None], 4, -1)
    last = (np.arange(n) == cut)[:, None]
    where = np.array([cut] if reset is None else [], np.int64)
    return Trajectory(
        obs=rows[:-1],
        action=np.zeros((n, 1), np.int64),
        reward=np.full((n, 1), 0.5, np.float32),
        discount=np.full((n, 1), 0.9, np.float32),
        last=last,
        valid=np.array([i != reset for i in range(n)])[:, None],
        cuts=Cuts(where, 0 * where, np.full((len(where), 4), -3, np.float32)),
        bootstrap=rows[-1],
        state=np.full((1, 6), 0.3, np.float32),
    )


@pytest.mark.parametrize(
    ("name", "env"), [("ppo", games.Identity), ("mappo", team_games.Landmarks)]
)
def test_an_episode_that_is_broken_off_leaves_its_critic_nothing(name: str, env: Any) -> None:
    """As where a worker is lost: the next one begins from nothing, in its environment alone."""
    small = {**SIZES, "rollout": 14, "batch_size": 21, "sequence": 7}
    loop = contracts.begin(algorithms.get(name), env, "torch", **small)
    contracts.train(loop, updates=1)
    before = loop.algorithm.memory.reshape(3, -1).copy()
    loop.learner.break_off([1])
    after = loop.algorithm.memory.reshape(3, -1)
    assert before.any(1).all() and not after[1].any()
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])


def test_what_a_cut_episode_was_worth_is_judged_with_its_own_memory() -> None:
    """However the environment resets itself; -3 is the true last observation."""
    found = {}
    given = {"recurrent": 6, "envs": 1, "sequence": 0, "orthogonal": False, "gae_lambda": 0.5}
    for name, obs, reset in (
        ("same step", [1.0, 2, 3, 4, 5, 6], None),
        ("next step", [1.0, 2, 3, -3, 4, 5, 6], 3),
    ):
        given["rollout"] = len(obs) - 1
        algorithm, backend = fakes.build("ppo", "torch", fakes.DISCRETE, hidden=(8,), **given)
        networks = {r: backend.networks[r].predict for r in ("actor", "critic")}
        algorithm.memory = np.full((1, 6), -0.4, np.float32)
        t = trajectory(obs, 2, reset)
        batch = algorithm.prepare(t, networks)
        rows, told = t.valid[:, 0], ("advantage", "return", "value", "log_prob")
        found[name] = np.stack([batch.extra[n][0, rows] for n in told])
        found[f"{name} memory"] = algorithm.memory
    np.testing.assert_allclose(found["same step"], found["next step"], atol=1e-6)
    np.testing.assert_allclose(found["same step memory"], found["next step memory"], atol=1e-6)

    def judged(x: float, state: Any) -> Any:
        rows = {"obs": np.full((1, 4), x, np.float32), "start": np.zeros(1, np.float32)}
        return networks["critic"]({**rows, "state": state})

    state, value = np.full((1, 6), -0.4, np.float32), []
    for x in (1, 2, 3, -3):
        out = judged(x, state)
        state, value = out[:, 1:], [*value, out[0, 0]]
    advantage = found["same step"][0]
    last = 0.5 + 0.9 * value[3] - value[2]
    before = 0.5 + 0.9 * value[2] - value[1] + 0.45 * advantage[2]
    assert advantage[[2, 1]] == pytest.approx([last, before], abs=1e-6)
    assert found["same step"][2, 3] == pytest.approx(judged(4, 0 * state)[0, 0], abs=1e-6)


def test_a_run_is_saved_resumed_and_loaded(tmp_path: Path) -> None:
    given = {"memory": "lstm", "steps": 360, **SMALL}
    in_parts(tmp_path, "ppo", "tandem/Recall-v0", 150, **given)
    agent = tandem.load(tmp_path / "whole")
    score = tandem.evaluate(agent, "tandem/Recall-v0", episodes=4)
    assert 0 <= score.mean <= 1 and isinstance(agent.networks["actor"].plan[0], Recurrent)
    out = tmp_path / "agent.npz"
    scope: dict[str, Any] = {}
    exec(to_numpy(agent, out).how, scope)
    obs = np.array([1, 2])
    logits, after = scope["step"](obs, np.repeat(scope["state"], 2, 0))
    action, state = agent.predict(obs, deterministic=True)
    assert (logits.argmax(-1) == action).all() and np.allclose(after, state)
    pytest.importorskip("onnxruntime")
    assert to_onnx(agent, tmp_path / "agent.onnx").verified


def agent(**settings: Any) -> Agent:
    return trainer.session("ppo", "tandem/CartPolePositions-v0", **{**SMALL, **settings}).agent()


def test_an_agent_with_a_memory_acts_by_predict() -> None:
    one, rng = agent(orthogonal=False), np.random.default_rng(0)
    obs = rng.normal(size=(5, 2, 2)).astype(np.float32)
    with pytest.raises(NetworkError, match=r"is recurrent, but(.|\n)*agent\.predict\(obs, state"):
        one.act(obs[0])
    state, states = None, []
    for row in obs:
        action, state = one.predict(row, state, deterministic=True)
        states.append(state)
        assert action.shape == (2,) and state.shape == (2, 6)
    begun = one.predict(obs[0], states[-1], np.array([True, False]), deterministic=True)[1]
    np.testing.assert_array_equal(begun[0], states[0][0])
    assert np.abs(begun[1] - states[0][1]).max() > 1e-3
    single, after = one.predict(obs[0, 0], states[-1][:1], True)
    assert np.shape(single) == () and after.shape == (1, 6)
    with pytest.raises(SpaceError, match=r"state has shape \(1, 6\) for 2"):
        one.predict(obs[0], states[-1][:1])


def test_its_play_can_be_watched(tmp_path: Path) -> None:
    """A memory is reset with each episode: the same seed gives the same play."""
    from tandem.animation import _play, film

    class Recording:
        def __init__(self) -> None:
            self.agent, self.states = agent(), []

        def predict(self, obs: Any, state: Any, deterministic: bool) -> Any:
            action, after = self.agent.predict(obs, state, deterministic=deterministic)
            self.states.append((state is None, after))
            return action, after

    player, env = Recording(), factory.make("tandem/CartPolePositions-v0")
    lengths = [m.step for m in _play(player, env, 2, 0, 30) if m.ended]
    firsts = [i for i, (first, _) in enumerate(player.states) if first]
    assert firsts == [0, lengths[0]] and len(player.states) == sum(lengths)
    file = film(player.agent, "tandem/CartPolePositions-v0", tmp_path / "a.gif", max_steps=5)
    assert file.stat().st_size > 1000


def test_the_command_line_trains_watches_and_exports(tmp_path: Path, capsys: Any) -> None:
    run = str(tmp_path / "run")
    sizes = "--recurrent 6 --memory lstm --sequence 4 --hidden 8 --rollout 12 --steps 48 --envs 2"
    train = ["train", "a2c", "tandem/CartPolePositions-v0", "--framework", "torch", "--no-plots"]
    assert main([*train, *sizes.split(), "--out", run, "--quiet"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["settings"]["recurrent"] == 6
    assert main(["watch", run, "--out", str(tmp_path / "a.gif")]) == 0
    assert main(["evaluate", run, "--episodes", "2"]) == 0
    assert main(["export", run, "--to", "numpy"]) == 0
    assert "np.zeros((1, 12)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "given, match",
    [
        ({"sequence": 5}, r"sequences of 5 steps, rollouts of 12 steps and batches of 12 rows"),
        ({"sequence": 5}, r"sequence=4"),
        ({"batch_size": 6}, r"sequence=3"),
        ({"recurrent": -1}, "recurrent=-1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: Any, match: str) -> None:
    with pytest.raises(SettingError, match=match):
        trainer.session("ppo", "tandem/Recall-v0", **{**SMALL, **given})
