"""Blocks of compiled runs, on JAX: fails with what is wrong. Arguments: a folder (for
nothing), and which functions."""

import json
import sys
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import algorithms, backends
from tandem.envs.jax.protocol import TimeStep
from tandem.envs.jax.worlds import CartPole, Pendulum
from tandem.errors import NonFiniteError
from tandem.learning import normalization
from tandem.learning.collect.actor import fixed
from tandem.learning.compiled import moments
from tandem.learning.compiled.blocks import Replay, Rollouts
from tandem.learning.compiled.collecting import forwards, when
from tandem.learning.compiled.evaluation import CompiledEvaluator
from tandem.learning.compiled.loop import CompiledLoop
from tandem.learning.events import BatchEnd, EpisodeEnd
from tandem.learning.seeds import Generators, derived
from tandem.settings import apply
from tandem.spaces import action_leaf, observation_spec
from tandem.types import Batch, Cuts, Trajectory, tree_map

SMALL = {"envs": 4, "hidden": (16,)}
ROLLOUT = {"steps": 2048, "rollout": 32, "epochs": 2, "batch_size": 64, **SMALL}
REPLAY = {"steps": 800, "learning_starts": 200, "train_every": 8, "batch_size": 32, **SMALL}
REPLAY |= {"updates_per_call": 2, "buffer_size": 100_000}


class Counting:
    """The observation is how many steps the episode has, which is cut after 7 of them, or ends
    where the action is 1; the reward is the step's number. Beginnings are drawn from [0, 1)."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    max_episode_steps = 7
    ends = True

    def reset(self, key: Any) -> Any:
        state = jnp.stack([jnp.float32(0), jax.random.uniform(key)])
        return state, state

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        state = state.at[0].add(1.0)
        return TimeStep(state, state, state[0], (action == 1) & self.ends, jnp.bool_(False))


class Endless(Counting):
    max_episode_steps = 0
    ends = False


class Masked(Counting):
    """Action k is allowed where the step's number is k modulo 3, or one below; another one ends the
    episode with -100. Observations are a Dict with a symbol in a part of its own."""

    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Dict(
        {
            "action_mask": gymnasium.spaces.MultiBinary(3),
            "of": gymnasium.spaces.Dict({"step": gymnasium.spaces.Discrete(8)}),
            "noise": gymnasium.spaces.Box(0, 1, (2,), np.float32),
        }
    )

    @staticmethod
    def seen(state: Any) -> Any:
        number = state[0].astype(jnp.int32)
        allowed = (jnp.arange(3) == number % 3) | (jnp.arange(3) == (number + 2) % 3)
        noise = jnp.stack([state[1], state[1]])
        return {"action_mask": allowed.astype(jnp.int8), "of": {"step": number}, "noise": noise}

    def reset(self, key: Any) -> Any:
        state, _ = super().reset(key)
        return state, self.seen(state)

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        allowed = self.seen(state)["action_mask"][action] > 0
        state = state.at[0].add(1.0)
        reward = jnp.where(allowed, 1.0, -100.0)
        return TimeStep(state, self.seen(state), reward, ~allowed, jnp.bool_(False))


def dropping(space: Any) -> Any:
    import keras

    first = keras.layers.Dense(16, activation="tanh")
    more = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    return keras.Sequential([keras.layers.Input(space.shape), first, *more])


class Infinite(Counting):
    """Its fifth reward is infinite."""

    ends, first, high = False, 5, jnp.inf

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        now = super().step(key, state, action)
        return now._replace(reward=jnp.where(now.reward >= self.first, self.high, now.reward))


class Breaking(Infinite):
    """Its rewards add up to infinity from some step of an episode on."""

    max_episode_steps, first, high = 40, 36, 3e38


def loop(name: str, env: Any, seed: int = 0, network: Any = None, **given: Any) -> CompiledLoop:
    spec = observation_spec(env.observation_space)
    action = action_leaf(env.action_space, spec)
    kind = algorithms.get(name, action)
    s = apply(kind.Settings(), given)
    sources = kind.sources(spec, action, s, network, env.observation_space, Generators(seed))
    backend = backends.make("jax", "cpu", seed=derived(seed, "framework"))
    algorithm = kind(backend, sources, spec, action, s)
    blocks = (Rollouts if algorithm.needs == "rollouts" else Replay)(algorithm, env)

    class Environments:
        n = s.envs

    return CompiledLoop(algorithm, Environments(), blocks, CompiledEvaluator(blocks, 4), seed)


def prints(one: CompiledLoop) -> list[Any]:
    data, groups = one.state()
    return [data["learner"], *(x for group in groups.values() for x in group.values())]


def same(one: CompiledLoop, other: CompiledLoop) -> bool:
    pairs = zip(prints(one), prints(other), strict=True)
    return all(x == y if isinstance(x, dict) else np.array_equal(x, y) for x, y in pairs)


def through(one: CompiledLoop, stop_at: int | None = None) -> list[Any]:
    return list(one.events(stop_at))


def far(x: Any, y: Any) -> float:
    return float(np.abs(np.asarray(x) - np.asarray(y)).max())


def calls_change_nothing() -> None:
    """Blocks in calls of one, and as many as the clock allows; stopped, and gone on with."""
    for name, env, given in (("ppo", CartPole(), ROLLOUT), ("dqn", CartPole(), REPLAY)):
        whole, single, resumed = (loop(name, env, **given) for _ in range(3))
        events = through(whole)
        single.due = lambda: 0
        singles = through(single)
        through(loop(name, env, 1, **given))  # another run beside does not matter
        half = loop(name, env, **given)
        through(half, given["steps"] // 2)
        resumed.load_state(*json_state(half))
        through(resumed)
        both = (events, singles)
        ends, each = (
            [(e.env_steps, e.episode) for e in es if isinstance(e, EpisodeEnd)] for es in both
        )
        calls, more = ([e.calls for e in es if isinstance(e, BatchEnd)] for es in both)
        assert len(calls) < len(more) and ends == each and len(ends) > 5, name
        assert same(whole, single) and same(whole, resumed), name
        assert [m for c in calls for m in c] == [m for c in more for m in c], name
        counts = {"ppo": (2048, 64), "dqn": (800, 2 * 76)}
        assert (whole.env_steps, whole.updates) == counts[name]


def json_state(one: CompiledLoop) -> Any:
    data, groups = one.state()
    copied = {g: {n: np.array(x) for n, x in group.items()} for g, group in groups.items()}
    return json.loads(json.dumps(data)), copied


def the_update_is_the_backends() -> None:
    one = loop("ppo", CartPole(), **ROLLOUT)
    rng, rows, blocks = np.random.default_rng(0), 128, one.blocks

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    extra = {n: normal(rows) for n in ("advantage", "return", "value")}
    extra["log_prob"] = -np.abs(normal(rows))
    weight = np.ones(rows, np.float32)
    data = Batch(normal(rows, 4), rng.integers(0, 2, rows), weight=weight, extra=extra)
    at = np.stack([rng.permutation(rows)[:32] for _ in range(8)]).astype(np.int32)
    settings = {n: np.repeat(x[0, :1], 8) for n, x in one._inputs(1).settings.items()}
    first = [np.array(x) for x in blocks.updates.current()]
    device = tree_map(jnp.asarray, data)
    traced = jax.jit(lambda v: blocks.updates(v, device, settings, at, jnp.bool_(True)))
    values, _, codes = traced([jnp.array(x) for x in first])
    outcome = one.backend.compile(one.algorithm.update)(data._replace(settings=settings), at)
    pairs = list(zip(blocks.updates.current(), values, first, strict=True))
    assert outcome.applied == 8 and not np.asarray(codes).any()
    assert max(far(x, y) for x, y, _ in pairs) == 0
    assert max(far(x, z) for x, _, z in pairs) > 1e-4


def advantages_are_the_hosts() -> None:
    for given in ({}, {"value_norm": "popart"}, {"shared": True}):
        one, other = (loop("ppo", CartPole(), **ROLLOUT, **given) for _ in range(2))
        rng, (t, n) = np.random.default_rng(0), (32, 4)
        last = rng.random((t, n)) < 0.2
        cut = last & (rng.random((t, n)) < 0.5)
        discount = np.where(last & ~cut, 0, 0.98).astype(np.float32)
        obs, after = (rng.standard_normal((t, n, 4)).astype(np.float32) for _ in range(2))
        action, reward = rng.integers(0, 2, (t, n)), rng.standard_normal((t, n))
        extra = {"output": rng.standard_normal((t, n, 3)).astype(np.float32)} if given else {}
        rest = (action, reward.astype(np.float32), discount, last, np.ones_like(last))
        where, end = np.argwhere(last), rng.standard_normal((n, 4)).astype(np.float32)
        listed = Cuts(where[:, 0], where[:, 1], after[last])
        host = other.algorithm.prepare(
            Trajectory(obs, *rest, listed, end, extra),
            {r: other.backend.networks[r].predict for r in other.networks},
        )

        def prepared(trajectory: Any, one: Any = one) -> Any:
            trajectory = trajectory._replace(cuts=trajectory.cuts._replace(dense=when))
            with one.blocks.updates.scope(one.blocks.updates.current()):
                return one.algorithm.prepare(trajectory, forwards(one.backend, tuple(one.networks)))

        dense = Trajectory(obs, *rest, Cuts((), (), after), end, extra)
        device = jax.jit(prepared)(tree_map(jnp.asarray, dense))
        assert {"advantage", "return", "log_prob"} <= host.extra.keys()
        assert max(far(device.extra[n], x) for n, x in host.extra.items()) < 2e-5


def statistics_are_the_hosts() -> None:
    rng, (t, n) = np.random.default_rng(0), (40, 3)
    scale, standard = moments.CompiledRewardScale(n, 0.9), moments.CompiledRewardStandard()
    seen = moments.Observations(observation_spec(CartPole().observation_space))
    kept = [scale.begin(), standard.begin(), seen.begin()]
    hosts = normalization.RewardScale(n, 0.9), normalization.RewardStandard()
    host = normalization.ObservationMoments(observation_spec(CartPole().observation_space))
    gaps = []
    for _ in range(3):
        reward = (5 + 3 * rng.standard_normal((t, n))).astype(np.float32)
        obs = (2 + rng.standard_normal((t, n, 4))).astype(np.float32)
        last, valid = rng.random((t, n)) < 0.1, np.ones((t, n), bool)
        trajectory = Trajectory(obs, (), reward, (), last, valid, (), ())
        for i, (one, other) in enumerate(zip((scale, standard), hosts, strict=True)):
            kept[i], scaled = one(kept[i], tree_map(jnp.asarray, trajectory))
            gaps.append(far(scaled.reward, other(trajectory).reward))
        kept[2] = seen.add(kept[2], jnp.asarray(obs))
        host.add(obs, valid)
    for name in ("mean", "variance"):
        gaps.append(far(getattr(kept[2][""], name), getattr(host.moments[""], name)))
    assert max(gaps) < 1e-4, gaps


def the_ring_holds_what_was_seen() -> None:
    one = loop("dqn", Counting(), **REPLAY | {"buffer_size": 64, "learning_starts": 10_000})
    through(one, 160)
    ring, written = one._carry.kept
    obs, after = np.asarray(ring["obs"]), np.asarray(ring["next_obs"])
    action, reward, discount = (np.asarray(ring[n]) for n in ("action", "reward", "discount"))
    # 64 transitions of 4 environments; 160 steps are 40 of each, so 24 beyond one round
    assert obs.shape == (16, 4, 2) and written == 24
    assert (after[..., 0] == obs[..., 0] + 1).all() and (reward == after[..., 0]).all()
    assert ((discount == 0) == (action == 1)).all() and 0.3 < action.mean() < 0.7


def what_is_not_finite_is_not_made() -> None:
    one = loop("ppo", Breaking(), **ROLLOUT)
    first = through(one, 128)
    before = [np.array(x) for x in one.blocks.updates.current()]
    assert max(e.updates for e in first) == 4  # of the first rollout, which hold
    with pytest.raises(NonFiniteError, match="in update 5, which was not made"):
        through(one)
    after = [np.asarray(x) for x in one.blocks.updates.current()]
    assert all(np.isfinite(x).all() for x in after)
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


def environments_are_looked_at() -> None:
    one = loop("a2c", Infinite(), steps=64, envs=2, rollout=8, hidden=(8,))
    weights = {r: one.backend.networks[r].mean() for r in one.algorithm.acting}
    # not the learning rate, which `update 1` would be about; nor a score that is infinite
    says = "returned the reward NaN or infinity at step 5 of its episode;"
    for act in (lambda: through(one), lambda: one.evaluate(weights, 4, 0, 0, 0, lambda: False)):
        with pytest.raises(NonFiniteError, match=says):
            act()


def evaluations_are_of_whole_episodes() -> None:
    one, other = loop("dqn", Counting(), **REPLAY), loop("dqn", Endless(), **REPLAY)
    weights = {"q": one.backend.networks["q"].mean()}
    plan = one.backend.networks["q"].plan
    for name in weights["q"]:  # action 0 is best everywhere
        weights["q"][name] = np.zeros_like(weights["q"][name])
    last = f"{len(plan) - 1}/bias"
    weights["q"][last] = np.array([1.0, 0.0], np.float32)
    never = lambda: False  # noqa: E731
    played = one.evaluate(weights, 6, 3, 0, 0, never)
    assert list(played) == [[28.0] * 6, [7] * 6, [], 0, None]  # 1 + 2 + ... + 7
    cut = other.evaluate(weights, 6, 3, 9, 0, never)
    assert list(cut) == [[45.0] * 6, [9] * 6, [], 6, None]
    longer = other.evaluate(weights, 2, 3, 0, 4_000, never)
    assert longer.lengths == [8_000] * 2 and longer.cut == 2  # twice the longest of training
    weights["q"][last] = weights["q"][last][::-1].copy()
    assert fixed(one.backend.networks["q"], weights["q"])(np.zeros((1, 2)))[0, 1] == 1
    assert list(one.evaluate(weights, 3, 3, 0, 0, never)) == [[1.0] * 3, [1] * 3, [], 0, None]


def they_go_on_within_carries() -> None:
    """Each kind of run: it learns, and what it carries goes through arrays and back."""
    rollout, replay = ROLLOUT | {"steps": 384}, REPLAY | {"steps": 320}
    atoms = {"values": "categorical"}
    for name, env, given in (
        ("ppo", CartPole, rollout | {"normalize_observations": True, "normalize_rewards": True}),
        ("ppo", CartPole, rollout | {"standardize_rewards": True, "value_norm": "norm"}),
        ("ppo", Pendulum, rollout | {"policy": "beta", "max_kl": 0.5}),
        ("a2c", Pendulum, {"steps": 160, "rollout": 8, **SMALL}),
        ("trpo", Pendulum, {"steps": 256, "rollout": 32, **SMALL}),
        ("td3", Pendulum, replay | {"action_noise": "ou"}),
        ("ddpg", Pendulum, replay),
        ("tqc", Pendulum, replay | {"quantiles": 7}),
        ("crossq", Pendulum, replay | {"renorm_warmup": 20, **atoms, "weight_projection": True}),
        ("sac", Pendulum, replay),
        ("sac", CartPole, replay),
        ("ppo", Masked, rollout),
        ("dqn", Masked, replay),
        ("sac", Masked, replay),
        ("dqn", CartPole, replay | atoms | {"atoms": 9, "dueling": True}),
        ("dqn", Masked, replay | {"values": "quantile", "quantiles": 5}),
        ("pqn", CartPole, rollout),
        ("pqn", Masked, rollout | {"bootstrap": "expected"}),
        ("pqn", CartPole, rollout | {"bootstrap": "sarsa"}),
        ("dqn", Masked, replay | {"values": "implicit", "fractions": 5, "munchausen": True}),
        ("ppo", CartPole, rollout | {"network": dropping, "hidden": (8,)}),
        ("dqn", CartPole, replay | {"network": dropping, "hidden": (8,)}),
    ):
        one, resumed = (loop(name, env(), **given) for _ in range(2))
        events = through(one, given["steps"] // 2)
        resumed.load_state(*json_state(one))
        events += through(one)
        through(resumed)
        metrics = [e.metrics for e in events if isinstance(e, BatchEnd) and e.metrics]
        if env is Masked:  # by the policy and by chance
            scores = [e.episode.score for e in events if isinstance(e, EpisodeEnd)]
            assert len(scores) > 5 and {*scores} == {7.0}, (name, given)
        finite = bool(metrics) and all(np.isfinite(list(m.values())).all() for m in metrics)
        assert finite and same(one, resumed) and one.updates > 0, (name, given)


if __name__ == "__main__":
    for which in sys.argv[2:]:
        globals()[which]()
