"""What installed packages add: found, used as if it were tandem's, refused where it is broken."""

import json
import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import tandem
from tandem import algorithms, errors, plugins, trainer, zoo
from tandem.algorithms import own
from tandem.cli import main
from tandem.envs import ids
from tandem.envs.factory import make as make_env
from tandem.errors import CheckpointError, PluginError, ResumeError, SettingError, UnknownNameError
from tandem.runs import config_file, plugin_writers
from tandem.runs.folder import Run
from tandem.zoo import files
from tests.advice.net import follows
from tests.helpers import ROOT, run_python
from tests.installing import describe, install, path_with
from tests.pages import blocks
from tests.runs.shared import edit_index

GOOD, BROKEN = ROOT / "tests" / "plugin_package", ROOT / "tests" / "broken_package"
SMALL = ["--framework", "torch", "--quiet", "--eval-episodes", "1", "--final-episodes", "1"]
SMALL += ["--no-plots", "--no-tensorboard"]
FAST: dict[str, Any] = {"framework": "torch", "eval_episodes": 0, "final_episodes": 1}
FAST |= {"plots": False, "tensorboard": False}


def forget() -> None:
    """Has everything looked up again."""
    for cached in (plugins._all_points, plugins.found, files.read, zoo.entries, zoo.families):
        cached.cache_clear()
    ids._registrations.clear()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with the packages installed, by "good" and "broken"."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("good", "broken")}
    install(GOOD, folders["good"])
    install(BROKEN, folders["broken"])
    return folders


@pytest.fixture
def forgotten() -> Iterator[None]:
    before = dict(gymnasium.registry)
    forget()
    yield
    forget()
    for name in [n for n in sys.modules if n.partition(".")[0] in ("tandem_maze", "tandem_broken")]:
        del sys.modules[name]
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def see(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this process, and those that it starts, find what is installed in `folder`."""
    monkeypatch.syspath_prepend(folder)
    there = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", str(ROOT / "src"))])
    monkeypatch.setenv("PYTHONPATH", there)
    forget()


@pytest.fixture
def maze(forgotten: None, packages: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """tandem-maze is installed."""
    see(packages["good"], monkeypatch)
    return packages["good"]


@pytest.fixture
def broken(maze: Path, packages: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    see(packages["broken"], monkeypatch)
    return packages["broken"]


def shown(capsys: pytest.CaptureFixture[str], words: str, *more: str, code: int = 0) -> str:
    """What a command prints, on stdout or, where it fails, on stderr."""
    capsys.readouterr()
    assert main([*words.split(), *more]) == code
    printed = capsys.readouterr()
    return printed.err if code else printed.out


def fingerprints(folder: Path) -> list[str]:
    return Run(folder).table["fingerprint"]


def imported(name: str) -> list[str]:
    return [module for module in sys.modules if module.startswith(name)]


def test_help_reads_no_metadata(packages: dict[str, Path]) -> None:
    code = """
        import json, sys, time
        began = time.perf_counter()
        import tandem
        from tandem.cli import main
        sys.stdout, out = open("/dev/null", "w"), sys.stdout
        main(["--help"])
        took = time.perf_counter() - began
        names = ("importlib.metadata", "tandem.plugins", "tandem_maze")
        read = [name for name in names if name in sys.modules]
        print(json.dumps([read, took]), file=out)
    """
    ran = [run_python(code, env=path_with(packages["good"]))[0] for _ in range(3)]
    assert ran[0][0] == [] and min(took for _, took in ran) < 0.3


def test_metadata_is_read_once_and_imports_nothing(maze: Path, monkeypatch: Any) -> None:
    assert algorithms.names() == (*algorithms.NAMES, "maze_pg")
    assert zoo.entries("maze_pg") and zoo.families()["Mazes"] == ("maze/*",)
    monkeypatch.setattr(plugins, "entry_points", lambda: pytest.fail("read again"))
    assert "maze_pg" in algorithms.names() and own.is_known("maze_pg")
    assert trainer.session("a2c", "CartPole-v1", steps=8, **FAST).config.algorithm == "a2c"
    assert not imported("tandem_maze") and "maze/Corridor-v0" not in gymnasium.registry


def test_the_library_asks_for_all_names() -> None:
    """`NAMES` are tandem's own: what users may name is `names()`."""
    readers = {
        path.relative_to(ROOT / "src" / "tandem").as_posix()
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"algorithms(\.| import .*\b)NAMES\b", path.read_text(encoding="utf-8"))
    }
    # to tell tandem's own from others
    assert readers == {"algorithms/own.py", "cli/catalogue.py"}


def test_list_and_help_have_what_it_brings(maze: Path, capsys: Any) -> None:
    printed = shown(capsys, "list")
    for line in (
        "algorithm maze_pg: A2C with a penalty on large values (tandem-maze 1.2.0)",
        "environments maze/Corridor-v0, maze/Long-v0 (tandem-maze 1.2.0)",
        "writer lines: --writer lines (tandem-maze 1.2.0)",
        "settings of maze_pg, ppo (tandem-maze 1.2.0)",
    ):
        assert line in printed
    assert "unusable" not in printed
    printed = shown(capsys, "list maze_pg")
    assert "maze/Corridor-v0" in printed and "for --entry: wide" in printed
    assert re.search(r"Mazes +maze/\*", shown(capsys, "list ppo"))
    for command in ("train", "config", "sweep", "find lr"):
        assert "maze_pg" in " ".join(shown(capsys, f"{command} --help all").split())
    printed = " ".join(shown(capsys, "train maze_pg maze/Corridor-v0 --help all").split())
    printed = printed.replace("- ", "-")  # where a line was broken
    assert "settings of maze_pg" in printed and "--penalty X" in printed
    assert "weight of the square of values [here 0.002: tandem-maze's own trials;" in printed


def test_errors_have_it_among_what_is_known(maze: Path, capsys: Any) -> None:
    for words, known in (
        ("train maze_pq CartPole-v1", "did you mean 'maze_pg'"),
        ("config maze_pq CartPole-v1", "did you mean 'maze_pg'"),
        ("sweep maze_pq CartPole-v1", "did you mean 'maze_pg'"),
        ("find lr maze_pq CartPole-v1", "did you mean 'maze_pg'"),
        ("train ppo maze/Coridor-v0", "'maze/Corridor-v0'"),
        ("train ppo CartPole-v1 --writer line", "'lines'"),
        ("train CartPole-v1 maze_pg", "tandem train maze_pg CartPole-v1"),
        (f"train maze_pg CartPole-v1 --penalty -1 {' '.join(SMALL)}", "at least 0"),
    ):
        assert known in shown(capsys, words, code=2)
    for door in (tandem.make_trainer, tandem.make_evaluator):
        with pytest.raises(UnknownNameError, match="maze_pg"):
            door("maze_pq")
    assert "maze_pg" in shown(capsys, "check Pendulum-v1 --steps 20"), "it has its own refusals"


@pytest.mark.slow
def test_a_run_from_its_command_to_its_report(maze: Path, tmp_path: Path, capsys: Any) -> None:
    """Algorithm, environment, settings and writer of a package; workers; stopped and resumed."""
    asked = "train maze_pg maze/Corridor-v0 --penalty 0.5 --writer lines"
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    shown(capsys, asked, *SMALL, "--out", str(whole))
    shown(capsys, f"{asked} --workers 2 --stop-at 256", *SMALL, "--out", str(halves))
    printed = shown(capsys, f"train --resume {halves} --quiet")
    assert f"tandem evaluate {halves} --episodes 100\n" in printed, "no --algorithm is needed"
    assert fingerprints(whole) == fingerprints(halves)

    conf = Run(halves).config
    assert (conf["algorithm"], conf["source"]) == ("maze_pg", "tandem-maze's own trials")
    assert conf["settings"]["penalty"] == 0.5 and conf["settings"]["hidden"] == [16]
    assert conf["options"]["writer"] == ["lines"] and conf["versions"]["tandem-maze"] == "1.2.0"
    lines = (halves / "lines.jsonl").read_text(encoding="utf-8").splitlines()
    first, *rows = map(json.loads, lines)
    written = [r["fingerprint"] for r in rows if r["env_steps"] >= 0]
    assert first == {"algorithm": "maze_pg"} and written == fingerprints(whole)
    assert rows[-1] == {"env_steps": -1}, "it was closed"

    assert "return " in shown(capsys, f"evaluate {halves} --episodes 2")
    assert "equal: " in shown(capsys, f"verify {whole} --steps 128 --quiet")
    shown(capsys, f"report {halves}")
    report = (halves / "report.html").read_text(encoding="utf-8")
    assert "tandem train maze_pg maze/Corridor-v0 --framework torch --penalty 0.5" in report
    assert "--writer lines" in report and "weight of the square of values" in report
    assert "wrote" in shown(capsys, f"export {halves} --to numpy")
    assert "a.gif" in shown(capsys, f"watch {halves} --out {tmp_path / 'a.gif'}")
    few = "maze_pg maze/Corridor-v0 --steps 64 --framework torch --penalty 0.1 --out"
    found = shown(capsys, f"find lr {few} {tmp_path / 'find'} --points 2 --processes 1")
    assert "tandem train maze_pg maze/Corridor-v0" in found and "--penalty 0.1" in found


def test_it_is_trained_by_a_program(maze: Path, tmp_path: Path) -> None:
    from_name = tandem.train("maze_pg", "maze/Corridor-v0", steps=64, out=tmp_path / "a", **FAST)
    kind = algorithms.get("maze_pg")
    assert own.name_of(kind) == from_name.summary["algorithm"] == "maze_pg"
    tandem.train(kind, "maze/Corridor-v0", steps=64, out=tmp_path / "b", **FAST)
    assert fingerprints(tmp_path / "a") == fingerprints(tmp_path / "b")
    for agent in (tandem.load(tmp_path / "a"), tandem.load(tmp_path / "b", algorithm=kind)):
        assert tandem.evaluate(agent, "maze/Corridor-v0", episodes=1).mean <= 1
    assert "writer" not in vars(tandem) and errors.PluginError is PluginError
    tandem.train(resume=tmp_path / "a", steps=96, extend=True)
    assert tandem.make_trainer("maze_pg", penalty=0.1).settings()["penalty"] == 0.1
    with pytest.raises(SettingError, match="at least 0"):
        tandem.train("maze_pg", "maze/Corridor-v0", penalty=-1, **FAST)
    with pytest.raises(UnknownNameError, match="penalty"):
        tandem.train("maze_pg", "maze/Corridor-v0", penalti=1, **FAST)


def test_environments_are_registered_at_look_up(maze, tmp_path, monkeypatch, capsys: Any) -> None:
    """By the function of an entry point, or by its module."""
    assert trainer.session("a2c", "maze/Long", steps=8, **FAST).config.env == "maze/Long-v0"
    assert "maze_pg" in shown(capsys, "check maze/Corridor-v0 --steps 20")
    imports = "import gymnasium\nfrom tandem_maze.environments import Corridor\n"
    registers = "gymnasium.register('Alone-v0', Corridor, max_episode_steps=9)\n"
    (tmp_path / "registers_itself.py").write_text(imports + registers)
    added(tmp_path, "tandem-alone", {"environments": {"alone": "registers_itself"}})
    see(tmp_path, monkeypatch)
    assert trainer.session("a2c", "Alone", steps=8, **FAST).config.env == "Alone-v0"
    assert "environments Alone-v0 (tandem-alone 1.0)" in shown(capsys, "list")
    del sys.modules["registers_itself"]


def test_settings_of_a_package(maze: Path) -> None:
    assert zoo.resolve("maze_pg", "maze/Corridor-v0", {})[0].penalty == 0.002
    wide = zoo.resolve("maze_pg", "maze/Corridor-v0", {"entry": "wide"})[0]
    assert (wide.hidden, wide.penalty) == ((32,), 0.002), "the rest is like the other"
    # of a built-in algorithm, for a family, like a table of tandem's
    chosen, _, source, _ = zoo.resolve("ppo", "maze/Corridor-v0", {})
    assert (chosen.gamma, source) == (0.91, "tandem-maze's own trials of PPO")
    assert chosen.rollout == zoo.resolve("ppo", "CartPole-v1", {})[0].rollout
    assert zoo.resolve("ppo", "CartPole-v1", {"entry": "maze"})[0].gamma == 0.92
    assert zoo.resolve("ppo", "CartPole-v1", {})[2] != source
    assert zoo.environments("maze_pg") == ["maze/Corridor-v0"]
    with pytest.raises(UnknownNameError, match="'wide'"):
        zoo.resolve("maze_pg", "maze/Corridor-v0", {"entry": "wid"})


def test_config_writes_them_and_train_reads_them(maze: Path, tmp_path: Path, capsys: Any) -> None:
    file, out = tmp_path / "a.toml", tmp_path / "run"
    shown(capsys, f"config maze_pg maze/Corridor-v0 --writer lines --out {file}")
    text = file.read_text(encoding="utf-8")
    assert 'writer = ["lines"]' in text and "penalty = 0.002" in text
    asked = f"train --config {file} --penalty 0.3 --steps 64 --out {out}"
    shown(capsys, asked, *SMALL)
    conf = Run(out).config
    assert conf["algorithm"] == "maze_pg" and conf["settings"]["penalty"] == 0.3
    assert (out / "lines.jsonl").is_file()
    again = f"train --config={out / 'config.json'} --penalty 0.4 --quiet"
    shown(capsys, again, "--out", str(tmp_path / "again"))
    assert Run(tmp_path / "again").config["settings"]["penalty"] == 0.4


def tuned(folder: Path, file: str, text: str, point: str = "odd") -> None:
    """A package that brings this file of settings."""
    (folder / "tuned").mkdir(parents=True)
    (folder / "tuned" / file).write_text(text)
    added(folder, f"tandem-{point}", {"zoo": {point: "tuned"}})


def test_a_package_may_tune_the_algorithm_of_another(
    maze: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    assert make_env("maze/Long-v0") and ids.origin("maze/Long-v0") == {"env": "tandem-maze 1.2.0"}
    assert ids.origin("CartPole-v1") == {}
    kind = {"algorithms": {"bare": "tandem_maze.algorithm:MazePG"}}
    added(tmp_path / "bare", "tandem-bare", kind)
    see(tmp_path / "bare", monkeypatch)
    text = '["maze/Long-v0"]\nsource = "a sweep"\npenalty = 0.25\n'
    tuned(tmp_path / "zooed", "bare.toml", text, "bare-zoo")
    see(tmp_path / "zooed", monkeypatch)
    assert zoo.resolve("bare", "maze/Long-v0", {})[0].penalty == 0.25


def test_a_writer_takes_text_and_is_asked_for_once(maze: Path, tmp_path: Path, capsys: Any) -> None:
    given = {**FAST, "steps": 40}
    tandem.train("a2c", "CartPole-v1", writer="lines=mine.jsonl", out=tmp_path / "a", **given)
    assert (tmp_path / "a" / "mine.jsonl").is_file()
    with pytest.raises(SettingError, match="2 times"):
        tandem.train("a2c", "CartPole-v1", writer=("lines", "lines"), out=tmp_path / "b", **given)
    with pytest.raises(SettingError, match="without a folder"):
        tandem.train("a2c", "CartPole-v1", writer="lines", **given)
    for ours, fix in (("wandb", "--wandb PROJECT"), ("tensorboard", "leave it out")):
        with pytest.raises(UnknownNameError, match=fix):
            tandem.train("a2c", "CartPole-v1", writer=ours, out=tmp_path / "c", **given)
    assert not (tmp_path / "b").exists() and not (tmp_path / "c").exists()


def test_the_advice_about_writers_is_followed(broken: Path) -> None:
    with follows("runs/plugin_writers.py:_maker") as advice:
        plugin_writers.check(["line"])
    plugin_writers.check([advice.quoted()])
    with follows("runs/plugin_writers.py:_maker 2") as advice:
        plugin_writers.check(["failing=text"])
    assert "give --writer failing," in advice.fix
    plugin_writers.check(["failing"])
    with follows("runs/plugin_writers.py:check") as advice:
        plugin_writers.check(["lines", "failing", "lines"])
    assert "leave one --writer lines out" in advice.fix
    plugin_writers.check(["failing", "lines"])


def uninstall(maze: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(maze)])
    forget()


def test_a_run_needs_its_package(maze: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    folder = tmp_path / "run"
    tandem.train("maze_pg", "maze/Corridor-v0", steps=32, out=folder, **FAST)
    kind = algorithms.get("maze_pg")
    uninstall(maze, monkeypatch)
    refused = "'maze_pg', an algorithm that no installed package provides"
    for given in ({}, {"algorithm": kind}):
        with pytest.raises(CheckpointError, match=refused):
            tandem.load(folder, **given)
    with pytest.raises(ResumeError, match=refused):
        tandem.train(resume=folder)
    for command, code in (("evaluate", 1), ("verify", 2), ("watch", 1)):
        printed = shown(capsys, f"{command} {folder}", code=code)
        assert refused in printed and "pip install tandem-maze==1.2.0; `tandem list`" in printed
    assert "wrote" in shown(capsys, f"report {folder}"), "it needs none"
    assert "maze_pg" not in shown(capsys, "list")
    with pytest.raises(UnknownNameError, match="none is installed.\nFix: install a package"):
        tandem.train("a2c", "CartPole-v1", writer="lines", out=tmp_path / "a", **FAST)


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
def test_a_runs_parts_name_their_package(maze, tmp_path, monkeypatch, capsys, old: bool) -> None:
    """Without it, each use says what to install. An old config.json has the versions alone."""
    folder = tmp_path / "run"
    given = {**FAST, "steps": 64, "writer": "lines", "envs": 2}
    few = trainer.session("a2c", "maze/Corridor-v0", out=folder, **given)
    trainer.complete(few, stop_at=32)
    conf = Run(folder).config
    assert conf["origin"] == {"env": "tandem-maze 1.2.0", "writer lines": "tandem-maze 1.2.0"}
    if old:
        older(folder)
    spec, path = gymnasium.registry.pop("maze/Corridor-v0"), list(sys.path)
    uninstall(maze, monkeypatch)
    install_it = "install that package, if you trust it: pip install tandem-maze==1.2.0"
    for words in ("evaluate {}", "watch {}", "record {} --out a/b-v0", "verify {}"):
        code = 2 if words == "verify {}" else 1
        printed = shown(capsys, words.format(folder), code=code)
        assert "of the package tandem-maze 1.2.0" in printed and install_it in printed
    with pytest.raises(ResumeError, match=r"of the package tandem-maze 1\.2\.0"):
        tandem.train(resume=folder)
    gymnasium.registry["maze/Corridor-v0"] = spec  # as by a program's own hand
    with follows("runs/config_file.py:expect_writers") as advice:
        tandem.train(resume=folder)
    assert advice.fix.startswith(install_it)
    monkeypatch.setattr(sys, "path", path)  # it is installed
    forget()
    assert "return " in shown(capsys, f"evaluate {folder} --episodes 1")
    assert tandem.train(resume=folder).summary["env_steps"] >= 64


def older(folder: Path) -> None:
    """Takes out of a run's files what earlier versions did not write."""
    for file in (folder / "checkpoints").glob("*.zip"):
        edit_index(file, lambda data: data["config"].__delitem__("origin"))
    conf = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del conf["origin"]
    (folder / "config.json").write_text(json.dumps(conf))


def test_only_what_is_a_package_gets_into_a_command() -> None:
    texts = ("--index-url=http://x y", "x 1; rm -rf /", 3)
    for origin in (*({"algorithm": x} for x in texts), "tandem-maze 1.2.0", {}):
        assert config_file.package_of({"origin": origin}, "algorithm") == ""
    assert plugins.to_install("") == "install the package that it was trained with"


def test_an_older_run_of_the_class_goes_on_by_its_name(maze, tmp_path: Path, monkeypatch) -> None:
    """A class of a program becomes one of a package."""
    kind = algorithms.get("maze_pg")
    monkeypatch.setattr(plugins, "entry_points", lambda: EntryPoints(()))
    forget()
    gymnasium.register("maze/Corridor-v0", entry_point="tandem_maze.environments:Corridor")
    assert own.name_of(kind) == "tandem_maze.algorithm:MazePG"
    folder = tmp_path / "run"
    tandem.train(kind, "CartPole-v1", steps=64, stop_at=32, out=folder, **FAST)
    monkeypatch.undo()
    see(maze, monkeypatch)
    with pytest.raises(ResumeError, match="code is not saved"):
        tandem.train(resume=folder)
    tandem.train(kind, resume=folder)
    assert Run(folder).config["algorithm"] == "maze_pg"
    assert tandem.load(folder).name == "maze_pg CartPole-v1"


def test_list_has_what_is_broken_and_why(broken: Path, capsys: Any) -> None:
    printed = shown(capsys, "list")
    good, _, bad = printed.partition("from installed packages, but unusable")
    assert "algorithm maze_pg" in good and "writer lines" in good and "maze/Corridor-v0" in good
    bad = bad.partition("framework")[0]
    for name, why in (
        ("algorithm 'missing'", "No module named 'tandem_broken.no_such_module'"),
        ("algorithm 'needy'", "No module named 'no_such_library_anywhere'"),
        ("algorithm 'leaves'", "SystemExit: gone"),
        ("algorithm 'no_class'", "is 3"),
        ("algorithm 'no_algorithm'", "is <class"),
        ("algorithm 'faulty'", "has no check, roles, schedule, update"),
        ("environments 'broken'", "no_such_library_anywhere"),
        ("environments 'shadow'", "registers what is there already: CartPole-v1"),
        ("writer 'bare'", "has no rewind, close"),
        ("writer 'unfit'", "has no write, rewind, close"),
        ("settings 'nowhere'", "is not a folder"),
        ("settings 'torn'", "a2c.toml that cannot be read"),
    ):
        (line,) = [x for x in bad.splitlines() if f"{name} of tandem-broken 0.1" in x]
        assert why in line, line
    for what in ("algorithm 'dqn'", "environments 'mpe'", "writer 'wandb'"):
        assert re.search(f"tandem-rl and tandem-broken 0.1 both provide the .*{what}", bad), what
    assert "tandem-rl and tandem-broken 0.1 both provide settings of ppo for 'CartPole-v1'" in bad
    assert bad.count("Fix: ") == bad.count("pip uninstall tandem-broken")


@pytest.mark.filterwarnings("ignore:the collection of settings")
def test_what_is_broken_is_named_where_it_is_used(broken: Path, capsys: Any) -> None:
    faulty = ("needy CartPole-v1 --unheard-of 1", "ppo broken/Maze-v0", "ppo shadow/Maze-v0")
    names = ("leaves", "no_class", "faulty", "dqn", "ppo")
    algorithm = (f"{name} CartPole-v1" for name in names)
    writers = (f"trpo CartPole-v1 --writer {name}" for name in ("bare", "wandb"))
    others = "config needy CartPole-v1", "sweep faulty CartPole-v1"
    train = (f"train {words}" for words in (*faulty, *algorithm, *writers))
    for words in (*train, *others, "find best needy maze_pg CartPole-v1"):
        told = shown(capsys, words, code=2)
        assert "tandem-broken 0.1" in told and "; expected " in told and "\nFix: " in told, words
        assert "pip uninstall tandem-broken" in told
    before = gymnasium.registry["CartPole-v1"]  # whose place one of its environments would take
    with pytest.raises(UnknownNameError, match="'shadow' of tandem-broken"):
        tandem.train("a2c", "Nothing-v0", **FAST)
    assert gymnasium.registry["CartPole-v1"] is before


def test_others_do_not_notice(broken: Path, tmp_path: Path, capsys: Any) -> None:
    """Nothing of the broken package is imported, until its writer ends a run."""
    asked = {"needy": "trpo CartPole-v1 --rollout 16", "maze": "maze_pg maze/Corridor-v0"}
    for name, words in asked.items():
        shown(capsys, f"train {words} --steps 64 --out {tmp_path / name}", *SMALL)
    assert not imported("tandem_broken")
    assert "trpo" in shown(capsys, "check CartPole-v1 --steps 20")
    given = {**FAST, "writer": "failing", "out": tmp_path / "run", "steps": 40}
    with pytest.raises(PluginError, match="writer 'failing' of tandem-broken .* KeyError: 'acc"):
        tandem.train("trpo", "CartPole-v1", **given)


@pytest.mark.filterwarnings("ignore:the collection of settings 'nowhere'")
def test_settings_that_cannot_be_read_are_told_of_where_they_might_be_meant(broken: Path) -> None:
    with pytest.warns(UserWarning, match="'torn' of tandem-broken 0.1 has a file a2c.toml"):
        assert zoo.entry("a2c", "Unknown-v0") is None
    assert zoo.entry("a2c", "CartPole-v1") is not None, "there is one, so nobody is told"


def added(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """Metadata of a package with these entry points, and no more."""
    describe(folder, name, "1.0", {f"tandem.{group}": x for group, x in groups.items()})


def test_names_of_two_packages_or_of_no_command(maze, tmp_path: Path, monkeypatch: Any) -> None:
    odd = ("a b", "../up", "-x", "os:system")
    points = dict.fromkeys(odd, "tandem.algorithms.a2c:A2C")
    points["maze_pg"] = "tandem_maze.algorithm:MazePG"
    added(tmp_path, "tandem-other", {"algorithms": points})
    see(tmp_path, monkeypatch)
    for name in odd:
        with pytest.raises(PluginError, match="has a name that is not valid in commands"):
            algorithms.get(name)
    with pytest.raises(PluginError, match=r"tandem-other 1.0 and tandem-maze 1.2.0 both provide"):
        tandem.train("maze_pg", "CartPole-v1", **FAST)
    from tandem_maze.algorithm import MazePG

    assert own.name_of(MazePG) == "tandem_maze.algorithm:MazePG", "by its class it is to be had"


def test_a_file_of_settings_that_says_what_it_cannot(maze, tmp_path: Path, monkeypatch) -> None:
    sourced = '["X-v0"]\nsource = "s"\n'
    for why, text in {
        "has no source": '["X-v0"]\ngamma = 0.9\n',
        "like = 'Y-v0'": f'{sourced}like = "Y-v0"\n',
        "form a cycle": f'{sourced}like = "Y"\n[Y]\nsource = "s"\nlike = ["X-v0"]\n',
    }.items():
        with monkeypatch.context() as patched:
            tuned(tmp_path / why, "a2c.toml", text)
            see(tmp_path / why, patched)
            (fault,) = zoo.faults("a2c")
            assert why in fault.happened and "tandem-odd 1.0" in fault.happened
            assert zoo.faults("ppo") == []
    tuned(tmp_path / "unknown", "a2c.toml", '["X-v0"]\nsource = "a paper"\ngama = 1\n')
    see(tmp_path / "unknown", monkeypatch)
    with pytest.raises(PluginError, match=r"tandem-odd 1.0 has an entry \(a paper\).*'gama'"):
        zoo.resolve("a2c", "X-v0", {})


def test_the_page_has_a_package_that_works(forgotten, tmp_path, monkeypatch, capsys) -> None:
    """docs/advanced/extending.md, "As a package": its files, written where it says."""
    page = (ROOT / "docs" / "advanced" / "extending.md").read_text(encoding="utf-8")
    titled = ((re.match(r"# ([\w/.]+\.(?:py|toml))\n", b.text), b.text) for b in blocks(page))
    named = {title[1]: text for title, text in titled if title}
    part = page[page.index("## As a package") :]
    source = tmp_path / "source"
    for name, text in named.items():
        if f"# {name}\n" in part:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
    algorithm = source / "src" / "tandem_corridor" / "reinforce.py"
    algorithm.write_text(named["reinforce.py"])
    install(source, tmp_path / "there")
    see(tmp_path / "there", monkeypatch)
    printed = shown(capsys, "list")
    assert "unusable" not in printed
    for what in ("algorithm reinforce", "corridor/Corridor-v0", "writer rows", "settings of rein"):
        assert what in printed
    (lines,) = [b for b in blocks(part) if "tandem train reinforce" in b.text]
    for line in lines.text.splitlines():
        if line.startswith("tandem train "):
            out = ["--steps", "64", "--out", str(tmp_path / "run")]
            shown(capsys, line.removeprefix("tandem "), *SMALL, *out)
    assert (tmp_path / "run" / "rows.txt").is_file()
    assert Run(tmp_path / "run").config["source"] == "trials here"
    for name in [n for n in sys.modules if n.startswith("tandem_corridor")]:
        del sys.modules[name]
