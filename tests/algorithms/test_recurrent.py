"""Networks with a memory, on custom feature extractors too: what is learned from is what was acted
on, to the state, in rollouts and in what is replayed; and what one can do with such an agent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tandem
from tandem import algorithms, trainer
from tandem.algorithms.recurrent_replay import Unrolled
from tandem.backends.sharding import divides, shard, spread
from tandem.envs import factory
from tandem.errors import NetworkError, SpaceError
from tandem.learning.collect.trained_agent import Agent
from tandem.networks.recurrent import Recurrent
from tandem.reports.onnx_export import to_numpy
from tandem.testing import contracts, fakes, team_games
from tandem.testing import environments as games
from tandem.testing.memory_games import Recall
from tandem.types import Array, Batch, Cuts, Trajectory, Tree, tree_map
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
REPLAYED: dict[str, Any] = {"hidden": (8,), "recurrent": 6, "sequence": 4, "batch_size": 16}
REPLAYED |= {"buffer_size": 400, "learning_starts": 0, "train_every": 8, "envs": 2}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_sequences_put_out_what_was_acted_on(engine: Any) -> None:
    code = """
    import sys
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
        resets = 0
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
                assert np.abs(ours - expected.reshape(36, -1)).max() < 2e-6
                kept = np.concatenate(firsts)
                began = x["start"].reshape(4, 9)[0] == 1  # there the start stands for the state
                assert np.abs(np.where(began[:, None], 0, given) - kept).max() < 2e-6
                assert np.abs(given).max() > 0.01, "nothing was carried"
        assert resets == 2 * 12, "nothing ended"
    """
    run_python(code, engine, engine=engine)


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
    action, reward = np.zeros((n, 1), np.int64), np.full((n, 1), 0.5, np.float32)
    valid = np.array([i != reset for i in range(n)])[:, None]
    cuts = Cuts(where, 0 * where, np.full((len(where), 4), -3, np.float32))
    told = (action, reward, np.full((n, 1), 0.9, np.float32), last, valid, cuts, rows[-1])
    return Trajectory(rows[:-1], *told, state=np.full((1, 6), 0.3, np.float32))


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
    from tandem.reports.animation import _play, film

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


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_bodies_of_ones_own_get_memories_and_fractions(engine: Any) -> None:
    code = """
    import sys
    import numpy as np, pytest
    from tandem.errors import NetworkError
    from tandem.networks.plan import Twin
    from tandem.spaces import Leaf
    from tandem.testing import fakes
    from tandem.testing.fakes import BOX, DISCRETE

    framework = sys.argv[1]
    IMAGE = Leaf("box", (12, 12, 3), "uint8", (), (0.0,) * 432, (255.0,) * 432)


    def body(kind):
        if framework == "torch":
            from torch import nn

            class Own(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = nn.Linear(4, 7) if kind == "own" else nn.Conv2d(3, 4, 3, stride=2)

                def forward(self, x):
                    if kind == "own":
                        return self.inner(x).tanh()
                    return self.inner(x.permute(0, 3, 1, 2).float() / 255).relu().flatten(1)

            return nn.Sequential(nn.Linear(4, 7), nn.Tanh()) if kind == "known" else Own()
        import keras

        if kind == "known":
            return keras.Sequential([keras.Input((4,)), keras.layers.Dense(7, "tanh")])
        if kind == "image":
            x = keras.Input((12, 12, 3))
            h = keras.layers.Conv2D(4, 3, 2, activation="relu")(keras.layers.Rescaling(1 / 255)(x))
            return keras.Model(x, keras.layers.Flatten()(h))
        x = keras.Input((4,))
        return keras.Model(x, keras.ops.tanh(keras.layers.Dense(7)(x)))


    IMPLICIT = {"values": "implicit", "fractions": 5, "target_fractions": 4, "acting_fractions": 6}
    MEMORY = {"recurrent": 5, "sequence": 4}
    for name, action, kind, given, shape in (
        ("ppo", BOX, "known", {**MEMORY, "memory": "lstm"}, (14,)),
        ("ppo", BOX, "own", {**MEMORY, "memory": "gru"}, (9,)),
        ("dqn", DISCRETE, "known", {**IMPLICIT, "dueling": True}, (6, 2)),
        ("dqn", DISCRETE, "own", IMPLICIT, (6, 2)),
        ("dqn", DISCRETE, "image", IMPLICIT, (6, 2)),
    ):
        spec = IMAGE if kind == "image" else fakes.VECTOR
        make = lambda _: body(kind)
        algorithm, backend = fakes.build(name, framework, action, spec, make, **given)
        network = algorithm.actor if name == "ppo" else algorithm.q
        before = network.read()
        batch = fakes.batches(algorithm, spec, action, 2, 8)
        assert backend.compile(algorithm.update)(batch).applied == 2
        weights = network.read()
        assert all((x != before[n]).any() for n, x in weights.items())
        assert kind == "image" or (network.plan is not None) == (kind == "known")
        for count in (8, 4, 2):
            if name == "ppo":
                x = {"obs": batch.obs[0].reshape(8, 4)[:count]}
                x["start"] = batch.extra["start"][0].reshape(8)[:count]
                x["state"] = batch.extra["actor_state"][0]
            else:
                x = algorithm.values.network_input(batch.obs[0][: count - 1])
            out = network.predict(x)
            same = Twin(network.plan, weights) if network.plan else network.frozen(weights)
            assert out.shape == (count - (name == "dqn"), *shape), out.shape
            assert np.abs(out - same(x)).max() < 2e-6
    fractions = "values='implicit' puts fractions between feature extractor and head"
    for name, action, roles, given, said in (
        ("ppo", BOX, ("actor", "critic"), {"recurrent": 5}, "complete networks, but recurrent=5"),
        ("dqn", DISCRETE, ("q",), {"values": "implicit"}, fractions),
    ):
        with pytest.raises(NetworkError, match=said):
            whole = {role: body("known") for role in roles}
            fakes.build(name, framework, action, network=whole, **given)
    """
    run_python(code, engine, engine=engine)


class Asked:
    """A network, asked about arrays of NumPy."""

    def __init__(self, loop: Any, name: str) -> None:
        self.name, self._network = name, loop.backend.networks[name]

    def __call__(self, x: Tree, training: bool = False) -> Array:
        return self._network.predict(x)


def collected(algorithm: str, env: Any, **settings: Any) -> tuple[Any, Batch, Array]:
    """A loop whose buffer is full of what its first weights did; all sequences of it, and their
    first rows."""
    given = {**REPLAYED, "steps": 160, "updates_per_step": 1e-9, **settings}
    loop = contracts.begin(algorithms.get(algorithm), env, "torch", **given)
    contracts.train(loop)
    assert loop.learner.updates == 0 and loop.learner.ring.time == 80
    ids = np.arange(40, 120)
    batch = loop.learner._batch(ids[None], ())
    return loop, Batch(*(x if i == 6 else first(x) for i, x in enumerate(batch))), ids


def first(x: Tree) -> Tree:
    """The one update of a call."""
    if isinstance(x, dict):
        return {n: first(v) for n, v in x.items()}
    return x if isinstance(x, tuple) else x[0]


def test_stored_states_are_those_that_acting_and_judging_had() -> None:
    """Of TD3 without noise the action is what its actor says, after the state stored with the first
    step; critics' states follow from the beginning of each episode."""
    from tandem.testing.environments import IdentityBox

    loop, batch, ids = collected("td3", lambda: IdentityBox(length=7), exploration=0.0, burn_in=3)
    algorithm, ring = loop.algorithm, loop.learner.ring
    rows = algorithm.steps(batch._replace(noise=()))
    assert rows.reward.shape == (4 * 80,) and rows.extra["burn_in"]["start"].shape == (3 * 80,)
    said = Unrolled(rows).now(Asked(loop, "actor"), rows.obs)
    np.testing.assert_allclose(said, rows.action, atol=1e-5)
    assert 10 < rows.extra["start"].sum() < 100 and np.ptp(said) > 0.01

    every = np.arange(160)
    steps = ring.transitions(every)
    state, kept = np.zeros((2, 6), np.float32), []
    for t in range(80):
        kept.append(state)
        now = {"obs": steps.obs[2 * t : 2 * t + 2], "action": steps.action[2 * t : 2 * t + 2]}
        x = {**now, "state": state, "start": np.zeros(2, np.float32)}
        state = loop.backend.networks["q2"].predict(x)[:, -6:]
        state = np.where(ring.last[ring.position(every[2 * t : 2 * t + 2])][:, None], 0, state)
    kept = np.concatenate(kept)
    np.testing.assert_allclose(steps.extra["q2_state"], kept, atol=1e-6)
    np.testing.assert_array_equal(batch.extra["q2_state"], steps.extra["q2_state"][ids])
    assert np.abs(kept).max() > 0.1 and (kept == 0).all(1).sum() > 10


def test_zero_states_are_not_kept() -> None:
    loop, batch, _ = collected("dqn", Recall, start_state="zero", burn_in=2)
    assert not [n for n in loop.learner.ring.transitions(np.arange(4)).extra if "state" in n]
    assert batch.extra["q_state"].shape == (80, 6) and not batch.extra["q_state"].any()
    assert batch.reward.shape == (80, 6)


def test_importance_weighs_all_steps_of_a_sequence() -> None:
    loop, _, ids = collected("dqn", Recall, prioritized=True, burn_in=2)
    weight = np.linspace(0.1, 1, 80, dtype=np.float32)
    drawn = loop.learner._batch(ids[None], weight[None])
    learned = np.arange(6) >= 2  # the others are burn-in
    np.testing.assert_array_equal(drawn.weight[0], weight[:, None] * learned)
    error = np.arange(8, dtype=np.float32).reshape(4, 2)  # [steps, sequences]
    valid = np.array([[1, 1], [1, 1], [1, 1], [1, 0]], np.float32)
    rows = Batch((), (), weight=0.5 * valid.reshape(-1))
    found = loop.algorithm.priority(rows, {"error": -error.reshape(-1)})
    np.testing.assert_allclose(found, [0.9 * 6 + 0.1 * 3, 0.9 * 5 + 0.1 * 3], rtol=1e-6)


@pytest.mark.slow
def test_a_run_is_broken_off_and_resumed_with_workers(tmp_path: Path) -> None:
    """States of critics go on where they were."""
    given = {**REPLAYED, "learning_starts": 20, "steps": 200, "prioritized": True, "burn_in": 2}
    quiet = {"plots": False, "eval_episodes": 0, "framework": "torch", "workers": 1}
    given |= {"final_episodes": 2, **quiet}
    in_parts(tmp_path, "sac", "Pendulum-v1", 104, **given)
    agent = tandem.load(tmp_path / "whole")
    action, state = agent.predict(np.zeros((3, 3), np.float32), deterministic=True)
    assert action.shape == (3, 1) and state.shape == (3, 6)


@pytest.mark.parametrize("algorithm, action", [("dqn", fakes.DISCRETE), ("sac", fakes.BOX)])
def test_devices_divide_sequences_with_their_burn_in(algorithm: str, action: Any) -> None:
    """The losses of whole sequences on either of two devices are those of all of them together."""
    given = {"recurrent": 6, "sequence": 4, "burn_in": 3, "memory": "lstm"}
    given |= {"n_step": 2} if algorithm == "dqn" else {}
    made, _ = fakes.build(algorithm, "torch", action, hidden=(8,), **given)
    batch = fakes.batches(made, fakes.VECTOR, action, 1, 32)
    b = made.steps(tree_map(lambda x: torch.as_tensor(x[0]), batch._replace(settings={})))
    loss = made.loss if algorithm == "dqn" else made.critic_loss
    assert divides(b, 2) and not divides(b, 3)
    whole, parts = loss(b)[0], 0.0
    for rank in range(2):
        mine = shard(b, rank, 2)
        assert len(mine.reward) == 16 and mine.extra["burn_in"]["start"].shape == (12,)
        here = torch.as_tensor([float(rank == 0), float(rank == 1)])
        parts = parts + spread(loss(mine)[0], here)
    torch.testing.assert_close(parts, whole)
    assert whole.shape == (32,) and float(whole.detach().std()) > 1e-3
