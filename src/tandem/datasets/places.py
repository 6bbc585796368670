"""Locations of data sets: a folder, or an id in Minari's data directory."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from tandem.errors import SettingError, needs

ID = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")  # for example cartpole/ppo-v0
DATA, METADATA = "data", "metadata.json"


def library() -> ModuleType:
    """Return the `minari` module. Raises EngineError if Minari or h5py is not installed."""
    with needs("Minari", "and h5py to store episodes", "pip install 'tandem-rl[data]'."):
        import h5py  # noqa: F401
        import minari
        import minari.namespace  # noqa: F401
    return minari


def is_id(name: str) -> bool:
    """Return true for an id in Minari's data directory, as opposed to a path. An id ends in a
    version such as -v0 and does not begin with a dot, slash or tilde."""
    of_one_letter = len(name.rpartition("/")[0]) == 1  # Minari rejects such a namespace
    return ID.fullmatch(name) is not None and not of_one_letter


def as_name(what: str, value: object) -> str:
    """Return the path or id of a data set as text. Raises SettingError for anything else."""
    if not isinstance(value, str | Path) or not str(value):
        raise SettingError(
            f"{what}={value!r}.",
            "a folder, or an id as in 'cartpole/ppo-v0'",
            f"give {what}='./data/mine', for example.",
        )
    return str(value)


def place_of(name: str) -> Path:
    """Return the folder of a data set by id or path. It is absolute, since Minari reports sizes
    only for absolute paths."""
    if not is_id(name):
        return Path(name).expanduser().absolute()
    library()
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(name)).absolute()


def id_of(name: str) -> str:
    """Return the id of a data set; for a folder, its name with a version."""
    if is_id(name):
        return name
    plain = re.sub(r"[^-\w]+", "-", Path(name).expanduser().resolve().name).strip("-") or "data"
    return plain if re.search(r"-v\d+$", plain) else f"{plain}-v0"
