"""Options of every algorithm with replayed transitions: how often updates and targets come, resets,
normalization by the statistics of that moment, and hindsight."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation, TransformReward

import tandem
from tandem import algorithms, zoo
from tandem.algorithms.base import Call, copies
from tandem.envs.team import Team
from tandem.errors import EnvironmentFault, SettingError
from tandem.learning.events import BatchEnd
from tandem.learning.loop import Loop
from tandem.networks.plan import Twin, init
from tandem.testing import contracts, team_games
from tandem.testing import environments as games
from tandem.testing.goal_games import BitFlip
from tests.runs.shared import in_parts

SIZES = {"hidden": (8,), "batch_size": 16, "learning_starts": 20, "steps": 400}
SOFT, WHOLE = 0.1, 1.0
BOTH = {"normalize_observations": True, "normalize_rewards": True}
SMALL: dict[str, Any] = dict(
    hidden=(8,), batch_size=16, learning_starts=40, train_every=8, envs=2, gamma=0.5, steps=120
)
SHORT = dict(framework="torch", compile="no", eval_every=0, hidden=(32,), learning_starts=50)
SHORT |= {"buffer_size": 2000, "batch_size": 16, "train_every": 4}


def loop_of(name: str, **settings):
    env = games.Chain if name == "dqn" else games.IdentityBox
    return contracts.begin(algorithms.get(name), env, "torch", **SIZES | settings)


def test_updates_for_each_step() -> None:
    for name, given, updates in (
        ("dqn", {"updates_per_step": 0.25, "train_every": 1}, 21),
        ("dqn", {"updates_per_step": 2.0, "train_every": 4}, 168),
        ("dqn", {"updates_per_step": 0.3, "train_every": 4}, 26),
        ("sac", {"envs": 4}, 84),  # in calls of 4
    ):
        loop = loop_of(name, steps=100, **given)
        contracts.train(loop)
        assert loop.learner.updates == updates  # from the call after 20 steps to 100 steps


def test_environments_step_together() -> None:
    for name, env, given, expected in (
        ("sac", "", {"envs": 4}, (4, 4)),
        ("sac", "", {"envs": 4, "updates_per_call": 1}, (4, 1)),
        ("sac", "", {"envs": 4, "updates_per_call": -1}, (4, -1)),
        ("sac", "", {"envs": 4, "updates_per_step": 0.5}, (4, 1)),
        ("dqn", "", {"envs": 2}, (4, 1)),
        ("dqn", "", {"envs": 3}, (3, 1)),
        ("dqn", "", {"envs": 8}, (8, 2)),
        ("dqn", "CartPole-v1", {"envs": 24}, (264, 132)),  # its entry has 128 for 256 steps
        ("qmix", "", {"envs": 5}, (10, 1)),
        ("maddpg", "", {"envs": 7}, (98, 1)),
    ):
        settings = zoo.resolve(name, env or "Nowhere-v0", given)[0]
        assert (settings.train_every, settings.updates_per_call) == expected
        assert env or settings.settled(given) == settings


def test_targets_are_copied_late_where_a_call_makes_no_update() -> None:
    """Due in a call without updates, they are copied by the next one, also after a restore."""

    def begun():
        return loop_of("dqn", updates_per_step=0.25, train_every=1, target_every=50, steps=400)

    def watched(loop) -> list[int]:
        schedule, found = loop.algorithm.schedule, []

        def each(call):
            out = schedule(call)
            found.extend([call.end] * int(np.count_nonzero(out["tau"])))
            return out

        loop.algorithm.schedule = each
        return found

    loop = begun()
    found = watched(loop)
    for event in loop.events():
        # due now, and two steps later an update comes
        if isinstance(event, BatchEnd) and event.env_steps == 250:
            break
    data, groups = loop.state(True)
    contracts.train(loop)
    assert found == [52, 100, 152, 200, 252, 300, 352, 400]
    again = begun()
    again.load_state(data, groups)
    rest = watched(again)
    contracts.train(again)
    assert rest == [252, 300, 352, 400]


def test_targets_move_with_environment_steps() -> None:
    """As often as `target_every` says, whatever `train_every` is; copies follow the last update."""
    for tau, every, begin, end, updates, expected in (
        (SOFT, 1, 0, 4, 1, [1 - 0.9**4]),
        (SOFT, 1, 0, 4, 4, [0.1] * 4),
        (SOFT, 1, 0, 4, 2, [1 - 0.9**2] * 2),
        (SOFT, 2, 100, 104, 4, [0, 0.1, 0, 0.1]),
        (SOFT, 3, 2, 4, 8, [0, 0, 0, 0.1, 0, 0, 0, 0]),
        (SOFT, 50, 0, 4, 2, [0, 0]),
        (WHOLE, 1, 0, 4, 4, [0, 0, 0, 1]),
        (WHOLE, 10, 256, 512, 2, [0, 1]),
        (WHOLE, 1000, 0, 4, 1, [0]),
    ):
        settings = SimpleNamespace(tau=tau, target_every=every)
        found = copies(settings, Call(np.zeros(updates), begin, end, 0))
        np.testing.assert_array_equal(found, np.float32(expected))


@pytest.mark.parametrize("name", ["dqn", "vdn", "qmix"])
def test_a_soft_target_moves_as_fast_where_updates_are_seldom(name: str) -> None:
    env = games.Chain if name == "dqn" else lambda: Team(team_games.TwoStep())
    given = {"train_every": 4, "target_every": 1, "tau": SOFT, "envs": 1, "steps": 40}
    loop = contracts.begin(algorithms.get(name), env, "torch", **SIZES | given)
    networks, checked = loop.backend.networks, 0

    def read(ending: str) -> list:
        names = [n for n in networks if f"{n}_target" in networks]
        return [x.copy() for n in names for x in networks[n + ending].read().values()]

    before = read("_target")
    for event in loop.events():
        if isinstance(event, BatchEnd) and "loss" in event.metrics:
            now = zip(before, read(""), read("_target"), strict=True)
            for old, learned, target in now:
                np.testing.assert_allclose(target, old + 0.3439 * (learned - old), atol=1e-6)
            checked += 1
        before = read("_target")
    assert checked == 6


def test_step_sizes_rise_and_then_are_what_they_are() -> None:
    loop = loop_of("ddpg", learning_rate_warmup=8, learning_rate=0.4, actor_learning_rate=0.2)
    found = loop.algorithm.schedule(Call(np.zeros(5), 0, 5, 5))
    np.testing.assert_allclose(found["learning_rate"], np.float32([0.3, 0.35, 0.4, 0.4, 0.4]))
    np.testing.assert_allclose(found["actor_learning_rate"], found["learning_rate"] / 2)
    assert (found["tau"] == found["tau"][0]).all() and found["learning_rate"].dtype == np.float32


def test_networks_begin_anew_and_the_buffer_stays() -> None:
    loop, kept = loop_of("sac", reset_every=50, steps=200), []
    reset = loop.learner._reset

    def watched(rng) -> None:
        reset(rng)
        kept.append((contracts.weights(loop), len(loop.learner.ring), loop.learner.updates))
        state = loop.backend.state()
        moments = [x for n, x in state.items() if n.startswith("optimizer/")]
        assert moments and not any(np.any(x) for x in moments)
        assert state["network/log_alpha/0"] == 0.0

    loop.learner._reset = watched
    contracts.train(loop)
    assert [updates for *_, updates in kept] == [50, 100, 150] and kept[-1][1] > kept[0][1]
    first, second = kept[0][0], kept[1][0]
    names = [n for n in first if n.endswith("kernel")]
    assert names and not any(np.array_equal(first[n], second[n]) for n in names)
    for n in names:  # targets are their networks
        if n.startswith("q1/"):
            assert np.array_equal(first[n], first[n.replace("q1/", "q1_target/")])
    for n, x in init(loop.algorithm.qs[0].plan, np.random.default_rng(0)).items():
        assert first[f"q1/{n}"].std() == pytest.approx(x.std(), rel=0.6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "sac", "crossq"])
def test_runs_with_all_of_them_go_on_exactly(name) -> None:
    given = {"reset_every": 26, "updates_per_step": 0.5, "weight_decay": 0.01}
    kind, env = algorithms.get(name), games.Chain if name == "dqn" else games.IdentityBox
    settings = SIZES | given | {"learning_rate_warmup": 20}
    contracts.reproducible(kind, env, "torch", **settings)
    contracts.resumes(kind, env, "torch", updates=25, **settings)


def far() -> Any:
    """IdentityBox, seen in units that no network would like, and paid so."""
    box = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    env: Any = TransformObservation(games.IdentityBox(), lambda x: np.float32(50) + 20 * x, box)
    return TransformReward(env, lambda r: 1000.0 * float(r) - 3.0)


def watched(name: str, env: Any = far, **more: Any) -> tuple[Loop, list[Any], list[Any]]:
    """A run at its end; what came in, and what each call of updates was given, with the weights."""
    loop = contracts.begin(algorithms.get(name), env, "torch", **SMALL | BOTH | more)
    return loop, *watch(loop)


def watch(loop: Any) -> tuple[list[Any], list[Any]]:
    """The rest of a run: what came in, and the calls of updates."""
    came: list[Any] = []
    given: list[Any] = []
    learner = loop.learner
    learn, run = learner.learn, learner._run
    learner.learn = lambda t, span: (came.append(t), learn(t, span))[1]
    learner._run = lambda b: (given.append((len(came), b, contracts.weights(loop))), run(b))[1]
    contracts.train(loop)
    return came, given


def statistics_of(weights: Any, rows: Any, rtol: float) -> int:
    """How many means and variances networks have, all of these rows."""
    found = {k: x for k, x in weights.items() if k.endswith(("1/mean", "1/variance"))}
    for k, x in found.items():
        wanted = rows.mean(0) if k.endswith("mean") else rows.var(0)
        np.testing.assert_allclose(x, wanted, rtol=rtol)
    return len(found)


@pytest.mark.parametrize("name, n", [("sac", 3), ("td3", 1)])
def test_updates_see_the_statistics_of_now_and_the_buffer_what_came(name: str, n: int) -> None:
    loop, came, given = watched(name, n_step=n)
    for count, batch, weights in given:
        rows = np.concatenate([t.obs.reshape(-1, 1) for t in came[:count]]).astype(np.float64)
        # the policy and two critics, and their targets
        assert statistics_of(weights, rows, 1e-5) == 2 * (5 if name == "sac" else 6)
        assert batch.obs.min() > 20
        assert set(batch.obs.ravel()) <= set(rows.astype(np.float32).ravel())
        returns = discounted(came[:count])
        ring = loop.learner.ring  # type: ignore[attr-defined]
        scaled = np.clip(ring.column("reward")[: count * 8] / returns.std(), -10, 10)
        if n == 1:
            assert np.isclose(batch.reward.reshape(-1, 1), scaled, rtol=1e-5).any(1).all()
    raw = np.concatenate([t.reward.ravel() for t in came])
    assert ring.column("reward")[: len(raw)].tolist() == raw.tolist() and raw.min() < -500
    assert abs(batch.reward).max() <= 10 * 1.75  # each of three steps is cut at 10, then summed
    # who acts has the statistics of the last updates
    actor = loop.networks["actor"]
    assert isinstance(actor, Twin)
    np.testing.assert_array_equal(actor.weights["1/mean"], weights["actor/1/mean"])


def test_sequences_are_kept_as_they_came_too() -> None:
    more = {"rollout": 5, "envs": 2, "steps": 80, "shared": False, "gamma": 0.5, "hidden": (8,)}
    more |= {"replay": "uniform", "replay_starts": 2, "replay_ratio": 3.0}
    loop = contracts.begin(algorithms.get("a3c"), far, "torch", **BOTH | more)
    came, given = watch(loop)
    assert len(came) == 8 and len(given) > 16
    for count, batch, weights in given:
        if count > 1:
            rows = np.concatenate([t.obs.reshape(-1, 1) for t in came[: count - 1]])
            assert statistics_of(weights, rows, 1e-4) == 4
        returns = discounted(came[:count]).std()
        reward = np.concatenate([t.reward.ravel() for t in came[:count]])
        scaled = np.append(np.clip(reward / returns, -10, 10), 0)  # the row that follows has none
        within = ~batch.extra["last"].ravel()  # where a limit ends an episode, a value is added
        found = np.isclose(batch.reward.reshape(-1, 1), scaled, rtol=1e-4).any(1)
        assert found[within].all() and within.sum() > 8
        assert batch.obs.min() > 20
    kept = loop.learner.buffer.draw(np.random.default_rng(0), 2, 1.0)  # type: ignore[attr-defined]
    assert kept.batch.reward.min() < -500


def discounted(trajectories: list[Any]) -> Any:
    running, found = np.zeros(2), []
    for t in trajectories:
        for reward, last in zip(t.reward, t.last, strict=True):
            running = 0.5 * running + reward
            found.append(running.copy())
            running[last] = 0.0
    return np.array(found)


def test_what_hindsight_judges_is_scaled_as_what_came() -> None:
    """A step of BitFlip is paid -1, or 0 where its goal is reached."""
    more = {"hindsight": "future", "eval_every": 0, "framework": "torch", "compile": "no"}
    run = tandem.session("dqn", lambda: BitFlip(4), **SMALL | {"normalize_rewards": True} | more)
    came, given = watch(run.loop)
    count, batch, _ = given[-1]
    unit = -1 / np.sqrt(discounted(came[:count]).var() + 1e-8)
    assert np.isclose(batch.reward, unit, rtol=1e-5).any() and (batch.reward == 0).any()
    assert (np.isclose(batch.reward, unit, rtol=1e-5) | (batch.reward == 0)).all()


def test_networks_that_begin_anew_keep_the_statistics() -> None:
    loop, _, _ = watched("sac", reset_every=11)
    assert loop.learner.updates == 11  # the last of them began anew
    for role in ("actor", "q1", "q1_target"):
        weights = loop.backend.networks[role].read()
        (mean,) = (x for k, x in weights.items() if k.endswith("1/mean"))
        assert mean[0] > 20


@pytest.mark.parametrize("name", ["dqn", "crossq", "impala"])
def test_runs_go_on_exactly(name: str) -> None:
    """Blocks without updates too, in which statistics move and who acts has those of before."""
    kind, env = algorithms.get(name), far if name == "crossq" else "CartPole-v1"
    given = SMALL | {"updates_per_step": 0.05}
    if name == "impala":
        given = dict(rollout=5, replay="prioritized", replay_starts=2, recurrent=4, envs=2)
        given["hidden"] = (8,)
    contracts.resumes(kind, env, "torch", updates=9, **BOTH | given | {"steps": 400})


def test_an_agent_acts_by_the_statistics_that_its_run_ended_with(tmp_path: Path) -> None:
    given = SMALL | BOTH | {"framework": "torch", "eval_every": 0, "out": tmp_path / "run"}
    run = tandem.session("sac", far, **given | {"compile": "no"})
    list(run)
    agent, loaded = run.agent(), tandem.load(tmp_path / "run", which="last")
    obs = np.float32([[20], [50], [90]])
    acted = [loaded.act(x) for x in obs]
    assert [agent.act(x).tolist() for x in obs] == [x.tolist() for x in acted]
    mean = run.backend.networks["actor"].read()["1/mean"]
    assert loaded.networks["actor"].weights["1/mean"].tolist() == mean.tolist() and mean[0] > 20


def game() -> BitFlip:
    return BitFlip(8)


def ran(steps: int = 400, env=game, out=None, **more):
    given = SHORT | {"hindsight": "future"} | more
    run = tandem.session("dqn", env, steps=steps, out=out, **given)
    list(run)
    return run


def replayed(run, count: int):
    """(transitions as they are stored, as they are learned from)."""
    learner = run.loop.learner
    ids = learner.sampler.draw(np.random.default_rng(0), 1, count).ids
    return learner.ring.transitions(ids), learner._batch(ids, ()), ids


def arrived_in(batch):
    return (batch.next_obs["achieved_goal"] == batch.next_obs["desired_goal"]).all(-1)


@pytest.mark.parametrize("k", [1, 4])
def test_k_of_k_and_one_transitions_are_given_goals_that_were_reached(k) -> None:
    plain, batch, _ = replayed(ran(relabel=k), 4000)
    other = (batch.obs["desired_goal"] != plain.obs["desired_goal"]).any(-1)
    assert other.mean() == pytest.approx(k / (k + 1), abs=0.06)
    arrived, alive = arrived_in(batch), batch.discount > 0
    assert (alive[other] != arrived[other]).all() and arrived[other].mean() > 0.2


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_what_terminated_is_relabeled_and_remains_an_end(strategy) -> None:
    run = ran(1500, hindsight=strategy, epsilon=1.0, env=lambda: BitFlip(3))
    plain, batch, _ = replayed(run, 4000)
    ended = plain.discount == 0
    assert ended.sum() > 100 and (batch.discount[ended] == 0).all()
    flipped = (batch.obs["observation"] != batch.next_obs["observation"]).sum(-1)
    assert (flipped == 1).all()  # the true last observation follows, not the next episode's first
    relabeled = (batch.obs["desired_goal"] != plain.obs["desired_goal"]).any(-1)
    assert relabeled.sum() > 500
    assert (batch.reward == -(~arrived_in(batch)).astype(np.float32)).all()
    # of an end there is another goal only where earlier ones of the episode are goals, too
    assert (relabeled & ended).any() == (strategy == "episode")


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"prioritized": True}, {"workers": 2, "envs": 2}])
def test_a_run_goes_on_exactly(tmp_path, more) -> None:
    given = SHORT | {"hindsight": "future"} | more
    in_parts(tmp_path, "dqn", game, 200, steps=400, **given)


@pytest.mark.slow
def test_a_game_is_learned_with_hindsight_only() -> None:
    given = dict(learning_rate=1e-3, train_every=2, target_every=200, epsilon="1:0.1:0.5")
    given |= {"hidden": (64,), "batch_size": 64, "learning_starts": 200, "gamma": 0.9}
    runs = [ran(4000, hindsight=hindsight, **given) for hindsight in ("no", "future")]
    without, score = (tandem.evaluate(run.agent(), game, episodes=100).mean for run in runs)
    assert without < -7.5 and score > -3.6  # -8: never; -3: as few steps as there can be


class Scaled(BitFlip):
    """Rewards go by the wind in `info`; `judge` and `tell` change rewards and info."""

    def __init__(self, n: int, judge: Any = None, tell: Any = None) -> None:
        super().__init__(n)
        self.judge, self.tell = judge or (lambda reward, info: reward), tell

    def step(self, action):
        obs, _, terminated, truncated, _ = super().step(action)
        info = {"wind": self.np_random.uniform(1, 2), "kind": "breeze"}
        reward = float(self.compute_reward(obs["achieved_goal"], self.goal, info))
        info = self.tell(self.t, info) if self.tell else info
        return obs, reward, terminated, truncated, info

    def play(self, action):
        self.state[int(action)] = 1.0 - self.state[int(action)]
        return 0.0, bool((self.state == self.goal).all())

    def compute_reward(self, achieved, desired, info):
        return self.judge(super().compute_reward(achieved, desired, info), info)


def by_name(reward, info):
    return reward * info.get("wind", 1.0)


def by_row(reward, info):
    """As Stable-Baselines3 has it: a list of the rows' infos."""
    return reward * np.array(info["wind"] if np.ndim(reward) == 0 else [x["wind"] for x in info])


@pytest.mark.parametrize("judge, workers", [(by_name, 0), (by_row, 0), (by_name, 1)])
def test_stored_info_is_passed_to_compute_reward(judge, workers, tmp_path) -> None:
    more, env = (
        dict(copy_info=True, workers=workers, envs=2, epsilon=1.0),
        partial(Scaled, 4, judge),
    )
    run = ran(300, env, out=tmp_path / "run", **more)
    _, batch, ids = replayed(run, 500)
    ring = run.loop.learner.ring
    wind = ring.column("extra/info/wind")
    assert not batch.extra and wind.dtype == np.float64
    paid = -wind[ring.position(ids)]
    expected = np.where(arrived_in(batch), 0.0, paid).astype(np.float32)
    np.testing.assert_array_equal(batch.reward, expected)
    with pytest.raises(SettingError, match=r"(?s)reads info.*copy_info=True"):
        ran(300, env)
    again = tandem.session(env=env, resume=tmp_path / "run").loop.learner.ring
    np.testing.assert_array_equal(again.column("extra/info/wind"), wind)


def test_info_that_cannot_be_stored_is_named() -> None:
    def kinds(reward, info):
        return reward * (info["kind"] == "breeze")

    with pytest.raises(SettingError, match=r"reads info\['kind'\], which is not stored"):
        ran(300, lambda: Scaled(4, kinds), copy_info=True)
    # an int at first, then floats, which an int64 column would cut to 0
    for tell, said in (
        (lambda t, info: info if t % 2 else {}, r"info\['wind'\] = None at step 2"),
        (
            lambda t, info: {**info, "wind": 1 if t == 1 else 0.5},
            r"(?s)\['wind'\] = 0\.5 .*int64 of sh.* \(\)",
        ),
    ):
        with pytest.raises(EnvironmentFault, match=said):
            ran(300, partial(Scaled, 4, None, tell), copy_info=True)


@pytest.mark.parametrize(
    "judge, said",
    [
        (
            lambda reward, info: info["scale"] * reward,
            r"reads info\['scale'\], which is not stored",
        ),
        (lambda reward, info: float(np.min(reward)), r"returns \(\) rewards .* for two goals"),
    ],
)
def test_rewards_that_are_not_of_batches_are_refused_before_a_step(judge, said: str) -> None:
    with pytest.raises(SettingError, match=rf"compute_reward .*{said}"):
        tandem.session("dqn", lambda: Scaled(4, judge), steps=400, **SHORT, hindsight="future")
    tandem.session("dqn", lambda: Scaled(4, judge), steps=400, **SHORT)
