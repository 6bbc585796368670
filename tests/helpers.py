"""What several tests need: snippets run in a Python of their own, on the engine they ask for."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from tests import children

ROOT = Path(__file__).parent.parent
Engine = Literal["torch", "jax", "tensorflow", "keras-torch"]
KERAS_BACKENDS = {"jax": "jax", "tensorflow": "tensorflow", "keras-torch": "torch"}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
# answers are compared to the bit, so they come from one device
ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}
# on a cluster of its own, not on one that another test has begun meanwhile
ALONE = {"RAY_ADDRESS": "local"}
# XLA spends longer on compiling a short test's programs than they run: without LLVM's costly passes
# it takes about half. `make test-all` compiles the same programs as they are for users.
COMPILED_LIGHTLY = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


def expect_installed(package: str) -> None:
    """Skips a test whose child processes need a package, which is not imported here: TensorFlow
    imports Keras."""
    if find_spec(package) is None:
        import pytest  # snippets in children do without

        pytest.skip(f"{package} is not installed")


def own_cluster(cpus: int) -> Iterator[None]:
    """What a fixture yields from: a Ray cluster of its own, with so many CPUs, until it is over."""
    import ray

    ray.init(
        "local", num_cpus=cpus, include_dashboard=False, logging_level="error", log_to_driver=False
    )
    yield
    ray.shutdown()


def compiled_in(folder: str | Path) -> dict[str, str]:
    """The environment variables that make JAX, TensorFlow's XLA and torch's inductor keep what they
    compile in `folder`, for other processes to load."""
    return {
        "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={folder}/tensorflow",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch",
    }


def run_python(
    code: str | Path,
    *args: str,
    engine: Engine | None = None,
    timeout: float = 120.0,
    env: Mapping[str, str] | None = None,
    forked: bool = True,
) -> list[Any]:
    """What a snippet (or a script, where `code` is a Path) prints, one JSON value a line, parsed.

    Keras reads its backend once, at import, so a test that needs another engine needs another
    process. With an engine it is a fork of one that has imported the framework, unless `forked` is
    false: for what Python and the framework do when they begin. The child runs on one thread and on
    the CPU (`env` overrides that), finds `tandem` and `tests`, and may start processes by `spawn`.
    Raises AssertionError with the child's stderr if it fails, takes longer than `timeout` seconds
    (it is then killed with all the processes it started), or prints anything that is not JSON.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = code
        # a file rather than `-c`: tracebacks show their lines, and spawned processes find it
        if isinstance(code, str):
            script = Path(folder) / "snippet.py"
            script.write_text(textwrap.dedent(code), encoding="utf-8")
        command, variables = [str(script), *args], _environment(engine, env or {})
        files = (Path(folder) / "out", Path(folder) / "err")
        for file in files:
            file.touch()
        if engine and forked:
            status = children.run(engine, command, variables, files, timeout)
        else:
            status = _run([sys.executable, *command], variables, files, timeout)
        out, err = (file.read_text(encoding="utf-8") for file in files)
    if status != 0:
        raise AssertionError(
            f"the child was still running after {timeout} s:\n{err}"
            if status is None
            else f"the child ended with status {status}:\n{err}"
        )
    try:
        return [json.loads(line) for line in out.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise AssertionError(
            f"the child printed a line that is not JSON ({error}):\n{out}\nIts stderr:\n{err}"
        ) from error


def _environment(engine: Engine | None, extra: Mapping[str, str]) -> dict[str, str]:
    not_theirs = ("KERAS_BACKEND", "PYTEST_CURRENT_TEST")
    inherited = {k: v for k, v in os.environ.items() if k not in not_theirs}
    chosen = {"KERAS_BACKEND": KERAS_BACKENDS[engine]} if engine in KERAS_BACKENDS else {}
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return {**inherited, **ONE_THREAD, **ON_CPU, **ALONE, **QUIET, **path, **chosen, **extra}


def _run(
    command: list[str], env: dict[str, str], files: tuple[Path, Path], timeout: float
) -> int | None:
    with files[0].open("w") as out, files[1].open("w") as err:
        child = subprocess.Popen(
            command, stdout=out, stderr=err, cwd=ROOT, env=env, start_new_session=True
        )
    try:
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # its own processes too
        child.wait()
        return None


def runs(pid: int) -> bool:
    """Whether a process is there and not a zombie, as /proc says."""
    return bool(stat := _stat(pid)) and stat[0] not in "ZX"


def own_processes() -> set[int]:
    """This process, and those that it has begun, and theirs."""
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    parents = {pid: int(stat[1]) for pid in pids if (stat := _stat(pid))}
    own: set[int] = set()
    found = {os.getpid()}
    while found:
        own |= found
        found = {pid for pid, parent in parents.items() if parent in found} - own
    return own


def _stat(pid: int) -> list[str]:
    """State, parent, ... of a process; nothing where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends while it is read
        return []
    return stat.rsplit(")", 1)[1].split()


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Another process holds the file meanwhile, as one that trains the run does."""
    program = (
        "import sys; from pathlib import Path; from tandem import platforms\n"
        "file = Path(sys.argv[1]).open('ab'); print(platforms.lock(file), flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(file)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"True\n"
        yield
