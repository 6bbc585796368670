"""Value networks that can output distributions of returns: their settings, and the interpretation
of their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from tandem.errors import SettingError
from tandem.math.action_values import ActionValues, CategoricalValues, ScalarValues
from tandem.settings import Needs, setting

C51 = "Bellemare et al. 2017"
Values = Literal["scalar", "categorical"]  # output of the critics of actor-critics


def hidden() -> Any:
    """Return the setting for the widths of the critics' hidden layers."""
    return setting(
        (),
        "hidden layer widths of the critics, if different from hidden",
        minimum=1,
        expected="layers of at least 1 unit",
        fix="try 512,512.",
    )


ATOMS = Needs(values="categorical")


def atoms() -> Any:
    """Return the setting for the number of atoms."""
    return setting(51, "with categorical values: number of atoms", C51, minimum=2, needs=ATOMS)


def v_min() -> Any:
    """Return the setting for the lowest atom."""
    return setting(
        -10.0, "with categorical values: return of the lowest atom", C51, minimum=-inf, needs=ATOMS
    )


def v_max() -> Any:
    """Return the setting for the highest atom."""
    return setting(
        10.0, "with categorical values: return of the highest atom", C51, minimum=-inf, needs=ATOMS
    )


@dataclass(frozen=True)
class CriticSettings:
    """Settings for the critic outputs of an actor-critic."""

    values: Values = setting(
        "scalar",
        "critic outputs: scalar (mean return) or categorical (return atoms, cross-entropy loss); "
        "tqc: quantiles",
        C51 + "; Lee et al. 2025",
    )
    atoms: int = atoms()
    v_min: float = v_min()
    v_max: float = v_max()


def values_of(settings: Any, choices: int = 1) -> ActionValues:
    """Return the interpretation of a critic's output for `choices` actions; 1 if the action is an
    input of the critic."""
    if settings.values == "categorical":
        return CategoricalValues(choices, settings.atoms, settings.v_min, settings.v_max)
    return ScalarValues(choices)


def check_values(settings: Any) -> None:
    """Raise SettingError for an empty range of atoms."""
    if settings.values == "categorical" and not settings.v_min < settings.v_max:
        raise SettingError(
            f"v_min={settings.v_min:g} and v_max={settings.v_max:g}.",
            "v_min below v_max: the atoms lie between them",
            "give the smallest and the largest return that you expect, such as v_min=-10 and "
            "v_max=10.",
        )
