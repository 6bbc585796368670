"""Values of a training that rules can change: how to read each value, and write it where it is
used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tandem.agents.adaptive.loss_inputs import plain
from tandem.agents.assembly import Assembly
from tandem.agents.contract import AgentMembers
from tandem.backends import variables
from tandem.errors import SettingError
from tandem.replay.scored import ScoredSampler


class Value(NamedTuple):
    """A number that a rule can change. original: returns the argument of `set` that restores its
    value from before any rule changed it. load: sets it after a file was loaded."""

    get: Callable[[], float]
    set: Callable[[Any], None]
    original: Callable[[], Any]
    load: Callable[[Any], None]


Values = list[Value]
PLACES = {  # requirement of each rule
    "alpha": "priorities: set(PR=True)",
    "lr": "an optimizer with a constant learning rate, not a schedule",
    "eps": "a policy with a numeric eps",
    "tau": "a numeric self.tau (a plain number or a variable)",
    "gamma": "a numeric self.gamma (a plain number or a variable)",
    "clip": "a numeric self.clip (a plain number or a variable)",
    "beta": "a numeric self.beta (a plain number or a variable)",
    "weight_decay": "an optimizer with a weight_decay that is not None",
    "beta1": "an optimizer with a beta1, as Adam has",
    "beta2": "an optimizer with a beta2, as Adam has",
    "freq": "set(update_batches=...) or set(update_steps=...)",
    "store": "train(num_store=...), without PPO",
    "num_updates": "set(num_updates=...)",
    "batch": "minibatches",
}


def values_of(rule: str, agent: AgentMembers, assembly: Assembly) -> Values:
    """Return the values that a rule changes. Raises SettingError if there are none."""
    schedule = assembly.learner.schedule
    if rule == "alpha":
        values = _alpha(assembly.learner.sampler)
    elif rule == "eps":
        values = _eps(assembly)
    elif rule in ("tau", "gamma", "clip", "beta"):
        values = _attribute(rule, agent, assembly)
    elif rule == "freq":
        values = _frequency(assembly)
    elif rule == "store":
        values = [] if schedule.store_episodes is None else [_field(schedule, "store_episodes")]
    elif rule == "num_updates":
        # changing it also extends the current phase, which a file stores unchanged
        value = _field(schedule, "updates_per_phase")
        value = value._replace(set=assembly.learner.set_updates_per_phase)
        values = [] if schedule.updates_per_phase is None else [value]
    elif rule == "batch":
        values = [_field(schedule, "batch_size")]
    else:
        values = _optimizers(rule, assembly)
    if not values:
        raise SettingError(
            f"{rule}_params is given, but it has nothing to adjust.",
            PLACES[rule],
            f"leave {rule}_params out, or meet this requirement.",
        )
    return values


def _value(get: Callable[[], Any], set_: Callable[[Any], None]) -> Value:
    return Value(get, set_, get, set_)


def _alpha(sampler: Any) -> Values:
    if not isinstance(sampler, ScoredSampler):
        return []
    return [_value(lambda: sampler.alpha, sampler.set_alpha)]


def _eps(assembly: Assembly) -> Values:
    """Return the eps of each policy. A policy that decays its eps keeps an assigned value until it
    is assigned None."""
    policies = {id(s): s for e in assembly.actor.explorers for s in e.sources if hasattr(s, "eps")}
    values = [
        _value(partial(getattr, p, "eps"), partial(setattr, p, "eps")) for p in policies.values()
    ]
    return [
        v._replace(original=partial(getattr, p, "fixed")) if hasattr(p, "fixed") else v
        for v, p in zip(values, policies.values(), strict=True)
    ]


def _attribute(name: str, agent: AgentMembers, assembly: Assembly) -> Values:
    x = getattr(agent, name, None)
    if plain(x):

        def put(value: Any) -> None:
            setattr(agent, name, value)
            assembly.moves(name)

        return [_value(lambda: float(getattr(agent, name)), put)]
    if not (hasattr(x, "assign") or hasattr(x, "copy_")) or tuple(getattr(x, "shape", (1,))):
        return []
    return [
        _value(lambda: float(variables.read([x])[0]), lambda value: variables.write([x], [value]))
    ]


def _optimizers(name: str, assembly: Assembly) -> Values:
    values: Values = []
    for optimizer in assembly.optimizers:
        for i in range(len(optimizer.numbers(name))):

            def get(o: Any = optimizer, i: int = i) -> float:
                return float(o.numbers(name)[i])

            def put(value: Any, o: Any = optimizer, i: int = i) -> None:
                numbers = o.numbers(name)
                numbers[i] = value
                o.set_numbers(name, numbers)
                assembly.moves(name)

            values.append(_value(get, put))
    return values


def _frequency(assembly: Assembly) -> Values:
    """Return update_batches, else update_steps; with PPO limited by the pool's capacity."""
    s, ring = assembly.learner.schedule, assembly.learner.ring
    if s.sync_updates is not None:
        return [_field(s, "sync_updates")]
    if s.rollout_steps is not None:

        def put(value: Any) -> None:
            s.rollout_steps = min(int(value), ring.capacity)

        return [_value(lambda: s.rollout_steps, put)]
    return [] if s.sync_phases is None else [_field(s, "sync_phases")]


def _field(schedule: Any, name: str) -> Value:
    return _value(partial(getattr, schedule, name), lambda x: setattr(schedule, name, int(x)))
