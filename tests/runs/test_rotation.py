"""Saving in the background loses nothing, deletes nothing else, and says what went wrong."""

import json
import os
import queue
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tandem.errors import CheckpointError, SettingError
from tandem.runs import atomic_files, checkpoint
from tandem.runs.rotation import BackgroundWriter, Rotation, SavePolicy
from tests.helpers import run_python
from tests.runs.shared import no_space

PATIENCE = 60.0  # seconds after which a test that waits for a thread has failed
GROUPS = {"net": {"x": np.arange(3.0)}}
REAL = checkpoint.write


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "tandem-writer"]


def names(folder: Path) -> set[str]:
    return {f.name for f in folder.iterdir()}


def content(path: Path) -> Any:
    return checkpoint.read(path).data["n"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    assert not threads()
    yield
    for thread in threads():
        thread.join(PATIENCE)
    assert not threads()


class Disk:
    """Takes files only while it is `free`, and keeps the names of those that it took, in order."""

    def __init__(self) -> None:
        self.begun: queue.Queue[str] = queue.Queue()
        self.free = threading.Event()
        self.written: list[str] = []

    def write(self, path: Path, *rest: Any) -> None:
        self.begun.put(path.name)
        assert self.free.wait(PATIENCE)
        REAL(path, *rest)
        self.written.append(path.name)

    def busy_with(self, name: str) -> None:
        """Returns once the writing of that file has begun."""
        assert self.begun.get(timeout=PATIENCE) == name


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    held = Disk()
    monkeypatch.setattr(checkpoint, "write", held.write)
    yield held
    held.free.set()


@pytest.fixture
def writer() -> Iterator[BackgroundWriter]:
    with BackgroundWriter() as made:
        yield made


def test_of_those_that_wait_in_a_slot_only_the_newest_is_written(writer, disk, tmp_path) -> None:
    """What comes then comes after a whole file, and in the thread."""
    done: list[str] = []

    def put(name: str, slot: str) -> None:
        def then() -> None:
            assert threading.current_thread() is threads()[0] and not threads()[0].daemon
            done.append(content(tmp_path / name))

        writer.put(tmp_path / name, {"n": name}, GROUPS, slot, then)

    put("a", "rolling")
    disk.busy_with("a")
    for name in ("b", "last", "c", "last", "d"):
        put(name, "last" if name == "last" else "rolling")
    assert writer.pending() == {tmp_path / n for n in ("a", "d", "last")} and not names(tmp_path)
    disk.free.set()
    writer.flush()
    # "d" has the place in the queue that "b" had: a slot that is often put to neither starves nor
    # makes others starve.
    assert disk.written == done == ["a", "d", "last"] and names(tmp_path) == {"a", "d", "last"}
    assert writer.skipped == 3 and not writer.pending()


def test_there_is_a_thread_only_while_there_is_something_to_write(disk, tmp_path) -> None:
    with BackgroundWriter() as writer:
        writer.flush()
        writer.close()
        assert not threads()
        for name in ("a", "b"):
            writer.put(tmp_path / name, {}, GROUPS, "rolling")
            disk.busy_with(name)
            assert len(threads()) == 1
            disk.free.set()
            writer.close()
            assert not threads()
            disk.free.clear()
    assert names(tmp_path) == {"a", "b"}


def test_where_no_thread_begins_nothing_is_lost(writer, tmp_path, monkeypatch) -> None:
    start = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(threading.Thread, "start", start)
    for i in range(2):
        writer.put(tmp_path / "a", {"n": i}, GROUPS, "rolling")
        assert content(tmp_path / "a") == i
    monkeypatch.setattr(atomic_files.os, "fsync", no_space)
    writer.put(tmp_path / "a", {"n": 2}, GROUPS, "rolling")
    with pytest.raises(CheckpointError, match="No space left"):
        writer.flush()
    assert content(tmp_path / "a") == 1
    monkeypatch.undo()
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=KeyboardInterrupt))
        writer.put(tmp_path / "a", {"n": 3}, GROUPS, "rolling")
    writer.flush()
    assert content(tmp_path / "a") == 3


def test_a_file_goes_where_its_path_pointed(writer, disk, tmp_path, monkeypatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    writer.put(Path("a"), {}, GROUPS, "rolling")
    monkeypatch.chdir(tmp_path / "elsewhere")
    disk.free.set()
    writer.flush()
    assert names(tmp_path) == {"a", "elsewhere"}


def test_the_first_error_is_raised_once_and_the_rest_still_written(disk, tmp_path) -> None:
    writer = BackgroundWriter()
    (tmp_path / "file").touch()
    done: list[str] = []
    for name in ("file/1", "file/2", "good"):
        writer.put(tmp_path / name, {}, GROUPS, name, lambda name=name: done.append(name))  # type: ignore[misc]
    disk.free.set()
    said = r"could not write .*file.1(.|\n)*; expected(.|\n)*Fix"
    with pytest.raises(CheckpointError, match=said):
        writer.flush()
    assert done == ["good"] and names(tmp_path) == {"file", "good"}
    writer.flush()
    writer.put(tmp_path / "file/3", {}, GROUPS, "rolling")
    for thread in threads():
        thread.join(PATIENCE)
    with pytest.raises(CheckpointError, match=r"could not write .*file.3"):
        writer.put(tmp_path / "refused", {}, GROUPS, "rolling")
    writer.put(tmp_path / "taken", {}, GROUPS, "rolling")
    writer.close()
    assert names(tmp_path) == {"file", "good", "taken"}


def test_data_that_is_no_json_and_errors_of_then_are_raised_too(writer, tmp_path) -> None:
    writer.put(tmp_path / "a", {"n": object()}, GROUPS, "rolling")
    with pytest.raises(TypeError, match="not JSON serializable"):
        writer.flush()
    assert not names(tmp_path), "nothing is left half done"
    writer.put(tmp_path / "a", {"n": 1}, GROUPS, "rolling", lambda: {}["missing"])
    with pytest.raises(KeyError, match="missing"):
        writer.close()
    assert content(tmp_path / "a") == 1


def test_an_exception_in_training_is_not_hidden_by_one_in_saving(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ZeroDivisionError) as caught, BackgroundWriter() as writer:
        writer.put(tmp_path / "file" / "a", {}, GROUPS, "rolling")
        raise ZeroDivisionError
    (note,) = caught.value.__notes__
    assert note.startswith("Saving failed as well: could not write")
    with pytest.raises(CheckpointError), BackgroundWriter() as writer:
        writer.put(tmp_path / "file" / "a", {}, GROUPS, "rolling")


AT_EXIT = """
    import json, sys, threading
    from pathlib import Path
    from tandem.runs import checkpoint
    from tests.runs.test_rotation import GROUPS, REAL, BackgroundWriter

    def write(*given):
        threading.main_thread().join()  # returns once the interpreter is ending
        REAL(*given)
    checkpoint.write = write

    writer, path = BackgroundWriter(), Path(sys.argv[1])
    def put():
        for n in (1, 2, 3):
            writer.put(path, {"n": n}, GROUPS, "rolling")
    if sys.argv[2] == "daemon":
        thread = threading.Thread(target=put, daemon=True)
        thread.start()
        thread.join()
    else:
        put()
    print(json.dumps(path.exists()))
"""


@pytest.mark.parametrize("how", ["main", "daemon"])
def test_what_is_queued_when_the_interpreter_ends_is_written(how: str, tmp_path: Path) -> None:
    assert run_python(AT_EXIT, str(tmp_path / "a"), how) == [False]
    assert content(tmp_path / "a") == 3 and names(tmp_path) == {"a"}


UNHEARD = """
    import io, json, sys
    from pathlib import Path
    from tandem.runs.rotation import BackgroundWriter

    class Said(io.StringIO):
        def write(self, text):
            return print(json.dumps(text))

    sys.stderr = Said()
    writer = BackgroundWriter()
    writer.put(Path(sys.argv[1]), {}, {}, "rolling")
"""


def test_an_error_that_nobody_asks_for_is_said_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = "".join(run_python(UNHEARD, str(tmp_path / "file" / "a")))
    assert said.startswith("tandem: could not write") and said.count("could not write") == 1
    assert "Fix: " in said


@pytest.mark.skipif(os.name != "posix", reason="sends a signal to one thread")
def test_an_interrupted_flush_loses_nothing(writer, tmp_path, monkeypatch) -> None:
    flushing, caught = threading.Event(), threading.Event()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background

    def write(*given: Any) -> None:
        flushing.wait(PATIENCE)
        if not caught.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]
            caught.wait(5)  # no longer: a signal just before the wait began is raised after it
        REAL(*given)

    monkeypatch.setattr(checkpoint, "write", write)
    for n in (1, 2):
        writer.put(tmp_path / "a", {"n": n}, GROUPS, "rolling")
    with pytest.raises(KeyboardInterrupt):
        flushing.set()
        writer.flush()
    caught.set()
    writer.flush()
    assert content(tmp_path / "a") == 2


COUNTS = ("save_freq", "save_freq_", "max_save_files", "save_top_k", "patience")


def test_what_a_policy_can_be_and_its_defaults(writer: BackgroundWriter) -> None:
    assert SavePolicy() == SavePolicy(None, 1, None, None, False, False, None, False, None)
    SavePolicy("a", np.int64(1), 1, 1, True, True, 1, True, 1).check()  # type: ignore[arg-type]
    wrong = [(name, value) for name in COUNTS for value in (0, -1, 1.5, True, "3")]
    for name, value in (*wrong, *(("path", path) for path in ("", ".", Path(), 3))):
        with pytest.raises(SettingError) as error:
            Rotation(SavePolicy(**{name: value}), lambda param_only: ({}, {}), writer)
        said = error.value
        assert f"{name}={value!r}" in said.happened and said.expected and said.fix


class Agent:
    """A number that grows with each episode and batch; it notes when it is copied."""

    def __init__(self, writer: BackgroundWriter, **policy: Any) -> None:
        self.n = 0
        self.copies: list[tuple[int, bool]] = []
        self.saving = Rotation(SavePolicy(**policy), self.snapshot, writer)

    def snapshot(self, param_only: bool) -> tuple[dict[str, Any], checkpoint.Groups]:
        self.copies.append((self.n, param_only))
        return {"n": self.n, "saving": self.saving.state()}, {"net": {"x": np.full(3, self.n)}}

    def episode(self, number: int, score: float | None) -> None:
        self.n += 1
        self.saving.episode(number, score)

    def batch(self, number: int) -> None:
        self.n += 1
        self.saving.batch(number)

    def play(self, scores: list[float], first: int = 1) -> list[int]:
        """Episodes, each on disk before the next; the numbers after which it should stop."""
        stops = []
        for i, score in enumerate(scores, first):
            self.episode(i, score)
            self.saving.writer.flush()
            stops += [i] if self.saving.should_stop else []
        return stops


@pytest.mark.parametrize(
    "path, score, name, last",
    [
        ("model.dat", 123.4, "model-10-123.4.dat", "model-last.dat"),
        ("./model.dat", 123.44, "model-10-123.4.dat", "model-last.dat"),
        ("a.b/model", -0.5, "model-10--0.5", "model-last"),
        ("a.b/model.x.dat", 21, "model.x-10-21.dat", "model.x-last.dat"),
        (".model", 1234567.0, ".model-10-1.235e+06", ".model-last"),
        ("model.dat", None, "model-10.dat", "model-last.dat"),
        ("model.dat", float("nan"), "model-10.dat", "model-last.dat"),
        ("model[1-3].dat", np.float32(2.5), "model[1-3]-10-2.5.dat", "model[1-3]-last.dat"),
    ],
)
def test_names(path, score, name, last, writer, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = Agent(writer, path=path, save_freq=10, save_freq_=500, max_save_files=1, save_last=True)
    agent.episode(9, 0.0)
    agent.episode(10, score)
    writer.flush()
    folder = (tmp_path / path).parent
    assert names(folder) == {name, last}
    agent.batch(499)
    agent.batch(500)
    writer.flush()
    stem, suffix = last.split("-last")
    assert names(folder) == {f"{stem}-b500{suffix}", last} and content(folder / last) == 4


def test_how_often(writer: BackgroundWriter, tmp_path: Path) -> None:
    agent = Agent(writer, path=tmp_path / "a", save_freq=3, save_freq_=4, save_param_only=True)
    for i in range(1, 9):
        agent.batch(i)
        agent.episode(i, 0.0)
    agent.saving.finish()
    # episodes 3 and 6, batches 4 and 8, and the end
    assert agent.copies == [(n, True) for n in (6, 7, 12, 15, 16)]
    agent = Agent(writer, path=tmp_path / "b", save_freq=None)
    agent.episode(1, 0.0)
    agent.saving.finish()
    assert agent.copies == [(1, False)] and content(tmp_path / "b") == 1


def test_without_a_path_nothing_is_copied_and_no_thread_begins(writer, disk: Disk) -> None:
    agent = Agent(writer, max_save_files=1, save_freq_=1, save_last=True, patience=2)
    assert agent.play([3.0, 2.0, 1.0]) == [3]
    agent.batch(1)
    agent.saving.finish()
    assert not agent.copies and not threads() and disk.begun.empty()


def test_a_slow_disk_gets_the_newest_and_finish_waits_for_it(writer, disk, tmp_path) -> None:
    agent = Agent(writer, path=tmp_path / "m.dat", max_save_files=3, save_last=True)
    agent.episode(1, 1.0)
    disk.busy_with("m-1-1.dat")
    for i in range(2, 9):
        agent.episode(i, float(i))
    assert writer.skipped == 6 + 7  # the first m-last waits too
    disk.free.set()
    agent.saving.finish()
    # the first in the last's slot came before the second rolling one
    assert disk.written == ["m-1-1.dat", "m-last.dat", "m-8-8.dat"] and len(agent.copies) == 8
    assert content(tmp_path / "m-last.dat") == content(tmp_path / "m-8-8.dat") == 8


def file_of(label: str) -> str:
    return "m.dat" if label == "m" else f"m-{label}.dat"


def follow(agent: Agent, moves: str, folder: Path, disk: Disk) -> None:
    """An episode's score (`-`: none; `4/2`: of episode 4; `!9`: on a full disk), `b7`: a batch,
    `.`: the end of a call, `+a`, `xa`: somebody makes and deletes a file, `ra`: resumed from it,
    `(1-9`: the disk takes nothing from the next episode on, whose file this is, until `)`.
    Expected by then: `=a,b`: these files, `a:3`: the state in a file, `#2`: as many copies."""
    number, first = 0, ""
    disk.free.set()
    for move in moves.split():
        kind, rest = move[0], move[1:]
        if ":" in move:
            label, n = move.split(":")
            assert content(folder / file_of(label)) == int(n), move
        elif move == ".":
            agent.saving.finish()
        elif kind == "(":
            disk.free.clear()
            disk.begun, first = queue.Queue(), file_of(rest)
        elif kind == ")":
            disk.free.set()
            agent.saving.writer.flush()
        elif kind == "b":
            agent.batch(int(rest))
        elif kind == "+":
            (folder / file_of(rest)).touch()
        elif kind == "x":
            (folder / file_of(rest)).unlink()
        elif kind == "r":
            agent = resumed(folder / file_of(rest), agent)
        elif kind == "=":
            assert names(folder) == {file_of(label) for label in rest.split(",")}, move
        elif kind == "#":
            assert len(agent.copies) == int(rest), move
        elif kind == "!":
            number += 1
            with pytest.MonkeyPatch.context() as full, pytest.raises(CheckpointError):
                full.setattr(atomic_files.os, "fsync", no_space)
                agent.play([float(rest)], number)
        else:
            number = int(move.partition("/")[0]) if "/" in move else number + 1
            agent.episode(number, None if move == "-" else float(move.rpartition("/")[2]))
            if disk.free.is_set():
                agent.saving.writer.flush()
            elif first:
                disk.busy_with(first)
                first = ""


def resumed(file: Path, agent: Agent) -> Agent:
    other = Agent(agent.saving.writer, **vars(agent.saving.policy))
    saved = checkpoint.read(file).data
    other.n = saved["n"]
    other.saving.load_state(json.loads(json.dumps(saved["saving"])))
    return other


ROTATED = "+m +0-1 +last +b1 5 1 4 =m,0-1,last,b1,1-5,2-1,3-4 2 =m,0-1,last,b1,2-1,3-4,4-2"
# the same name again is the newest, and one that somebody else deleted is not counted
ROTATED += " 3 9 4/2 x5-3 7/7 =m,0-1,last,b1,4-2,6-9,7-7 1 =m,0-1,last,b1,4-2,7-7,8-1"
SPARSE = {"save_best_only": True, "save_freq": 100, "save_freq_": 1}
BOTH = {"save_best_only": True, "save_freq": 2, "save_last": True, "max_save_files": 2}
TOP = {"save_top_k": 2, "save_last": True}


@pytest.mark.parametrize(
    "policy, moves",
    [
        ({}, "1 =m m:1 1 m:2 1 =m m:3 . #3"),
        ({"save_freq": 2, "max_save_files": 2}, ". #0 1 2 3 . . =2-2,3-3 #2 b70 . =3-3,b70 b70:4"),
        ({"max_save_files": 3}, ROTATED),
        (SPARSE, "- b1 -3 m:3 -4 -3 m:3 -2.5 m:6 nan -2.6 . =m m:6 #2"),
        # of no even number, but not older than the best
        (BOTH, "1 2 3 last:3 0 0 =2-2,3-3,last last:4 . =2-2,3-3,last last:5"),
        # of equals the newer; a batch has the score of the last episode
        (TOP | {"save_freq_": 1}, "- 5 3 4 4 1 =2-5,5-4,last last:6 b1 4.5 b2 . =2-5,b2,last"),
        ({"save_top_k": 5, "max_save_files": 2}, "5 3 4 =1-5,3-4"),
        ({"save_top_k": 1}, "9 x1-9 3 =2-3"),  # keeps no other away
        ({"save_top_k": 1}, "!9 3 =2-3"),
        ({"max_save_files": 3}, "5 1 4 2 r4-2 3 3 =4-2,5-3,6-3 x5-3 r6-3 1 =4-2,6-3,7-1"),
        ({"max_save_files": 1}, "1 (2-2 2 =1-1 ) =2-2"),  # the older goes when the newer is whole
        ({"save_top_k": 2}, "(1-5 5 5 5 5 ) =3-5,4-5 5 =4-5,5-5"),
        ({"max_save_files": 2}, "(1-1 1 2 3 ) =1-1,3-3 r3-3 4 5 =4-4,5-5"),  # one on its way, too
        (TOP, "5 1 4 2 rlast 3 4 6 =1-5,7-6,last"),
        ({"save_best_only": True, "max_save_files": 9}, "5 r1-5 4 5 6 =1-5,4-6"),
    ],
)
def test_files_are_kept(policy, moves, writer, disk, tmp_path) -> None:
    follow(Agent(writer, path=tmp_path / "m.dat", **policy), moves, tmp_path, disk)


def test_two_paths_do_not_take_each_others_place(writer, disk, tmp_path) -> None:
    for policy in ({}, {"save_top_k": 1}, {"save_last": True, "save_best_only": True}):
        disk.free.clear()
        agents = [Agent(writer, path=tmp_path / name, **policy) for name in ("a", "b", "c")]
        for agent in agents:
            agent.episode(1, 1.0)
        disk.free.set()
        writer.flush()
    assert names(tmp_path) == {f"{name}{rest}" for name in "abc" for rest in ("", "-1-1", "-last")}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 3),
)
def test_the_top_files_are_those_of_a_sort(tmp_path_factory, episodes, k) -> None:
    folder, disk = tmp_path_factory.mktemp("top"), Disk()
    with pytest.MonkeyPatch.context() as patch, BackgroundWriter() as writer:
        patch.setattr(checkpoint, "write", disk.write)
        agent = Agent(writer, path=folder / "m", save_top_k=k)
        for i, (score, quick) in enumerate(episodes, 1):
            agent.episode(i, score)
            assert len(writer.pending()) <= k + 1
            if quick:
                disk.free.set()
                writer.flush()
                disk.free.clear()
        disk.free.set()
        agent.saving.finish()
    scores = [score for score, _ in episodes]
    best = sorted((score, i) for i, score in enumerate(scores, 1))[-k:]
    assert names(folder) == {f"m-{i}-{score}" for score, i in best}


@pytest.mark.parametrize(
    "scores, patience, stops",
    [
        ([5, 4, 4, 4], 3, [4]),
        ([5, 4, 4, 5, 4, 4], 3, []),  # as good as the best: not below it
        ([5, 4, 4, 6, 5, 5, 5, 5], 3, [7, 8]),
        ([None, None, 1, 0], 1, [4]),
        ([5, 4, None, 4], 2, [4]),
        ([5, 4, 3, 2], None, []),
    ],
)
def test_patience(scores, patience, stops, writer) -> None:
    assert Agent(writer, patience=patience).play(scores) == stops


def test_after_a_stop_the_next_call_has_its_own_patience(writer: BackgroundWriter) -> None:
    agent = Agent(writer, patience=2)
    assert agent.play([5, 4, 4]) == [3]
    agent.saving.finish()
    assert not agent.saving.should_stop
    other = Agent(writer, patience=2)
    other.saving.load_state(agent.saving.state())
    for each in (agent, other):
        assert each.play([4, 4, 4]) == [2, 3]
    # One that had not come to its end goes on.
    agent, other = Agent(writer, patience=3), Agent(writer, patience=3)
    agent.play([5, 4, 4])
    agent.saving.finish()
    other.saving.load_state(agent.saving.state())
    assert agent.play([4], 4) == other.play([4], 4) == [4]


def test_a_state_deletes_no_files_of_other_paths(writer: BackgroundWriter, tmp_path: Path) -> None:
    """A checkpoint may come from a stranger, or from a run that saved somewhere else."""
    beside = ("own.txt", "m.dat", "m-last.dat", "m-1.txt")
    others = [tmp_path / name for name in (*beside, "elsewhere/m-1.dat", "elsewhere/../own.txt")]
    (tmp_path / "elsewhere").mkdir()
    for file in others:
        file.touch()
    agent = Agent(writer, path=tmp_path / "m.dat", max_save_files=1)
    agent.saving.load_state({"best": None, "bad": 0, "files": [[str(f), 1.0] for f in others]})
    agent.play([1, 2])
    agent.saving.policy.path = tmp_path / "n.dat"
    agent.play([3, 4], 3)
    assert all(f.is_file() for f in others)
    left = {n for n in names(tmp_path) if n[:2] in ("m-", "n-")}
    assert left == {"m-last.dat", "m-1.txt", "m-2-2.dat", "n-4-4.dat"}


POLICIES = ({}, {"max_save_files": 1}, {"save_top_k": 1}, {"save_best_only": True})


@pytest.mark.parametrize("policy", POLICIES)
def test_a_full_disk_is_said_and_leaves_the_files_before(policy, tmp_path, monkeypatch) -> None:
    agent = Agent(writer := BackgroundWriter(), path=tmp_path / "m.dat", save_last=True, **policy)
    agent.play([1])
    before = {f: f.read_bytes() for f in tmp_path.iterdir()}
    with monkeypatch.context() as full:
        full.setattr(atomic_files.os, "fsync", no_space)
        with pytest.raises(CheckpointError, match="No space left"):
            agent.episode(2, 2.0)  # its second file may find already what became of the first
            agent.saving.finish()
        with pytest.raises(CheckpointError, match="No space left"):
            agent.saving.finish()
    assert {f: f.read_bytes() for f in tmp_path.iterdir()} == before
    agent.saving.finish()
    agent.episode(4, 4.0)
    agent.saving.finish()
    writer.close()
    named = policy.keys() & {"max_save_files", "save_top_k"}
    assert names(tmp_path) == {"m-last.dat", "m-4-4.dat" if named else "m.dat"}
    assert {content(f) for f in tmp_path.iterdir()} == {agent.n}


def test_what_could_not_be_written_is_written_at_the_end(writer, tmp_path, monkeypatch) -> None:
    agent = Agent(writer, path=tmp_path / "m.dat")
    with monkeypatch.context() as full:
        full.setattr(atomic_files.os, "fsync", no_space)
        agent.episode(1, 1.0)
        for thread in threads():
            thread.join(PATIENCE)
    with pytest.raises(CheckpointError, match="No space left"):
        agent.saving.finish()
    assert content(tmp_path / "m.dat") == 1


def test_a_file_that_cannot_be_deleted_is_named_and_tried_again(writer, tmp_path, monkeypatch):
    agent = Agent(writer, path=tmp_path / "m", max_save_files=1)
    agent.play([1])
    raises = pytest.raises(CheckpointError, match=r"could not delete .*m-1-1: (.|\n)*Fix")
    with monkeypatch.context() as refuse, raises:
        refuse.setattr(Path, "unlink", no_space)
        agent.play([2], 2)
    assert names(tmp_path) == {"m-1-1", "m-2-2"}
    agent.play([3], 3)
    assert names(tmp_path) == {"m-3-3"}
