"""What `make_trainer` and `make_evaluator` are given, looked at before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from tandem.errors import SettingError, UnknownNameError

KINDS: dict[str, tuple[Any, str]] = {  # of arguments that are no numbers
    **dict.fromkeys(("feature_maker", "model_maker", "state_to_input"), (Callable, "a function")),
    **dict.fromkeys(("replay_kwargs", "opt_kwargs", "load_model_custom"), (dict, "a dict")),
    **dict.fromkeys(("load_model", "save_dir"), ((str, Path), "a path")),
    "render_timestep": ((int, float), "a number of seconds"),
    "noisynet": (str, "None, 'ig' or 'fg'"),
}
NOISE = {None: "no", "ig": "independent", "fg": "factorised"}


def checked(kind: Any, where: str, given: dict[str, Any], more: set[str]) -> Any:
    """The arguments, with their types looked at where they are plain ones."""
    names = {f.name for f in fields(kind)}
    for name in given:
        if name not in names | more:
            raise UnknownNameError(f"argument of {where}", name, names | more)
    made = kind(**{n: v for n, v in given.items() if n in names})
    for name, (types, wanted) in KINDS.items():
        if (
            name in names
            and (value := given.get(name)) is not None
            and not isinstance(value, types)
        ):
            raise SettingError(f"{where}: {name}={value!r}.", wanted, "give a value of that kind.")
    if given.get("noisynet") not in list(NOISE):
        raise SettingError(
            f"{where}: noisynet={given['noisynet']!r}.",
            "None, 'ig' or 'fg'",
            "choose one of those.",
        )
    plain = {f.name for f in fields(kind) if str(f.type) in ("int", "float", "bool")}
    for name in plain & given.keys():
        value, wanted = given[name], {f.name: str(f.type) for f in fields(kind)}[name]
        fits = (
            isinstance(value, bool)
            if wanted == "bool"
            else isinstance(value, (int, float)) and not isinstance(value, bool)
        )
        if not fits or (wanted == "int" and not float(value).is_integer()):
            raise SettingError(
                f"{where}: {name}={value!r}.", f"{wanted}", "give a value of that kind."
            )
    return made
