"""Values of `network=`: modules, and functions that create feature extractors or complete
networks."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tandem.errors import NetworkError, NetworkFault, ResumeError, TandemError, brief, misfit
from tandem.networks.plan import Weights, select
from tandem.spaces import MASK, Spec

if TYPE_CHECKING:
    import keras
    import torch
    from gymnasium import Space

    Module: TypeAlias = "torch.nn.Module | keras.Layer"
    Bodies: TypeAlias = "Module | tuple[Module, ...]"  # a tuple: one each for actor and critic
    NetworkFunction = Callable[[Space], Bodies]
    Networks: TypeAlias = "dict[str, Module | NetworkFunction]"  # by role


def body_of(
    network: NetworkFunction, space: Space, part: str, units: int = 0, pairs: bool = True
) -> Callable[[], Bodies]:
    """Return a function that creates feature extractors for a role's `part`, using a user's
    function of the observation space. units: of the recurrent layer that follows. pairs: whether it
    may return a pair."""

    def make() -> Bodies:
        module = called(network, space)
        if not isinstance(module, tuple):
            return module
        if len(module) != 2:
            raise NetworkError(
                f"network= returned a tuple of {len(module)}.",
                "a feature extractor, or a pair of them for actor and critic",
                "return one feature extractor, or two of them in a tuple.",
            )
        if part == "both" and units:
            raise NetworkError(
                f"network= returned a pair of feature extractors, but recurrent={units} needs one.",
                "one feature extractor, shared by policy and values",
                "return one feature extractor, or give recurrent=0.",
            )
        if not pairs:
            raise NetworkError(
                "network= returned a pair of feature extractors for an algorithm without an actor "
                "and a critic.",
                "one feature extractor",
                "return one feature extractor.",
            )
        return module if part == "both" else module[part == "critic"]

    return make


def wholes_of(networks: Networks, space: Space) -> dict[str, Callable[[], Bodies]]:
    """Return the `whole_of` each role. If the networks share layers, so do their first copies."""
    copied: dict[int, object] = {}
    return {
        name: whole_of(
            one, space, copied, _apart(one, [o for n, o in networks.items() if n != name])
        )
        for name, one in networks.items()
    }


def whole_of(
    network: Module | NetworkFunction, space: Space, copied: dict[int, object], apart: bool
) -> Callable[[], Bodies]:
    """Return a function that creates new networks: it calls a plain function, or copies a module,
    so that a target is not the network itself and a later training starts in the same way. The
    first network is the module itself if it cannot be copied, or cannot be copied without the
    others because it is not `apart`."""
    first = True

    def make() -> Bodies:
        nonlocal first
        if is_function(network):
            return called(network, space)
        before, first = first, False
        if before and not apart:
            return network
        try:
            return _copy(network, copied if before else {})
        except Exception as error:  # Keras's for an unknown class, or the module's own
            if before:
                return network
            kind = type(network).__name__
            raise NetworkError(
                f"network= has a {kind} that cannot be copied: {str(error)[:160]}",
                "a network that copy.deepcopy can copy, since targets are copies of it",
                f"give a function that creates it, as in lambda space: {kind}().",
            ) from error

    return make


def _copy(network: Module, copied: dict[int, object]) -> Module:
    made = copy.deepcopy(network, copied)
    if hasattr(network, "trainable_variables"):  # copies of Keras models lose `trainable`
        for new, old in zip(made._flatten_layers(), network._flatten_layers(), strict=True):
            new.trainable = old.trainable  # also sets all inner layers, which come later
        for new, old in zip(made.variables, network.variables, strict=True):
            new.trainable = old.trainable
    return made


def _apart(network: Module, others: list[Module]) -> bool:
    """Return whether copies of the network share everything that it shares with the others: copies
    of Keras models share nothing."""

    def parts(model: Module) -> set[int]:
        if is_function(model) or not hasattr(model, "trainable_variables"):
            return set()
        return {id(x) for x in (*getattr(model, "layers", ()), *model.variables)}

    return not any(parts(network) & parts(other) for other in others)


def called(function: NetworkFunction, space: Space) -> Bodies:
    """Return the result of a user's function for an observation space. Raises NetworkError if it
    does not accept one, or raises an exception."""
    if why := misfit(function, space):
        raise NetworkError(
            f"network= cannot be called with the observation space: {why}.",
            "a function of the observation space that returns a feature extractor, or for one "
            "role a complete network",
            "write network=lambda space: my_body(space); it may ignore the space.",
        )
    state = random.getstate()
    try:
        return function(space)
    except TandemError:
        raise
    except Exception as error:
        given = f"for the observation space {' '.join(str(space).split())[:300]}"
        raise NetworkFault(
            f"{function.__module__}:{getattr(function, '__qualname__', '')}, given as network=, "
            f"raised {type(error).__name__} {given}: {brief(error)}.",
            "a function that builds its network for this space",
            f"{for_space(space)}; its own traceback is above this one.",
        ) from error
    finally:
        random.setstate(state)  # Keras samples seeds from the program's Python generator


def for_space(observation: Space | Spec) -> str:
    """Return advice on building a network for a space or a Spec of observations."""
    names = list(observation) if isinstance(observation, Mapping) else []
    entry = next((f'["{n}"]' for n in names if n != MASK), "")
    is_dict = f"{'with masks, ' * (MASK in names)}the observation is a dict with the keys"
    advice = f"use space{entry} and x{entry}: {is_dict} {', '.join(names)}"
    return advice if names else "build it for the observation space that it receives"


def refuse_precision(role: str, has: str, dtype: object, fix: str) -> None:
    """Raise NetworkError if a role's network `has` weights or outputs that are not float32."""
    if (kind := str(dtype).removeprefix("torch.")) != "float32":
        raise NetworkError(f"the network given for {role!r} has {kind} {has}.", "float32", fix)


def is_function(network: object) -> bool:
    """True if this creates networks and is not one itself."""
    module = hasattr(network, "parameters") or hasattr(network, "trainable_variables")
    return callable(network) and (isinstance(network, type) or not module)


def refuse_old_layers(saved: Weights, networks: dict[str, Any], path: object) -> None:
    """Raise ResumeError if the `saved` weights of an acting network have layer names of a plan,
    which earlier commits wrote for more types of layers than plans have now."""
    for name, network in networks.items():
        if network.plan is None and not all(n.isdigit() for n in select(saved, name)):
            raise ResumeError(
                f"the network {name!r} was saved in {path} by layer names, but some layers of "
                "this network no longer have such names.",
                fix="train a new run without resume; tandem.load still loads this run's agent.",
            )


def refuse_old_critics(saved: Weights, networks: dict[str, Any]) -> None:
    """Raise ResumeError if the `saved` state of a backend has a critic on a custom feature
    extractor from before features and action passed a hidden layer: its last layer took both."""
    for name, network in networks.items():
        if type(network.module).__name__ not in ("TorchFeatureCritic", "KerasFeatureCritic"):
            continue
        arrays = (select(saved, f"network/{name}"), network.read())
        before, after = ([w[str(i)].shape for i in range(len(w)) if str(i) in w] for w in arrays)
        body = len(before) - 2  # arrays
        grown = 0 <= body < len(after) - 2 and before[:body] == after[:body]
        if grown and set(before[body]) & set(after[body]):  # both take features and action
            raise ResumeError(
                f"the critic {name!r} of this run is linear in the action, but critics on a "
                "custom feature extractor now have a hidden layer for features and action.",
                fix="train a new run without resume; tandem.load still loads this run's agent.",
            )
