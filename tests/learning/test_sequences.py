"""Learning from sequences: how often, from what, and exactly resumed."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import tandem
from tandem import algorithms
from tandem.testing import contracts
from tandem.testing.environments import Chain, InfiniteHorizon, TerminatedTruncatedPair

SMALL: dict[str, Any] = {"hidden": (8,), "envs": 3, "rollout": 4, "gamma": 0.5}
REPLAYED = dict(evict="sample", replay_size=20, replay_starts=6, replay_ratio=2.0)
REPLAYED |= {"replay": "prioritized"}


def begun(name: str, env: Any = Chain, **settings: Any) -> Any:
    given = {**SMALL, "steps": 1200, **settings}
    return contracts.begin(algorithms.get(name), env, "torch", **given)


def runs_of(loop: Any) -> list[Any]:
    seen: list[Any] = []
    run = loop.learner._run
    loop.learner._run = lambda batch: (seen.append(batch), run(batch))[1]
    return seen


@pytest.mark.parametrize("online, ratio", [(True, 0.0), (False, 3.0), (True, 3.0)])
def test_updates_come_as_often_as_was_asked(online: bool, ratio: float) -> None:
    given = dict(replay="uniform", replay_ratio=ratio, replay_size=50, replay_starts=12)
    loop = begun("impala", online=online, **given)
    contracts.train(loop)
    blocks = 1200 // 12
    expected = blocks * online + (blocks - 3) * ratio  # replay begins with the fourth block
    spread = 4 * np.sqrt(blocks * ratio)
    assert loop.learner.updates == pytest.approx(expected, abs=spread)
    assert loop.settings.update_rate == pytest.approx((online + ratio) / 12)


@pytest.mark.parametrize("name", ["impala", "acer"])
@pytest.mark.parametrize("more", [{}, {"recurrent": 4}, {"noisy": "factorised"}])
def test_it_stays_so_where_newer_networks_prepare_it(name: str, more: Any) -> None:
    loop = begun(name, replay="none", **more)
    prepare, (remembered,) = loop.algorithm.prepare, loop.algorithm.behavior(loop.algorithm.leaf)
    differ = []

    def twice(t: Any, networks: Any) -> Any:
        now, older = prepare(t, networks), t._replace(extra={})
        again = prepare(older, networks).extra[remembered]
        np.testing.assert_allclose(again, now.extra[remembered], atol=1e-5)
        newer = {n: lambda x, f=f: 2.0 * f(x) for n, f in networks.items()}
        np.testing.assert_array_equal(prepare(t, newer).extra[remembered], now.extra[remembered])
        differ.append(np.abs(prepare(older, newer).extra[remembered] - now.extra[remembered]).max())
        return now

    loop.algorithm.prepare = twice
    contracts.train(loop, updates=3)
    assert max(differ) > 1e-3


@pytest.mark.slow
def test_workers_ahead_are_corrected_by_the_policy_that_acted() -> None:
    given = dict(framework="torch", workers=1, envs=2, rollout=8, hidden=(8,), steps=640)
    given |= {"learning_rate": 0.01, "replay": "none", "eval_every": 0}
    session = tandem.session("impala", "CartPole-v1", **given)
    loop, ratios = session.loop, []
    weights: list[Any] = []
    prepare = loop.algorithm.prepare

    def watched(t: Any, networks: Any) -> Any:
        weights.append({n: x.copy() for n, x in networks["net"].weights.items()})
        batch = prepare(t, networks)
        if len(weights) > loop.collector.lag:
            plan = loop.backend.networks["net"].plan
            acted = type(networks["net"])(plan, weights[-1 - loop.collector.lag])
            out = acted(t.obs.reshape(-1, *t.obs.shape[2:]))
            expected = loop.algorithm.policy.log_prob(out[:, :-1], t.action.reshape(-1))
            found = batch.extra["log_prob"][:-1].reshape(-1)
            np.testing.assert_allclose(found, expected, atol=1e-5)
            ratios.append(loop.collector.lag)
        return batch

    loop.algorithm.prepare = watched
    list(session)
    assert max(ratios) >= 1


def test_a_cut_step_gets_the_value_after_it_when_fresh_and_weighs_nothing_when_replayed() -> None:
    given = {"replay": "uniform", "replay_starts": 1000, "vectorization": "plain"}
    loop = begun("a3c", lambda: InfiniteHorizon(length=3), **given)
    seen = runs_of(loop)
    contracts.train(loop, updates=1)
    (fresh,), kept = seen, loop.learner.buffer.draw(np.random.default_rng(0), 50, 1.0).batch
    reward, last = fresh.reward.reshape(5, 3), fresh.extra["last"].reshape(5, 3)
    assert last[:4].sum() == 3 and last[2].all()  # after three steps each
    known = contracts.values(loop, np.ones((1, 1), np.float32))[0]  # of weights one update on
    assert reward[2] == pytest.approx(1 + 0.5 * known, abs=0.05) and not fresh.extra["cut"].any()
    assert (kept.reward[2] == 1).all() and (kept.weight[2] == 0).all()
    assert (kept.extra["cut"][2] == 1).all()
    assert (kept.weight[[0, 1, 3]] == 1).all() and (kept.weight[4] == 0).all()


@pytest.mark.parametrize("double", [True, False])
def test_where_a_limit_cuts_q_learning_goes_on_with_its_target(double: bool) -> None:
    env = partial(gymnasium.make, "CartPole-v1", max_episode_steps=3)
    loop = begun("nstep_q", env, double=double)
    net, target = (loop.backend.networks[n] for n in ("net", "net_target"))
    bias = next(n for n in net.read() if n.endswith("bias") and net.read()[n].shape == (2,))
    for network, values in ((net, (9, 0)), (target, (5, 7))):
        read = network.read().items()
        network.write({n: np.float32(values) if n == bias else 0 * x for n, x in read})
    loop._sync()
    seen = runs_of(loop)
    contracts.train(loop, updates=1)
    reward, last = (x.reshape(5, 3) for x in (seen[0].reward, seen[0].extra["last"]))
    assert last[2].all() and (seen[0].discount.reshape(5, 3)[2] > 0).all()
    assert reward[2] == pytest.approx(1 + 0.5 * (5 if double else 7)) and (reward[:2] == 1).all()


def test_terminated_steps_are_learned_from_when_replayed() -> None:
    loop = begun("a3c", TerminatedTruncatedPair, replay="uniform", replay_starts=1000)
    contracts.train(loop, updates=40)
    kept = loop.learner.buffer.draw(np.random.default_rng(0), 200, 1.0).batch
    over = kept.extra["last"] & (kept.discount == 0)
    assert over.any() and (kept.weight[over] == 1).all() and (kept.extra["cut"][over] == 0).all()


def test_priorities_of_replayed_sequences_follow_their_errors() -> None:
    loop = begun("nstep_q", **REPLAYED, priority="error", target_updates=5)
    contracts.train(loop)
    priority = loop.learner.buffer.state()[1]["priority"]
    assert len(np.unique(priority)) > 10 and (priority > 0).all()
