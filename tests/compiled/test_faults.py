"""What an environment may not give is named in a compiled run as it is where it is stepped; and
trees of JAX in checkpoints: large arrays block by block."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from tandem import algorithms
from tandem.envs.jax.vector import FunctionalVector
from tandem.errors import EnvironmentFault, NonFiniteError, SettingError
from tandem.learning.compiled import make
from tandem.learning.compiled.arrays import from_arrays, to_arrays
from tandem.learning.compiled.collecting import Collecting
from tandem.learning.compiled.faults import Faults
from tandem.learning.config import Options
from tandem.replay.array_files import BLOCK, StoredArray
from tandem.runs import checkpoint
from tandem.settings import apply
from tests.functional.worlds import Walk

PARTS = {"at": spaces.Box(-1, 1, (2,), np.float32), "door": spaces.MultiDiscrete([4, 5])}
ROOM = SimpleNamespace(
    observation_space=spaces.Dict({"action_mask": spaces.MultiBinary(5), **PARTS}),
    action_space=spaces.MultiDiscrete([2, 3]),
)


def told(where: str = "", value: Any = 0, over: bool = False, begun: bool = False) -> str:
    """What is said of two environments' four steps, at one of which one of them gives this."""

    def obs() -> dict[str, Any]:
        door = np.full((4, 2, 2), 3)
        return {"action_mask": np.ones((4, 2, 5)), "at": np.zeros((4, 2, 2)), "door": door}

    acted, seen, reward = obs(), obs(), np.zeros((4, 2))
    if where == "reward":
        reward[2, 1] = value
    elif where:
        (acted if begun else seen)[where][2, 1] = value
    ends = np.zeros((4, 2), bool)
    ends[2, 1] = over
    faults = Faults("room", ROOM)
    arrays = [{k: jnp.asarray(x) for k, x in one.items()} for one in (acted, seen)]
    outcome = SimpleNamespace(obs=arrays[1], reward=jnp.asarray(reward), terminated=ends)
    length = np.arange(1, 5)[:, None].repeat(2, 1) - 2 * begun
    codes = np.asarray(faults.of_steps(arrays[0], outcome))
    try:
        faults.check(codes, length)
    except (EnvironmentFault, NonFiniteError) as error:
        return f"{type(error).__name__}: {error.happened}"
    return ""


def test_what_is_no_number_or_outside_of_its_space_is_named() -> None:
    returned, end = "environment 1 of room returned the", "at step 3 of its episode."
    assert told("reward", np.inf) == f"NonFiniteError: {returned} reward NaN or infinity {end}"
    said = f"NonFiniteError: {returned} observation of 'at' NaN or infinity {end}"
    assert told("at", (0, np.nan)) == said
    assert told("at", (0, np.nan), begun=True).endswith("at step 0 of its episode.")
    said = f"EnvironmentFault: {returned} observation of 'door' out of range {end}"
    assert told("door", (3, 5)) == said
    assert told("door", (-1, 1)) and not told("door", (0, 4)) and not told()


def test_a_mask_that_leaves_no_choice_is_named_where_one_is_to_be_made() -> None:
    shut = (0, 0, 1, 1, 1)
    assert "masks every choice at step 3" in told("action_mask", shut)
    assert "masks every choice" in told("action_mask", (1, 0, 0, 0, 0))
    assert not told("action_mask", shut, over=True)
    assert not told("action_mask", (0, 1, 0, 0, 1))


DRAWN = SimpleNamespace(  # acts by what is drawn
    settings=SimpleNamespace(block=3, gamma=0.9),
    action_mode=lambda *_: "as_is",
    initial_state=lambda *_: (),
    act=lambda settings, action, networks, obs, state, drawn: (drawn, {}, state),
)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-2, 2, (2, 2), np.float32),
        spaces.Box(-2, 2, (), np.float32),
        spaces.MultiDiscrete([[3, 3], [3, 3]]),
    ],
    ids=str,
)
def test_actions_of_every_shape_reach_their_environment_as_it_takes_them(space: Any) -> None:
    class Shaped(Walk):
        action_space = space

        def step(self, key: Any, state: Any, action: Any) -> Any:
            assert action.shape == space.shape
            one = super().step(key, state, jnp.int32(0))
            return one._replace(reward=1.0 * action.ravel()[-1])

    collecting = Collecting(DRAWN, Shaped(), 2)
    size, key = max(1, int(np.prod(space.shape))), jax.random.key(0)
    drawn = (np.arange(6 * size) % 3).reshape(3, 2, size).astype(collecting.action.dtype)
    _, trajectory, _ = collecting.collect({}, collecting.begin(key), drawn, key, ())
    np.testing.assert_array_equal(trajectory.reward, drawn[..., -1])
    np.testing.assert_array_equal(trajectory.action, drawn)


@pytest.mark.parametrize(
    "name, given, says",
    [
        ("dqn", {"envs": 3, "train_every": 4}, "train_every=4 with 3 environments"),
        ("ppo", {"envs": 3, "rollout": 10, "batch_size": 8}, "has 30 rows, but batches have 8"),
        ("ppo", {"normalize_rewards": True, "standardize_rewards": True}, "standardize_rewards="),
    ],
)
def test_numbers_that_do_not_fit_are_refused_as_on_the_host(name, given, says, monkeypatch) -> None:
    kind = algorithms.get(name)
    built = SimpleNamespace(needs=kind.needs, settings=apply(kind.Settings(), given))
    monkeypatch.setattr(make, "build", lambda *of: built)
    conf: Any = SimpleNamespace(options=Options(compile_cache=False), seed=0)
    with pytest.raises(SettingError, match=says):
        make.make(conf, FunctionalVector("walk", Walk(), built.settings.envs), None, None)


def test_large_arrays_are_written_and_read_without_a_copy_on_the_host(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ring = rng.random((1000, BLOCK // 700 // 4, 2), np.float32)
    tree = {"ring": jax.numpy.array(ring), "key": jax.random.key(3), "at": jax.numpy.int32(5)}
    arrays = to_arrays(tree, "kept")
    assert any(x is tree["ring"] for x in arrays.values())
    checkpoint.write(tmp_path / "last.zip", {}, {"learner": arrays})
    saved = checkpoint.read(tmp_path / "last.zip").group("learner")
    assert sum(isinstance(x, StoredArray) for x in saved.values()) == 1
    again = from_arrays(jax.eval_shape(lambda: tree), "kept", saved)
    assert np.array_equal(again["ring"], ring) and again["at"] == 5
    assert (jax.random.key_data(again["key"]) == jax.random.key_data(tree["key"])).all()
