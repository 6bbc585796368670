"""What systems do differently. Everything else asks here, so that a system that lacks the first way
has a second one, and a test can do without the first.

| what | Linux | any POSIX system |
|---|---|---|
| a worker ends with its parent | the kernel kills it | it looks who its parent is |
| memory that processes share | memfd | a file without a name |
| who belongs to a worker that is killed | its group, and /proc | its group |
| a mapped file has its place on the disk | posix_fallocate | zeros are written |
| free memory | /proc and cgroups | psutil's, or all memory |

Processes beside a run's need a POSIX system, and so do locks of files. Where the system does not
say which cores a process may use, it is all of them.

TANDEM_SYSTEM=posix makes a process, and those that it starts, do with what any POSIX system has:
for tests, and where a first way fails. The variable is read here alone."""

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
# errors of a disk or of a limit of the system's, whatever is written
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
# what a terminal sends to all of its processes: for Ctrl-C, and when it closes (not on Windows)
FROM_TERMINAL = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)
)
ENDING = (*FROM_TERMINAL, signal.SIGTERM)  # signals that end a run with a checkpoint
# those that a command left by SystemExit, which a library's import may have swallowed
UNHEARD: list[int] = []
ZEROS = 2**20  # bytes that are written at once
WINDOWS_NAMES = '<>:"/\\|?*'  # what names of files cannot have there, and anywhere a "/"


def system() -> str:
    """What this process may count on: LINUX, or POSIX where there is less. SettingError for another
    value of the variable."""
    here, asked = LINUX if sys.platform == "linux" else POSIX, os.environ.get(VARIABLE, "")
    if not asked:
        return here
    from tandem.errors import one_of  # here: a worker that starts has no need of it

    one_of(VARIABLE, asked, (LINUX, POSIX))
    return POSIX if POSIX in (here, asked) else LINUX


def processor() -> str:
    """Which processor this is, and what it can do."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        return "\n".join(x for x in lines if x.startswith(("vendor_id", "flags", "Features")))
    return f"{platform.machine()} {platform.processor()}"


# --- processes ------------------------------------------------------------------------------------


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def own_cores() -> list[int]:
    """The numbers of those cores; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def keep_to(numbers: list[int]) -> None:
    """From now on this process uses these cores only, where the system can be told."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, numbers)


def die_with_parent() -> None:
    """The kernel kills this process when the thread that started it ends, whatever it does then;
    nothing on other systems."""
    if system() == LINUX:
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def parent_watch(parent: int) -> Callable[[float], bool]:
    """How a process waits for the end of its parent: called with seconds, it returns whether the
    parent is still there after them, or at its end whether it is no more."""

    def wait(seconds: float) -> bool:
        if os.getppid() != parent:
            return False
        time.sleep(seconds)
        return os.getppid() == parent

    return wait


def flush_c_output() -> None:
    """Writes out what C code of this process has printed."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None if os.name == "posix" else "ucrtbase").fflush(None)


def check_processes() -> None:
    """EngineError where processes cannot end each other by signals: on Windows."""
    if os.name != "posix":
        from tandem.errors import EngineError  # here: see `system`

        raise EngineError(
            "workers, learners, devices, trials and several seeds are processes that require a "
            "POSIX system.",
            "Linux, macOS or the Windows Subsystem for Linux",
            "train without them, one seed after another.",
        )


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that leads a group of processes, and all those that it and they started.
    Where it has ended already, those in its group."""
    found = [process.pid] if process.poll() is None else []
    parents = _parents() if found else {}
    for pid in found:  # which grows
        found += [child for child, parent in parents.items() if parent == pid]
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _parents() -> dict[int, int]:
    """The parent of each process; none where there is no /proc."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended; its name, in brackets, may be anything
            after = stat.read_bytes().rpartition(b")")[2].split()
            found[int(stat.parent.name)] = int(after[1])
    return found


@contextmanager
def hangups_blocked() -> Iterator[None]:
    """Processes that are started within outlive their terminal, as far as they do nothing else."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ending(code: int) -> str:
    """How a process ended, by its exit code as `subprocess` gives it."""
    if code >= 0:
        return f"ended with exit code {code}"
    if -code == getattr(signal, "SIGKILL", None):
        return "was killed (SIGKILL), possibly for lack of memory"
    return f"died of {signal.Signals(-code).name}"


# --- memory ---------------------------------------------------------------------------------------


def free_memory(root: Path = Path("/")) -> int | None:
    """The bytes of memory that the machine has free; where it tells less, all that it has; None
    where it tells nothing. root: the folder that holds proc."""
    if system() == LINUX:
        with suppress(OSError):
            for line in (root / "proc/meminfo").read_text(encoding="utf-8").splitlines():
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    with suppress(ImportError):  # it is no dependency: many have it
        import psutil

        return int(psutil.virtual_memory().available)
    try:  # the whole memory: the best bound that POSIX knows
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


# --- files ----------------------------------------------------------------------------------------


def user_path(purpose: Literal["cache", "config", "state"]) -> Path | None:
    """tandem's folder below the user's folder for a purpose, which need not exist. None where the
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
    except RuntimeError:  # a container's user without a name
        return None
    return base / "tandem"


def user_folder(purpose: Literal["cache", "state"]) -> Path | None:
    """`user_path`, made on first use. None where nothing can be written there."""
    if (folder := user_path(purpose)) is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only disk
        return None
    return folder if os.access(folder, os.W_OK) else None


def flush_folder(folder: Path) -> None:
    """So that a rename survives a power cut, where the system lets a folder be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def reserve(file: IO[bytes], size: int, begin: int = 0) -> None:
    """Gives a new file its place on the disk: while a sparse one is written through a map, a full
    disk ends the process. Where the system cannot, zeros from `begin` on are written. OSError where
    there is no room."""
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
    """The name without what names of files cannot have on some system."""
    return "".join("-" if c in WINDOWS_NAMES else c for c in name)


def lock(file: IO[Any]) -> bool:
    """Locks an open file until it is closed, or its process has ended; whether nobody else has.
    Nothing where the system or the disk cannot do that."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError) as error:
        return not isinstance(error, BlockingIOError | PermissionError)
    return True


HOLDS = os.name == "posix"  # whether `is_held` can say anything here


def is_held(path: Path) -> bool:
    """Whether a process has locked this file."""
    if not HOLDS:
        return False
    import fcntl

    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # others: there is no such file, or no locks on this disk
        return isinstance(error, BlockingIOError)
    return False
