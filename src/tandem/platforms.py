"""Differences between operating systems. All other code asks this module, so that a system without
the first method has a fallback, and a test can disable the first method.

| feature | Linux | any POSIX system |
|---|---|---|
| a worker ends with its parent | the kernel kills it | it polls its parent's id |
| shared memory | memfd | an unnamed file |
| processes of a killed worker | its group, and /proc | its group |
| disk space of a mapped file | posix_fallocate | zeros are written |
| free memory | /proc and cgroups | from psutil, or all memory |

Additional processes and file locks require a POSIX system. If the system does not report which
cores a process may use, it may use all.

TANDEM_SYSTEM=posix limits a process and its children to what any POSIX system offers: for tests,
and where a first method fails. Only this module reads the variable.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

VARIABLE = "TANDEM_SYSTEM"
LINUX, POSIX = "linux", "posix"
# errors of a disk or a system limit, whatever is written
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
# signals that a terminal sends to all its processes: on Ctrl-C, and when it closes (not on Windows)
FROM_TERMINAL = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)
)
ENDING = (*FROM_TERMINAL, signal.SIGTERM)  # signals that end a run with a checkpoint
# signals that raised SystemExit in a command, which a library's import may have swallowed
UNHEARD: list[int] = []
ZEROS = 2**20  # bytes per write
WINDOWS_NAMES = '<>:"/\\|?*'  # characters not allowed in file names there; "/" everywhere


def system() -> str:
    """Return the feature set of this system: LINUX, or POSIX for fewer features. Raises
    SettingError for another value of the variable."""
    here, asked = LINUX if sys.platform == "linux" else POSIX, os.environ.get(VARIABLE, "")
    if not asked:
        return here
    from tandem.errors import one_of  # here: starting workers do not need it

    one_of(VARIABLE, asked, (LINUX, POSIX))
    return POSIX if POSIX in (here, asked) else LINUX


def processor() -> str:
    """Return the processor's vendor and features."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        return "\n".join(x for x in lines if x.startswith(("vendor_id", "flags", "Features")))
    return f"{platform.machine()} {platform.processor()}"


# --- processes ------------------------------------------------------------------------------------


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def own_cores() -> list[int]:
    """Return the numbers of those cores, or [] if the system does not report them."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def keep_to(numbers: list[int]) -> None:
    """Restrict this process to these cores, if the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, numbers)


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends. No effect on other
    systems."""
    if system() == LINUX:
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def parent_watch(parent: int) -> Callable[[float], bool]:
    """Return a function for waiting until the parent ends: called with seconds, it returns whether
    the parent still exists after them, earlier if it has already ended."""

    def wait(seconds: float) -> bool:
        if os.getppid() != parent:
            return False
        time.sleep(seconds)
        return os.getppid() == parent

    return wait


def flush_c_output() -> None:
    """Flush the output of C code in this process."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None if os.name == "posix" else "ucrtbase").fflush(None)


def check_processes() -> None:
    """Raise EngineError where processes cannot end each other by signals: on Windows."""
    if os.name != "posix":
        from tandem.errors import EngineError  # here: see `system`

        raise EngineError(
            "workers, learners, devices, trials and several seeds are processes that require a "
            "POSIX system.",
            "Linux, macOS or the Windows Subsystem for Linux",
            "train without them, one seed after another.",
        )


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a process group, and all processes that it and its children
    started. If it has already ended, kill those in its group."""
    found = [process.pid] if process.poll() is None else []
    parents = _parents() if found else {}
    for pid in found:  # grows in the loop
        found += [child for child, parent in parents.items() if parent == pid]
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _parents() -> dict[int, int]:
    """Return the parent of each process, or {} without /proc."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended; its name, in parentheses, can be anything
            after = stat.read_bytes().rpartition(b")")[2].split()
            found[int(stat.parent.name)] = int(after[1])
    return found


@contextmanager
def hangups_blocked() -> Iterator[None]:
    """Let processes started within outlive their terminal, unless they change their signal mask."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ending(code: int) -> str:
    """Describe how a process ended, by its exit code as in `subprocess`."""
    if code >= 0:
        return f"ended with exit code {code}"
    if -code == getattr(signal, "SIGKILL", None):
        return "was killed (SIGKILL), possibly for lack of memory"
    return f"died of {signal.Signals(-code).name}"


# --- memory ---------------------------------------------------------------------------------------


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of free memory of the machine; if unknown, its total memory; if that is
    unknown, None. root: the folder that contains proc."""
    if system() == LINUX:
        with suppress(OSError):
            for line in (root / "proc/meminfo").read_text(encoding="utf-8").splitlines():
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    with suppress(ImportError):  # not a dependency, but often installed
        import psutil

        return int(psutil.virtual_memory().available)
    try:  # total memory: the best bound that POSIX offers
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


# --- files ----------------------------------------------------------------------------------------


def user_path(purpose: Literal["cache", "config", "state"]) -> Path | None:
    """Return tandem's folder below the user's folder for a purpose. It may not exist. None if the
    user has no home."""
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library"
            base /= "Caches" if purpose == "cache" else "Application Support"
        else:
            default = ".local/state" if purpose == "state" else f".{purpose}"
            base = Path(os.environ.get(f"XDG_{purpose.upper()}_HOME") or Path.home() / default)
    except RuntimeError:  # a container's user without a name entry
        return None
    return base / "tandem"


def user_folder(purpose: Literal["cache", "state"]) -> Path | None:
    """Return `user_path`, created on first use. None if it cannot be written."""
    if (folder := user_path(purpose)) is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only disk
        return None
    return folder if os.access(folder, os.W_OK) else None


def flush_folder(folder: Path) -> None:
    """Make a rename survive a power failure, if the system can open a folder."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def reserve(file: IO[bytes], size: int, begin: int = 0) -> None:
    """Allocate disk space for a new file: writing a sparse file through a map on a full disk kills
    the process. If the system cannot allocate, write zeros from `begin` on. Raises OSError if there
    is not enough space."""
    if system() == LINUX:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
    file.seek(begin)
    for at in range(begin, size, ZEROS):
        file.write(bytes(min(ZEROS, size - at)))
    file.flush()


def file_name(name: str) -> str:
    """Replace characters in a name that some system does not allow in file names."""
    return "".join("-" if c in WINDOWS_NAMES else c for c in name)


def lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed or its process ends. Return False if another process
    holds the lock. Does nothing if the system or the disk does not support locks."""
    try:
        import fcntl  # not on Windows

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError) as error:
        return not isinstance(error, BlockingIOError | PermissionError)
    return True


HOLDS = os.name == "posix"  # whether `is_held` works here


def is_held(path: Path) -> bool:
    """True if a process has locked this file."""
    if not HOLDS:
        return False
    import fcntl  # not on Windows

    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # otherwise: no such file, or no locks on this disk
        return isinstance(error, BlockingIOError)
    return False
