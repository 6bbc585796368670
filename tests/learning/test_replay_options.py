"""Options of every algorithm with replayed transitions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tandem import algorithms, zoo
from tandem.algorithms.base import Call, copies
from tandem.envs.team import Team
from tandem.errors import SettingError
from tandem.learning.events import BatchEnd
from tandem.networks.plan import init
from tandem.testing import contracts, team_games
from tandem.testing import environments as games

SMALL = {"hidden": (8,), "batch_size": 16, "learning_starts": 20, "steps": 400}


def loop_of(name: str, **settings):
    env = games.Chain if name == "dqn" else games.IdentityBox
    return contracts.begin(algorithms.get(name), env, "torch", **SMALL | settings)


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


SOFT, WHOLE = 0.1, 1.0


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
    loop = contracts.begin(algorithms.get(name), env, "torch", **SMALL | given)
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
    settings = SMALL | given | {"learning_rate_warmup": 20}
    contracts.reproducible(kind, env, "torch", **settings)
    contracts.resumes(kind, env, "torch", updates=25, **settings)


class Own(nn.Linear):
    def forward(self, x):
        return torch.sin(super().forward(x.float()[:, None]))


def test_what_cannot_be_is_refused() -> None:
    own = {"reset_every": 10, "network": lambda space: Own(1, 8)}
    for given, said in (
        ({"updates_per_step": 2.0, "updates_per_call": 4}, "=2 and updates_per_call=4"),
        ({"weight_decay": 0.1, "optimizer": "sgd"}, "weight_decay=0.1 is not .*='sgd'"),
        (own, r"reset_every is not supported with a custom network \(q\)"),
    ):
        with pytest.raises(SettingError, match=said):
            loop_of("dqn", **given)
