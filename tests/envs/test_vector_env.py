"""A user's vector of environments, as collectors and learners see it."""

from functools import partial
from typing import Any
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tandem.algorithms.bootstraps import after_cuts
from tandem.envs.factory import resume_fault_between, vectorize
from tandem.envs.tensors import maker, to_numpy
from tandem.envs.vector_env import VectorEnvironments
from tandem.errors import EnvironmentFault, NonFiniteError
from tandem.learning.collect.collector import Collector
from tandem.learning.collect.evaluation import evaluate
from tandem.replay.buffer import Ring
from tandem.testing import environments as games
from tandem.types import leaves, tree_map
from tests.envs.made import Acts, Made, always, assert_same
from tests.envs.vectors import MODES, Counters, Resumable

N = 4


def drawn(obs: Any, noise: Any) -> Any:
    """Its noise; where there are masks, what they allow."""
    return obs["action_mask"].argmax(1) if isinstance(obs, dict) and "action_mask" in obs else noise


ACTOR = Acts(drawn)


def collected(vector: Any, blocks: int = 3, steps: int = 16) -> Any:
    envs = VectorEnvironments("Counters", vector, seed=5)
    collector, rng = Collector(envs, 0.9), np.random.default_rng(0)
    found = []
    for _ in range(blocks):
        found.append(collector.collect(steps, ACTOR, rng.integers(0, 2, (steps, envs.n))))
    return envs, found, collector


def counts(obs: Any) -> Any:
    return obs if isinstance(obs, np.ndarray) else obs.get("count", obs.get("obs"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [{}, {"dict_obs": True}, {"masks": True}])
def test_transitions_are_those_that_were(mode, kind) -> None:
    """Each leads from one count to the next of its episode; so for what is cut."""
    envs, blocks, collector = collected(Counters(N, mode, **kind))
    ring = Ring(1000, N, envs.observation, envs.action)
    for block in blocks:
        ring.add(block)
        now, step = counts(block.obs), counts(block.obs)[..., 1]
        assert (block.reward[block.valid] == step[block.valid] + 1).all()
        value = after_cuts(block, step, counts(block.bootstrap)[:, 1], lambda _, o: counts(o)[:, 1])
        cut = block.last & (block.discount > 0)
        assert cut.any() and np.allclose(value[cut], 0.9 * (step[cut] + 1))
        assert (block.last.sum(axis=1) > 1).any()  # several that end at once
        assert block.valid.all() == (mode is not AutoresetMode.NEXT_STEP)
        assert np.isfinite(now).all()
    batch = ring.transitions(ids := ring.rows())
    assert len(ids) == sum(int(block.valid.sum()) for block in blocks)
    before, after, held = counts(batch.obs), counts(batch.next_obs), batch.discount > 0
    assert (after[:, :2][held] == before[:, :2][held] + [0, 1]).all()
    env, episode = ids % N, before[:, 0]
    ended = batch.reward == 2 + (env + 3 * episode) % 4
    assert ((batch.discount == 0) == (ended & ((env + episode) % 2 == 1))).all()
    lengths = [e.episode.length for e in collector.episodes]
    assert lengths and all(2 <= length <= 5 for length in lengths)
    assert envs._envs.forbidden == 0 or not kind.get("masks")


def test_modes_of_gymnasium_s_vectors_give_the_same_transitions() -> None:
    """Gymnasium's own SyncVectorEnv, with masks in `info` and the same actions."""
    stories = []
    for mode in MODES:
        vector = SyncVectorEnv([games.Forbidden] * 3, autoreset_mode=mode)
        envs, (block,), _ = collected(vector, blocks=1, steps=40)
        assert envs.action.masked
        rows = [(np.flatnonzero(block.valid[:, i])[:20], i) for i in range(3)]
        parts = (*leaves(block.obs), block.reward)
        stories.append([np.stack([x[row] for row in rows]) for x in parts])
    for story in stories[1:]:
        assert all((a == b).all() for a, b in zip(stories[0], story, strict=True))


BOX = spaces.Box(-1, 1, (2,), np.float32)
CHOICES = spaces.MultiDiscrete([3, 2])
SEEN = {
    "box": BOX,
    "obs": spaces.Dict(obs=BOX),
    "dict": spaces.Dict(obs=BOX, more=BOX),
    "tuple": spaces.Tuple((BOX, spaces.Discrete(3))),
}


class Rowed(Made):
    """Episodes of two steps, all alike; the first of its choices is forbidden."""

    def __init__(self, seen: Any, parts: bool) -> None:
        rows = (np.int8([0, 1, 1]), np.int8([0, 1]))
        mask = {"action_mask": rows if parts else rows[0]}
        super().__init__(seen, CHOICES if parts else None, 2, mask)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seen, parts", [*((kind, False) for kind in SEEN), ("box", True)])
def test_masks_are_beside_observations_of_every_kind(mode, seen, parts) -> None:
    plain = vectorize(lambda: Rowed(SEEN[seen], parts), 3)
    vector = SyncVectorEnv([lambda: Rowed(SEEN[seen], parts)] * 3, autoreset_mode=mode)
    envs = VectorEnvironments("Rowed", vector)
    assert envs.observation == plain.observation and envs.action == plain.action
    assert_same(envs.reset(), plain.reset())
    steps = [envs.step(np.ones((3, *envs.action.shape), np.int64)) for _ in range(5)]
    mask = [0, 1, 1, 0, 1] if parts else [0, 1, 1]
    assert all((step.obs["action_mask"] == mask).all() for step in steps)
    ends = [last["action_mask"].tolist() for step in steps for _, last in step.final]
    assert ends == ([] if mode is AutoresetMode.NEXT_STEP else [mask] * 6)


CARTPOLES = partial(gymnasium.make_vec, "CartPole-v1", 3)


@pytest.mark.parametrize("make", [*(partial(Resumable, N, mode) for mode in MODES), CARTPOLES])
def test_a_vector_with_a_state_is_resumed_to_the_bit(make) -> None:
    made = [VectorEnvironments("Counters", make(), seed=3) for _ in range(2)]
    assert made[0].resumable
    assert resume_fault_between(*made, 30, 0) is None
    assert not VectorEnvironments("Counters", Counters(N)).resumable


@pytest.mark.parametrize("kind", [Resumable, Counters])
def test_a_collector_goes_on_in_the_same_or_in_new_episodes(kind) -> None:
    envs, _, collector = collected(kind(N), blocks=1)
    state = collector.state()
    expected = collector.collect(8, ACTOR, np.ones((8, N), np.int64))
    other = Collector(VectorEnvironments("Counters", kind(N), seed=5), 0.9)
    other.load_state(*state)
    block = other.collect(8, ACTOR, np.ones((8, N), np.int64))
    pairs = zip(leaves(block[:6]), leaves(expected[:6]), strict=False)
    assert all((a == b).all() for a, b in pairs) == (kind is Resumable)
    if kind is Counters:
        assert (block.obs[0, :, 1] == 0).all()
        assert other.environments._envs.seeds[-1] != envs._envs.seeds[0]  # none is played twice


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_counts_whole_episodes(mode) -> None:
    """Episodes are those with the lowest numbers; one over its budget is cut."""
    played = evaluate(always(0), Counters(N, mode), 6)
    assert played.lengths == [2, 3, 4, 5, 5, 2]
    assert played.returns == [sum(range(1, n + 1)) for n in played.lengths]
    cut = evaluate(always(1), Counters(2, mode), 3, max_steps=2)
    assert cut.lengths == [2, 2, 2] and cut.cut == 2


def test_seeds_go_by_reset_and_no_transition_spans_an_error() -> None:
    first, second, other = (VectorEnvironments("Counters", Counters(N), seed=x) for x in (3, 3, 4))
    assert (first.reset() == second.reset()).all()
    assert (first.reset() != other.reset()).any()
    again = first.restart()
    assert (again != second.reset()).any() and first.episodes() == [1]
    collector = Collector(VectorEnvironments("Counters", Counters(N, fails_at=6)), 0.9)
    noise = np.zeros((4, N), np.int64)
    collector.collect(4, ACTOR, noise)
    with pytest.raises(EnvironmentFault, match="own vector environment raised ZeroDivision"):
        collector.collect(4, ACTOR, noise)
    block = collector.collect(4, ACTOR, noise)
    assert collector.broken == [0, 1, 2, 3] and (block.obs[0, :, 1] == 0).all()
    second.around.step = Mock(side_effect=EnvironmentFault("there is no wind.", "a wind", "blow."))
    with pytest.raises(EnvironmentFault, match=r"^there is no wind"):
        second.step(np.zeros(N, np.int64))


def test_dicts_of_actions_are_put_together() -> None:
    class Dancers(Counters):
        def step(self, actions: Any) -> Any:
            assert actions["move"].shape == (3, 2, 2) and actions["hold"].shape == (3,)
            return super().step(actions["hold"])

    vector = Dancers(3)
    move = spaces.Box(-1, 1, (2, 2), np.float32)
    vector.single_action_space = spaces.Dict(move=move, hold=spaces.Discrete(3))
    envs = VectorEnvironments("Dancers", vector)
    envs.reset()
    assert envs.action.kind == "dict"
    envs.step(np.zeros((3, *envs.action.shape), np.float32))


def test_spaces_that_lie_and_numbers_that_are_none_are_told() -> None:
    for space in (spaces.Box(-9, 9, (4,), np.float32), spaces.Box(0, 255, (3,), np.uint8)):
        lying = Counters(N)
        lying.single_observation_space = space
        with pytest.raises(EnvironmentFault, match=r"shape \(4, 3\) and dtype float32"):
            VectorEnvironments("Counters", lying).reset()
    vector = Counters(N)
    envs = VectorEnvironments("Counters", vector)
    envs.reset()
    vector._seen = lambda: np.full((N, 3), np.nan, np.float32)
    with pytest.raises(NonFiniteError, match="environment 0 of Counters"):
        envs.step(np.zeros(N, np.int64))


class Tensors(Counters):  # a simulator in torch: it returns and takes tensors
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if options is not None:
            assert isinstance(options["reset_mask"], torch.Tensor)
            options = {"reset_mask": options["reset_mask"].numpy()}
        obs, info = super().reset(seed=seed, options=options)
        return tree_map(torch.as_tensor, obs), info

    def step(self, actions: Any) -> Any:
        assert isinstance(actions, torch.Tensor) and actions.dtype == torch.int64
        obs, *rest, info = super().step(actions.numpy())
        if "final_obs" in info:
            rows = info["final_obs"]
            for i in np.flatnonzero(info["_final_obs"]):
                rows[i] = tree_map(torch.as_tensor, rows[i])
        return tree_map(torch.as_tensor, obs), *map(torch.as_tensor, rest), info


@pytest.mark.parametrize("mode", MODES)
def test_tensors_are_read_where_they_lie(mode, monkeypatch) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert to_numpy(tensor).ctypes.data == tensor.data_ptr()
    assert maker(tensor)(np.ones(2)).device == tensor.device
    _, expected, _ = collected(Counters(N, mode))
    monkeypatch.delattr(torch.Tensor, "__array__")  # the way by which NumPy copies
    _, blocks, _ = collected(Tensors(N, mode))
    assert_same(tuple(blocks), tuple(expected))


def test_arrays_of_jax_go_both_ways() -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.arange(3.0)
    assert to_numpy(x).tolist() == [0, 1, 2]
    made = maker(x)(np.ones(2, np.float32))
    assert isinstance(made, type(x)) and made.device == x.device
    assert maker(np.ones(2)) is None
