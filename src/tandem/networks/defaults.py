"""Default networks of algorithms, as plans built from the spaces, and the heads that algorithms add
to a custom feature extractor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem.errors import NetworkError, NetworkFault, SettingError, nearest
from tandem.networks.implicit import quantile_network
from tandem.networks.plan import (
    ACTIVATIONS,
    Activation,
    Branches,
    Cast,
    Conv,
    Dense,
    Dueling,
    Flatten,
    Half,
    Image,
    Layer,
    LayerNorm,
    Normalize,
    OneHot,
    Plan,
    Streams,
    Weights,
    init,
    width,
)
from tandem.networks.recurrent import Recurrent, seeing
from tandem.networks.several import each
from tandem.networks.users import body_of, for_space, is_function, wholes_of
from tandem.networks.value_scale import Denormalize
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Tree

if TYPE_CHECKING:
    from gymnasium import Space

    from tandem.networks.users import Bodies, NetworkFunction, Networks

Inputs = Any  # a Spec, a WithAction of {"obs": Spec, "action": Leaf}, or WithFractions
HIDDEN = 256  # units that combine features and action if the default networks have no hidden layer


class WithAction(dict[str, Spec]):
    """Inputs of a critic of actions: "obs" and "action". A separate type, since an observation may
    have entries with these names."""


@dataclass(frozen=True)
class Role:
    """One network of an algorithm: its inputs, its default feature extractor, and a head for any
    number of features."""

    inputs: Inputs
    body: Plan
    head: Plan  # `fit` sets its first layers' `inputs` to the width of the feature extractor
    # the custom feature extractor that it uses: "actor", "critic", or "both" if its head is a fork
    part: str = "actor"
    split: bool = False  # by default each stream of the fork has its own feature extractor
    # units of a recurrent layer before the head; `inputs` are then those of
    # `networks.recurrent.entering`
    units: int = 0
    memory: str = "gru"  # its type
    # number of cosines that embed fractions before the head; `inputs` are then WithFractions
    cosines: int = 0
    features: int = 0  # outputs of the feature extractor, if its plan does not define them
    space: Space | None = None  # passed to a user's function, if not the environment's
    # True for a mixer: always the default network, and without noise
    ours: bool = False
    agents: int = 0  # number of agents with adjacent rows, each with its own weights

    @property
    def outputs(self) -> int:
        """Number of outputs, which does not depend on the feature extractor."""
        return width(fit(self.head, 1))

    @property
    def head_on_body(self) -> Plan:
        """The head for a custom feature extractor. For a critic, features and action first pass the
        last hidden layer of the default network: with the head alone, the value would be linear in
        the action, and the best action the same in every state."""
        if not isinstance(self.inputs, WithAction):
            return self.head
        dense = [i for i, layer in enumerate(self.body) if getattr(layer, "inputs", 0)]
        hidden: Plan = self.body[dense[-1] :] if dense else (Dense(0, HIDDEN, "relu"),)
        hidden = (replace(hidden[0], inputs=0), *hidden[1:])  # type: ignore[call-arg]
        return hidden + fit(self.head, width(hidden))

    @property
    def plan(self) -> Plan:
        if self.agents:
            return each(replace(self, agents=0).plan, self.agents)
        if self.split:
            return apart(((self.body, width(self.body)),) * 2, self.head)
        if self.cosines:
            features = self.features or width(self.body)
            return quantile_network(self.body, features, self.cosines, fit(self.head, features))
        if self.units:
            return (recurrent_layer(self, self.body, width(self.body)),)
        return self.body + fit(self.head, width(self.body))


def fit(head: Plan, features: int) -> Plan:
    """Return the head for this number of features: layers with inputs=0 receive it, or half of
    it."""
    fitted: list[Layer] = []
    for layer in head:
        if isinstance(layer, Half):
            layer = replace(layer, inputs=features)
            features = width((layer,))
        elif getattr(layer, "inputs", None) == 0:
            layer = replace(layer, inputs=features)  # type: ignore[call-arg]
        elif parts := streams((layer,)):
            layer = _forked(layer, {k: fit(plan, features) for k, plan in parts.items()})
        fitted.append(layer)
    return tuple(fitted)


def recurrent_layer(of: Role | CustomNetwork, body: Plan, features: int) -> Recurrent:
    """Return a network of feature extractor, recurrent layer for its `features` outputs, and
    head."""
    action = of.inputs["action"].width if "action" in of.inputs else 0
    head = of.head if action else seeing(of.head, of.memory)
    whole = Recurrent(body, features, of.units, head, of.memory, action)
    return replace(whole, head=fit(head, whole.seen))


def streams(head: Plan) -> dict[str, Plan]:
    """Return the plans of a head that starts with a fork, by name; {} for other heads."""
    if isinstance(head[0], Streams) and not isinstance(head[0], Branches):
        return head[0].plans
    return head[0].plans if isinstance(head[0], Dueling) else {}


def whole_streams(head: Plan) -> dict[str, Plan]:
    """Return the same plans for separate feature extractors, so that none takes only a half."""
    return {
        k: tuple(layer for layer in plan if not isinstance(layer, Half))
        for k, plan in streams(head).items()
    }


def _forked(layer: Layer, plans: dict[str, Plan]) -> Layer:
    """Return the fork with other plans."""
    return Dueling(**plans) if isinstance(layer, Dueling) else replace(layer, plans=plans)  # type: ignore[call-arg]


def apart(bodies: tuple[tuple[Plan, int], ...], head: Plan) -> Plan:
    """Return a fork whose two streams have separate feature extractors, given as (plan, number of
    outputs)."""
    joined = {
        k: body + fit(p, features)
        for (body, features), (k, p) in zip(bodies, whole_streams(head).items(), strict=True)
    }
    return (_forked(head[0], joined),)


def encoder(
    inputs: Inputs,
    *,
    normalize: bool = False,
    initializer: str = "uniform",
    layer_norm: bool = False,
) -> Plan:
    """Return the plan from raw observations to features: scaled and convolved images, one-hot
    symbols, plain or normalized numbers; the parts of a dict are concatenated. An additional action
    is not changed."""
    if isinstance(inputs, dict):
        part = partial(encoder, initializer=initializer, layer_norm=layer_norm)
        plain = {"action"} if isinstance(inputs, WithAction) else set()
        parts = {k: part(v, normalize=normalize and k not in plain) for k, v in inputs.items()}
        return (Branches(parts),)
    if inputs.image:
        return cnn(inputs, initializer, layer_norm)
    if inputs.kind in ("discrete", "multidiscrete"):
        return (OneHot(inputs.sizes, inputs.start),)
    return (
        (Cast(inputs.width), Normalize(inputs.width))
        if normalize and inputs.kind == "box"
        else (Cast(inputs.width),)
    )


NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # (filters, kernel, stride) of each convolution
SMALL = 36  # side length in pixels below which these convolutions have no output


def cnn(image: Leaf, initializer: str = "uniform", layer_norm: bool = False) -> Plan:
    """Return three convolutions and 512 features (Mnih et al. 2015, doi:10.1038/nature14236,
    Methods).

    For images with a side below SMALL pixels, such as MiniGrid's 7 x 7, return three small
    convolutions and 128 features as in MiniGrid's documentation: 2 x 2 pixels, or 3 x 3 with stride
    2 while the sides have 8 or more. With `layer_norm`, each pixel's channels and the features are
    normalized (Gallici et al. 2024, arXiv:2407.04811).
    """
    first = image.shape[0] < image.shape[2]
    height, wide, channels = (*image.shape[1:], image.shape[0]) if first else image.shape
    small, gain = min(height, wide) < SMALL, 2**0.5
    layers: Plan = ()
    for i, (filters, kernel, stride) in enumerate(NATURE):
        if small:
            filters, side = 16 * 2**i, min(height, wide)
            kernel, stride = (3, 2) if side >= 8 else (min(2, side), 1)
        conv = Conv(channels, filters, kernel, stride, "relu", initializer, gain)
        layers += normed(conv, filters) if layer_norm else (conv,)
        height = (height - kernel) // stride + 1
        wide = (wide - kernel) // stride + 1
        channels = filters
    units = 128 if small else 512
    features = Dense(height * wide * channels, units, "relu", initializer, gain)
    last = normed(features, units) if layer_norm else (features,)
    return (Image(first), *layers, Flatten(), *last)


def normed(layer: Dense | Conv, units: int) -> Plan:
    """Return the layer with its `units` outputs normalized (Ba et al. 2016, arXiv:1607.06450)
    before its activation."""
    return replace(layer, activation="linear"), LayerNorm(units), Activation(layer.activation)


def mlp(
    inputs: Inputs,
    sizes: tuple[int, ...],
    activation: str,
    *,
    initializer: str = "uniform",
    gain: float = 1.0,
    normalize: bool = False,
    layer_norm: bool = False,
) -> Plan:
    """Return a multilayer perceptron on the encoded inputs. Images go through the CNN, without
    further hidden layers. With `layer_norm`, every layer is normalized before its activation."""
    if activation not in ACTIVATIONS:
        close = nearest(activation, ACTIVATIONS)
        raise SettingError(
            f"there is no activation {activation!r}.",
            f"one of {', '.join(ACTIVATIONS)}",
            f"did you mean {close[0]!r}?" if close else "try activation='tanh'.",
        )
    plan = encoder(inputs, normalize=normalize, initializer=initializer, layer_norm=layer_norm)
    if isinstance(inputs, Leaf) and inputs.image:
        return plan
    for units in sizes:
        dense = Dense(width(plan), units, activation, initializer, gain)
        plan += normed(dense, units) if layer_norm else (dense,)
    return plan


def has_images(spec: Spec) -> bool:
    """True if an observation contains images."""
    return any(s.image for s in spec.values()) if isinstance(spec, dict) else spec.image


@dataclass(frozen=True)
class PlannedNetwork:
    """A network built from its plan, with its initial weights."""

    plan: Plan
    weights: Weights
    inputs: Inputs


@dataclass(frozen=True)
class CustomNetwork:
    """A network that the user creates: `make()` returns a new module. With a `head`, the module is
    a feature extractor of observations, and the head follows on its features (and on the action,
    for critics of actions); or a pair of feature extractors, one per stream of a head that is a
    fork."""

    make: Callable[[], Bodies]
    inputs: Inputs
    outputs: int  # required number of outputs, including the head
    seed: int  # seed of initial weights: the head's, and those that Keras samples in `make`
    head: Plan = ()
    units: int = 0  # units of a recurrent layer between feature extractor and head
    memory: str = "gru"  # its type
    cosines: int = 0  # number of cosines that embed fractions there
    tail: Plan = ()  # layers after a complete network

    @property
    def with_action(self) -> bool:
        """True if an action is another input; a feature extractor receives only the observation."""
        return isinstance(self.inputs, WithAction)

    @property
    def beside(self) -> bool:
        """True if there are inputs other than the observation, which is then the entry "obs"."""
        return self.with_action or self.units > 0 or self.cosines > 0

    def features(self, name: str, call: Callable[[], Array], last_step: str = "") -> Array:
        """Return the output of `call()`, which runs the network on two artificial observations.
        Raises NetworkError if it fails, or if the shape is not [2, F] (a feature extractor) or [2,
        outputs] (a complete network). last_step: a layer that selects the last step of a sequence
        returned with a state."""
        try:
            out = call()
        except Exception as error:
            observed = self.inputs["obs"] if self.head and self.beside else self.inputs
            raise NetworkFault(
                f"the network given for {name!r} failed on {_described(example(self.inputs))}: "
                f"{error}",
                "a network that accepts such inputs"
                + (
                    ", of which a feature extractor sees 'obs' only"
                    if self.head and self.beside
                    else ""
                ),
                f"{for_space(observed)}; its own traceback is above this one.",
            ) from error
        shape = tuple(getattr(out, "shape", ()))
        if len(shape) != 2 or not (self.head or shape[1] == self.outputs):
            several = isinstance(out, (tuple, list))
            linear = f"end it with a linear layer of {self.outputs} units."
            fix = "end it with a Flatten layer." if self.head else linear
            if several and last_step and len(getattr(out[0], "shape", ())) == 3:
                fix = f"add {last_step} after it{'.' if self.head else f', and {linear}'}"
            elif several:
                fix = "return one of them."
            raise NetworkError(
                f"the network given for {name!r} outputs "
                f"{f'{len(out)} values' if several else f'shape {shape}'} for 2 observations.",
                "features of shape (2, F), for any F"
                if self.head
                else f"shape (2, {self.outputs})",
                fix,
            )
        return out


def _described(tree: Tree) -> str:
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k!r}: {_described(v)}" for k, v in tree.items()) + "}"
    return f"{tree.dtype} {tree.shape}"


Source = PlannedNetwork | CustomNetwork


def example(inputs: Inputs, rows: int = 2) -> Tree:
    """Return zeros as network inputs: a tree of arrays [rows, ...]."""
    if isinstance(inputs, dict):
        return {k: example(v, rows) for k, v in inputs.items()}
    return np.zeros((rows, *inputs.shape), inputs.dtype)


def sources(
    roles: dict[str, Role],
    network: NetworkFunction | Networks | None,
    space: Space,
    generator: Callable[[str], np.random.Generator],
) -> dict[str, Source]:
    """Return the source of each role's network. `network` is the user's argument: None (the default
    plans); a function of the observation space that returns a feature extractor or the pair
    (actor's, critic's), to which tandem adds heads; or a dict of complete networks (or functions of
    the observation space that create them) by role. `generator(name)` samples initial weights."""
    by_role: dict[str, Source] = {}
    if isinstance(network, dict) and (odd := set(network) ^ set(roles)):
        raise NetworkError(
            f"network= names {', '.join(sorted(map(str, network)))}; {', '.join(sorted(odd))} "
            "does not match.",
            f"one network for each of {', '.join(roles)}",
            f"give network={{{', '.join(f'{r!r}: ...' for r in roles)}}}, or a function that "
            "returns one feature extractor for all.",
        )
    wholes = wholes_of(network, space) if isinstance(network, dict) else {}
    pairs = any(role.part != "actor" for role in roles.values() if not role.ours)
    for name, role in roles.items():
        rng = generator(f"network/{name}")
        if role.agents and not role.ours and is_function(network):
            raise NetworkError(
                "network= gives one feature extractor, but share=False needs one per agent.",
                "a feature extractor that all agents share, or the default networks",
                "give share=True, or leave network out.",
            )
        if network is None or (role.ours and is_function(network)):
            by_role[name] = PlannedNetwork(role.plan, init(role.plan, rng), role.inputs)
        elif isinstance(network, dict):
            if role.units or role.cosines:
                fractions = "values='implicit' puts fractions", "values"
                memory = f"recurrent={role.units} puts a recurrent layer", "recurrent"
                what, name_of = memory if role.units else fractions
                raise NetworkError(
                    f"network= gives complete networks, but {what} between feature extractor and "
                    "head.",
                    "a function of the observation space that returns a feature extractor",
                    f"give only the feature extractor, or leave {name_of} out.",
                )
            whole, seed = wholes[name], int(rng.integers(2**31))
            tail = tuple(layer for layer in role.head if isinstance(layer, Denormalize))
            by_role[name] = CustomNetwork(whole, role.inputs, role.outputs, seed, tail=tail)
        elif is_function(network):
            body = body_of(network, role.space or space, role.part, role.units, pairs)
            seed = int(rng.integers(2**31))
            by_role[name] = CustomNetwork(
                body,
                role.inputs,
                role.outputs,
                seed,
                role.head_on_body,
                role.units,
                role.memory,
                role.cosines,
            )
        else:
            raise NetworkError(
                f"network= is a {type(network).__name__}.",
                "a function of the observation space that returns a feature extractor, or a dict "
                "with one network per role",
                "write network=lambda space: my_body(space), or "
                f"network={{{', '.join(f'{r!r}: ...' for r in roles)}}}.",
            )
    return by_role
