import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem import platforms
from tandem.errors import MemoryBudgetError, SettingError, SpaceError
from tandem.replay import allocation
from tandem.replay.layout import Layout, check_column
from tandem.spaces import Leaf
from tandem.workers.shared_memory import SharedArrays

OUTER, V1 = "sys/fs/cgroup/outer", "sys/fs/cgroup/memory/docker"
MACHINE = "MemTotal:  900 kB\nMemFree:  100 kB\nMemAvailable:  5000 kB\n"
V2_NAMES, V1_NAMES = ("memory.max", "memory.current"), ("limit_in_bytes", "usage_in_bytes")


def group(folder: str, names: tuple[str, ...], *said: object) -> dict[str, str]:
    """The files of a control group: its limit, what is used, and a line of its statistics."""
    return {f"{folder}/{n}": f"{x}\n" for n, x in zip((*names, "memory.stat"), said, strict=True)}


INNER = group(f"{OUTER}/inner", V2_NAMES, "max", 100_000, "anon 1\ninactive_file 70")
AROUND = group(OUTER, V2_NAMES, 200_000, 150_000, "anon 1\ninactive_file 30000")
DOCKER = group(V1, [f"memory.{n}" for n in V1_NAMES], 1000, 900, "total_inactive_file 250")


@pytest.mark.parametrize(
    "files, expected",
    [
        ({}, 5000 * 1024),
        # the tightest group around the process decides; files that the kernel can drop are free
        ({"proc/self/cgroup": "0::/outer/inner\n", **INNER, **AROUND}, 80_000),
        ({"proc/self/cgroup": "5:cpu:/docker\n4:memory:/docker\n", **DOCKER}, 350),
    ],
)
def test_free_memory_of_machines_and_containers(tmp_path: Path, files: Any, expected: int) -> None:
    for name, text in (files | {"proc/meminfo": MACHINE}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert allocation.available_memory(tmp_path) == expected


def test_where_nothing_is_known_nothing_is_refused(monkeypatch: Any) -> None:
    available = allocation.available_memory()
    assert available is None or 2**20 < available < 2**50
    monkeypatch.setattr(allocation, "available_memory", lambda: None)
    allocation.require(2**60, "this")
    monkeypatch.setattr(allocation, "available_memory", lambda: 10)
    allocation.require(10, "this")
    with pytest.raises(MemoryBudgetError, match="this needs 11 bytes"):
        allocation.require(11, "this")
    sizes = [allocation.human(n) for n in (0, 1023, 1536, 3 * 2**30, 2**52)]
    assert sizes == ["0 bytes", "1023 bytes", "1.5 KiB", "3.0 GiB", "4096.0 TiB"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [tmp_path / "obs.npy", tmp_path / "last.npy"]


def test_disks_that_are_too_small(monkeypatch: Any, files: Any) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 500_000}))
    with pytest.raises(MemoryBudgetError, match=r"943\.4 KiB.*488\.3 KiB") as refused:
        allocation.allocate(COLUMNS, "this", 6000, files)
    assert "--buffer-size 1035 or less" in refused.value.fix
    files[0].write_bytes(bytes(1_000_000))  # will be replaced, and counts as free
    allocation.require(1_400_000, "this", files)
    with pytest.raises(MemoryBudgetError, match="larger disk"):
        allocation.require(2_000_000, "this", files)


COLUMNS = {"obs": ((3000, 2, 40), np.float32), "last": ((3000, 2), bool)}


@pytest.mark.parametrize("system", [platforms.LINUX, platforms.POSIX])
def test_files_have_their_place_and_are_used_again(system: str, monkeypatch, files) -> None:
    monkeypatch.setenv(platforms.VARIABLE, system)
    # a sparse file of an older version is replaced
    np.lib.format.open_memmap(files[0], "w+", np.float32, (3000, 2, 40))
    assert files[0].stat().st_blocks * 512 < files[0].stat().st_size
    arrays = allocation.allocate(COLUMNS, "this", 6000, files)
    for file, x in zip(files, arrays.values(), strict=True):
        status = file.stat()
        assert status.st_size >= x.nbytes and status.st_blocks * 512 >= status.st_size
        assert not x.any()
    arrays["obs"][7] = 3.0
    del arrays
    before = [file.stat().st_ino for file in files]
    monkeypatch.setattr(allocation, "reserve", lambda *_: pytest.fail("a file was written again"))
    again = allocation.allocate(COLUMNS, "this", 6000, files)
    assert (again["obs"][7] == 3.0).all() and [f.stat().st_ino for f in files] == before


@pytest.mark.parametrize("system", [platforms.LINUX, platforms.POSIX])
def test_a_disk_that_fills_meanwhile_is_refused(system: str, monkeypatch: Any, files: Any) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv(platforms.VARIABLE, system)
    monkeypatch.setattr(os, "posix_fallocate", full)
    if system != platforms.LINUX:
        monkeypatch.setattr(allocation, "reserve", full)
    with pytest.raises(MemoryBudgetError, match=r"this needs 943.4 KiB, but .*No space left"):
        allocation.allocate(COLUMNS, "this", 6000, files)
    assert not list(files[0].parent.iterdir())


def test_other_systems_file_in_common_has_its_place_too(monkeypatch: Any) -> None:
    monkeypatch.setenv(platforms.VARIABLE, platforms.POSIX)
    shared = SharedArrays.create({"x": ((100_000,), "<f8")})
    status = os.fstat(shared.handle.fd)
    assert status.st_blocks * 512 >= status.st_size >= 800_000 and not shared["x"].any()


PICTURES = Leaf("box", (3, 2, 2), "uint8", stack=3)
SPEED = Leaf("box", (2,), "float32")
ACTION = Leaf("discrete", (), "int64", (4,))


def test_columns_have_their_slots_and_observations_are_split_and_joined_again() -> None:
    extra = {"log_prob": Leaf("box", (), "float32")}
    layout = Layout(5, 2, {"eye": PICTURES, "speed": SPEED}, ACTION, extra)
    assert layout.history == 2
    assert layout.slots == 3 + 2 + 1  # 5 transitions of 2 environments are 3 time steps
    assert layout.columns == {
        "obs/eye": ((6, 2, 2, 2), "uint8"),
        "age/obs/eye": ((6, 2), "uint8"),
        "obs/speed": ((6, 2, 2), "float32"),
        "action": ((6, 2), "int64"),
        **dict.fromkeys(("reward", "discount", "extra/log_prob"), ((6, 2), "float32")),
        **dict.fromkeys(("last", "valid"), ((6, 2), "bool")),
    }
    assert layout.nbytes == 6 * 2 * (4 + 1 + 8 + 8 + 4 + 4 + 1 + 1 + 4)
    layout = Layout(5, 2, {"eye": PICTURES, "speed": SPEED}, ACTION, {})
    obs = {"speed": np.ones((4, 2), np.float32), "eye": np.full((4, 3, 2, 2), 7, np.uint8)}
    arrays = layout.split(obs)
    assert [x.shape for x in arrays] == [(4, 3, 2, 2), (4, 2)]  # in the order of the space
    joined = layout.join(arrays)
    assert {k: x.shape for k, x in joined.items()} == {k: x.shape for k, x in obs.items()}
    assert [x.shape for x in layout.obs_columns(obs)] == [(4, 2, 2), (4,), (4, 2)]
    alone = Layout(5, 2, SPEED, ACTION, {})
    assert alone.split(obs["speed"])[0] is alone.join([obs["speed"]]) is obs["speed"]


def test_files_have_names_that_any_system_takes(tmp_path) -> None:
    layout = Layout(5, 2, {"a/b": SPEED, "a:c": SPEED}, ACTION, {})
    names = [file.name for file in layout.files(tmp_path)]
    assert names[:3] == ["00_obs.npy", "01_obs.npy", "02_action.npy"]
    assert len(set(names)) == len(layout.columns)
    for capacity, envs in ((0, 1), (1, 0)):
        with pytest.raises(SettingError, match="at least one of each"):
            Layout(capacity, envs, SPEED, ACTION, {})
    for x in (np.zeros((3, 1), np.float32), np.zeros((3, 2), np.float64)):
        with pytest.raises(SpaceError, match="reward has shape"):
            check_column("reward", x, (3, 2), np.dtype("float32"))
