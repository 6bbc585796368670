"""Settings by themselves: out of range they are refused by name before a run begins; and numbers
that have to go into one another."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_type_hints

import pytest

import tandem
from tandem import algorithms, trainer
from tandem.errors import SettingError, noting
from tandem.learning import fits
from tandem.learning.config import Options
from tandem.settings import Schedule, apply, check_ranges, declared, default, setting
from tandem.testing.environments import Identity, IdentityBox
from tests.advice.net import assigned

OUTSIDE: dict[str, dict[str, Any]] = {
    "impala": dict(replay_ratio=-1, replay_size=0, replay_starts=-2, rho=-1, c=-1),
    "acer": {"average_tau": 7, "truncation": -1, "kl": -1},
    "nstep_q": {"target_updates": 0},
    "dqn": {"max_grad_norm": -1, "epsilon": ["1:-0.5", 2], "priority_beta": -3},
    "ppo": {"max_grad_norm": -1, "clip": "0.2:-0.1"},
    "trpo": dict(radius=-1, damping=-1, conjugate_steps=0, backtracks=0, shrink=2),
    "sac": {"temperature": -0.1, "initial_temperature": 0},
}
KINDS = (Options, *(algorithms.get(name).Settings for name in algorithms.NAMES))
ROLLOUT = {"recurrent": 8, "rollout": 64, "envs": 2}
GRU = "tandem/CartPolePositions-v0"  # 8 environments x 128 steps, batches of 256, sequences of 16
REPLAY = {"replay": "uniform", "replay_starts": 8, "replay_ratio": 1.0}


@pytest.mark.parametrize("name", OUTSIDE)
def test_settings_out_of_range_are_refused(name: str) -> None:
    usual = algorithms.get(name).Settings()
    check_ranges(usual)
    for number, values in OUTSIDE[name].items():
        for value in values if isinstance(values, list) else [values]:
            with pytest.raises(SettingError, match=f"setting {number}="):
                check_ranges(apply(usual, {number: value}))


def test_the_ends_of_ranges_belong_to_them() -> None:
    for name, given in (
        ("sac", {"temperature": 0.0}),
        ("trpo", {"radius": "0.01:0"}),
        ("dqn", {"epsilon": "1:0"}),
        ("acer", {"kl": 0, "replay_starts": 0}),
    ):
        check_ranges(apply(algorithms.get(name).Settings(), given))
    with pytest.raises(SettingError, match="setting save_every=-5"):
        check_ranges(Options(save_every=-5))


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_limits_that_its_default_keeps(kind: type) -> None:
    hints = get_type_hints(kind)
    for declaration in declared(kind):
        kinds = {hints[declaration.name], *get_args(hints[declaration.name])}
        limited = bool(kinds & {int, float, Schedule})
        assert (declaration.limits is not None) == limited, declaration.name
        assert declaration.help
    check_ranges(kind())


@dataclass(frozen=True)
class Made:
    positive: int = setting(1, "a count", minimum=1)
    fraction: Schedule = setting(Schedule(0.5), "a part", "a paper", minimum=0, maximum=1)
    rate: Schedule = setting(Schedule(0.1), "a rate", above=0, maximum=9, fix="try 0.1.")
    often: int | Literal["auto"] = setting(2, "a count, or -1", minimum=1, special=-1)
    widths: tuple[int, ...] = setting((3,), "counts", minimum=2, expected="two each")
    name: str = setting("x", "a name")


@dataclass(frozen=True)
class Remade(Made):
    positive: int = default(5, "a book")
    often: int | Literal["auto"] = default("auto", help="another meaning")


@pytest.mark.parametrize(
    ("name", "inside", "outside", "expected"),
    [
        ("positive", (1, 10**30), (0, -1), "at least 1"),
        ("fraction", (0, 1, "0:1", "1:0"), (-0.1, 1.1, "0.5:-0.1", "1.5:0.5"), "between 0 and 1"),
        ("rate", (9, 0.001, "0.1:0"), (0, 9.5, "0:0.1", "1:-1"), "a number above 0"),
        ("often", (1, -1, "auto"), (0, -2), "at least 1"),
        ("widths", ((2, 5), ()), ((1,), (5, 1)), "two each"),
    ],
)
@pytest.mark.parametrize("kind", [Made, Remade])
def test_limits_hold_at_both_ends(kind, name, inside, outside, expected) -> None:
    for value in inside:
        check_ranges(apply(kind(), {name: value}))
    for value in outside:
        with pytest.raises(SettingError, match=f"setting {name}=.*; expected {expected}"):
            check_ranges(apply(kind(), {name: value}))


def test_another_default_keeps_the_meaning_and_the_limits() -> None:
    before, after = ({s.name: s for s in declared(kind)} for kind in (Made, Remade))
    assert after["positive"] == before["positive"]._replace(default=5, source="a book")
    assert after["often"] == before["often"]._replace(default="auto", help="another meaning")
    assert after["fraction"] == before["fraction"] and after["fraction"].source == "a paper"


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
    rows = [("steps", *x) for x in ((100_000, 0), (10_098, 1), (20_000, 0), (19_998, 1))]
    rows += [("learning_starts", 50_000, 0), ("learning_starts", 50_001, 1)]
    for name, value, expected in rows:
        with noting(notes := []):
            fits.note_few(replace(settings, **{name: value}), 1)
        assert len(notes) == expected, (name, value)
