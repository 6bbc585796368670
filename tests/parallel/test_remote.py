"""Environments stepped in other processes are those of one process."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tandem.envs.actions import random_actions
from tandem.envs.stepped import Stepped
from tandem.errors import EnvironmentFault, ResumeError, SettingError, WorkerError
from tandem.learning.parallel.remote import Remote
from tandem.testing import environments as games
from tandem.types import leaves
from tests.parallel.faulty import Faulty

KINDS: dict[str, Any] = {
    "vector": lambda: gymnasium.make("CartPole-v1"),
    "numbers": lambda: gymnasium.make("Pendulum-v1", max_episode_steps=20),
    "dict": games.IdentityDict,
    "several": games.IdentityMultiDiscrete,
    "truncated": games.TerminatedTruncatedPair,
}


def same(one: Any, other: Any) -> None:
    assert len(one.final) == len(other.final)
    for a, b in zip(leaves(one[:5]), leaves(other[:5]), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    for (i, x), (j, y) in zip(one.final, other.final, strict=True):
        pairs = zip(leaves(x), leaves(y), strict=True)
        assert i == j and all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_they_give_what_one_process_gives(kind: str, processes: int) -> None:
    here = Stepped("Some", [KINDS[kind]() for _ in range(5)], 3)
    there = Remote("Some", [KINDS[kind]() for _ in range(5)], 3, processes)
    rng = np.random.default_rng(0)
    obs, other = here.reset(), there.reset()
    for _ in range(50):
        assert all(np.array_equal(a, b) for a, b in zip(leaves(obs), leaves(other), strict=True))
        actions = random_actions(here.action, 5, rng, obs)
        one, two = here.step(actions), there.step(actions)
        same(one, two)
        obs, other = one.obs, two.obs
    there.close()


def test_their_state_is_taken_and_put_back() -> None:
    def remote(processes: int = 3) -> Remote:
        return Remote("Some", [gymnasium.make("CartPole-v1") for _ in range(4)], 3, processes)

    first, second, rng = remote(), remote(), np.random.default_rng(0)
    first.reset()
    for _ in range(30):
        first.step(rng.integers(0, 2, 4))
    second.reset()
    second.load_state(*first.state())
    for _ in range(30):
        actions = rng.integers(0, 2, 4)
        same(first.step(actions), second.step(actions))
    with pytest.raises(ResumeError, match="has 3 processes; this run has 2"):
        remote(2).load_state(*first.state())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "raises", "exits"])
def test_a_lost_worker_s_environments_begin_anew_and_say_so(fault: str, tmp_path: Path) -> None:
    envs = [Faulty(str(tmp_path), fault, os.getpid(), at=6) for _ in range(4)]
    remote, actions = Remote("Some", envs, 3, 2), np.zeros(4, np.int64)
    remote.reset()
    for _ in range(5):
        assert remote.step(actions).lost == []
    with pytest.warns(UserWarning, match=r"worker 1 \(environments 2 to 3 of Some\)"):
        one = remote.step(actions)
    assert one.lost == [2, 3] and one.valid.tolist() == [True, True, False, False]
    assert not one.reward[2:].any() and not one.terminated.any() and not one.final
    assert remote.step(actions).valid.all()
    os.kill(remote.group.workers[0].process.pid, 9)  # type: ignore[union-attr]
    with pytest.warns(UserWarning, match="environments 2 to 3"):
        remote.step(actions)


def test_errors_above_the_budget_and_of_this_process_s_own_share(tmp_path) -> None:
    envs = [Faulty(str(tmp_path), "raises", os.getpid(), at=2) for _ in range(2)]
    remote = Remote("Some", envs, 3, 2, restarts=0)
    remote.reset()
    remote.step(np.zeros(2, np.int64))
    with pytest.raises(WorkerError, match="the simulator diverged"):
        remote.step(np.zeros(2, np.int64))
    with pytest.raises(SettingError, match="processes=3 for 2 environments"):
        Remote("Some", [games.Chain(), games.Chain()], 0, 3)
    remote = Remote("Some", [games.Raises(at=3), games.InfiniteHorizon()], 3, 2)
    remote.reset()
    remote.step(np.zeros(2, np.int64))
    remote.step(np.zeros(2, np.int64))
    with pytest.raises(EnvironmentFault, match="environment 0 of Some raised ValueError at step 3"):
        remote.step(np.zeros(2, np.int64))
