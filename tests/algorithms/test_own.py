"""Algorithms of a program's own: trained, kept, resumed, sent to processes, named in commands."""

import json
import sys
import types
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem import cli, extending, trainer
from tandem.algorithms import FOR_CHOICES, NAMES, get, own
from tandem.algorithms.base import Algorithm
from tandem.algorithms.on_policy import OnPolicy, OnPolicySettings
from tandem.cli.seeds_command import SeedsCommand
from tandem.errors import CheckpointError, ResumeError, SettingError, SpaceError, UnknownNameError
from tandem.extending import ReplaySettings, RolloutSettings, SequenceSettings, Settings, setting
from tandem.learning.compiled import choice
from tandem.learning.config import Options
from tandem.runs import checkpoint
from tandem.runs.folder import Run, describe
from tandem.runs.trust import Names
from tandem.runs.verification import verify
from tandem.spaces import Leaf
from tandem.testing import fakes
from tests.advice.net import follows
from tests.algorithms.own_classes import Asynchronous, Other, Penalised, Replayed, reinforce
from tests.helpers import COMPILED_LIGHTLY, ROOT, run_python
from tests.test_trainer import SMALL, TINY_DQN

MINE = "tests.algorithms.own_classes:Penalised"
FLAGS = [
    *("--framework", "torch", "--steps", "64", "--envs", "2", "--rollout", "16", "--epochs", "1"),
    *("--batch-size", "16", "--hidden", "8", "--eval-episodes", "0", "--final-episodes", "1"),
    *("--no-plots", "--no-tensorboard", "--eval-max-steps", "20", "--quiet"),
]
NEEDS, ACTS = {"needs": "transitions"}, {"acting": ("net",)}
UPDATES = {"update": lambda self, b: None}
PREPARES = {"prepare": lambda self, trajectory, networks: None}
MADE = {"__init__": lambda self, backend, networks, observation, action, settings: None}
REPLAY = {"Settings": ReplaySettings}


def trained(kind: Any = Penalised, env: str = "CartPole-v1", steps: int = 64, **given: Any) -> Any:
    return tandem.train(kind, env, framework="torch", steps=steps, **{**SMALL, **given})


def fingerprints(folder: Path) -> list[str]:
    return Run(folder).table["fingerprint"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    trained(out=tmp_path / "run", stop_at=32, penalty=0.5)
    return tmp_path / "run"


# Names


def test_a_class_of_ours_is_its_name() -> None:
    from tandem.algorithms.maddpg import DiscreteMADDPG
    from tandem.algorithms.sac_discrete import DiscreteSAC

    for name in NAMES:
        assert own.name_of(get(name)) == own.name_of(name) == name
        assert own.checked(get(name)) is own.checked(name) is get(name)
    assert [own.name_of(kind) for kind in (DiscreteMADDPG, DiscreteSAC)] == ["maddpg", "sac"]
    assert len(FOR_CHOICES) == 2


def test_titles_have_the_names_that_people_use(run: Path) -> None:
    titles = {"crossq": "CrossQ", "ppo": "PPO", "maze_pg": "MAZE_PG", "my.module:MyDQN": "MyDQN"}
    for name, title in titles.items():
        config = {"algorithm": name, "env": "CartPole-v1"}
        shown = describe(Run.of(run, config, {}), ("algorithm", "env"))
        assert shown == f"{title}, CartPole-v1"


@pytest.mark.parametrize(
    ("name", "action", "given"),
    [
        ("sac", fakes.DISCRETE, {"action_noise": "gsde"}),
        ("nstep_q", Leaf("multibinary", (2,), "int8"), {}),
        ("maddpg", fakes.TEAM_DISCRETE, {}),
    ],
)
def test_errors_call_algorithms_as_users_do(name: str, action: Any, given: Any) -> None:
    kind = get(name, action)
    with pytest.raises(SpaceError) as caught:
        kind.check(fakes.VECTOR, action, replace(kind.Settings(), **given))
    assert caught.value.happened.startswith(f"{name} "), caught.value


def test_a_class_of_the_same_name_as_ours_is_another_one() -> None:
    class PPO(Other):
        pass

    assert own.name_of(PPO).startswith(f"{__name__}:") and not own.is_known(own.name_of(PPO))
    assert trained(PPO).summary["algorithm"] == own.name_of(PPO)


def test_our_class_trains_what_its_name_trains(tmp_path: Path) -> None:
    trained("ppo", out=tmp_path / "name")
    trained(get("ppo"), out=tmp_path / "class")
    assert fingerprints(tmp_path / "name") == fingerprints(tmp_path / "class")
    given = {**TINY_DQN, "steps": 40, "framework": "torch"}
    assert tandem.train(get("dqn"), "CartPole-v1", **given).summary["algorithm"] == "dqn"


# Runs


def test_it_has_settings_of_its_own() -> None:
    session = trainer.session(Penalised, "CartPole-v1", framework="torch", **SMALL, penalty="0.25")
    assert session.config.settings.penalty == session.algorithm.settings.penalty == 0.25
    assert session.config.source == f"defaults of {MINE}", "the zoo's are of tandem's own"
    with pytest.raises(UnknownNameError, match="penalty"):
        trained(penalti=0.1)
    with pytest.raises(SettingError, match="at least 0"):
        trained(penalty=-1)


def test_its_loss_is_what_is_learned_from(tmp_path: Path) -> None:
    trained(Other, out=tmp_path / "ppo")
    trained(penalty=0.0, out=tmp_path / "none")
    trained(penalty=1.0, out=tmp_path / "some")
    ppo, none, some = (fingerprints(tmp_path / n) for n in ("ppo", "none", "some"))
    assert ppo == none != some


def test_its_run_is_resumed_exactly(run: Path, tmp_path: Path) -> None:
    trained(out=tmp_path / "whole", penalty=0.5)
    with pytest.raises(ResumeError, match="code is not saved") as caught:
        tandem.train(resume=run)
    assert f"tandem train MODULE:Penalised --resume {run}" in caught.value.fix
    result = eval(caught.value.fix.partition(" (")[0].partition("then ")[2], globals())
    assert result.summary["env_steps"] == 64
    assert fingerprints(run)[-1] == fingerprints(tmp_path / "whole")[-1]
    assert verify(run, algorithm=Penalised).difference is None
    with pytest.raises(ResumeError, match="code is not saved"):
        verify(run)


def test_its_agent_is_loaded_and_scored(run: Path) -> None:
    with pytest.raises(CheckpointError, match="code is not saved") as caught:
        tandem.load(run)
    agent = eval(caught.value.fix.partition(" (")[0].partition("then ")[2], globals())
    assert agent.algorithm is Penalised and agent.settings.penalty == 0.5
    first, again = (tandem.evaluate(agent, "CartPole-v1", 2, max_steps=20) for _ in range(2))
    assert first == again
    done = tandem.export(run, run / "agent.npz", algorithm=Penalised)
    assert done.file.is_file()


@pytest.mark.parametrize("given", [Other, get("ppo")])
def test_another_class_is_not_taken_for_it(run: Path, given: Any) -> None:
    with pytest.raises(CheckpointError, match=f"not by {own.name_of(given)}"):
        tandem.load(run, algorithm=given)
    with pytest.raises(ResumeError, match=f"not by {own.name_of(given)}"):
        tandem.train(given, resume=run)


def test_what_ours_trained_needs_no_class(tmp_path: Path) -> None:
    trained("ppo", out=tmp_path / "run", stop_at=32)
    with pytest.raises(CheckpointError, match="leave the algorithm out"):
        tandem.load(tmp_path / "run", algorithm=Penalised)
    assert tandem.load(tmp_path / "run", algorithm=get("ppo")).algorithm is get("ppo")
    assert tandem.train(get("ppo"), resume=tmp_path / "run").reason == "steps"


def test_a_class_that_moved_to_another_module_is_the_same(run: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Penalised, "__module__", "elsewhere")
    assert tandem.load(run, algorithm=Penalised).settings.penalty == 0.5
    assert tandem.train(Penalised, resume=run).summary["algorithm"] == "elsewhere:Penalised"


def test_no_name_in_a_file_is_imported(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trap.py").write_text("raise AssertionError('imported')")
    file = checkpoint.find(run)
    saved = checkpoint.read(file)
    config = saved.data["config"] | {"algorithm": "trap:Penalised"}
    groups = {"networks": saved.group("networks")}
    checkpoint.write(file, saved.data | {"config": config}, groups)
    with pytest.raises(CheckpointError, match="trained by trap:Penalised"):
        tandem.load(run)
    for command in ("evaluate", "watch", "export"):
        more = ["--to", "numpy"] if command == "export" else []
        assert cli.main([command, str(run), *more]) != 0
    assert "trap" not in sys.modules


@pytest.mark.parametrize(
    "kind, given", [(Replayed, TINY_DQN), (Asynchronous, {"envs": 2, "rollout": 5, "hidden": (8,)})]
)
def test_each_way_to_learn_takes_them(kind: Any, given: Any, tmp_path: Path) -> None:
    quiet = {"plots": False, "tensorboard": False, "eval_episodes": 0, "eval_max_steps": 20}
    for name, stop_at in (("whole", None), ("parts", 60)):
        more = {**quiet, **given, "final_episodes": 1, "out": tmp_path / name}
        tandem.train(kind, "CartPole-v1", framework="torch", steps=120, stop_at=stop_at, **more)
    tandem.train(kind, resume=tmp_path / "parts")
    assert fingerprints(tmp_path / "whole")[-1] == fingerprints(tmp_path / "parts")[-1]


PROGRAM = """
    from __future__ import annotations
    import json, sys
    from dataclasses import dataclass
    import tandem
    from tandem.algorithms.a3c import A3C
    from tandem.algorithms.ppo import PPO, PPOSettings
    from tandem.extending import Schedule, setting

    @dataclass(frozen=True)
    class MineSettings(PPOSettings):
        penalty: Schedule = setting(Schedule(0.5), "weight of the square of values", minimum=0)

    class Mine(PPO):
        Settings = MineSettings

        def schedule(self, call):
            return super().schedule(call) | self.scheduled(call, "penalty")

        def loss(self, b):
            loss, aux = super().loss(b)
            return loss + b.settings["penalty"] * self.outputs(b)[1] ** 2, aux

    def local():
        class Asynchronous(A3C):
            pass
        return Asynchronous

    sizes = {"envs": 2, "rollout": 16, "batch_size": 16, "epochs": 1}
    quiet = {"plots": False, "tensorboard": False, "eval_episodes": 0, "progress": False}
    small = {**quiet, "framework": "torch", "final_episodes": 1, "eval_max_steps": 20}
    small["hidden"] = (8,)
    name = sys.argv[1]
    if name != "others":
        more = {name: int(sys.argv[2])}
        result = tandem.train(Mine, "CartPole-v1", **small, **sizes, steps=64, **more)
        print(json.dumps([result.summary["algorithm"], result.summary["updates"]]))
        sys.exit()
    result = tandem.train(local(), "CartPole-v1", **small, envs=1, rollout=5, steps=60, learners=2)
    print(json.dumps([result.summary["algorithm"], result.summary["env_steps"] >= 60]))
    given = {"points": 2, "processes": 1, "framework": "torch", "steps": 64}
    found = tandem.find_lr(Mine, "CartPole-v1", **given, **sizes)
    print(json.dumps([found.best.candidate.algorithm, len(found.trials)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, number", [("workers", "1"), pytest.param("devices", "2", marks=pytest.mark.thorough)]
)
def test_the_class_of_a_script_goes_to_other_processes(name: str, number: str) -> None:
    assert run_python(PROGRAM, name, number) == [["__main__:Mine", 4]]


@pytest.mark.slow
@pytest.mark.thorough
def test_the_class_of_a_function_goes_to_learners_and_trials() -> None:
    assert run_python(PROGRAM, "others") == [
        ["__main__:local.<locals>.Asynchronous", True],
        ["__main__:Mine", 2],
    ]


@pytest.mark.slow
@pytest.mark.thorough  # on torch the page itself runs
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_the_pages_algorithm_learns_on_each_engine(engine: Any, tmp_path: Path) -> None:
    code = """
    import json, sys
    sys.path.insert(0, sys.argv[1])
    from reinforce import Reinforce
    from tandem.testing import contracts
    from tandem.testing.environments import Identity

    engine = sys.argv[2]
    small = {"envs": 4, "rollout": 16, "hidden": (16,)}
    loop = contracts.solves(Reinforce, Identity, engine, steps=6_000, **small)
    contracts.resumes(Reinforce, Identity, engine, updates=3, steps=1_024, **small)
    if engine == "jax":  # compiled, where that is asked for, and only there
        import tandem

        quiet = {"eval_episodes": 0, "final_episodes": 1, "plots": False, "framework": "jax"}
        for mode in ("compiled", "auto"):
            session = tandem.session(
                Reinforce, "tandem/CartPole-v1", vectorization=mode, steps=256, **quiet, **small
            )
            list(session.events(128))
            name = type(session.loop).__name__
            assert (name == "CompiledLoop") == (mode == "compiled"), name
    print(json.dumps(loop.learner.updates))
    """
    reinforce(tmp_path)
    steps = run_python(code, str(tmp_path), engine, engine=engine, env=COMPILED_LIGHTLY)
    assert steps == [6_000 // 64 + 1]


# Commands


def test_commands_name_it_by_its_module(tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "run")
    train = ["train", "--penalty", "0.5", MINE, "CartPole-v1", "--stop-at", "32", *FLAGS]
    assert cli.main([*train, "--out", out]) == 0
    assert f"tandem watch {out} --algorithm {MINE}" in (said := capsys.readouterr().out)
    assert f"tandem train {MINE} --resume {out}" in said
    assert cli.main(["train", "--resume", out, "--quiet"]) == 2
    assert cli.main(["train", MINE, "--resume", out, "--quiet"]) == 0
    assert tandem.load(out, algorithm=Penalised, which="last").settings.penalty == 0.5
    scored = ["evaluate", out, "--episodes", "1", "--max-steps", "10"]
    for words in (scored, ["export", out, "--to", "numpy"], ["verify", out, "--quiet"]):
        assert cli.main(words) in (1, 2)
        assert cli.main([*words, "--algorithm", MINE]) == 0
    capsys.readouterr()
    assert cli.main(["train", MINE, "CartPole-v1", "--penalti", "1"]) == 2
    assert "--penalty" in capsys.readouterr().err
    assert cli.main(["train", MINE, "--help", "settings"]) == 0
    assert "weight of the square of values" in capsys.readouterr().out


def test_several_seeds_of_it_go_on_by_its_name(tmp_path: Path, capsys: Any) -> None:
    command = [MINE, "CartPole-v1", *FLAGS]
    (tmp_path / "seeds.json").write_text(json.dumps({"command": command, "seeds": [0]}))
    assert cli.main(["train", "--resume", str(tmp_path)]) == 2
    assert f"tandem train {MINE} --resume {tmp_path}" in capsys.readouterr().err
    kept = SeedsCommand(command, [0], tmp_path)
    with follows("cli/seeds_command.py:SeedsCommand.vouched") as advice:
        kept.vouched(Names(trust=True), ["--stop-at", "32"])
    kept.vouched(Names(trust=True), advice.fix.split()[2:])


# What is wrong with a class


class Whole(Algorithm):
    """One that lacks nothing, and does nothing."""

    Settings = ReplaySettings
    needs = "transitions"
    acting = ("net",)

    def __init__(self, *given: Any) -> None:
        pass

    check = update = schedule = lambda *given: None  # type: ignore[assignment]
    roles = classmethod(lambda *given: {"net": None})  # type: ignore[assignment]


def test_nothing_keeps_a_class_without_settings_of_normalization_from_being_compiled() -> None:
    assert list(choice.obstacles(Whole, Whole.Settings(), Options())) == []


def owning(hint: Any, value: Any, name: str = "own", dataclass_too: bool = True) -> dict[str, Any]:
    """Settings with a field of that hint and default."""
    fields = {"__annotations__": {name: hint}, "__module__": __name__, name: value}
    kind = type("Own", (ReplaySettings,), fields)
    return {"Settings": dataclass(frozen=True)(kind) if dataclass_too else kind}


def without(name: str) -> type:
    return type("Lacking", (Algorithm,), {n: x for n, x in vars(Whole).items() if n != name})


@pytest.mark.parametrize(
    "faulty, says, then",
    [
        (without("update"), "has no update", UPDATES),
        (OnPolicy, "has no update", {**UPDATES, "Settings": OnPolicySettings}),
        ({"needs": "steps"}, "needs = 'steps'", NEEDS),
        (without("needs"), "needs = None", NEEDS),
        ({"acting": "net"}, "acting = 'net'", ACTS),
        ({"acting": ()}, r"acting = \(\)", ACTS),
        ({"needs": "rollouts", "Settings": RolloutSettings}, "no prepare", PREPARES),
        ({"__init__": lambda self: None}, "cannot be created", MADE),
        ({"Settings": Settings}, "Settings = Settings", REPLAY),
        ({"Settings": SequenceSettings}, "SequenceSettings", REPLAY),
        ({"Settings": int}, "Settings = int", REPLAY),
        (without("Settings"), "Settings = None", REPLAY),
        (owning(float, 1.0, dataclass_too=False), "not fields: own", owning(float, 1.0)),
        (owning("Undefined", 1.0), "of unknown type", owning("float", 1.0)),
        (owning(list, field(default_factory=list)), "without a default", owning(float, 1.0)),
        (owning(dict, 3), "of type <class 'dict'>", owning(int | str, 3)),
        (owning(int, 3, "keep"), "'keep', which is an argument", owning(int, 3, "own_keep")),
        (owning(str, "", "env"), "'env', which is an argument", owning(str, "", "own_env")),
    ],
)
def test_a_fault_of_a_class_is_told_before_anything_runs(faulty: Any, says: str, then: Any) -> None:
    kind = faulty if isinstance(faulty, type) else type("Odd", (Whole,), faulty)
    with follows("algorithms/own.py:checked 3") as advice:
        trainer.session(kind, "CartPole-v1", framework="torch")
    assert advice.error.happened.startswith(f"{kind.__name__} ")
    assert "docs/advanced/extending.md" in advice.fix
    with pytest.raises(SettingError, match=says):
        own.checked(kind, trainer.TAKEN)
    own.checked(type("Mended", (kind,), then), trainer.TAKEN)


def test_what_is_no_algorithm_is_refused() -> None:
    with follows("algorithms/own.py:checked 2") as advice:
        tandem.train(dict, "CartPole-v1")  # type: ignore[arg-type]
    assert "class dict(tandem.Algorithm)" in advice.fix and tandem.Algorithm is Algorithm
    with follows("algorithms/own.py:checked") as advice:
        trainer.session(Whole(), "CartPole-v1")  # type: ignore[arg-type]
    assert advice.fix == "give Whole itself."
    assert own.checked(Whole) is Whole
    with follows("algorithms/__init__.py:get") as advice:
        trainer.session(MINE, "CartPole-v1")
    assert advice.fix.startswith("import the class")
    trainer.session(Penalised, "CartPole-v1", framework="torch", **SMALL)


def test_roles_that_it_acts_by_are_roles_that_it_has() -> None:
    class Lost(Penalised):
        acting = ("net",)

    class Found(Lost):
        acting = ("actor",)

    with follows("algorithms/own.py:check_roles") as advice:
        trained(Lost)
    assert "acting = ('actor',)" in advice.fix
    trained(Found)


def test_a_class_that_is_not_there_is_answered_with_those_that_are() -> None:
    with follows("settings.py:named_here") as advice:
        own.named("tests.algorithms.own_classes:Penalized")
    assert own.named(advice.quoted()) is Penalised
    with pytest.raises(UnknownNameError, match="MODULE:CLASS"):
        own.named("no_such_module_anywhere:Mine")


def test_a_loss_that_mixes_its_rows_up_is_told_of() -> None:
    class Wide(Penalised):
        def loss(self, b: Any) -> Any:
            loss, aux = super().loss(b)
            return loss[:, None], aux

    with pytest.raises(ValueError, match=r"shape \(16, 1\) for 16 samples"):
        trained(Wide)


def test_an_algorithm_of_one_optimizer_has_none_to_choose() -> None:
    class Single(Whole):
        Settings = RolloutSettings
        needs = "rollouts"

        def prepare(self, trajectory: Any, networks: Any) -> Any:
            return None

    with follows("tuning/search.py:find_optimizer") as advice:
        tandem.find_optimizer(Single, "CartPole-v1")
    assert "find_lr" in advice.fix


def test_launched_processes_refuse_it(monkeypatch: Any) -> None:
    from tandem.learning.launch import check_launched

    conf = trainer.session(Penalised, "CartPole-v1", framework="torch", **SMALL).config
    with pytest.raises(SettingError, match="custom algorithms"):
        check_launched(conf, 1)


def test_plain_fields_are_settings_too() -> None:
    @dataclass(frozen=True)
    class Plain(Penalised.Settings):
        bias: float = 0.25

    class Biased(Penalised):
        Settings = Plain

    assert trained(Biased, bias=0.5).agent.settings.bias == 0.5
    with pytest.raises(SettingError, match="try bias=0.25"):
        trained(Biased, bias="much")


def test_every_public_name_is_there() -> None:
    assert all(hasattr(extending, name) for name in extending.__all__)
    assert setting and (ROOT / "docs" / "advanced" / "extending.md").is_file()


# Settings that its base class has


@pytest.fixture
def page_s(tmp_path: Path) -> Any:
    """The class that docs/advanced/extending.md writes."""
    reinforce(tmp_path)
    module = types.ModuleType("reinforce")
    sys.modules["reinforce"] = module  # where its dataclass looks for its annotations
    exec((tmp_path / "reinforce.py").read_text("utf-8"), module.__dict__)
    return module.Reinforce


def short(kind: Any, **given: Any) -> Any:
    sizes = {"steps": 64, "rollout": 16, "envs": 2, "hidden": (8,), "final_episodes": 1}
    quiet = {"eval_episodes": 0, "plots": False, "tensorboard": False, "framework": "torch"}
    return tandem.train(kind, "CartPole-v1", **sizes, **quiet, **given)


@pytest.mark.parametrize(
    "given",
    [{"body": "simba"}, {"layer_norm": True}, {"weight_norm": True}, {"weight_decay": 0.1}],
    ids=str,
)
def test_settings_of_networks_are_those_of_the_page_too(given, page_s, tmp_path) -> None:
    short(page_s, out=tmp_path / "a")
    short(page_s, out=tmp_path / "b", **given)
    assert fingerprints(tmp_path / "a")[-1] != fingerprints(tmp_path / "b")[-1]


@pytest.mark.parametrize("given", [{"body": "simba"}, {"layer_norm": True}], ids=str)
def test_settings_that_its_networks_have_nothing_of_are_refused(given, page_s) -> None:
    class Plain(page_s):
        @classmethod
        def roles(cls, observation: Any, action: Any, settings: Any) -> Any:
            layers = extending.mlp(observation, settings.hidden, settings.activation)
            heads = {"policy": extending.Dense(0, action.width), "value": extending.Dense(0, 1)}
            return {n: extending.Role(observation, layers, (x,)) for n, x in heads.items()}

    (name,) = given
    with follows("algorithms/bodies.py:refuse_ignored") as advice:
        short(Plain, **given)
    assert f"leave {name} out" in advice.fix
    short(Plain)
