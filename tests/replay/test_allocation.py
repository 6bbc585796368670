from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tandem import platforms
from tandem.errors import MemoryBudgetError
from tandem.parallel.shared_memory import SharedArrays
from tandem.replay import allocation


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (3 * 2**30, "3.0 GiB"),
        (2**52, "4096.0 TiB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert allocation.human(size) == text


def test_free_memory_of_a_machine(tmp_path: Path) -> None:
    write(
        tmp_path, {"proc/meminfo": "MemTotal:  900 kB\nMemFree:  100 kB\nMemAvailable:  500 kB\n"}
    )
    assert allocation.available_memory(tmp_path) == 500 * 1024


def test_a_container_has_less(tmp_path: Path) -> None:
    """The tightest group around the process decides."""
    write(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable:  5000 kB\n",
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": "100000\n",
            "sys/fs/cgroup/outer/inner/memory.stat": "anon 1\ninactive_file 70\n",
            "sys/fs/cgroup/outer/memory.max": "200000\n",
            "sys/fs/cgroup/outer/memory.current": "150000\n",
            "sys/fs/cgroup/outer/memory.stat": "anon 1\ninactive_file 30000\n",
        },
    )
    assert allocation.available_memory(tmp_path) == 80_000


def test_containers_of_version_1(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/docker"
    write(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable:  5000 kB\n",
            "proc/self/cgroup": "5:cpu:/docker\n4:memory:/docker\n",
            f"{group}/memory.limit_in_bytes": "1000\n",
            f"{group}/memory.usage_in_bytes": "900\n",
            f"{group}/memory.stat": "total_inactive_file 250\n",
        },
    )
    assert allocation.available_memory(tmp_path) == 350


def test_this_machine_tells_something_sensible() -> None:
    available = allocation.available_memory()
    assert available is None or 2**20 < available < 2**50


def test_where_nothing_is_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "available_memory", lambda: None)
    allocation.require(2**60, "this")
    monkeypatch.setattr(allocation, "available_memory", lambda: 10)
    allocation.require(10, "this")
    with pytest.raises(MemoryBudgetError, match="this needs 11 bytes"):
        allocation.require(11, "this")


def test_files_that_will_be_replaced_count_as_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "old.npy"
    old.write_bytes(bytes(1_000_000))
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    allocation.require(900_000, "this", [old, tmp_path / "new.npy"])
    with pytest.raises(MemoryBudgetError, match="larger disk"):
        allocation.require(2_000_000, "this", [old])


COLUMNS = {"obs": ((3000, 2, 40), np.float32), "last": ((3000, 2), bool)}


@pytest.mark.parametrize("system", [platforms.LINUX, platforms.POSIX])
def test_files_have_their_place_on_the_disk_and_are_used_again(
    system: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(platforms.VARIABLE, system)
    files = [tmp_path / "obs.npy", tmp_path / "last.npy"]
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


def test_a_sparse_file_of_an_older_version_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "obs.npy"
    np.lib.format.open_memmap(file, "w+", np.float32, (3000, 2, 40))
    assert file.stat().st_blocks * 512 < file.stat().st_size
    allocation.allocate({"obs": COLUMNS["obs"]}, "this", 6000, [file])
    assert file.stat().st_blocks * 512 >= file.stat().st_size


@pytest.mark.parametrize("system", [platforms.LINUX, platforms.POSIX])
def test_a_disk_that_fills_meanwhile_is_refused_with_the_size_needed(
    system: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv(platforms.VARIABLE, system)
    monkeypatch.setattr(os, "posix_fallocate", full)
    if system != platforms.LINUX:
        monkeypatch.setattr(allocation, "reserve", full)
    files = [tmp_path / "obs.npy", tmp_path / "last.npy"]
    with pytest.raises(MemoryBudgetError, match=r"this needs 943.4 KiB, but .*No space left"):
        allocation.allocate(COLUMNS, "this", 6000, files)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_too_small_is_refused_with_a_size_that_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 500_000}))
    files = [tmp_path / "obs.npy", tmp_path / "last.npy"]
    with pytest.raises(MemoryBudgetError, match=r"943\.4 KiB.*488\.3 KiB") as refused:
        allocation.allocate(COLUMNS, "this", 6000, files)
    assert "--buffer-size 1035 or less" in refused.value.fix


def test_other_systems_file_in_common_has_its_place_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(platforms.VARIABLE, platforms.POSIX)
    shared = SharedArrays.create({"x": ((100_000,), "<f8")})
    status = os.fstat(shared.handle.fd)
    assert status.st_blocks * 512 >= status.st_size >= 800_000 and not shared["x"].any()
