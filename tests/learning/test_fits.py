"""Numbers that have to go into one another, judged by settings alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tandem
from tandem import algorithms, trainer
from tandem.errors import SettingError, noting
from tandem.learning import fits
from tandem.testing.environments import Identity, IdentityBox
from tests.advice.net import assigned

ROLLOUT = {"recurrent": 8, "rollout": 64, "envs": 2}


def test_the_nearest_length_of_sequences_is_proposed() -> None:
    for name, given, proposed in (
        ("ppo", {**ROLLOUT, "batch_size": 64, "sequence": 7}, 8),
        ("ppo", {**ROLLOUT, "batch_size": 64, "sequence": 33}, 32),
        ("ppo", {**ROLLOUT, "batch_size": 32, "sequence": 63}, 32),  # no larger one is in both
        ("a2c", {**ROLLOUT, "rollout": 5, "sequence": 2}, 1),
        ("sac", {"recurrent": 8, "batch_size": 256, "sequence": 10}, 8),
    ):
        kind = algorithms.get(name)
        settings = replace(kind.Settings(), **given)
        with pytest.raises(SettingError) as caught:
            fits.check(kind.needs, settings)
        assert assigned(caught.value) == [{"sequence": proposed}]
        fits.check(kind.needs, replace(settings, sequence=proposed))


@pytest.mark.parametrize("memory", [{}, {"recurrent": 8, "sequence": 16}])
def test_a_buffer_has_room_for_a_batch(memory: dict[str, Any]) -> None:
    kind = algorithms.get("sac")
    small = replace(kind.Settings(), batch_size=256, buffer_size=250, **memory)
    with pytest.raises(SettingError, match="buffer_size=250 with batch_size=256") as caught:
        fits.check(kind.needs, small)
    advised = assigned(caught.value)
    assert advised == [{"buffer_size": 256}, {"batch_size": 240 if memory else 250}]
    for one in advised:
        fits.check(kind.needs, replace(small, **one))


GRU = "tandem/CartPolePositions-v0"  # 8 environments x 128 steps, batches of 256, sequences of 16


def test_numbers_that_nobody_gave_never_make_a_setting_fail() -> None:
    for algorithm, env, given, changed in (
        ("mappo", "mpe/simple_spread_v3", {"recurrent": 32}, {"sequence": 25, "rollout": 25}),
        ("ppo", "CartPole-v1", {"rollout": 100}, {"batch_size": 200, "envs": 8}),
        ("ppo", "CartPole-v1", {"batch_size": 100}, {"rollout": 25, "envs": 8}),
        ("ppo", "CartPole-v1", {"envs": 3}, {"batch_size": 96, "rollout": 32}),
        ("ppo", "CartPole-v1", {"rollout": 64, "batch_size": 48}, {"envs": 9}),
        ("ppo", "CartPole-v1", {"devices": 3}, {"envs": 9}),
        ("ppo", "Nowhere-v0", {"recurrent": 8, "sequence": 100}, {"rollout": 300, "envs": 8}),
        ("ppo", GRU, {"rollout": 30}, {"batch_size": 240, "sequence": 15}),
        ("ppo", GRU, {"sequence": 20}, {"rollout": 120, "batch_size": 240}),
        ("ppo", "Hopper-v5", {"standardize_rewards": True}, {"normalize_rewards": False}),
        ("dqn", "CartPole-v1", {"envs": 3}, {"train_every": 255}),
        ("dqn", "LunarLander-v3", {"updates_per_step": 2.0}, {"updates_per_call": 1}),
        ("dqn", "Nowhere-v0", {"recurrent": 8, "batch_size": 50}, {"sequence": 10}),
        ("dqn", "Nowhere-v0", {"entry": "rainbow", "hindsight": "future"}, {"n_step": 1}),
        ("sac", "Nowhere-v0", {"buffer_size": 100}, {"batch_size": 100}),
        ("acer", "CartPole-v1", {"replay_starts": 5_000}, {"replay_size": 5_000}),
        ("acer", "CartPole-v1", {"replay_size": 50}, {"replay_starts": 50}),
    ):
        chosen, options, *_ = trainer.resolve(algorithm, env, given)
        fits.check(algorithms.get(algorithm).needs, chosen, options.devices)
        assert {n: getattr(chosen, n) for n in changed} == changed
        if algorithm != "mappo":
            options = {n: x for n, x in given.items() if hasattr(chosen, n)}
            assert {n: getattr(chosen, n) for n in options} == options


def test_a_note_says_once_which_numbers_have_changed_to_fit(caplog: Any) -> None:
    given = {"batch_size": 100, "framework": "torch", "eval_episodes": 0}
    run = tandem.session("ppo", "CartPole-v1", **given)
    said = "rollout set to 25 instead of 32, to fit batch_size=100."
    assert run.config.settings.rollout == 25
    assert caplog.text.count(said) == run.notes.count(said) == 1
    run = tandem.session("ppo", "CartPole-v1", **given, rollout=100)
    assert not [n for n in run.notes if "to fit" in n]


def test_batches_divide_the_rollout_of_one_object() -> None:
    given = {"rollout": 30, "hidden": (4,), "eval_episodes": 0, "framework": "torch"}
    made = tandem.session("ppo", Identity(), **given)
    s = made.config.settings  # one environment, where the defaults have eight
    assert (s.envs, s.rollout, s.batch_size) == (1, 30, 30)
    made.backend.close()


def test_numbers_that_nobody_gave_follow_those_that_were() -> None:
    for algorithm, env, given, expected in (
        # each process has an environment
        ("sac", "", {"workers": 4}, {"envs": 4, "train_every": 4, "updates_per_call": 4}),
        ("sac", "", {"workers": 4, "ahead": 0}, {"envs": 5}),  # and one for this process
        ("sac", "", {"runners": 3}, {"envs": 3}),
        ("ppo", "", {"workers": 2}, {"envs": 8}),
        ("sac", "", {"workers": "auto"}, {"envs": 1}),
        # waiting takes a tenth of a run at most
        ("td3", "", {"steps": 2_000}, {"learning_starts": 200}),
        ("td3", "", {"steps": 9}, {"learning_starts": 0}),
        ("td3", "", {}, {"learning_starts": 10_000}),
        ("td3", "", {"steps": 2_000, "learning_starts": 900}, {"learning_starts": 900}),
        ("td3", "Pendulum-v1", {"steps": 2_000}, {"learning_starts": 1_000}),  # the zoo's
        ("maddpg", "", {"steps": 50_000}, {"learning_starts": 5_000}),
        ("acer", "", {"steps": 4_000, "replay": "uniform"}, {"replay_starts": 20}),
        ("acer", "", {"replay": "uniform"}, {"replay_starts": 100}),
    ):
        chosen, *_ = trainer.resolve(algorithm, env or "Nowhere-v0", given)
        assert {n: getattr(chosen, n) for n in expected} == expected


REPLAY = {"replay": "uniform", "replay_starts": 8, "replay_ratio": 1.0}


@pytest.mark.parametrize(
    ("algorithm", "env", "settings"),
    [
        ("ppo", Identity, {"rollout": 20, "envs": 2, "batch_size": 10, "epochs": 3}),
        ("a2c", Identity, {"rollout": 5, "envs": 2, "recurrent": 4}),
        ("dqn", Identity, {"learning_starts": 30, "train_every": 8, "updates_per_call": 2}),
        ("dqn", Identity, {"updates_per_call": -1, "train_every": 8, "learning_starts": 80}),
        ("sac", IdentityBox, {"learning_starts": 50, "updates_per_step": 0.5}),
        ("td3", IdentityBox, {"learning_starts": 90}),
        ("dqn", Identity, {"recurrent": 4, "sequence": 4, "batch_size": 8, "learning_starts": 20}),
        ("impala", Identity, {"rollout": 5, "envs": 2}),
        ("acer", Identity, {"rollout": 5, "envs": 2, **REPLAY}),
        ("acer", Identity, {"rollout": 5, "envs": 2, "online": False, **REPLAY, "replay_ratio": 2}),
    ],
)
def test_a_note_says_how_few_updates_a_run_makes(algorithm, env, settings) -> None:
    given = {"hidden": (4,), "framework": "torch", "eval_episodes": 0, "final_episodes": 1}
    made = tandem.train(algorithm, env, steps=100, **given, **settings)
    (text,) = made.notes
    told = int(text.split()[3])
    spread = 14 if "replay" in settings else 1  # the number of replayed batches is drawn
    assert abs(told - made.summary["updates"]) <= spread, text
    assert made.summary["notes"] == [text]


def test_a_note_says_that_the_first_half_of_a_run_makes_no_update() -> None:
    settings = replace(algorithms.get("td3").Settings(), steps=100_000)
    for steps, expected in ((100_000, 0), (10_098, 1), (20_000, 0), (19_998, 1)):
        with noting(notes := []):
            fits.note_few(replace(settings, steps=steps), 1)
        assert len(notes) == expected, steps
    for starts, expected in ((50_000, 0), (50_001, 1)):  # none in the first half
        with noting(notes := []):
            fits.note_few(replace(settings, learning_starts=starts), 1)
        assert len(notes) == expected
