"""Where data sets are: a folder, or an id in Minari's own place."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from tandem.errors import SettingError, needs

ID = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")  # as in cartpole/ppo-v0
DATA, METADATA = "data", "metadata.json"


def library() -> ModuleType:
    """Minari. EngineError where it, or what it stores by, is not installed."""
    with needs("Minari", "and h5py to store episodes", "pip install 'tandem-rl[data]'."):
        import h5py  # noqa: F401
        import minari
        import minari.namespace  # noqa: F401
    return minari


def is_id(name: str) -> bool:
    """Whether this is the name of a data set in Minari's place, and no path: it ends in -v0, or
    another number, and does not begin with a dot, a slash or a tilde."""
    of_one_letter = len(name.rpartition("/")[0]) == 1  # a namespace, which Minari does not take
    return ID.fullmatch(name) is not None and not of_one_letter


def as_name(what: str, value: object) -> str:
    """The path or the id of a data set, as text. SettingError for anything else."""
    if not isinstance(value, str | Path) or not str(value):
        raise SettingError(
            f"{what}={value!r}.",
            "a folder, or an id as in 'cartpole/ppo-v0'",
            f"give {what}='./data/mine', for example.",
        )
    return str(value)


def place_of(name: str) -> Path:
    """The folder of a data set of this id or path; absolute, since Minari counts the bytes of no
    other."""
    if not is_id(name):
        return Path(name).expanduser().absolute()
    library()
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(name)).absolute()


def id_of(name: str) -> str:
    """The id of a data set: of one in a folder its name, with a version."""
    if is_id(name):
        return name
    plain = re.sub(r"[^-\w]+", "-", Path(name).expanduser().resolve().name).strip("-") or "data"
    return plain if re.search(r"-v\d+$", plain) else f"{plain}-v0"
