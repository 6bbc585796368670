"""Networks that an agent creates only to act, in its method `build()` or `build_(shared)`.

These hooks exist for agents that cannot be sent to workers, which rebuild the networks there. In
tandem an agent acts in the process that created it, so a hook is called once, and only if `action`
needs an attribute that the agent lacks. The new networks get the values of `agent.shared_param`,
and again whenever `update_param` has been called.
"""

from __future__ import annotations

from collections.abc import Callable

from tandem.agents.contract import AgentMembers
from tandem.agents.reach import held, reach
from tandem.backends import variables
from tandem.backends.variables import assign_param, flat
from tandem.errors import SettingError
from tandem.types import Tree, Variable


def acted(agent: AgentMembers, act: Callable[[], Tree]) -> Tree:
    """Return the result of `act`, which calls the agent's `action`. If an attribute of the agent is
    missing, call the agent's hook first. Raises SettingError if the new networks do not match
    shared_param."""
    try:
        return act()
    except AttributeError as error:
        hook = hook_of(agent)
        if error.obj is not agent or hook is None:
            raise
        before = set(held(reach(agent)))
        if hook == "build_":
            agent.build_(_values(_shared(agent, hook)))
        else:
            agent.build()
    out = act()  # some networks create their variables only now
    agent._built = [name for name in held(reach(agent)) if name not in before]
    made, shared = _shapes(_built_variables(agent)), _shapes(flat(_shared(agent, str(hook))))
    if made != shared:
        raise SettingError(
            f"{hook} created variables of shapes {made}, but agent.shared_param has {shared}.",
            "copies of the networks in shared_param, in the same order",
            "list the initial weights of these networks in shared_param, one by one.",
        )
    follow(agent)
    return out


def follow(agent: AgentMembers) -> None:
    """Copy the current values of shared_param to the networks that the hook created."""
    if agent._built:
        assign_param(_built_variables(agent), agent.shared_param)


def hook_of(agent: AgentMembers) -> str | None:
    """Return the name of the agent's hook, or None."""
    return next((n for n in ("build_", "build") if callable(getattr(agent, n, None))), None)


def _built_variables(agent: AgentMembers) -> list[Variable]:
    now = held(reach(agent))
    return [now[name] for name in agent._built]


def _shared(agent: AgentMembers, hook: str) -> object:
    if getattr(agent, "shared_param", None) is None:
        raise SettingError(
            f"{type(agent).__name__} has a method {hook} but no shared_param.",
            "the variables that initialize its networks",
            "for example: self.shared_param = self.actor."
            f"{'parameters()' if agent.torch else 'weights'}.",
        )
    return agent.shared_param


def _values(shared: object) -> object:
    """Return arrays, nested like the variables."""
    if isinstance(shared, (list, tuple)):
        return [_values(part) for part in shared]
    return variables.read([shared])[0]


def _shapes(xs: list[Variable]) -> list[tuple[int, ...]]:
    return [tuple(x.shape) for x in xs]
