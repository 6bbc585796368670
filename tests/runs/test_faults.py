"""What goes wrong costs no more than the steps since the last checkpoint, and says what it was."""

import io
import operator
import os
import pickle
import shutil
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tandem
from tandem import errors, trainer
from tandem.learning.events import CheckpointSaved
from tandem.runs import atomic_files, checkpoint
from tandem.runs.callbacks import LambdaCallback
from tandem.runs.folder import Run
from tandem.runs.verification import verify
from tandem.testing.environments import InfiniteHorizon, NotFinite, Raises, Unrepeatable
from tests.helpers import COMPILED_LIGHTLY, run_python
from tests.runs.shared import QUICK, edit_index, no_space, rewrite

SNIPPETS = Path(__file__).parent / "snippets"
ONE = {"envs": 2, "rollout": 16, "batch_size": 16, "epochs": 1}
PPO = QUICK | ONE | {"keep": 0, "vectorization": "plain"}
OFF = QUICK | {"keep": 0, "learning_starts": 16, "train_every": 4, "updates_per_call": 2}
OFF |= {"batch_size": 8, "buffer_size": 100, "eval_every": 10**6}
OBS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def start(env, out=None, algorithm="ppo", **given) -> Any:
    given = {"steps": 128} | (PPO if algorithm == "ppo" else OFF) | given
    return trainer.session(algorithm, env, out=out, **given)


def go(run: Any, stop_at: int | None = None) -> None:
    list(run.events(stop_at))


@pytest.mark.parametrize(
    "kills", [pytest.param(2, marks=pytest.mark.slow), pytest.param(25, marks=pytest.mark.thorough)]
)
def test_a_kill_at_any_moment_costs_the_steps_since_the_last_checkpoint(kills, tmp_path) -> None:
    said = run_python(SNIPPETS / "kills.py", str(tmp_path), str(kills), engine="torch", timeout=280)
    assert not [s for s in said if s.get("wrong") or "raised" in s], said
    ends = {s["run"]: (s["fingerprint"], s["steps"]) for s in said if "run" in s}
    assert set(ends) == {"whole", "random", "inside"} and len(set(ends.values())) == 1
    inside = [(s["inside"], len(s["parts"])) for s in said if "inside" in s]
    amid, again = ("amid_config", 1), ("amid_writing", 1)
    # before renaming, the part of the sitting before is gone
    renaming = ("before_renaming", 1), ("after_renaming", 0)
    assert inside == [amid, again, again, *renaming, amid, again]
    assert said[-1]["left"] == [] and said[-1]["tables"] and said[-1]["kills"] == kills


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_sitting_with_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    def begin(name: str, **moments: Any) -> Any:
        given = {"log_every": 64, "normalize_observations": True, "steps": 640}
        callbacks = [LambdaCallback(**moments)]
        return start("CartPole-v1", tmp_path / name, callbacks=callbacks, **given)

    def send(event: Any) -> None:
        if event.env_steps > 100 and not sent:
            sent.append(event.env_steps)
            for _ in range(times):
                signal.raise_signal(number)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    go(whole := begin("whole"))
    before, times = signal.getsignal(number), 1
    moments = ["on_batch_end", "on_episode_end", "on_evaluation", "on_batch_begin"]
    for moment in moments if number == signal.SIGTERM else [*moments, "twice"]:
        sent: list[int] = []
        if moment == "twice":  # a second interrupt does not wait for the block to end
            times = 2
            with pytest.raises(KeyboardInterrupt):
                go(begin("twice", on_batch_begin=send))
        else:
            *_, end = begin(moment, **{moment: send}).events()
            assert end.reason == number.name and end.env_steps < 640
            assert end.env_steps - sent[0] <= 40
            saved = checkpoint.read(tmp_path / moment / "checkpoints" / "last.zip")
            assert saved.data["collector"]["env_steps"] == end.env_steps
        go(resumed := trainer.session(resume=tmp_path / moment))
        assert resumed.fingerprint() == whole.fingerprint()
        assert signal.getsignal(number) is before


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "engine",
    [
        *(pytest.param(e, marks=pytest.mark.slow) for e in ("torch", "jax")),
        *(pytest.param(e, marks=pytest.mark.thorough) for e in ("tensorflow", "keras-torch")),
    ],
)
def test_sittings_make_the_same_run_to_the_bit(engine: Any, tmp_path: Path) -> None:
    wanted = ["dqn", "ppo", "sac", "td3", "a2c_lstm", "acer"]
    wanted += ["ppo_plain", "qmix", "maddpg", "mappo"] if engine == "torch" else []
    if engine == "tensorflow":  # which compiles each sitting of each again
        wanted = ["dqn", "ppo", "sac", "acer"]
    words = (str(tmp_path), engine, *wanted)
    snippet, env = SNIPPETS / "resume.py", COMPILED_LIGHTLY
    cases = run_python(snippet, *words, engine=engine, timeout=550, env=env)
    assert [c["case"] for c in cases] == wanted
    for case in cases:
        assert case["updates"] > 20
        assert len(set(case["ends"])) == len(case["ends"]), "every sitting did something"
        assert not case["arrays"] and not case["data"], case
        assert case["same_table"] and case["rows"] > 4


class Full(io.FileIO):
    """A file on a disk that has room for so many bytes."""

    def __init__(self, path: Any, room: int) -> None:
        super().__init__(path, "wb")
        self.room = room

    def write(self, data: Any) -> int:
        self.room -= len(data)
        return super().write(data) if self.room >= 0 else no_space()


@pytest.mark.parametrize("room", [0, 100, 5_000, -30, "fsync", "replace"])
def test_a_full_disk_leaves_the_checkpoint_before(room, tmp_path, monkeypatch) -> None:
    file = tmp_path / "last.zip"
    checkpoint.write(file, {"n": 1}, {"a": {"x": np.ones(5000)}})
    before = file.read_bytes()
    if isinstance(room, str):
        monkeypatch.setattr(atomic_files.os, room, no_space)
    else:  # below 0: all but the last bytes, as the table of contents does not fit
        room += len(before) if room < 0 else 0
        monkeypatch.setattr(atomic_files, "open", lambda path, _: Full(path, room), raising=False)
    said = r"could not write .*last\.zip.*No space left(.|\n)*previous checkpoint is intact"
    with pytest.raises(errors.CheckpointError, match=said):
        checkpoint.write(file, {"n": 2}, {"a": {"x": np.zeros(5000)}})
    assert file.read_bytes() == before and [f.name for f in tmp_path.iterdir()] == ["last.zip"]
    with pytest.raises(errors.CheckpointError) as error:
        checkpoint.write(tmp_path / "new.zip", {}, {"a": {"x": np.zeros(5000)}})
    assert "whole" not in str(error.value)


@pytest.mark.parametrize("what, at", [("checkpoints", 2), ("config.json", 1), ("progress.csv", 3)])
def test_a_run_on_a_disk_that_fills_up_can_go_on(what, at, tmp_path, monkeypatch) -> None:
    real, count = os.replace, [0]

    def replace(source: Any, target: Any) -> None:
        count[0] += what in str(target)
        no_space() if what in str(target) and count[0] == at else real(source, target)

    monkeypatch.setattr(atomic_files.os, "replace", replace)
    with pytest.raises((errors.CheckpointError, errors.RunFolderError), match="No space left"):
        go(start("CartPole-v1", tmp_path / "run", checkpoint_seconds=0.0))
    assert count[0] and not list((tmp_path / "run").rglob("*.zip.*"))
    if what == "config.json":
        return
    resumed, whole = trainer.session(resume=tmp_path / "run"), start("CartPole-v1")
    assert resumed.loop.env_steps < 128
    go(resumed)
    go(whole)
    assert resumed.fingerprint() == whole.fingerprint()


@pytest.fixture(scope="module")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    go(start("CartPole-v1", out, "dqn", steps=64), 48)
    return out


@pytest.fixture
def run(run_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(run_once, tmp_path / "run")
    return tmp_path / "run"


def with_json(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda file: edit_index(file, change)


def with_entry(*entry: str, **values: Any) -> Callable[[Path], None]:
    """Change values of the JSON, or of the dictionary in it that `entry` leads to."""
    return with_json(lambda data: reduce(operator.getitem, entry, data).update(values))


def with_member(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda file: rewrite(file, lambda members: members.update({name: data}))


def without(name: str) -> Callable[[Path], None]:
    return lambda file: rewrite(file, lambda members: members.pop(name) and None)


def cut(share: float) -> Callable[[Path], None]:
    return lambda file: file.write_bytes(file.read_bytes()[: int(len(file.read_bytes()) * share)])


def altered(name: str) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        data = bytearray(file.read_bytes())
        with zipfile.ZipFile(file) as inner:
            info = inner.getinfo(name)
        data[info.header_offset + 30 + len(name) + info.file_size // 2] ^= 1
        file.write_bytes(bytes(data))

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "truncated": cut(0.7),
    "not a zip": lambda file: file.write_bytes(b"PK\x03\x04 weights" * 100),
    "missing": lambda file: file.unlink(),
    "altered weights": altered("networks.safetensors"),
    "altered json": altered("checkpoint.json"),
    "no json": without("checkpoint.json"),
    "no weights": without("networks.safetensors"),
    "weights of nonsense": with_member("networks.safetensors", b"\xff" * 64),
    "json of nonsense": with_member("checkpoint.json", b"\xff{"),
    "json that is a list": with_json(lambda data: [data]),
    "another format": with_entry(format=99),
    "no format": with_json(lambda data: data.pop("format") and None),
    "no config": with_json(lambda data: data.pop("config") and None),
    "config that is text": with_entry(config="ppo"),
    "a framework that is a list": with_entry("config", framework=[]),
    "a seed below 0": with_entry("config", seed=-1),
    "arguments that are a number": with_entry("config", env_kwargs=-1),
    "plans of nonsense": with_entry(plans={"q": [{"layer": "Dense", "inputs": "many"}]}),
    "plans of another shape": with_json(lambda data: data["plans"]["q"].pop(1) and None),
    "no plans": with_json(lambda data: data.pop("plans") and None),
    "spaces of nonsense": with_entry(action=[]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named(damage: str, run: Path) -> None:
    for name in ("best", "last"):
        file = run / "checkpoints" / f"{name}.zip"
        if file.is_file():
            DAMAGE[damage](file)
    with pytest.raises(errors.CheckpointError, match=r"last\.zip|no checkpoint"):
        tandem.load(run)
    # those, a resumption does not read
    if "plans" not in damage and "spaces" not in damage and "weights" not in damage:
        with pytest.raises(errors.CheckpointError, match=r"last\.zip|no checkpoint 'last'"):
            tandem.train(resume=run)


def test_a_damaged_part_of_a_run_is_named_when_it_is_resumed(run: Path) -> None:
    file = run / "checkpoints" / "last.zip"
    before = file.read_bytes()
    groups = [f"{group}.safetensors" for group in ("engine", "collector", "learner")]
    damaged = [damage(group) for damage in (altered, without) for group in groups]
    unfit = [with_json(lambda data: data["learner"].pop("ring") and None)]
    unfit += [with_entry("session", callbacks=-1)]
    damages = dict.fromkeys(damaged, r"last\.zip cannot be read")
    damages |= dict.fromkeys(unfit, "does not fit this run")
    out_of_range = with_entry("config", "options", threads=1e30)
    damages[out_of_range] = r"threads=(.|\n)*; expected (.|\n)*Fix: "
    for damage, said in damages.items():
        damage(file)
        error = errors.TandemError if damage is out_of_range else errors.CheckpointError
        with pytest.raises(error, match=said):
            tandem.train(resume=run)
        file.write_bytes(before)
    go(trainer.session(resume=run))
    shutil.copy(run / "checkpoints" / "best.zip", file)
    with pytest.raises(errors.ResumeError, match="an agent, not a whole run"):
        tandem.train(resume=run)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_change_of_any_byte_goes_unnoticed_or_escapes(data, run_once, tmp_path) -> None:
    """Either it is named, or it is where nothing is read from: the agent is the same."""
    whole = (run_once / "checkpoints" / "last.zip").read_bytes()
    at, flip = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    file = tmp_path / "altered.zip"
    file.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
    with suppress(errors.CheckpointError):
        found, whole = tandem.load(file), tandem.load(run_once, which="last")
        assert (found.networks["q"](OBS) == whole.networks["q"](OBS)).all()


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_a_pickle_inside_does_nothing(run: Path, tmp_path: Path) -> None:
    mark, file = tmp_path / "ran", run / "checkpoints" / "last.zip"
    bomb = pickle.dumps(Bomb(mark))
    pickle.loads(bomb)
    assert mark.exists(), "it would go off"
    mark.unlink()
    with_member("data.pkl", bomb)(file)
    with_member("__main__.py", b"raise SystemExit")(file)
    tandem.load(file)
    members = [with_member(name, bomb) for name in ("networks.safetensors", "checkpoint.json")]
    for damage in (*members, lambda file: file.write_bytes(bomb)):
        damage(file)
        with pytest.raises(errors.CheckpointError):
            tandem.load(file)
    assert not mark.exists()


def second(faulty: Callable[[], Any], good: Callable[[], Any]) -> Callable[[], Any]:
    """Makes good environments, and a faulty one as number 1 of the training ones."""
    made: Iterator[int] = iter(range(10**9))
    return lambda: faulty() if next(made) == 2 else good()


@pytest.mark.parametrize(
    "kind, at, says",
    [
        (NotFinite, 10, "the last observation .*nan.* at step 10"),
        (Raises, 7, "raised ValueError at step 7 .*: raised on purpose"),
        (Raises, 0, "raised ValueError while resetting"),
    ],
)
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_faulty_environment_is_named_and_the_run_kept(
    algorithm, kind, at, says, tmp_path
) -> None:
    env, out = second(partial(kind, at=at), InfiniteHorizon), tmp_path / "run"
    run = start(env, out, algorithm, envs=2, checkpoint_seconds=0.0)
    error = errors.NonFiniteError if kind is NotFinite else errors.EnvironmentFault
    with pytest.raises(error, match=f"environment 1 of .* {says}"):
        go(run)
    assert checkpoint.read(out / "checkpoints" / "last.zip").group("engine")
    assert tandem.load(out).act(np.ones(1)) in (0, 1)
    finite(run)


class Breaks(InfiniteHorizon):
    busy = False

    def step(self, action: Any) -> Any:
        if Breaks.busy:
            Breaks.busy = False
            raise OSError("the simulator is busy")
        return super().step(action)


@pytest.mark.parametrize(
    "algorithm, env, given",
    [
        ("ppo", Unrepeatable, {}),
        ("ppo", Breaks, {"envs": 1}),
        pytest.param("ppo", Unrepeatable, {"workers": 1, "envs": 2}, marks=pytest.mark.slow),
        pytest.param("sac", Unrepeatable, {"workers": 1, "envs": 2}, marks=pytest.mark.slow),
        pytest.param("impala", Unrepeatable, {"learners": 2}, marks=pytest.mark.thorough),
    ],
)
def test_what_cannot_be_repeated_continues_in_new_episodes(algorithm, env, given, tmp_path) -> None:
    folder = tmp_path / "run"
    common = {"ppo": PPO, "sac": OFF}.get(algorithm, {"plots": False, "rollout": 4, "envs": 2})
    given = {"framework": "torch", "out": folder, "steps": 96, **common, **given}
    first = tandem.train(algorithm, env, stop_at=32, **given)
    Breaks.busy = env is Breaks
    second = tandem.train(env=env, resume=folder, stop_at=64)
    assert "starts new episodes at step" in second.notes[-1], second.notes
    at = Run(folder).config["restarted_at"]
    assert len(at) == 1 and first.reason == "stop_at" and at[0] < 64
    tandem.train(env=env, resume=folder)
    kept = Run(folder).config["restarted_at"]
    assert kept[0] == at[0] and (len(kept) == 2) == (env is Unrepeatable)
    refused = f"was resumed in new episodes at steps? {at[0]}|had 2 actor-learners"
    with pytest.raises(errors.ResumeError, match=refused):
        verify(folder, env=env)


def finite(run: Any) -> None:
    for name, network in run.backend.networks.items():
        for key, value in network.read().items():
            assert np.isfinite(value).all(), f"{name}/{key}"


@pytest.mark.parametrize(
    "algorithm, kind",
    [("ppo", "sgd"), ("ppo", "adam"), ("dqn", "sgd"), ("sac", "sgd"), ("sac", "adam")],
)
def test_a_loss_that_blows_up_is_refused(algorithm, kind, tmp_path) -> None:
    env = "Pendulum-v1" if algorithm != "dqn" else "CartPole-v1"
    optimizer = {"ppo": "ppo", "dqn": "q", "sac": "critic"}[algorithm]
    blown: dict[str, Any] = {"learning_rate": 1e6, "optimizer": kind, "activation": "relu"}
    blown |= {} if algorithm == "sac" else {"max_grad_norm": 1e30}
    blown |= {"dqn": {"target_every": 4}, "ppo": {"epochs": 20}, "sac": {}}[algorithm]
    run = start(env, tmp_path / "run", algorithm, steps=4000, **blown)
    said = rf"optimizer '{optimizer}' was not finite in update \d+, which was not made"
    with pytest.raises(errors.NonFiniteError, match=said) as e:
        go(run)
    finite(run)
    assert f"in update {run.loop.learner.updates + 1}," in str(e.value)
    assert tandem.load(tmp_path / "run")


def test_the_checkpoint_event_comes_after_the_file_is_whole(tmp_path: Path) -> None:
    for event in start("CartPole-v1", tmp_path / "run", checkpoint_seconds=0.0).events():
        if isinstance(event, CheckpointSaved):
            assert checkpoint.read(event.path).data["collector"]["env_steps"] == event.env_steps
