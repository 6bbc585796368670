"""Environments that change one array in place, and write into actions, are as copying ones."""

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import tandem
from tandem.cluster import AlgorithmAgent, Cluster, Runner
from tandem.exploration import GaussianWhiteNoiseProcess
from tandem.planning import BaseNode, run_mcts_search
from tandem.reports import animation
from tandem.types import leaves, tree_map
from tests.agents.agents import Probe
from tests.envs.made import assert_same


class Drift(gymnasium.Env):
    """Stay at 0: an action moves along a line. Ends after four steps, by either end in turn."""

    observation_space: Any = spaces.Box(-99, 99, (2,), np.float32)
    action_space: Any = spaces.Box(-1, 1, (1,), np.float32)
    reuses = False

    def __init__(self) -> None:
        self.x, self.reward = np.zeros(2, np.float32), np.zeros((), np.float32)
        self.ends, self.info = np.zeros((2, 1), np.bool_), dict[str, Any]()
        self.frame = np.zeros((8, 8, 3), np.uint8)

    def _own(self, x: Any) -> Any:
        return x if self.reuses else deepcopy(x)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x[:] = self.np_random.uniform(-1, 1), 0
        self.reward[...], self.ends[:] = -7, False
        self.info.clear()
        return self._own(self.x), self._own(self.info)

    def step(self, action: Any) -> Any:
        self.x += (float(action[0]), 1.0)
        self.reward[...] = -abs(self.x[0])
        self.ends[:, 0] = self.x[1] >= 4 and self.x[0] > 0, self.x[1] >= 4 and self.x[0] <= 0
        self.info["place"] = self._own(self.x)
        if self.reuses:
            action[...] = 77
        over, cut = self._own(self.ends[:, 0])
        return self._own(self.x), self._own(self.reward), over, cut, self._own(self.info)


class Goal(Drift):  # its observations are a Dict, with a goal
    box = spaces.Box(-99, 99, (2,), np.float32)
    observation_space = spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)

    def __init__(self) -> None:
        super().__init__()
        self.goal = np.zeros(2, np.float32)
        self.seen = {"observation": self.x, "achieved_goal": self.x, "desired_goal": self.goal}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        _, info = super().reset(seed=seed)
        self.goal[:] = self.np_random.uniform(-1, 1), 0
        return self._own(self.seen), info

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return self._own(self.seen), *rest

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -abs(achieved - desired).sum(-1) - abs(info["place"]).sum(-1)


def reusing(kind: Any) -> Any:
    return type(f"Reusing{kind.__name__}", (kind,), {"reuses": True})


Reusing, ReusingGoal = reusing(Drift), reusing(Goal)
SMALL: Any = {"framework": "torch", "hidden": (4,), "steps": 64, "compile": "no", "eval_every": 0}
REPLAY = {"learning_starts": 16, "batch_size": 8, "buffer_size": 64}


def vector(num_envs: int) -> Any:
    return gymnasium.vector.SyncVectorEnv([Drift] * num_envs)


def reusing_vector(num_envs: int) -> Any:  # it returns its own buffers, too
    return gymnasium.vector.SyncVectorEnv([Reusing] * num_envs, copy=False)


def trained(algorithm: str, env: Any, **more: Any) -> Any:
    run = tandem.session(algorithm, env, **SMALL, **more)
    list(run)
    return run


@pytest.mark.parametrize(
    ("algorithm", "pair", "more"),
    [
        ("ppo", (Drift, Reusing), {"envs": 2, "rollout": 16, "batch_size": 16}),
        ("ddpg", (Drift, Reusing), {"envs": 2, "train_every": 2, **REPLAY}),
        ("ddpg", (Goal, ReusingGoal), {**REPLAY, "hindsight": "future", "copy_info": True}),
        ("ddpg", (vector, reusing_vector), {"envs": 2, "eval_env": Drift, **REPLAY}),
    ],
)
def test_training(algorithm: str, pair: Any, more: Any) -> None:
    runs = [trained(algorithm, env, **more) for env in pair]
    assert_same(*({n: net.read() for n, net in r.backend.networks.items()} for r in runs))


@pytest.fixture(scope="module")
def agents() -> dict[Any, Any]:
    """An agent for each of the observation spaces."""
    given = {"envs": 1, "rollout": 32, "batch_size": 32}
    return {env: trained("ppo", env, **given).agent() for env in (Drift, Goal)}


@pytest.mark.parametrize("pair", [(Drift, Reusing), (Goal, ReusingGoal)])
def test_evaluations_records_and_plays(pair: Any, agents: Any, tmp_path: Any) -> None:
    one, other = (tandem.evaluate(agents[pair[0]], env, episodes=5).returns for env in pair)
    assert one == other and len(set(one)) > 1
    pytest.importorskip("minari")
    found = []
    for env in pair:
        data = tandem.record(agents[pair[0]], tmp_path / env.__name__, env=env, episodes=2)
        parts = [(e.observations, e.actions, e.rewards, e.terminations) for e in data]
        frames, *rest = animation.play(agents[pair[0]].act, env(), 10)
        found.append((tuple(parts), tuple(frames), *rest))
    assert_same(*found)
    steps = leaves(found[1][0][0][0])[0][:, 1]
    assert steps.tolist() == [0, 1, 2, 3, 4] and len(found[1][1]) == 4


def test_agents_of_ones_own() -> None:
    found = []
    for env in (Drift, Reusing):
        agent = Probe([env(), env()], actions=1)
        agent.set(noise=GaussianWhiteNoiseProcess(seed=0), pool_size=60, batch=4, num_updates=1)
        agent.train(torch.optim.SGD(agent.param, 1e-3), episodes=6, p=0, processes=1)
        pools = agent.state_pool, agent.action_pool, agent.next_state_pool, agent.reward_pool
        found.append((*pools, tuple(agent.seen), tuple(agent.run_agent(10)[0])))
    assert_same(*found)
    assert (found[1][2][:, 1] == found[1][0][:, 1] + 1).all()


class Shares(Runner):  # a runner in this process, and the proxy of its agent
    def __init__(self, cluster: Any, given: Any) -> None:
        (self.agent,) = cluster.make_agent("agent", AlgorithmAgent, **given)


@pytest.mark.parametrize("shared", [False, True])
def test_the_loop_of_the_cluster(shared: bool) -> None:
    """Also where its names keep what was returned: `s` has changed when `update` is called."""
    found = []
    spaces_of = {"observation_space": Drift.observation_space, "action_space": Drift.action_space}
    options = {n: SMALL[n] for n in ("framework", "hidden", "steps")}
    given = {"algorithm": "ddpg", **spaces_of, **options, **REPLAY}
    for number, env in enumerate((Drift(), Reusing())):
        cluster = Cluster(namespace=f"reused-{number}")
        agent = Shares(cluster, given).agent if shared else AlgorithmAgent(**given)
        s, _ = env.reset(seed=0)
        for _ in range(30):
            a = agent.choose_action(s)
            s2, r, over, cut, _ = env.step(a)
            agent.update(s, a, r, s2, over or cut, cut)
            s = env.reset()[0] if over or cut else s2
        ring = agent.learner.ring
        found.append(tree_map(np.array, ring.transitions(ring.rows())))
    assert_same(*found)
    going = found[1].discount > 0
    assert (found[1].next_obs[going, 1] == found[1].obs[going, 1] + 1).all() and going.sum() > 15


class Board:  # put a stone on one of five fields; the last but one ends the game
    reuses = False

    def __init__(self) -> None:
        self.board = np.zeros(5, np.int64)

    def simulate(self, state: Any, action: int) -> tuple[Any, bool]:
        if not self.reuses:
            self.board = np.zeros(5, np.int64)
            state = state.copy()
        state[action] = 1
        self.board[:] = state
        return self.board, bool(self.board.sum() >= 4)

    def get_env_result(self, state: Any) -> float:
        return float(state @ [1, 2, 3, 4, 5]) / 15


def test_planning() -> None:
    visits = []
    for env in (Board(), reusing(Board)()):
        state = np.array([0, 1, 0, 0, 0])

        def free(x: Any) -> Any:
            return [(i, 1 / 5) for i in range(5) if not x[i]]

        root = run_mcts_search(BaseNode(), state, env, free, lambda x: 0.0, 60)
        state[:] = 1  # as an environment's own would
        visits.append([child.visits for child in root.children.values()])
        assert root.state.tolist() == [0, 1, 0, 0, 0]
    assert visits[0] == visits[1] and len(visits[0]) == 4
