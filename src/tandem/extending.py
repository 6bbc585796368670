"""All names that a custom algorithm (docs/advanced/extending.md) or a plug-in package needs, in one
import:

    from tandem.extending import Algorithm, Batch, Dense, ReplaySettings, Role, Update, mlp, ops

Equations from papers are functions of `tandem.math`. The classes of tandem's own algorithms, to
derive from, are in the modules named after them, such as `tandem.algorithms.ppo`.
"""

from __future__ import annotations

from tandem import ops
from tandem.algorithms.action_spaces import bounded_vector, discrete, drawable
from tandem.algorithms.base import (
    Algorithm,
    Call,
    ReplaySettings,
    RolloutSettings,
    Settings,
    copies,
    optimizer_options,
    step_size,
)
from tandem.algorithms.bodies import body
from tandem.algorithms.bootstraps import after_cuts
from tandem.algorithms.dqn import epsilon_greedy
from tandem.algorithms.on_sequences import SequenceSettings
from tandem.math.masks import masked
from tandem.networks.defaults import Role, WithAction, mlp
from tandem.networks.plan import Dense
from tandem.runs.writers import Row, Writer
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, Batch, Trajectory, Tree, Update, tree_map

__all__ = [
    "Algorithm",
    "Array",
    "Batch",
    "Call",
    "Dense",
    "Leaf",
    "ReplaySettings",
    "Role",
    "RolloutSettings",
    "Row",
    "Schedule",
    "SequenceSettings",
    "Settings",
    "Spec",
    "Trajectory",
    "Tree",
    "Update",
    "WithAction",
    "Writer",
    "after_cuts",
    "body",
    "bounded_vector",
    "copies",
    "default",
    "discrete",
    "drawable",
    "epsilon_greedy",
    "masked",
    "mlp",
    "optimizer_options",
    "ops",
    "seen",
    "setting",
    "step_size",
    "tree_map",
]
