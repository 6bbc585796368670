"""A separate network per agent of a team, as one layer of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.networks.plan import Branches, Cast, Plan, width
from tandem.types import Tree, tree_map


@dataclass(frozen=True)
class Several(Branches):
    """One plan for each of A agents, named "0", "1", ...: the rows [R * A, ...] of the agents
    alternate, so agent i's rows are i, i + A, i + 2 A, ... The output is [R, A * width], which
    `each` reshapes to rows."""

    def part(self, x: Tree, name: str) -> Tree:
        return tree_map(lambda rows: rows[int(name) :: len(self.plans)], x)


def each(plan: Plan, agents: int) -> Plan:
    """Return a plan from rows [R * A, ...] to [R * A, width] with separate weights for each of the
    A agents."""
    return (Several({str(i): plan for i in range(agents)}), Cast(width(plan)))
