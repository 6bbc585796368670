"""Runs are shared by the hub: what is sent, what is not, and what of a stranger's is refused."""

import io
import json
import pickle
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml

import tandem
from tandem.cli import main
from tandem.errors import CheckpointError, EngineError, HubError, RunFolderError, SettingError
from tandem.hub.card import _usage
from tandem.hub.public import Cleaner
from tandem.learning.figures import mean_and_std
from tests.hub.server import TOKEN, Hub, running
from tests.reports.test_comparison import make

GIVEN = "--framework torch --steps 600 --hidden 16,8 --seed 3 --final-episodes 2 --eval-episodes 2"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A complete run with a curve and an animation."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    words = f"train ppo CartPole-v1 {GIVEN} --quiet --no-tensorboard"
    assert main([*words.split(), "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def hub(monkeypatch) -> Iterator[Hub]:
    with running() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield server


SENT = {"README.md", "config.json", "progress.csv", "result.json", "curve.png", "animation.gif"}
SENT |= {"replay.mp4", "checkpoints/best.zip"}


@pytest.mark.slow
def test_there_and_back(hub, run, tmp_path, capsys) -> None:
    assert main(["push", str(run), "me/ppo", "--message", "the first"]) == 0
    assert f"{hub.url}/me/ppo: README.md, animation.gif" in capsys.readouterr().out
    _, (oid, message, files) = hub.repos["me/ppo"]
    files = {name: data for name, data in files.items() if name != ".gitattributes"}
    assert message == "the first" and set(files) == SENT and not hub.private
    folder = tmp_path / "theirs"
    assert main(["pull", "me/ppo", "--out", str(folder)]) == 0
    assert f"tandem evaluate {folder}" in capsys.readouterr().out
    got = {f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file()}
    assert got == SENT and list(tmp_path.iterdir()) == [folder]
    for name in SENT:
        assert (folder / name).read_bytes() == files[name]
    mine, theirs = (tandem.evaluate(tandem.load(f), "CartPole-v1", 3) for f in (run, folder))
    assert mine == theirs
    assert main(["evaluate", str(folder), "--episodes", "2"]) == 0
    assert main(["watch", str(folder), "--out", str(tmp_path / "a.gif"), "--max-steps", "9"]) == 0
    assert main(["report", str(folder)]) == 0
    assert main(["watch", "--live", str(folder)]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", str(folder), "--steps", "900", "--extend"]) == 1
    assert "has no last.zip, which holds the whole run" in capsys.readouterr().err
    again = tandem.pull("me/ppo", tmp_path / "again", revision=oid)
    assert (again / "config.json").read_bytes() == files["config.json"]


@pytest.mark.slow
def test_others_go_on_with_a_run_that_is_resumable(hub, run, tmp_path, capsys) -> None:
    pushed = tandem.push(run, "ppo", private=True, resumable=True)  # of whoever is logged in
    assert pushed.repo == "me/ppo" and "checkpoints/last.zip" in pushed.files
    assert hub.private == {"me/ppo"}
    folder = tmp_path / "a"
    assert main(["pull", "me/ppo", "--out", str(folder)]) == 0
    assert f"tandem train --resume {folder}" in capsys.readouterr().out
    words = ["--steps", "900", "--extend", "--quiet"]
    assert main(["train", "--resume", str(folder), *words]) == 0
    assert json.loads((folder / "result.json").read_text(encoding="utf-8"))["env_steps"] >= 900


def test_what_an_earlier_push_left_is_not_taken_for_this_runs(hub, run, tmp_path) -> None:
    tandem.push(run, "me/ppo", resumable=True)
    hub.commit("me/ppo", "a note of my own", {"notes.txt": b"mine"})
    shutil.copytree(run, other := tmp_path / "other")
    (other / "result.json").unlink()
    sent = tandem.push(other, "me/ppo").files
    assert "checkpoints/last.zip" not in sent and "result.json" not in sent
    assert set(hub.repos["me/ppo"][-1][2]) == {*sent, "notes.txt", ".gitattributes"}


def test_the_card(hub, run) -> None:
    tandem.push(run, "me/ppo")
    files = hub.repos["me/ppo"][-1][2]
    _, head, text = files["README.md"].decode().split("---\n", 2)
    data = yaml.safe_load(head)
    assert data["library_name"] == "tandem-rl" and data["pipeline_tag"] == "reinforcement-learning"
    assert {"reinforcement-learning", "CartPole-v1", "ppo"} <= set(data["tags"])
    result = json.loads(files["result.json"])
    ((entry,),) = [model["results"] for model in data["model-index"]]
    assert entry["task"]["type"] == "reinforcement-learning"
    assert entry["dataset"]["name"] == "CartPole-v1"
    (metric,) = entry["metrics"]
    expected = mean_and_std(result["eval_mean"], result["eval_std"], "+/-")
    assert (metric["type"], metric["value"]) == ("mean_reward", expected)
    for part in (
        'tandem.pull("me/ppo")',
        "tandem pull me/ppo --out run",
        "tandem train ppo CartPole-v1 --framework torch --seed 3 --steps 600",
        "![Learning curve](curve.png)",
        "![The agent at play](animation.gif)",
        "| hidden | [16, 8] |",
        f"| torch | {json.loads(files['config.json'])['versions']['torch']} |",
    ):
        assert part in text, part
    loaded = huggingface_hub.ModelCard(files["README.md"].decode())
    assert loaded.data.eval_results[0].metric_type == "mean_reward"
    config = {"algorithm": "ppo", "env": "Mine-v0", "origin": {"env_module": "mine"}}
    text = _usage(config, "me/ppo")
    assert "import mine  # registers Mine-v0\nimport tandem\n" in text
    for name in ("evaluate", "watch"):
        assert f"tandem {name} run --import mine\n" in text


def test_nothing_of_the_machine_is_sent(hub, run, tmp_path) -> None:
    """Paths, the system's build, addresses and other services; in checkpoints too."""
    secrets = {"cluster": "gpu7.lab:6379", "wandb": "secret-project", "mlflow": "secret-runs"}
    change = {"env_kwargs": {"xml": "/home/someone/worlds/maze.xml", "n": 3}}

    def edited(config: Any) -> Any:
        return {**config, **change, "options": {**config["options"], **secrets}}

    without = shutil.ignore_patterns("*.png", "*.gif")
    shutil.copytree(run, folder := tmp_path / "run", ignore=without)
    text = (run / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(edited(json.loads(text))))
    for name in ("checkpoints/best.zip", "checkpoints/last.zip"):
        with zipfile.ZipFile(run / name) as old, zipfile.ZipFile(folder / name, "w") as new:
            for member in old.namelist():
                raw = old.read(member)
                if member.endswith(".json"):
                    inside = json.loads(raw)
                    raw = json.dumps(inside | {"config": edited(inside["config"])}).encode()
                new.writestr(member, raw)
    pushed = tandem.push(folder, "me/odd", resumable=True)
    changed = ["env_kwargs.xml", *(f"options.{name}" for name in sorted(secrets))]
    assert list(pushed.changed) == changed
    files = hub.repos["me/odd"][-1][2]
    said = b"".join(files[n] for n in files if not n.endswith(".zip"))
    for name in ("best", "last"):
        with zipfile.ZipFile(io.BytesIO(files[f"checkpoints/{name}.zip"])) as opened:
            said += opened.read("checkpoint.json")
            members = set(opened.namelist())
        assert ("engine.safetensors" in members) == (name == "last")
    for secret in (b"/home", b"someone", b"gpu7", b"secret", str(tmp_path).encode(), b"glibc"):
        assert secret not in said, secret
    assert json.loads(files["config.json"])["env_kwargs"] == {"xml": "maze.xml", "n": 3}


@pytest.mark.parametrize(
    "text, left",
    [
        ("/home/me/a.xml", "a.xml"),
        ("~/worlds/a.xml", "a.xml"),
        (r"C:\Users\me\a.xml", "a.xml"),
        ("from /etc/secret/b.toml, and c", "from b.toml, and c"),
        *((text, None) for text in ("ALE/Pong-v5", "module:function", "1/2")),
        ("rl-baselines3-zoo 2.9, hyperparams/ppo.yml", None),
        ("https://example.org/a/b", None),
    ],
)
def test_paths_keep_their_last_part(text, left) -> None:
    clean = Cleaner()
    assert clean.any({"a": [text]}) == {"a": [left or text]}
    assert clean.changed == ({"a"} if left else set())


def test_what_is_no_run_is_not_sent(hub, tmp_path) -> None:
    with pytest.raises(RunFolderError, match="there is no folder"):
        tandem.push(tmp_path / "a", "me/a")
    for seed in range(2):
        make(tmp_path / "many" / f"s{seed}", 5.0)
    with pytest.raises(RunFolderError, match="has 2 runs"):
        tandem.push(tmp_path / "many", "me/a")
    with pytest.raises(CheckpointError, match="no checkpoints"):
        tandem.push(tmp_path / "many" / "s0", "me/a")
    assert hub.repos == {}


def test_errors_of_the_hub(hub, run, tmp_path, monkeypatch) -> None:
    def refused(text: str, call: Any, *args: Any, error: Any = HubError, **given: Any) -> None:
        with pytest.raises(error, match=text):
            call(*args, **given)

    push, pull, place = tandem.push, tandem.pull, tmp_path / "a"
    refused("repository name", pull, "a/b/c", place, error=SettingError)
    refused("repository name", push, run, "no names like this", error=SettingError)
    refused("no repository me/none that you can read", pull, "me/none", place)
    refused("(?s)the hub refused the request.*Fix: log in", push, run, "other/ppo")
    push(run, "me/ppo", private=True)
    refused("no revision 'v9'", pull, "me/ppo", place, revision="v9")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    refused("(?s)no repository me/ppo.*log in", pull, "me/ppo", place)
    refused("refused", push, run, "me/ppo")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    refused("(?s)no Hugging Face token.*hf auth login, or set HF_TOKEN", push, run, "me/ppo")
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_or_its_library(run, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert main(["pull", "me/ppo", "--out", str(tmp_path / "a")]) == 1
    assert "http://127.0.0.1:9 cannot be reached" in capsys.readouterr().err
    with pytest.raises(HubError, match="cannot be reached"):
        tandem.push(run, "me/ppo")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: tandem.push(run, "me/a"), lambda: tandem.pull("me/a")):
        with pytest.raises(EngineError, match=r"pip install 'tandem-rl\[hub\]'"):
            call()


def packed(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", members.pop("how", zipfile.ZIP_STORED)) as out:  # type: ignore[arg-type]
        for name, data in members.items():
            out.writestr(name.replace("__", "."), data)
    return file.getvalue()


INDEX = b'{"format": 1}'
PLAIN = {"config.json": b"{}", "progress.csv": b"env_steps\n5\n"}
BEST = "checkpoints/best.zip"
PACKED = {"how": zipfile.ZIP_DEFLATED, "a__json": b" " * 10_000_000}


@pytest.mark.parametrize(
    "files, text",
    [
        ({"../evil.txt": b""}, "unexpected name: '../evil.txt'"),
        *(
            ({n: b""}, "unexpected name")
            for n in ("checkpoints/../../a", "/etc/passwd", "a\\..\\b")
        ),
        ({"policy.pkl": b""}, "'policy.pkl', a file that may run code"),
        ({"checkpoints/model.PT": b""}, "may run code"),
        ({BEST: pickle.dumps(1)}, "not a checkpoint"),
        ({BEST: packed(checkpoint__json=INDEX, data__pkl=b"")}, "with 'data.pkl' in it"),
        ({BEST: packed(checkpoint__json=INDEX, **PACKED)}, "with compressed files"),
        ({BEST: b"0" * 3_000_000}, "at most 0.002 GB"),
        ({BEST: packed(checkpoint__json=b"[]")}, "format"),
        ({BEST: None}, "no checkpoints/best.zip"),
        ({"config.json": None}, "is not a tandem run: it has no config.json"),
    ],
)
def test_what_is_refused(hub, tmp_path, files, text) -> None:
    whole = {**PLAIN, BEST: packed(checkpoint__json=INDEX), **files}
    hub.commit("me/bad", "", {n: x for n, x in whole.items() if x is not None})
    with pytest.raises(CheckpointError if text == "format" else HubError, match=text):
        tandem.pull("me/bad", tmp_path / "a", max_gb=0.002)
    assert list(tmp_path.iterdir()) == []


def test_where_it_goes(hub, tmp_path, monkeypatch) -> None:
    """runs/NAME, unless something is there; what nobody asked for is left where it is."""
    files = {**PLAIN, BEST: packed(checkpoint__json=INDEX), ".gitattributes": b""}
    hub.commit("me/good", "", files | {"notes.txt": b"x"})
    monkeypatch.chdir(tmp_path)
    assert tandem.pull("me/good") == Path("runs/good")
    found = {f.relative_to("runs/good").as_posix() for f in Path("runs/good").rglob("*.*")}
    assert found == {"config.json", "progress.csv", BEST}
    before = len(hub.sent)
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        tandem.pull("me/good")
    assert len(hub.sent) == before
    (tmp_path / "empty").mkdir()
    assert tandem.pull("me/good", tmp_path / "empty") == tmp_path / "empty"
    with pytest.raises(SettingError, match="max_gb"):
        tandem.pull("me/good", tmp_path / "b", max_gb=0)
