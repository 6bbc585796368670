"""The networks that an algorithm gets when the user gives none, as plans built from the spaces; and
the heads that it adds to a body that the user does give."""

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
HIDDEN = 256  # units where features and action meet, if the default networks have no hidden layer


class WithAction(dict[str, Spec]):
    """The inputs of a critic of actions: "obs" and "action". A type of its own, since an
    observation may have such entries too."""


@dataclass(frozen=True)
class Role:
    """One network of an algorithm: what enters it, the default body, and a head that takes however
    many features there are."""

    inputs: Inputs
    body: Plan
    head: Plan  # its first layers' `inputs` are set to the width of the body by `fit`
    # of the user's bodies it stands on this: "actor", "critic", or "both", where its head is a fork
    part: str = "actor"
    split: bool = False  # by default each stream of the fork stands on a body of its own
    # of a memory between body and head; `inputs` are then as `networks.recurrent.entering` has them
    units: int = 0
    memory: str = "gru"  # its kind
    # with which fractions enter between body and head; `inputs` are then WithFractions
    cosines: int = 0
    features: int = 0  # that the body puts out, where its plan does not say it
    space: Space | None = None  # passed to a user's function, if it is not the environment's
    # a mixer: made by us, whatever network its user gives for the others, and without noise
    ours: bool = False
    agents: int = 0  # whose rows stand side by side; each of them has weights of its own

    @property
    def outputs(self) -> int:
        """How many numbers it puts out, whatever body it stands on."""
        return width(fit(self.head, 1))

    @property
    def head_on_body(self) -> Plan:
        """The head on a user's body. A critic's features and action first pass the last hidden
        layer of the default body: the head alone would be linear in the action, and the best action
        the same in every state."""
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
            return (remembering(self, self.body, width(self.body)),)
        return self.body + fit(self.head, width(self.body))


def fit(head: Plan, features: int) -> Plan:
    """The head for that many features: every layer written with inputs=0 gets them, or the half of
    them."""
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


def remembering(of: Role | CustomNetwork, body: Plan, features: int) -> Recurrent:
    """A body of so many features, a memory of them, and the head."""
    action = of.inputs["action"].width if "action" in of.inputs else 0
    head = of.head if action else seeing(of.head, of.memory)
    whole = Recurrent(body, features, of.units, head, of.memory, action)
    return replace(whole, head=fit(head, whole.seen))


def streams(head: Plan) -> dict[str, Plan]:
    """The plans of a head that begins with a fork, by name; none where it does not."""
    if isinstance(head[0], Streams) and not isinstance(head[0], Branches):
        return head[0].plans
    return head[0].plans if isinstance(head[0], Dueling) else {}


def whole_streams(head: Plan) -> dict[str, Plan]:
    """The same, for bodies of their own, of which none takes a half only."""
    return {
        k: tuple(layer for layer in plan if not isinstance(layer, Half))
        for k, plan in streams(head).items()
    }


def _forked(layer: Layer, plans: dict[str, Plan]) -> Layer:
    """The fork with other plans."""
    return Dueling(**plans) if isinstance(layer, Dueling) else replace(layer, plans=plans)  # type: ignore[call-arg]


def apart(bodies: tuple[tuple[Plan, int], ...], head: Plan) -> Plan:
    """A fork whose two streams stand on bodies of their own, not on one; with how many numbers each
    puts out."""
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
    """From raw observations to features: scaled and convolved images, one-hot symbols, plain or
    normalised numbers; the parts of a dict side by side. An action beside them stays as it is."""
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
SMALL = 36  # pixels of a side below which these convolutions have nothing left


def cnn(image: Leaf, initializer: str = "uniform", layer_norm: bool = False) -> Plan:
    """Three convolutions and 512 features (Mnih et al. 2015, doi:10.1038/nature14236, Methods). For
    images with a side below SMALL pixels, such as MiniGrid's 7 x 7, three small ones and 128
    features, as MiniGrid's documentation has them: of 2 x 2 pixels; of 3 x 3 in strides of two,
    while a side has 8 or more. With `layer_norm` each pixel's channels are normalised, and the
    features (Gallici et al. 2024, arXiv:2407.04811)."""
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
    """The layer with its `units` outputs normalised (Ba et al. 2016, arXiv:1607.06450) before its
    activation."""
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
    """A multilayer perceptron on the encoded inputs. Pictures go through the CNN, and no
    further hidden layers. With `layer_norm` every layer is normalised before its activation."""
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
    """Whether an observation holds pictures."""
    return any(s.image for s in spec.values()) if isinstance(spec, dict) else spec.image


@dataclass(frozen=True)
class PlannedNetwork:
    """A network that is built from its plan, and its first weights."""

    plan: Plan
    weights: Weights
    inputs: Inputs


@dataclass(frozen=True)
class CustomNetwork:
    """A network that the user makes: `make()` returns a fresh module. Where there is a `head`, what
    it makes is a body that takes observations, and the head stands on its features (and on the
    action, where one enters); or a pair of bodies, one for each stream of a head that is a fork."""

    make: Callable[[], Bodies]
    inputs: Inputs
    outputs: int  # how many numbers it has to put out, with its head
    seed: int  # of first weights: of the head, and of what Keras draws while `make` runs
    head: Plan = ()
    units: int = 0  # of a memory between a body and the head
    memory: str = "gru"  # its kind
    cosines: int = 0  # with which fractions enter there
    tail: Plan = ()  # behind a whole network

    @property
    def with_action(self) -> bool:
        """Whether an action enters beside the observation; a body sees the observation only."""
        return isinstance(self.inputs, WithAction)

    @property
    def beside(self) -> bool:
        """Whether anything enters beside the observation, which is then the entry "obs"."""
        return self.with_action or self.units > 0 or self.cosines > 0

    def features(self, name: str, call: Callable[[], Array], last_step: str = "") -> Array:
        """The output of `call()`, which is the network on two made-up observations. Raises
        NetworkError where it fails, or where the shape is not [2, F] (a body) or [2, outputs] (a
        whole network). last_step: a layer that takes the last of a sequence that comes with a
        state."""
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
    """Zeros of the kind that enters a network: a tree of arrays [rows, ...]."""
    if isinstance(inputs, dict):
        return {k: example(v, rows) for k, v in inputs.items()}
    return np.zeros((rows, *inputs.shape), inputs.dtype)


def sources(
    roles: dict[str, Role],
    network: NetworkFunction | Networks | None,
    space: Space,
    generator: Callable[[str], np.random.Generator],
) -> dict[str, Source]:
    """Where each role's network comes from. `network` is what users give: None (the default plans),
    a function of the observation space that returns a body or the pair (actor body, critic body),
    to which our heads are added, or a dict of whole networks (or functions of the observation space
    that make them) by role. `generator(name)` draws first weights."""
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
