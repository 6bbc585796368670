"""Names in a file from elsewhere are not imported, unless the user repeats them."""

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gymnasium
import pytest

import tandem
from tandem import platforms
from tandem.cli import main
from tandem.errors import ResumeError, TandemError
from tandem.runs import trust
from tandem.runs.verification import verify
from tests.runs.shared import edit_index

EVIL = "leaves_a_trace"
MODULE = """
import pathlib
import gymnasium
pathlib.Path(__file__).with_name("trace").touch()
make = lambda **kwargs: gymnasium.make_vec("CartPole-v1", num_envs=2)
kind = type("Mine", (), {})
gymnasium.register("Mine-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=9)
"""
SMALL = {"steps": 64, "envs": 2, "rollout": 16, "batch_size": 16, "epochs": 1, "eval_episodes": 1}
SMALL |= {"final_episodes": 1, "plots": False, "tensorboard": False, "framework": "torch"}
FLAGS = [f"--{n.replace('_', '-')}={v}" for n, v in SMALL.items() if not isinstance(v, bool)]
FLAGS += ["--no-plots", "--no-tensorboard", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Path:
    out = tmp_path_factory.mktemp("trust") / "run"
    tandem.train("ppo", "CartPole-v1", out=out, **SMALL)
    return out


@pytest.fixture
def here(tmp_path: Path, monkeypatch: Any) -> Iterator[Path]:
    """A working directory with a module whose import leaves a trace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / f"{EVIL}.py").write_text(MODULE, encoding="utf-8")
    yield tmp_path
    sys.modules.pop(EVIL, None)
    gymnasium.registry.pop("Mine-v0", None)


def was_imported() -> bool:
    return Path("trace").exists() or EVIL in sys.modules


@pytest.fixture
def theirs(run: Path, here: Path) -> Path:
    """A copy of the run: it comes from elsewhere."""
    return Path(shutil.copytree(run, here / "theirs"))


@pytest.fixture
def sweep(here: Path) -> Path:
    """The plan of a sweep of one trial."""
    given = {n: x for n, x in SMALL.items() if n not in ("plots", "tensorboard")}
    tandem.sweep("ppo", "CartPole-v1", trials=1, parallel=1, out="sweep", **given)
    return here / "sweep" / "sweep.json"


def changed(folder: Path, **entries: Any) -> None:
    """Put entries into config.json of a run, and into the config of its checkpoints."""

    def put(config: dict[str, Any]) -> dict[str, Any]:
        for name, value in entries.items():
            part, _, inner = name.rpartition("__")
            (config[part] if part else config)[inner] = value
        return config

    path = folder / "config.json"
    path.write_text(json.dumps(put(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    for file in (folder / "checkpoints").glob("*.zip"):
        edit_index(file, lambda data: put(data["config"]) and None)


COMMANDS = (
    "evaluate {} --episodes 1",
    "watch {} --out a.gif --max-steps 5",
    "record {} --out data --episodes 1",
    "verify {} --steps 32 --quiet",
    "train --resume {} --steps 96 --extend --quiet",
    "train --config {}/config.json --out new --steps 32 --quiet",
    "export {} --to numpy",
    "plot {}",
    "report {}",
    "compare {}",
)
PROGRAMS: dict[str, Callable[[Path], Any]] = {
    "train": lambda run: tandem.train(resume=run, steps=96, extend=True),
    "verify": lambda run: verify(run, 32),
    "play": lambda run: tandem.load(run).play(max_steps=5),
    "evaluate": lambda run: tandem.evaluate(tandem.load(run), "CartPole-v1", 1),
    "load": lambda run: tandem.load(run, env="CartPole-v1"),
    "record": lambda run: tandem.datasets.record(run, "data", episodes=1),
}
MINE, MAKE = f"{EVIL}:Mine-v0", f"{EVIL}:make"
OWN = {"vector": "own"}, {"own_env": True}, {"own_env": True, "vector": "own"}, {"vector": "id"}
FORGED: list[dict[str, Any]] = [
    *({name: EVIL} for name in ("env", "algorithm", "framework", "device")),
    *({"env": name} for name in (MINE, f"classic/{EVIL}", f"tandem/{EVIL}")),
    *({"env": MINE, **more} for more in OWN),
    {"vector": MAKE},
    {"vector": MAKE, "env": EVIL, "env_kwargs": {"a": 1}},
    {"env_kwargs": {"env_id": MINE}},
    {"env_kwargs": {"render_mode": [{"entry": f"{EVIL}.make"}]}},
    {"env": "GymV26Environment-v0", "env_kwargs": {"env_id": MINE}},
    {"algorithm": f"{EVIL}:kind"},
    {"network": MAKE, "wrappers": [MAKE]},
    {"options__writer": [f"{EVIL}={EVIL}:make"]},
    {"options__entry": MAKE},
    {"options__cluster": f"{EVIL}:6379", "options__runners": 1},
    {"settings__activation": EVIL},
    *({f"settings__{name}": MAKE} for name in ("optimizer", "vectorization")),
    {"source": MAKE, "commit": EVIL, "versions": {EVIL: MAKE}},
    {"origin": {"env_module": EVIL, "env": f"{EVIL} 1.0", "algorithm": MAKE}},
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: "-".join(forged))
def test_no_name_in_a_run_from_elsewhere_is_imported(forged, run, here, capsys) -> None:
    theirs = here / "theirs"
    for use in (*COMMANDS, *PROGRAMS.values()):
        shutil.copytree(run, theirs)
        changed(theirs, **forged)
        if isinstance(use, str):
            main(shlex.split(use.format("theirs")))
        else:
            with suppress(TandemError):
                use(theirs)
        assert not was_imported(), (use, capsys.readouterr().err)
        for made in ("theirs", "data", "new"):
            shutil.rmtree(here / made, ignore_errors=True)


def test_a_repeated_name_has_to_be_the_runs(run: Path, capsys: Any) -> None:
    for words in (["verify", "--env", "Acrobot-v1"], ["verify", "--env-kwargs", '{"a": 1}']):
        assert main([*words, str(run)]) == 2
        assert "was given; expected the same" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["evaluate --episodes 1", "verify", "train --quiet --resume"])
def test_the_flags_that_the_error_advises_work(words, theirs, capsys) -> None:
    changed(theirs, env=MINE)
    assert main([*words.split(), str(theirs.rename("it is theirs"))]) == 2
    said = capsys.readouterr().err
    assert not was_imported() and f"env='{EVIL}:Mine-v0'" in said
    advised = said.partition("if you trust them: tandem ")[2].partition(";")[0]
    assert EVIL in advised
    assert main(shlex.split(advised)) in (0, 1)  # CartPole's rows are not those of Mine-v0
    assert was_imported()


def test_trust_stands_for_all_names(here: Path) -> None:
    train = ["train", "ppo", "--vector", MAKE, *FLAGS, "--out", "own", "--stop-at", "32"]
    assert main(train) == 0
    shutil.copytree("own", "copied")
    assert main(["evaluate", "copied", "--episodes", "1"]) == 2
    assert main(["evaluate", "copied", "--episodes", "1", "--trust"]) == 0
    with pytest.raises(ResumeError, match="vector='leaves_a_trace:make'"):
        tandem.train(resume="copied")
    assert tandem.train(resume="copied", trust=True).summary["env_steps"] == 64
    assert main(["evaluate", "copied", "--episodes", "1"]) == 0, "who resumed it has signed it"


def test_a_run_vouches_for_itself_and_a_copy_does_not(here: Path, capsys: Any) -> None:
    train = ["train", "ppo", MINE, *FLAGS, "--out", "own"]
    assert main([*train, "--stop-at", "32"]) == 0
    assert main(["train", "--resume", "own", "--quiet"]) == 0
    assert main(["evaluate", "own/checkpoints/last.zip", "--episodes", "1"]) == 0
    os.rename("own", "renamed")
    assert main(["verify", "renamed", "--quiet"]) == 0
    shutil.copytree("renamed", "copied")
    assert main(["verify", "copied", "--quiet"]) == 2
    assert "was copied, changed or written by somebody else" in capsys.readouterr().err
    changed(here / "renamed", env_kwargs={"render_mode": "ansi"})
    assert main(["verify", "renamed", "--quiet"]) == 2


def test_another_user_did_not_write_it(run: Path, monkeypatch: Any, tmp_path: Path) -> None:
    data = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert trust.is_signed(data, run, data["signature"])
    assert not trust.is_signed(data | {"env": "other"}, run, data["signature"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert not trust.is_signed(data, run, data["signature"])
    key = tmp_path / "tandem" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and key.stat().st_size == 32
    mine = trust.signature(data, run)
    assert mine == trust.signature(data, run) != data["signature"]
    key.chmod(0o644)  # others may have read it
    assert trust.signature(data, run) != mine
    monkeypatch.setattr(trust, "user_folder", lambda purpose: None)
    assert trust.signature(data, run) == "" and not trust.is_signed(data, run, "")


def test_nothing_is_kept_where_a_user_has_no_home(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(platforms.sys, "platform", "linux")
    nowhere = RuntimeError("Could not determine home directory.")
    monkeypatch.setattr(Path, "home", Mock(side_effect=nowhere))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert platforms.user_folder("cache") is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert platforms.user_folder("cache") is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    assert platforms.user_folder("cache") == tmp_path / "new" / "tandem"
    assert (tmp_path / "new" / "tandem").is_dir()


def test_harmless_arguments_are_shown_and_used(theirs: Path, caplog: Any) -> None:
    changed(theirs, env_kwargs={"sutton_barto_reward": True})
    assert main(["evaluate", "theirs", "--episodes", "1"]) == 0
    assert "its environment is made with {'sutton_barto_reward': True}" in caplog.text


@pytest.mark.parametrize("value", ["a/b", "a.b", "a:b", "~", "there", {"a.b": 1}, [["/etc"]]])
def test_text_that_may_name_code_or_a_file(value: Any, here: Path) -> None:
    Path("there").touch()
    assert trust._names_code({"name": value})
    assert not trust._names_code({"map name": ["SFFF", "4x4", 1.5, None, "-0.5", "1e-3"]})


def test_seeds_from_elsewhere(run: Path, here: Path, capsys: Any) -> None:
    for words in (
        ["ppo", MINE],
        ["ppo", "--vector", MAKE],
        ["ppo", "CartPole-v1", "--env-kwargs", json.dumps({"a": MAKE})],
        ["ppo", "CartPole-v1", "--import", EVIL],
        ["ppo", "CartPole-v1", "--cluster", f"{EVIL}:6379", "--runners", "1"],
        ["ppo", "--config", "theirs.toml", "--trust"],
        ["--stop-at", "--import", "ppo", MINE],
        ["--import", "--trust", "--entry", "ppo", MINE],
        ["--import", "--stop-at", f"{EVIL}:kind", "CartPole-v1"],
        ["--stop-at", "--import", f"{EVIL}:kind", "CartPole-v1"],
        [f"{EVIL}:kind", "CartPole-v1"],
    ):
        parent = here / "seeds"
        shutil.copytree(run, parent / "s0")
        settings = f'env = "{EVIL}:Mine-v0"\n'
        (parent / "seeds-settings.toml").write_text(settings, encoding="utf-8")
        command = {"command": [*words, *FLAGS], "seeds": [0, 1], "signature": "0" * 64}
        (parent / "seeds.json").write_text(json.dumps(command), encoding="utf-8")
        code = main(["train", "--resume", "seeds"])
        assert not was_imported(), words
        assert code or "--import" in words, capsys.readouterr()
        shutil.rmtree(parent)


def test_a_sweep_from_elsewhere(sweep: Path) -> None:
    plan = json.loads(sweep.read_text(encoding="utf-8"))
    forged: list[dict[str, Any]] = [
        {"env": MINE},
        {"env_kwargs": {"env_id": MINE}},
        {"algorithm": f"{EVIL}:kind"},
        {"framework": EVIL},
        {"own": ["network"]},
        {"given": plan["given"] | {"cluster": f"{EVIL}:1"}},
        {"given": plan["given"] | {"env": MINE}},
        {"space": [d | {"setting": "env"} for d in plan["space"]]},
    ]
    for entries in forged:
        sweep.write_text(json.dumps(plan | entries), encoding="utf-8")
        assert main(["sweep", "--resume", "sweep", "--trials", "2", "--quiet"]) == 2, entries
        assert not was_imported(), entries
    plan["origin"] = {"env_module": EVIL}  # only an advice has it
    plan["given"]["writer"] = [f"{EVIL}={EVIL}"]  # which the second trial is refused for
    sweep.write_text(json.dumps(plan), encoding="utf-8")
    assert main(["sweep", "--resume", "sweep", "--trials", "2", "--parallel", "1", "--quiet"]) == 0
    assert not was_imported()


LOOKS = """import sys, tandem.settings as s
assert s.module_here("leaves_a_trace") is not None
import numpy, gymnasium, json
sys.exit(sys.path[0] == sys.path[-1])"""
PLUGINS = """import tandem.settings as s
s.module_here("nothing")
from tandem import plugins
from tandem.envs import ids
assert ids.is_missing("evil/Mine-v0")"""


@pytest.mark.parametrize(
    "words, traced",
    [
        (["-P", "-c", LOOKS], True),
        (["-P", "-c", "from tandem.workers.process import Process; print(1)"], False),
        (["-P", "-c", PLUGINS], False),
        (["-m", "tandem", "list"], False),
    ],
    ids=["module", "worker", "plugins", "command"],
)
def test_the_working_directory_comes_last_on_the_path(words, traced, here: Path) -> None:
    """A stranger's module does not stand in for an installed one, and is no plugin."""
    for name in ("numpy", "random", "gymnasium", *(["tandem", "json"] if "-P" in words else [])):
        (here / f"{name}.py").write_text(MODULE, encoding="utf-8")
    (info := here / "evil-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[tandem.environments]\nevil = {EVIL}\n", "utf-8")
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    assert (here / "trace").exists() == traced


def test_a_name_that_is_not_repeated_is_neither_signed_nor_imported(theirs) -> None:
    """Who resumes a run by its environment's id has not vouched for its vector."""
    changed(theirs, vector=MAKE)
    more = ["--quiet", "--steps", "96", "--extend"]
    assert main(["train", "ppo", "CartPole-v1", "--resume", "theirs", *more]) == 2
    with pytest.raises(ResumeError, match="vector"):
        tandem.train(resume=theirs, env=lambda: gymnasium.make("CartPole-v1"))
    assert main(["evaluate", "theirs", "--episodes", "1"]) == 2 and not was_imported()
    Path("own.py").write_text(MODULE, encoding="utf-8")
    changed(theirs, vector="own")
    for words in ("evaluate theirs", "watch theirs --out a.gif", "record theirs --out data"):
        assert main(words.split()) == 2 and not was_imported()
        assert "own" not in sys.modules


def test_trials_of_a_sweep_from_elsewhere_are_not_trusted_by_its_plan(sweep: Path) -> None:
    plan = json.loads(sweep.read_text(encoding="utf-8"))
    sweep.write_text(json.dumps(plan | {"signature": ""}), encoding="utf-8")
    journal = sweep.with_name("journal.log")
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    running = [x for x in lines if "user_attr" in x or json.loads(x).get("op_code") != 6]
    journal.write_text("".join(running), encoding="utf-8")  # the end of its trial is taken away
    changed(next(sweep.parent.glob("trials/*")), env=MINE)
    for _ in range(2):
        code = main(["sweep", "--resume", "sweep", "--parallel", "1", "--quiet"])
        assert code and not was_imported()


def test_a_data_set_from_elsewhere(run: Path, here: Path) -> None:
    tandem.record(run, "data", episodes=1, max_steps=5)
    file = next(here.glob("data/**/metadata.json"))
    data = json.loads(file.read_text(encoding="utf-8"))

    def forged(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {n: forged(x, n) for n, x in value.items()} | {EVIL: MAKE}
        if name == "env_spec":
            return str(value).replace("CartPole-v1", f"{EVIL}:M-v0")
        if name in ("eval_env_spec", "data_format", "dataset_id", "action_space"):
            return value
        return MAKE if isinstance(value, str) and not value.startswith("{") else value

    file.write_text(json.dumps(forged(data, "")), encoding="utf-8")
    with suppress(TandemError):
        assert [len(episode) for episode in tandem.datasets.load("data")]
    assert not was_imported()


@pytest.mark.parametrize("name", ["../out", "/{}/out", "a/../../out", "link"])
def test_an_archive_writes_nothing_anywhere(name: str, theirs: Path, here: Path) -> None:
    """Members above the folder, absolute ones and symbolic links: nothing is ever extracted."""
    for file in theirs.rename(here / "box").glob("checkpoints/*.zip"):
        with zipfile.ZipFile(file, "a") as archive:
            member = zipfile.ZipInfo(name.format(here))
            member.external_attr = (0o120777 if name == "link" else 0o100644) << 16
            archive.writestr(member, str(here / "out"))
    before = sorted(here.rglob("*"))
    tandem.load("box")
    assert main(["evaluate", "box", "--episodes", "1"]) == 0
    assert sorted(here.rglob("*")) == before
