"""The cluster API on several nodes, each with a raylet of its own. Its program is a new process: it
does not depend on what tests did with Ray before, and if Ray ends it, its stderr says why."""

from __future__ import annotations

import pytest

from tests.helpers import run_python

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

PROGRAM = """
    import json, threading, time
    from pathlib import Path
    from tempfile import mkdtemp
    from types import SimpleNamespace

    import ray
    from ray.cluster_utils import Cluster as Nodes

    from tandem.cluster import Cluster
    from tandem.errors import WorkerError
    from tests.cluster.agents import Documented, Recorder, Where

    nodes = Nodes(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
    folder = Path(mkdtemp())
    cluster = Cluster(patience=60)
    (agent,) = cluster.make_agent("a", Recorder)
    runners = cluster.make_runner("r", Where, (folder, 2), num=2)  # the second finds no core yet
    found = []
    thread = threading.Thread(target=lambda: found.append(cluster.start_all_runners(runners)))
    thread.start()
    while not list(folder.iterdir()):
        time.sleep(0.05)
    began, answer = len(list(folder.iterdir())), agent.choose_action(0)
    joined = nodes.add_node(num_cpus=1)
    thread.join(120)
    print(json.dumps([began, answer, found[0], joined.node_id]))

    (agent,) = Cluster().make_agent("b", Recorder)
    answer = agent.choose_action(0)
    ray.shutdown()
    try:
        agent.choose_action(0)
    except WorkerError as error:
        print(json.dumps([answer, str(error)]))
    args = SimpleNamespace(cluster=Cluster(namespace="after"), lr=0.1)
    # in this process, whatever has become of `agent`
    print(json.dumps([Documented(args).run()[1:], ray.is_initialized()]))
    nodes.shutdown()
"""


def test_runners_use_a_node_that_joins_and_who_has_left_is_told_so() -> None:
    shown = run_python(PROGRAM, timeout=180, env={"PYTHONFAULTHANDLER": "1"})
    (began, answer, found, joined), (again, left), (after, is_initialized) = shown
    assert began == answer == 1 and len(set(found)) == 2 and joined in found
    assert again == 1 and "agent 'b' was called after ray.shutdown()" in left
    assert after == [4, 0, 0] and not is_initialized
