from __future__ import annotations

import numpy as np
import pytest

from tandem.errors import SettingError, SpaceError
from tandem.replay.layout import Layout, check_column
from tandem.spaces import Leaf

PICTURES = Leaf("box", (3, 2, 2), "uint8", stack=3)
SPEED = Leaf("box", (2,), "float32")
ACTION = Leaf("discrete", (), "int64", (4,))


def test_columns_have_the_slots_of_the_capacity_the_past_and_what_follows() -> None:
    layout = Layout(
        5, 2, {"eye": PICTURES, "speed": SPEED}, ACTION, {"log_prob": Leaf("box", (), "float32")}
    )
    assert layout.history == 2
    assert layout.slots == 3 + 2 + 1  # 5 transitions of 2 environments are 3 time steps
    assert layout.columns == {
        "obs/eye": ((6, 2, 2, 2), "uint8"),
        "age/obs/eye": ((6, 2), "uint8"),
        "obs/speed": ((6, 2, 2), "float32"),
        "action": ((6, 2), "int64"),
        "reward": ((6, 2), "float32"),
        "discount": ((6, 2), "float32"),
        "last": ((6, 2), "bool"),
        "valid": ((6, 2), "bool"),
        "extra/log_prob": ((6, 2), "float32"),
    }
    assert layout.nbytes == 6 * 2 * (4 + 1 + 8 + 8 + 4 + 4 + 1 + 1 + 4)


def test_files_have_names_that_any_system_takes(tmp_path) -> None:
    layout = Layout(5, 2, {"a/b": SPEED, "a:c": SPEED}, ACTION, {})
    names = [file.name for file in layout.files(tmp_path)]
    assert names[:3] == ["00_obs.npy", "01_obs.npy", "02_action.npy"]
    assert len(set(names)) == len(layout.columns)


def test_observations_are_split_into_columns_and_joined_again() -> None:
    layout = Layout(5, 2, {"eye": PICTURES, "speed": SPEED}, ACTION, {})
    obs = {"speed": np.ones((4, 2), np.float32), "eye": np.full((4, 3, 2, 2), 7, np.uint8)}
    arrays = layout.split(obs)
    assert [x.shape for x in arrays] == [(4, 3, 2, 2), (4, 2)]  # in the order of the space
    assert {k: x.shape for k, x in layout.join(arrays).items()} == {
        k: x.shape for k, x in obs.items()
    }
    assert [x.shape for x in layout.obs_columns(obs)] == [(4, 2, 2), (4,), (4, 2)]
    alone = Layout(5, 2, SPEED, ACTION, {})
    assert alone.split(obs["speed"])[0] is alone.join([obs["speed"]]) is obs["speed"]


@pytest.mark.parametrize("capacity, envs", [(0, 1), (1, 0)])
def test_no_transitions_or_environments_are_refused(capacity, envs) -> None:
    with pytest.raises(SettingError, match="at least one of each"):
        Layout(capacity, envs, SPEED, ACTION, {})


@pytest.mark.parametrize("x", [np.zeros((3, 1), np.float32), np.zeros((3, 2), np.float64)])
def test_another_shape_or_dtype_is_refused(x) -> None:
    check_column("reward", np.zeros((3, 2), np.float32), (3, 2), np.dtype("float32"))
    with pytest.raises(SpaceError, match="reward came with shape"):
        check_column("reward", x, (3, 2), np.dtype("float32"))
