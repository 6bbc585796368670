"""What systems do differently; workers on their second ways: learning/parallel/test_pool.py."""

import os
import re
import signal
import sys
from types import SimpleNamespace

import pytest

from tandem import platforms
from tandem.backends import malloc
from tandem.errors import SettingError
from tests.helpers import ROOT, held


def test_a_system_has_what_it_has_or_less(monkeypatch) -> None:
    for name, asked, expected in (
        ("linux", "", "linux"),
        ("darwin", "", "posix"),
        ("linux", "posix", "posix"),
        ("darwin", "linux", "posix"),  # it cannot have more than there is
    ):
        environ = {"TANDEM_SYSTEM": asked}
        monkeypatch.setattr(platforms, "sys", SimpleNamespace(platform=name))
        monkeypatch.setattr(platforms, "os", SimpleNamespace(name="posix", environ=environ))
        assert platforms.system() == expected
    environ["TANDEM_SYSTEM"] = "windows"
    with pytest.raises(SettingError, match="TANDEM_SYSTEM='windows'"):
        platforms.system()


def test_the_variable_is_read_in_one_place() -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py")}
    read = re.compile(f"[\"']{platforms.VARIABLE}[\"']")
    readers = [f.relative_to(ROOT).as_posix() for f, text in texts.items() if read.search(text)]
    assert readers == ["src/tandem/platforms.py"]


def test_free_memory_has_other_ways_and_only_glibc_s_is_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TANDEM_SYSTEM", "posix")
    malloc.keep_freed.cache_clear()
    assert malloc.keep_freed() is False
    malloc.keep_freed.cache_clear()
    monkeypatch.delenv("TANDEM_SYSTEM")
    monkeypatch.setitem(sys.modules, "psutil", None)  # not installed
    pages = os.sysconf("SC_PHYS_PAGES")
    assert platforms.free_memory(tmp_path) == os.sysconf("SC_PAGE_SIZE") * pages
    monkeypatch.setattr(platforms, "os", SimpleNamespace(environ={}, name="nt"))
    assert platforms.free_memory(tmp_path) is None
    told = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(available=12345))
    monkeypatch.setitem(sys.modules, "psutil", told)
    assert platforms.free_memory(tmp_path) == 12345


def test_names_of_files_and_how_processes_ended_and_watched_parents() -> None:
    assert platforms.file_name("ALE/Pong-v5") == "ALE-Pong-v5"
    assert platforms.file_name('my.module:Env<"a|b">?*\\') == "my.module-Env--a-b-----"
    assert platforms.ending(3) == "ended with exit code 3"
    assert platforms.ending(-signal.SIGKILL).startswith("was killed (SIGKILL)")
    assert platforms.ending(-signal.SIGSEGV) == "died of SIGSEGV"
    assert platforms.parent_watch(os.getppid())(0.0)
    assert not platforms.parent_watch(os.getpid())(60.0)  # at once


def test_a_lock_is_one_process_s_and_cores_are_those_of_this_process(tmp_path, monkeypatch) -> None:
    with held(tmp_path / "lock"), (tmp_path / "lock").open("w") as file:
        assert not platforms.lock(file)
    with (tmp_path / "lock").open("w") as file:
        assert platforms.lock(file)
    assert platforms.cores() == len(platforms.own_cores()) >= 1
    monkeypatch.setattr(platforms, "os", SimpleNamespace(cpu_count=lambda: 7))
    assert platforms.cores() == 7 and platforms.own_cores() == []
    platforms.keep_to([0])  # nothing happens, and nothing is raised
