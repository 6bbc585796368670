"""Settings of the whole test-suite."""

import os
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tests import children
from tests.helpers import ON_CPU, ONE_THREAD, QUIET, ROOT, compiled_in

for name, value in {
    **ONE_THREAD,
    **ON_CPU,
    **QUIET,
    "TANDEM_NO_USER_ZOO": "1",
}.items():  # before NumPy or a framework is imported, which read them once
    os.environ.setdefault(name, value)

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# The same examples in every run, and no deadline: on a shared machine a slow example says nothing
# about the code.
settings.register_profile("tandem", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("tandem")


COMPILED = pytest.StashKey[str]()
KERAS = pytest.StashKey[bool]()
BEGAN = pytest.StashKey[float]()
# Seconds of a processor that a folder's tests may take in `make test`: about half as many more as
# they took on two cores of an AMD EPYC in November 2026. Lower them where tests get quicker. Where
# all tests together take more than `USUAL`, as on a slower processor, budgets are as much larger;
# where they take more than `SLOW`, it is busy, and they say nothing.
BUDGETS = {
    "tests/advice": 70,
    "tests/agents": 330,
    "tests/algorithms": 210,
    "tests/backends": 250,
    "tests/cluster": 60,
    "tests/compiled": 60,
    "tests/contracts": 260,
    "tests/envs": 60,
    "tests/functional": 70,
    "tests/learning": 220,
    "tests/networks": 170,
    "tests/parallel": 160,
    "tests/runs": 220,
    "tests/tuning": 190,
}
USUAL, SLOW = 1_700.0, 2_300.0  # seconds of all tests
SHOWN = 120.0  # seconds of all tests, from which they are shown by folder


def pytest_configure(config: pytest.Config) -> None:
    """All processes of a run share one folder of compiled programs. A folder of each run's own: no
    answer may depend on what an earlier commit compiled."""
    if not hasattr(config, "workerinput"):  # the workers of xdist inherit its environment
        config.stash[COMPILED] = tempfile.mkdtemp(prefix="tandem-compiled-")
        os.environ.update(compiled_in(config.stash[COMPILED]))
        # the key that signs runs, and what torch compiles
        os.environ |= {f"XDG_{x}_HOME": f"{config.stash[COMPILED]}/{x}" for x in ("STATE", "CACHE")}


def pytest_unconfigure(config: pytest.Config) -> None:
    if COMPILED in config.stash:
        shutil.rmtree(config.stash[COMPILED], ignore_errors=True)


@pytest.hookimpl(trylast=True)  # after what the test began is closed
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Keras reads KERAS_BACKEND once in a process: later tests on another backend would fail."""
    if "keras" in sys.modules and KERAS not in item.session.stash:
        item.session.stash[KERAS] = True  # reported once
        pytest.fail("imports Keras into the process of all tests; Fix: framework='torch' there.")


# --- seconds of a processor, by folder ------------------------------------------------------------


def _processor_seconds() -> float:
    """Of this process and of those children that it has waited for."""
    own, ended = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    return seconds + sum(children.seconds.values())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGAN] = _processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "teardown" and BEGAN in item.stash:
        report.user_properties.append(("seconds", _processor_seconds() - item.stash[BEGAN]))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A folder over its budget fails the run, as a test does."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        not hasattr(session.config, "workerinput")
        and reporter
        and _over(_spent(reporter)[0], session.config)
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints them where they are more than a few minutes, or too many."""
    seconds, counts = _spent(terminalreporter)
    over = _over(seconds, terminalreporter.config)
    if (total := seconds.total()) > SHOWN or over:
        terminalreporter.section("seconds of a processor")
        for folder, spent in seconds.most_common():
            more = f", over its budget of {over[folder]} s" if folder in over else ""
            terminalreporter.write_line(f"{spent:7.0f}  {counts[folder]:5d} tests  {folder}{more}")
        terminalreporter.write_line(f"{total:7.0f}  {counts.total():5d} tests")


def _spent(reporter: Any) -> tuple[Counter[str], Counter[str]]:
    """Seconds and tests of each folder."""
    seconds, counts = Counter[str](), Counter[str]()
    for reports in reporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") in ("call", "teardown"):
                folder = "/".join(report.nodeid.split("::")[0].split("/")[:2])
                counts[folder] += report.when == "call"
                seconds[folder] += dict(report.user_properties).get("seconds", 0.0)
    return seconds, counts


def _over(seconds: Counter[str], config: pytest.Config) -> dict[str, int]:
    """The budgets of folders that took longer, without thorough tests."""
    if "not thorough" not in config.option.markexpr or seconds.total() > SLOW:
        return {}
    slower = max(1.0, seconds.total() / USUAL)
    return {name: most for name, most in BUDGETS.items() if seconds[name] > slower * most}


@pytest.fixture(autouse=True)
def _denormals_as_they_were():
    """The torch backend flushes denormals, for the whole thread; NumPy's and hypothesis's own tests
    must not notice."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A Ray cluster with three CPUs, which all tests of this process share."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:  # its processes find what is tested here
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        head = {"num_cpus": 3, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture(scope="module")
def on_ray(ray_address: str) -> Iterator[None]:
    """This process is part of that cluster, for the tests of one file."""
    import ray

    ray.init(ray_address, logging_level="error", log_to_driver=False)
    yield
    ray.shutdown()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two processes begin with the two halves of the list: with half of the long tests each. So
    they end together, over short ones. The long tests of a file stay together: what a fixture of
    the file made for a minute is made once."""
    long = [item for item in items if item.get_closest_marker("slow")]
    short = [item for item in items if not item.get_closest_marker("slow")]
    halves: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    for _, of_a_file in groupby(long, key=lambda item: item.path):
        min(halves, key=len).extend(of_a_file)
    first, second = halves
    room = len(items) // 2 - len(first)
    items[:] = [*first, *short[:room], *second, *short[room:]] if room > 0 else items
