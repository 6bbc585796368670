"""Saving and resuming take little memory beside the replay memory; checkpoints as folders."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tandem.errors import CheckpointError
from tandem.replay import array_files
from tandem.runs import checkpoint, checkpoint_dir
from tandem.runs.background_writer import BackgroundWriter
from tests.helpers import ROOT, run_python
from tests.runs.shared import QUICK

MEASURED = """
import json, re, sys, gymnasium, numpy as np, tandem, torch
from tandem.exploration import GreedyQPolicy
from tests.agents.agents import Probe

def mebibytes(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

def peak_begins():
    open("/proc/self/clear_refs", "w").write("5")
    return mebibytes("VmRSS")

class Wide(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (25_000,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.seen = 0, self.np_random.random(25_000, np.float32) * 0.01
        return self.seen, {}

    def step(self, action):
        self.t += 1
        return self.seen, 0.0, self.t % 50 == 0, False, {}
"""
RUN = """
at = {}

def look(event):
    name = type(event).__name__
    if name == "TrainBegin":
        at["resumed"] = mebibytes("VmHWM") - mebibytes("VmRSS")
    elif name == "BatchEnd":
        at["before"] = peak_begins()
    elif name == "CheckpointSaved":
        at["saved"] = mebibytes("VmHWM") - at.get("before", 0)

options = json.loads(sys.argv[1])
tandem.train(env=Wide, callbacks=[look], **options)
print(at["resumed" if "resume" in options else "saved"])
"""
AGENT = """
def agent():
    made = Probe(Wide(), width=25_000)
    made.set(policy=GreedyQPolicy(), pool_size=1500, batch=4, num_updates=1, PR=sys.argv[2] == "PR")
    return made

if sys.argv[3] == "save":
    one = agent()
    one.train(torch.optim.SGD(one.param, 0.01), 30, p=0)
    before = peak_begins()
    one.save(sys.argv[1])
    print(mebibytes("VmHWM") - before)
else:
    one = agent()
    one.restore(sys.argv[1])
    one.train(torch.optim.SGD(one.param, 0.01), 0, p=0)
    assert len(one._assembly.learner.ring) == 1500
    print(mebibytes("VmHWM") - mebibytes("VmRSS"))
"""
BUFFER = 1500 * 25_000 * 4 / 2**20  # MiB
MOST = 0.1 * BUFFER + 100  # beside it
measures = os.access("/proc/self/clear_refs", os.W_OK)
needs_proc = pytest.mark.skipif(not measures, reason="peaks are measured by /proc")


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("memmap", [False, True])
def test_a_run_takes_no_second_replay_memory(memmap: bool, tmp_path: Path) -> None:
    options = QUICK | {"algorithm": "dqn", "steps": 1500, "buffer_size": 1500, "eval_episodes": 0}
    options |= {"learning_starts": 1490, "memmap": memmap, "out": str(tmp_path / "run")}
    (saved,) = run_python(MEASURED + RUN, json.dumps(options))
    assert (tmp_path / "run/checkpoints/last.zip").stat().st_size > BUFFER * 2**20
    assert saved < MOST
    (resumed,) = run_python(MEASURED + RUN, json.dumps({"resume": str(tmp_path / "run")}))
    assert resumed < MOST


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["PR", pytest.param("", marks=pytest.mark.thorough)])
def test_an_agent_takes_no_second_pool(sampling: str, tmp_path: Path) -> None:
    for what in ("save", "restore"):
        more = run_python(MEASURED + AGENT, str(tmp_path / "agent"), sampling, what)
        assert more[-1] < MOST, what


def random_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "cut": rng.random((70, 600, 60)).astype(np.float32)[:, :300],  # not in one piece
        "long rows": rng.integers(0, 255, (2, array_files.BLOCK + 3), np.uint8),
        "flags": rng.random(array_files.BLOCK + 7) < 0.5,
        "number": np.array(7, np.int64),
        "none": np.zeros((0, 3), np.float16),
    }


def test_large_arrays_are_read_when_they_are_used(tmp_path: Path) -> None:
    arrays = random_arrays()
    checkpoint.write(tmp_path / "one", {}, {"learner": arrays, "engine": arrays})
    found = checkpoint.read(tmp_path / "one")
    assert found.group("engine").keys() == arrays.keys()
    learned = found.group("learner")
    large = {name for name, x in learned.items() if isinstance(x, array_files.StoredArray)}
    assert large == {"cut", "long rows", "flags"}
    for name, x in arrays.items():
        stored, target = learned[name], np.zeros_like(x)
        array_files.fill(target, stored)
        for y in (np.asarray(stored), target, found.group("engine")[name]):
            assert y.dtype == x.dtype and np.array_equal(x, y)
    assert np.array_equal(learned["cut"][3:9], arrays["cut"][3:9])
    assert np.array_equal(learned["long rows"][1][5:8], arrays["long rows"][1][5:8])
    checkpoint.write(tmp_path / "again", {}, {"learner": learned})
    again = checkpoint.read(tmp_path / "again").group("learner")
    assert all(np.array_equal(x, again[name]) for name, x in arrays.items())


def test_files_are_those_of_the_package_safetensors(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    dtypes = "?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"
    arrays = {f"ä {kind}": np.arange(6).reshape(2, 3).astype(kind) for kind in dtypes}
    file = tmp_path / "theirs.safetensors"
    numpy.save_file(arrays, file, {"by": "them"})
    theirs = array_files.loaded(array_files.stored(file, 0, file.stat().st_size))
    ours = numpy.load(b"".join(array_files.pieces(arrays)))
    for found in (theirs, ours):
        assert found.keys() == arrays.keys()
        for name, x in arrays.items():
            assert found[name].dtype == x.dtype and np.array_equal(found[name], x)


def test_the_replay_memory_is_written_before_training_continues(tmp_path: Path) -> None:
    arrays = random_arrays()
    kept = {name: x.copy() for name, x in arrays.items()}
    with BackgroundWriter() as writer:
        for name in ("one", "two", "three"):  # what waits is replaced, and leaves nothing
            writer.put(tmp_path / name, {}, {"learner": arrays, "engine": kept}, "slot")
        for x in arrays.values():
            x[...] = 0
        skipped = writer.skipped
    names = {file.name for file in tmp_path.iterdir()}
    assert "three" in names and len(names) == 3 - skipped
    for group in ("learner", "engine"):
        found = checkpoint.read(tmp_path / "three").group(group)
        assert all(np.array_equal(kept[name], x) for name, x in found.items())


def test_an_entry_beyond_four_gibibytes_has_the_large_header(tmp_path, monkeypatch) -> None:
    """With the limits at a kibibyte: `zipfile` refuses an entry that outgrows them unforeseen."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1024)
    x, file = np.arange(5000.0), tmp_path / "one.zip"
    checkpoint.write(file, {}, {"learner": {"x": x}, "engine": {"x": x}})
    for group in ("learner", "engine"):
        assert np.array_equal(checkpoint.read(file).group(group)["x"], x)


# Checkpoints as folders, which earlier versions wrote: they are read, and removed

WRITTEN = ROOT / "tests" / "data" / "checkpoints" / "folder"  # by the commit before its removal
NET = {"a/w": np.arange(6.0).reshape(2, 3), "b": np.array(7, np.int64)}


def test_a_folder_is_read_and_only_what_was_written_is_removed(tmp_path) -> None:
    found = checkpoint.read(WRITTEN)
    net = found.group("net")
    assert found.data["n"] == 1 and list(net) == ["a/w", "b"] and found.group("none") == {}
    for name, x in NET.items():
        assert net[name].dtype == x.dtype and np.array_equal(net[name], x)
    assert np.asarray(found.group("learner")["ring"]).tolist() == list(range(12))
    for name in ("alone", "shared"):
        shutil.copytree(WRITTEN, tmp_path / name)
    (tmp_path / "shared" / "notes.txt").write_text("mine")
    checkpoint_dir.remove(tmp_path / "alone")
    with pytest.raises(OSError, match="not empty"):
        checkpoint_dir.remove(tmp_path / "shared")
    assert [*tmp_path.rglob("*")] == [tmp_path / "shared", tmp_path / "shared" / "notes.txt"]
    path = Path(shutil.copytree(WRITTEN, tmp_path / "model"))
    found = checkpoint.Checkpoint(path, checkpoint.read(path).data | {"part": "../elsewhere"})
    with pytest.raises(CheckpointError, match="cannot be read"):
        found.group("net")


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "index"])
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    path = Path(shutil.copytree(WRITTEN, tmp_path / "model"))
    one = path / ("checkpoint.json" if damage == "index" else "0/net-0.safetensors")
    raw = one.read_bytes()
    one.unlink()
    if damage != "missing":
        one.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]) if damage == "altered" else raw[:-3])
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.read(path).group("net")
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.read(tmp_path)  # a folder that is none
