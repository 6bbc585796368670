"""The cluster door on several nodes, each with a raylet of its own."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

from tandem.cluster import Cluster
from tandem.errors import WorkerError
from tests.cluster.agents import Documented, Recorder, Where
from tests.helpers import ROOT

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def nodes():
    from ray.cluster_utils import Cluster as Nodes

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        head = {"num_cpus": 1, "include_dashboard": False}
        made = Nodes(initialize_head=True, head_node_args=head)
        ray.init(made.address, log_to_driver=False, logging_level="ERROR")
        yield made
        ray.shutdown()
        made.shutdown()


def test_runners_are_on_all_nodes_and_one_that_joins_is_used(nodes, tmp_path) -> None:
    cluster = Cluster(patience=60)
    (agent,) = cluster.make_agent("a", Recorder)
    runners = cluster.make_runner("r", Where, (tmp_path, 2), num=2)  # the second finds no core yet
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(cluster.start_all_runners(runners)))
    thread.start()
    end = time.monotonic() + 60
    while not list(tmp_path.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(list(tmp_path.iterdir())) == 1 and agent.choose_action(0) == 1
    joined = nodes.add_node(num_cpus=1)
    thread.join(120)
    assert len(set(found[0])) == 2 and joined.node_id in found[0]


def test_who_has_left_the_cluster_is_told_so_and_begins_no_other(nodes) -> None:
    (agent,) = Cluster().make_agent("b", Recorder)
    assert agent.choose_action(0) == 1
    ray.shutdown()
    with pytest.raises(WorkerError, match=r"agent 'b' was called after ray.shutdown\(\)"):
        agent.choose_action(0)
    args = SimpleNamespace(cluster=Cluster(namespace="after"), lr=0.1)
    # in this process, whatever has become of `agent`
    assert Documented(args).run()[1:] == (4, 0, 0)
    assert not ray.is_initialized()
