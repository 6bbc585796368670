"""Writes the table of settings into docs/algorithms/*.md, from the settings' dataclasses, and the
table of action spaces into README.md, from the algorithms' checks: `python docs/settings.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gymnasium import spaces

from tandem import algorithms
from tandem.errors import SpaceError
from tandem.settings import declared
from tandem.spaces import action_leaf
from tandem.testing import fakes
from tandem.vector_actions import vector_space

PAGES = Path(__file__).parent / "algorithms"
README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- settings: written by docs/settings.py -->\n", "<!-- end of settings -->\n"


def table(algorithm: str) -> str:
    """Every setting of an algorithm: its flag, default, meaning and source."""
    rows = ["| flag | default | meaning | source of the default |", "|---|---|---|---|"]
    for name, default, meaning, source, _ in declared(algorithms.get(algorithm).Settings):
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        rows.append(f"| `--{name.replace('_', '-')}` | {shown} | {meaning} | {source} |")
    return "\n".join(rows) + "\n"


def renewed(page: str, algorithm: str) -> str:
    """The page with its table as it has to be."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(algorithm) + END + rest.split(END)[1]


BEGIN_SPACES = "<!-- spaces: written by docs/settings.py -->\n"
END_SPACES = "<!-- end of spaces -->"
BOX = spaces.Box(-1, 1, (2, 3), np.float32)
KINDS = {
    "Discrete": spaces.Discrete(3),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(4),
    "Box with bounds": BOX,
    "Box without": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "Dict, Tuple": spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple((BOX,))}),
}
TEAMS = {"Discrete": fakes.TEAM_DISCRETE, "Box": fakes.TEAM_BOX}


def action_spaces() -> str:
    """Which algorithm takes which kind of action space, as its own check says."""
    columns = [*KINDS, *(f"{kind} of several agents" for kind in TEAMS)]
    rows = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in algorithms.NAMES:
        cells = []
        for space in KINDS.values():
            flat = vector_space(space)
            leaf = action_leaf(space if flat is None else flat, fakes.VECTOR)
            cells.append(takes(name, fakes.VECTOR, leaf))
        cells += [takes(name, fakes.TEAM, leaf) for leaf in TEAMS.values()]
        rows.append(f"| `{name}` | {' | '.join('yes' if cell else '' for cell in cells)} |")
    return "\n".join(rows) + "\n"


def takes(name: str, observation: object, action: object) -> bool:
    """Whether the algorithm's check lets these spaces through."""
    kind = algorithms.get(name, action)
    if not kind.team and observation is fakes.TEAM:
        return False  # it would learn by one joint action
    try:
        kind.check(observation, action, kind.Settings())
    except SpaceError:
        return False
    return True


def renewed_readme(page: str) -> str:
    """The README with its table as it has to be."""
    before, rest = page.split(BEGIN_SPACES)
    return before + BEGIN_SPACES + action_spaces() + END_SPACES + rest.split(END_SPACES)[1]


if __name__ == "__main__":
    README.write_text(renewed_readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    for name in algorithms.NAMES:
        path = PAGES / f"{name}.md"
        path.write_text(renewed(path.read_text(encoding="utf-8"), name), encoding="utf-8")
