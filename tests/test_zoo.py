"""The tuned settings: every entry can be used as it stands. No environment is made."""

import json
import re
from pathlib import Path

import pytest

import tandem
from tandem import algorithms, trainer, zoo
from tandem.cli import main
from tandem.errors import noting
from tandem.learning.config import Config, plain
from tandem.runs.resume import extended
from tandem.settings import Schedule, apply
from tandem.testing import fakes

ANY = ("a2c", "a3c", "impala", "ppo", "sac", "trpo")  # that act by choices and by numbers
CHOOSING = (*ANY, "acer", "dqn", "nstep_q", "pqn")
MOVING = (*ANY, "crossq", "ddpg", "td3", "tqc")
GAMES = ("Asterix", "BeamRider", "Breakout", "Enduro", "Pong", "Qbert", "Seaquest")
CHOICES = [
    *("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "LunarLander-v3", "FrozenLake-v1"),
    *("CliffWalking-v1", "Taxi-v4", "Blackjack-v1", "tandem/TicTacToe-v0"),
    *(f"MiniGrid-{name}" for name in ("Empty-5x5-v0", "DoorKey-5x5-v0", "MemoryS7-v0")),
    *(f"ALE/{game}-v5" for game in (*GAMES, "SpaceInvaders")),
    *("classic/tictactoe_v3", "classic/connect_four_v3"),
]
LOCOMOTION = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid", "Swimmer")
ARMS = ("Reacher", "Pusher", "InvertedPendulum", "InvertedDoublePendulum")
NUMBERS = [
    *("MountainCarContinuous-v0", "Pendulum-v1", "LunarLanderContinuous-v3", "CarRacing-v3"),
    *("BipedalWalker-v3", "BipedalWalkerHardcore-v3"),
    *(f"{robot}-v5" for robot in (*LOCOMOTION, *ARMS)),
    *(f"Fetch{task}-v4" for task in ("Reach", "Push", "Slide", "PickAndPlace")),
]
COOPERATIVE = ("simple_spread_v3", "simple_speaker_listener_v4", "simple_reference_v3")
OPPOSED = ("simple_adversary_v3", "simple_tag_v3", "simple_push_v3")
TEAMS = {
    **dict.fromkeys(COOPERATIVE, ("maddpg", "mappo", "mat", "qmix", "vdn")),
    **dict.fromkeys(OPPOSED, ("maddpg", "mappo", "mat")),
}


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_an_entry_holds_settings_in_their_ranges_and_says_its_source(algorithm) -> None:
    first, *_ = names = zoo.environments(algorithm)
    assert first not in zoo.families(), "errors have it as an example"
    for name in names:
        assert name in zoo.families() or re.fullmatch(r"pgx/\w+|[\w/-]+[-_]v\d", name), name
    for table, entry in zoo.entries(algorithm).items():
        assert entry.settings and len(entry.source) > 10
        held = [env.replace("*", "SomeWorld") for env in zoo.families().get(table, (table,))]
        mine = [env for env in held if zoo.entry(algorithm, env) is entry]
        assert mine, "every environment of the family has a table of its own"
        chosen, _, source, _ = trainer.resolve(algorithm, mine[0], {})
        assert source == entry.source
        own = {name for name in entry.settings if name in chosen.__dataclass_fields__}
        assert own == entry.settings.keys(), "settings that the algorithm does not have"
        if algorithms.get(algorithm).needs == "rollouts" and chosen.batch_size:
            each = chosen.sequence if chosen.recurrent else 1
            assert chosen.rollout * chosen.envs % chosen.batch_size == 0, table
            assert chosen.batch_size % each == 0, table


@pytest.mark.parametrize(
    ("env", "names", "action"),
    [(env, CHOOSING, fakes.DISCRETE) for env in CHOICES]
    + [(env, MOVING, fakes.BOX) for env in NUMBERS]
    + [(f"mpe/{game}", names, fakes.TEAM_DISCRETE) for game, names in TEAMS.items()],
)
def test_every_algorithm_that_can_act_somewhere_has_an_entry_for_it(env, names, action) -> None:
    for name in names:
        settings, _, source, _ = trainer.resolve(name, env, {})
        assert not source.startswith("defaults of"), name
        team = action is fakes.TEAM_DISCRETE
        observation = fakes.TEAM if team else fakes.VECTOR
        algorithms.get(name, action).check(observation, action, settings)
        if team and env.removeprefix("mpe/") in COOPERATIVE and name in ("mappo", "mat"):
            assert settings.rewards == "team", "a reward that all share"


def test_lists_of_entries_and_exponents_without_the_priorities_that_a_user_turns_off() -> None:
    single = [name for name in algorithms.NAMES if not algorithms.get(name).team]
    assert sorted({*CHOOSING, *MOVING}) == single
    lander, acrobot = zoo.entry("dqn", "LunarLander-v3"), zoo.entry("dqn", "Acrobot-v1")
    assert lander.settings == acrobot.settings | {"steps": 300_000}, "it is like the other"
    assert acrobot.settings["hidden"] == (256, 256), "a tuple, as settings have it"
    assert zoo.entry("dqn", "Nowhere-v0") is None and zoo.entries("../dqn") == {}
    off = {"entry": "rainbow", "prioritized": False}
    kind, usual = algorithms.get("dqn"), algorithms.get("dqn").Settings()
    chosen, *_ = trainer.resolve("dqn", "Nowhere-v0", off)
    assert (chosen.priority_alpha, chosen.values) == (usual.priority_alpha, "categorical")
    kind.check(fakes.VECTOR, fakes.DISCRETE, chosen)
    assert trainer.resolve("dqn", "Nowhere-v0", off | {"priority_alpha": 0.3})[0] == chosen


@pytest.mark.parametrize(
    ("algorithm", "env", "given", "values"),
    [
        # (setting, environment step) -> value; the entry of ppo has 100,000 steps
        ("ppo", "CartPole-v1", {"steps": 20_000}, {("learning_rate", 20_000): 8e-4}),
        ("ppo", "CartPole-v1", {"steps": 20_000}, {("clip", 10_000): 0.18}),
        ("ppo", "CartPole-v1", {}, {("learning_rate", 50_000): 5e-4, ("clip", 100_000): 0.0}),
        ("ppo", "CartPole-v1", {"steps": 200_000}, {("clip", 50_000): 0.15, ("clip", 200_000): 0}),
        # those that a user gives are of the run
        ("ppo", "CartPole-v1", {"steps": 20_000, "clip": "0.2:0"}, {("clip", 20_000): 0.0}),
        # as is exploration; 50,000 steps
        ("dqn", "CartPole-v1", {"steps": 10_000}, {("learning_rate", 10_000): 2.3e-3 * 0.8}),
        ("dqn", "CartPole-v1", {"steps": 10_000}, {("epsilon", 1_600): 0.04}),
        ("dqn", "CartPole-v1", {"steps": 100, "entry": "rainbow"}, {("priority_beta", 100): 1.0}),
        ("nstep_q", "CartPole-v1", {"steps": 50_000}, {("learning_rate", 50_000): 7.5e-4}),
        ("trpo", "Pendulum-v1", {"steps": 50_000}, {("radius", 50_000): 0.0125}),
        ("trpo", "Pendulum-v1", {"steps": 50_000}, {("learning_rate", 25_000): 2.5e-3}),
        ("sac", "LunarLanderContinuous-v3", {"steps": 50_000}, {("learning_rate", 5e4): 6.57e-4}),
        # no steps in the entry, no entry
        ("maddpg", "mpe/simple_spread_v3", {"steps": 100}, {("actor_learning_rate", 100): 1e-4}),
        ("impala", "Nowhere-v0", {"steps": 100}, {("learning_rate", 100): 0.0}),
    ],
)
def test_step_sizes_of_an_entry_change_over_its_own_steps(algorithm, env, given, values) -> None:
    chosen, *_ = trainer.resolve(algorithm, env, given)
    again = apply(type(chosen)(), json.loads(json.dumps(plain(chosen))))
    assert again == chosen, "fractions above 1 read back from text"
    for (name, step), value in values.items():
        assert float(getattr(chosen, name)(step / chosen.steps)) == pytest.approx(value, abs=1e-8)


def test_a_files_schedule_is_of_the_entry_where_a_flag_gives_other_steps() -> None:
    """config.json of a short run has a stretched schedule, which nobody gave."""
    chosen, *_ = trainer.resolve("ppo", "CartPole-v1", {"steps": 20_000, "gamma": 0.5})
    file, flags = plain(chosen), {"steps": 50_000}
    left = zoo.usual_in("ppo", "CartPole-v1", file)
    assert {"learning_rate", "clip"} <= left and not left & {"gamma", "steps"}
    given = {n: x for n, x in file.items() if n not in left} | flags
    again, *_ = trainer.resolve("ppo", "CartPole-v1", given)
    assert (str(again.clip), again.gamma, again.steps) == ("0.2:0:2", 0.5, 50_000)
    assert trainer.resolve("ppo", "CartPole-v1", file)[0] == chosen


def test_extending_a_run_continues_its_schedules_to_their_horizon() -> None:
    chosen, options, *_ = trainer.resolve("ppo", "CartPole-v1", {"steps": 20_000, "entropy": "1:0"})
    conf = Config("ppo", "CartPole-v1", "torch", "cpu", 0, chosen, options)
    longer = extended(conf, 60_000).settings
    schedules = ["0.2:0:1.6666666666666665", "1:0:0.3333333333333333"]
    assert [str(s) for s in (longer.clip, longer.entropy)] == schedules
    assert float(longer.clip(15_000 / 60_000)) == pytest.approx(float(chosen.clip(0.75)))


BOTH = {"learning_rate": "1e-3:0", "clip": "0.2:0"}


@pytest.mark.parametrize(
    ("algorithm", "env", "given", "said"),
    [
        (
            "ppo",
            "CartPole-v1",
            {"steps": 49_999},
            "it decays the learning rate and clip range as",
        ),
        (
            "ppo",
            "CartPole-v1",
            {"steps": 9, "clip": 0.1},
            "9: it decays the learning rate as slowly as",
        ),
        ("ppo", "CartPole-v1", {"steps": 9, **BOTH}, ""),
        ("ppo", "CartPole-v1", {"steps": 50_000}, ""),
        ("ppo", "CartPole-v1", {}, ""),
        ("ppo", "Nowhere-v0", {"steps": 9}, ""),
        ("ppo", "Acrobot-v1", {"steps": 9}, ""),
        ("sac", "Pendulum-v1", {"steps": 9}, ""),
        ("dqn", "tandem/CartPole-v1", {"steps": 9}, ""),  # its epsilon is of the run
        ("dqn", "CartPole-v1", {"steps": 9}, "50,000 steps, but this run has 9: it decays the"),
    ],
)
def test_a_note_says_which_schedules_are_those_of_a_longer_run(algorithm, env, given, said) -> None:
    settings, options, *_ = zoo.resolve(algorithm, env, given)
    with noting(notes := []):
        zoo.note_short(algorithm, env, options.entry, settings, given)
    assert len(notes) == bool(said) and said in "".join(notes)


def test_a_schedule_keeps_its_horizon_in_runs_of_other_lengths() -> None:
    chosen = zoo.resolve("ppo", "CartPole-v1", {"steps": 6_000})[0]
    assert (str(chosen.learning_rate), str(chosen.clip)) == ("0.001:0:16.67", "0.2:0:16.67")
    for text, ratio, expected in (
        ("1:0", 3, "1:0:3"),
        ("1:0:0.5", 100 / 3, "1:0:16.67"),
        ("1:0:0.5", 0.1, "1:0:0.5"),
        ("1:0:25", 0.5, "1:0:12.5"),
        ("1:0:25", 0.01, "1:0"),
        ("1", 3, "1"),
    ):
        assert str(Schedule.parse(text).stretched(ratio)) == expected


def test_an_entry_of_short_trials_keeps_its_horizon(tmp_path: Path) -> None:
    """As a sweep writes it."""
    (tmp_path / "zoo.toml").write_text('[ppo.Own-v0]\nsteps = 4_000\nclip = "0.3:0:25"\n')
    zoo.use(tmp_path / "zoo.toml")
    try:
        found = [zoo.resolve("ppo", "Own-v0", {"steps": n})[0].clip for n in (2_000, 4_000, 8_000)]
    finally:
        zoo.use(None)
    assert [clip.fraction for clip in found] == [50, 25, 12.5]


@pytest.mark.slow
def test_ppo_solves_cartpole_in_a_fifth_of_its_entrys_steps() -> None:
    given = {"plots": False, "tensorboard": False, "eval_every": 10_000, "framework": "torch"}
    made = tandem.train("ppo", "CartPole-v1", steps=20_000, seed=2, **given)
    assert made.evaluation.mean >= 450
    assert "100,000 steps" in made.notes[0] and made.summary["notes"] == list(made.notes)


def test_families_which_have_named_entries_too() -> None:
    """An environment's own table wins over its family's; of families, the first that has one."""
    tables = zoo.entries("ppo")
    assert zoo.entry("ppo", "Walker2d-v5") is tables["Walker2d-v5"]
    assert zoo.entry("ppo", "Hopper-v5") is tables["MuJoCo locomotion"]
    assert zoo.entry("ppo", "Ant-v4") is None, "families are of the ids that they have"
    names = list(zoo.families())
    assert names.index("MiniGrid with memory") < names.index("MiniGrid")
    for name, table in (("ppo", "MiniGrid with memory"), ("dqn", "MiniGrid")):
        assert zoo.entry(name, "MiniGrid-MemoryS7-v0") is zoo.entries(name)[table]
        for env in ("MiniGrid-DoorKey-5x5-v0", "minigrid:MiniGrid-DoorKey-5x5-v0"):
            assert zoo.entry(name, env) is zoo.entries(name)["MiniGrid"]
    empty = "MiniGrid-Empty-5x5-v0"
    assert zoo.entry("ppo", f"minigrid:{empty}") is zoo.entries("ppo")[empty]
    # a class or function may be called like a family, and is none of it
    assert "Atari" in tables and zoo.entry("ppo", "Atari") is zoo.entry("ppo", "m:Atari") is None
    tables = zoo.entries("dqn")
    assert zoo.entry("dqn", "ALE/Qbert-v5", "quantile") is tables["Atari:quantile"]
    assert zoo.entry("dqn", "ALE/Qbert-v5", "rainbow") is tables["Atari:rainbow"]
    assert zoo.entry("dqn", "Nowhere-v0", "rainbow") is tables[":rainbow"]
    assert zoo.entry("dqn", "LunarLander-v3", "rainbow") is tables["LunarLander-v3:rainbow"]
    assert {"quantile", "rainbow"} == {*zoo.named("dqn", "ALE/Qbert-v5")}


OWN = """
[ppo."CartPole-v1"]
like = "CartPole-v1"
gamma = 0.5
[ppo."CartPole-v1:mine"]
like = "CartPole-v1"
source = "trials of June"
gamma = 0.25
[dqn."Own-v0"]
hidden = [8, 8]
"""


def test_a_users_own_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    own = tmp_path / "tandem" / "zoo.toml"
    own.parent.mkdir()
    own.write_text(OWN)
    monkeypatch.setattr(zoo.user, "_chosen", [])
    monkeypatch.setattr(zoo.user, "user_path", lambda purpose: tmp_path / "tandem")
    tuned = zoo.entry("ppo", "CartPole-v1").settings
    assert tuned["gamma"] == 0.98
    zoo.use(own)
    found = zoo.entry("ppo", "CartPole-v1")
    assert found.settings == tuned | {"gamma": 0.5} and "zoo.toml (SHA-256 " in found.source
    named = zoo.entry("ppo", "CartPole-v1", "mine")
    assert named.settings["gamma"] == 0.25 and named.source.startswith("trials of June, ")
    assert zoo.entry("dqn", "Own-v0").settings == {"hidden": (8, 8)}
    zoo.use(None)
    assert zoo.entry("ppo", "CartPole-v1").settings["gamma"] == 0.98  # the variable is set
    monkeypatch.delenv("TANDEM_NO_USER_ZOO")
    zoo.use(own)
    zoo.use(None)
    assert zoo.entry("ppo", "CartPole-v1").settings["gamma"] == 0.5
    monkeypatch.setenv("TANDEM_NO_USER_ZOO", "1")
    command = ["config", "ppo", "CartPole-v1"]
    assert main([*command, "--zoo", str(own)]) == 0 and "gamma = 0.5" in capsys.readouterr().out
    assert main(command) == 0 and "gamma = 0.98" in capsys.readouterr().out
    for text, why in (
        ("[pppo.A]", "did you mean 'ppo'"),
        ("[ppo.A]\nlike = 'B'", "like='B' is no table"),
        ("[ppo]\nA = 3", "a table of settings"),
        ("[ppo", "cannot be read"),
    ):
        own.write_text(text)
        assert main([*command, "--zoo", str(own)]) == 2 and why in capsys.readouterr().err
        assert main(command) == 0
