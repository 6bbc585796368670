"""Networks that an agent makes only where it acts, by its method `build()` or `build_(shared)`.

Elsewhere the hooks rebuild them in workers, for agents that cannot travel there. Here an agent acts
in the process that it was made in, so they are called once, and only where `action` needs something
that the agent has not got. What they make has the values of `agent.shared_param`, and takes its new
ones whenever `update_param` was called.
"""

from __future__ import annotations

from collections.abc import Callable

from tandem.agents.contract import AgentMembers
from tandem.backends import variables
from tandem.backends.reach import held, reach
from tandem.backends.variables import assign_param, flat
from tandem.errors import SettingError
from tandem.types import Tree, Variable


def acted(agent: AgentMembers, act: Callable[[], Tree]) -> Tree:
    """Returns what `act` gives, which calls the agent's `action`; where that lacks an attribute of
    the agent, after its hook was called. SettingError where there is no telling what the networks
    that it makes are copies of."""
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
    out = act()  # some networks have variables only now
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
    """Gives the networks that the hook made the values that shared_param has now."""
    if agent._built:
        assign_param(_built_variables(agent), agent.shared_param)


def hook_of(agent: AgentMembers) -> str | None:
    """Returns the name of the agent's hook."""
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
    """Returns arrays nested as the variables are."""
    if isinstance(shared, (list, tuple)):
        return [_values(part) for part in shared]
    return variables.read([shared])[0]


def _shapes(xs: list[Variable]) -> list[tuple[int, ...]]:
    return [tuple(x.shape) for x in xs]
