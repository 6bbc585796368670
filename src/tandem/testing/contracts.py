"""Contracts of algorithms, as functions that raise AssertionError on violations.

They take the algorithm's class, so that you can check custom algorithms:

    learned = contracts.solves(MyAlgorithm, Identity, "torch", steps=2_000, hidden=(16,))
    contracts.reproducible(MyAlgorithm, Identity, "jax", steps=500, hidden=(16,))

Environments are classes or functions that make one, such as those of `tandem.testing.environments`.
Settings are the algorithm's. Most functions return the `Loop` for further inspection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tandem import algorithms, backends
from tandem.algorithms.base import Algorithm, Forward, Settings
from tandem.algorithms.recurrent_batches import advance, later
from tandem.backends.backend import RECORDER, Backend, Each, Loss
from tandem.envs.factory import EnvLike, make, vectorize
from tandem.errors import NonFiniteError
from tandem.learning.build import Spaces
from tandem.learning.collect.actor import PolicyActor, fixed
from tandem.learning.collect.evaluation import evaluate
from tandem.learning.companions import Companions
from tandem.learning.events import BatchEnd
from tandem.learning.learners import compiled
from tandem.learning.loop import Loop
from tandem.learning.seeds import Generators, derived
from tandem.math.action_values import ActionValues, ScalarValues
from tandem.networks.noisy import is_noise
from tandem.networks.renorm import moves
from tandem.networks.unit import is_unit
from tandem.settings import apply, check_ranges
from tandem.testing import fakes
from tandem.types import Array, Batch, JSONDict, Tree, leaves

Kind = type[Algorithm]
Weights = dict[str, Array]


def begin(
    kind: Kind,
    env: EnvLike,
    framework: str,
    *,
    seed: int = 0,
    network: object = None,
    devices: int = 1,
    gradients_only: bool = False,
    compile: bool = False,
    **settings: Any,
) -> Loop:
    """Return the loop of an algorithm at the start of a run, without a folder."""
    chosen = apply(kind.Settings(), settings).settled(settings)
    check_ranges(chosen)
    environments = vectorize(env, chosen.envs, derived(seed, "environments"), chosen.vectorization)
    spaces = Spaces.of(environments)
    kind = algorithms.for_actions(kind, spaces.action)
    kind.check(spaces.observation, spaces.action, chosen)
    make_backend = partial(
        backends.make,
        framework,
        "cpu",
        compile="yes" if compile else "no",
        optimizer=RECORDER if gradients_only else None,
        devices=devices,
    )
    copy = partial(_copy, kind, spaces, chosen, network, make_backend, seed)
    companions = None
    if devices > 1 and framework in backends.BY_PROCESSES:
        companions = Companions(partial(_companion, copy), devices, 60.0)
    algorithm = copy(0)
    loop = Loop(algorithm, algorithm.backend, environments, Generators(seed))
    if companions is not None:
        companions.join(loop.backend)
    return loop


def _copy(
    kind: Any,
    spaces: Spaces,
    settings: Settings,
    network: object,
    make_backend: Callable[..., Backend],
    seed: int,
    rank: int,
) -> Algorithm:
    """Return the algorithm with its initial weights, in the process of this rank."""
    observation, action, space = spaces
    sources = kind.sources(observation, action, settings, network, space, Generators(seed))
    backend = make_backend(
        seed=derived(seed, f"framework {rank}" if rank else "framework"), rank=rank
    )
    return kind(backend, sources, observation, action, settings)


def _companion(copy: Callable[[int], Algorithm], rank: int) -> Backend:
    """Return the backend of the process of this rank, with the required updates compiled."""
    algorithm = copy(rank)
    compiled(algorithm)  # for its learner
    algorithm.backend.compile(algorithm.update)  # for the contracts
    return algorithm.backend


def train(loop: Loop, updates: int | None = None) -> list[dict[str, float]]:
    """Train to the end of the run, or for `updates` updates. Return the metrics of each call."""
    metrics = []
    for event in loop.events():
        if isinstance(event, BatchEnd) and event.metrics:
            metrics.append(dict(event.metrics))
            if updates is not None and event.updates >= updates:
                break
    return metrics


def weights(loop: Loop) -> Weights:
    """Return all weights of all networks, by names that are the same on every backend."""
    networks = loop.backend.networks
    return {f"{role}/{n}": x for role in sorted(networks) for n, x in networks[role].read().items()}


def _settled(loop: Loop, *roles: str) -> dict[str, Forward]:
    """Return the forward functions of these networks, without noise on their weights."""
    return {r: fixed(n, n.mean()) for r in roles for n in (loop.backend.networks[r],)}


def values(loop: Loop, obs: Tree, action: Array | None = None) -> Array:
    """Return the algorithm's value estimates [B] of observations [B, ...]: its critic's value (for
    a recurrent critic, as first observations), its highest action value, or the minimum over its
    critics for `action` [B, ...] (default: the policy's deterministic action)."""
    names = ("net", "critic", "q", "q1", "q2", "actor")
    networks = _settled(loop, *(n for n in names if n in loop.backend.networks))
    memory = loop.actor.initial_state(len(leaves(obs)[0]))
    if "critic" in networks and loop.algorithm.sequence:
        return later(networks["critic"], obs, memory)[:, 0]
    if "critic" in networks:
        return networks["critic"](obs)[..., 0]
    if "net" in networks:
        return loop.algorithm.value(advance(networks["net"], obs, memory)[0])
    if "actor" in networks and len(networks) == 1:  # actor and critic share one network
        return networks["actor"](obs)[..., -1]
    if "actor" not in networks:
        q = networks["q"]
        if loop.algorithm.sequence and not loop.algorithm.team:
            return later(q, obs, memory).max(-1)
        policy = loop.algorithm.distribution(loop.settings, loop.random_actor.action)
        return (policy.of(q, obs) if isinstance(policy, ActionValues) else q(obs)).max(-1)
    if action is None:
        action = loop.algorithm.act(
            loop.settings, loop.random_actor.action, networks, obs, memory, None
        )[0]
    pair = {"obs": obs, "action": np.asarray(action, np.float32)}
    if loop.algorithm.sequence:
        pair |= {"state": memory, "start": np.zeros(len(memory), np.float32)}
    meaning = getattr(loop.algorithm, "values", ScalarValues(1))
    critics = (networks[n] for n in ("q", "q1", "q2") if n in networks)
    return np.min([meaning.part(q(pair))[..., 0] for q in critics], axis=0)


def score(loop: Loop, env: EnvLike, episodes: int = 20, seed: int = 0) -> float:
    """Return the mean return of the deterministic policy."""
    kind = type(loop.algorithm)
    actor = PolicyActor(kind, loop.settings, loop.random_actor.action, _settled(loop, *kind.acting))
    mode = kind.action_mode(loop.settings, loop.random_actor.action)
    returns = evaluate(actor, env, episodes, seed, action_mode=mode).returns
    return float(np.mean(returns))


def solves(
    kind: Kind,
    env: EnvLike,
    framework: str,
    *,
    least: float | None = None,
    network: object = None,
    **settings: Any,
) -> Loop:
    """Check that training gives a mean return of at least `least` (default: 95% of the
    environment's optimum)."""
    loop = begin(kind, env, framework, network=network, **settings)
    train(loop)
    optimum = make(env).optimum
    wanted = 0.95 * optimum if least is None else least
    mean_return = score(loop, env)
    assert mean_return >= wanted, (
        f"{kind.__name__} on {framework} scores {mean_return:.3f}; at least {wanted:.3f} was "
        "expected"
    )
    return loop


def agree(one: Weights, other: Weights, what: str) -> None:
    """Check that both contain the same arrays, bit for bit."""
    wrong = [
        n
        for n in {**one, **other}
        if n not in one or n not in other or one[n].tobytes() != other[n].tobytes()
    ]
    assert not wrong, f"{what}: {', '.join(wrong)} differ"


def reproducible(
    kind: Kind, env: EnvLike, framework: str, *, network: object = None, **settings: Any
) -> Loop:
    """Check that equal seeds give bit-for-bit identical runs, and another seed a different run."""
    loops = [
        begin(kind, env, framework, seed=seed, network=network, **settings) for seed in (0, 0, 1)
    ]
    first, again, other = (train(loop) for loop in loops)
    assert first and first == again, (
        f"{kind.__name__} on {framework}: the same seed gave other metrics"
    )
    agree(
        weights(loops[0]), weights(loops[1]), f"{kind.__name__} on {framework}, twice from one seed"
    )
    assert first != other, f"{kind.__name__} on {framework}: another seed gave the same run"
    return loops[0]


def resumes(
    kind: Kind,
    env: EnvLike,
    framework: str,
    *,
    updates: int = 10,
    network: object = None,
    **settings: Any,
) -> Loop:
    """Check that a saved run, loaded elsewhere, continues with bit-for-bit identical updates, and
    that saving changes nothing."""
    one, other, untouched = (
        begin(kind, env, framework, network=network, **settings) for _ in range(3)
    )
    train(one, updates)
    train(other, 1)  # a different state, which loading must replace
    other.load_state(*copied(one.state()))
    train(untouched, updates)
    target = one.learner.updates + 1
    for loop in (one, other, untouched):
        train(loop, target)
    agree(weights(one), weights(other), f"{kind.__name__} on {framework}, resumed")
    agree(
        weights(one),
        weights(untouched),
        f"{kind.__name__} on {framework}, after its state was read",
    )
    return one


def touches_only_its_own(
    kind: Kind, env: EnvLike, framework: str, *, network: object = None, **settings: Any
) -> list[str]:
    """Check that each optimizer changes only its own networks, and that target networks stay
    unchanged without tracking. Return the optimizers' names."""
    names: list[str] = []
    done: list[str] = []
    while not names or len(done) < len(names):
        loop = begin(kind, env, framework, network=network, optimizer="sgd", **settings)
        algorithm = loop.algorithm
        backend: Any = loop.backend  # its methods are replaced
        turns = _Turns(backend, len(done))
        backend.minimize, backend.trust_region_step = turns.minimize, turns.trust_region_step
        rows = 4 * (loop.settings.rollout + 1) if algorithm.needs == "sequences" else 16
        batch = made_up(loop, 1, rows)
        for name in ("tau", "average_tau"):
            if name in batch.settings:
                batch.settings[name] = np.zeros(1, np.float32)
        if "policy" in batch.settings:  # not due in every update
            batch.settings["policy"] = np.ones(1, np.float32)
        before = weights(loop)
        for update in filter(None, (algorithm.whole_update(), algorithm.update)):
            outcome = backend.compile(update)(batch)
            assert outcome.applied == 1 and not outcome.fault, outcome
        after = weights(loop)
        changed = {
            n.split("/")[0]
            for n in before
            if before[n].tobytes() != after[n].tobytes()
            and not (is_noise(n) or moves(n))
            # a step of size 0 projects them again, with rounding
            and not (is_unit(n) and np.allclose(before[n], after[n], atol=1e-6))
        }
        names = [o.name for o in turns.optimizers]
        # an optimizer's networks may include target networks, which receive no gradient
        owned = {
            n.name for n in turns.optimizers[len(done)].networks if not n.name.endswith("_target")
        }
        assert changed == owned, (
            f"{kind.__name__} on {framework}: optimizer {names[len(done)]!r} changed {changed}, "
            f"not {owned}"
        )
        done.append(names[len(done)])
    return names


class _Turns:
    """A backend's optimizer steps, of which only those of one optimizer, by index, change
    weights."""

    def __init__(self, backend: Backend, number: int) -> None:
        self.optimizers: list[Any] = []  # in the order of their first steps
        self._number = number
        self._minimize, self._trust_region_step = backend.minimize, backend.trust_region_step

    def minimize(
        self, optimizer: Any, loss: Loss, batch: Batch, rate: Array, *more: Any, **named: Any
    ) -> tuple[Array, dict[str, Array]]:
        rate = rate * self._turn(optimizer)
        return self._minimize(optimizer, loss, batch, rate, *more, **named)

    def trust_region_step(
        self,
        optimizer: Any,
        objective: Each,
        divergence: Each,
        batch: Batch,
        radius: Array,
        *more: Any,
    ) -> dict[str, Array]:
        radius = radius * self._turn(optimizer)
        return self._trust_region_step(optimizer, objective, divergence, batch, radius, *more)

    def _turn(self, optimizer: Any) -> float:
        """Return 1 for the selected optimizer, else 0."""
        if optimizer not in self.optimizers:  # an update may be traced more than once
            self.optimizers.append(optimizer)
        return float(self.optimizers.index(optimizer) == self._number)


def refuses_what_is_not_finite(
    kind: Kind, env: EnvLike, framework: str, *, network: object = None, **settings: Any
) -> Loop:
    """Check that a diverging run ends with an error that names optimizer and update, and with
    finite weights."""
    loop = begin(
        kind, env, framework, network=network, optimizer="sgd", learning_rate=1e6, **settings
    )
    message = ""
    try:
        train(loop)
    except NonFiniteError as error:
        message = str(error)
    assert message, f"{kind.__name__} on {framework} went on with a step size of 1e6"
    names = [o.name for o in optimizers(loop.algorithm)]
    number = loop.learner.updates + 1
    assert any(repr(n) in message for n in names) and f"in update {number}," in message, (
        f"the error names none of {names}, or not update {number}: {message}"
    )
    wrong = [n for n, x in weights(loop).items() if not np.isfinite(x).all()]
    assert not wrong, (
        f"{kind.__name__} on {framework}: {', '.join(wrong)} took in what was not finite"
    )
    return loop


def made_up(loop: Loop, updates: int, rows: int) -> Batch:
    """Return made-up data for a call of updates."""
    spec = loop.collector.environments
    return fakes.batches(loop.algorithm, spec.observation, spec.action, updates, rows)


def optimizers(algorithm: Algorithm) -> list[Any]:
    """Return the optimizers among an algorithm's attributes."""
    return [o for o in vars(algorithm).values() if {"name", "networks", "size"} <= {*dir(o)}]


def copied(
    state: tuple[JSONDict, dict[str, dict[str, Array]]],
) -> tuple[JSONDict, dict[str, dict[str, Array]]]:
    """Return a loop's state with copied arrays, as from a checkpoint."""
    data, groups = state
    return data, {g: {n: np.array(x) for n, x in arrays.items()} for g, arrays in groups.items()}
