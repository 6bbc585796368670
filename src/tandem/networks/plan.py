"""Networks as data: a *plan* is a tuple of layers, each a frozen dataclass that defines the shapes
of its weights, their initialization, and its forward function over `ops`.

A plan becomes a torch module, a Keras model, or, with NumPy weights, the *twin* that acts without
any framework. It can be stored as JSON. Weights are named "place/name" and have Keras's layout
(dense [in, out], convolution HWIO), so a checkpoint from one framework loads into another. NumPy
samples initial weights, so that they are the same on every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from tandem import ops
from tandem.errors import NetworkError
from tandem.types import Array, Tree

Weights = dict[str, Array]
REGISTRY: dict[str, type[Layer]] = {}


@dataclass(frozen=True)
class Layer:
    """One layer. `forward(w, x)` takes its weights by name; `init(rng)` samples them; `frozen`
    names those without a gradient."""

    frozen: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        # files identify layers by class name, so it must be unique
        assert REGISTRY.setdefault(cls.__name__, cls) is cls, f"{cls.__name__} is two layers"

    @property
    def frozen_names(self) -> set[str]:
        return set(self.frozen)

    @property
    def outputs(self) -> int | None:
        """The number of outputs; None for layers without `units` and `width`: see `width()`."""
        return getattr(self, "units", getattr(self, "width", None))

    def init(self, rng: np.random.Generator) -> Weights:
        return {}

    def forward(self, w: Weights, x: Tree) -> Array:
        raise NotImplementedError

    def bound(self, w: Weights) -> Callable[[Tree], Array]:
        """Return `forward` with these NumPy weights, optimized for speed, since it runs at every
        environment step."""
        return partial(self.forward, w)


Plan = tuple[Layer, ...]


@dataclass(frozen=True)
class Dense(Layer):
    """A dense layer: x @ kernel + bias, then an activation. kernel [inputs, units]."""

    inputs: int
    units: int
    activation: str = "linear"
    # "uniform": U(+-1/sqrt(inputs)), torch's default; "orthogonal" with `gain`, bias 0
    initializer: str = "uniform"
    gain: float = 1.0

    def init(self, rng: np.random.Generator) -> Weights:
        return draw(rng, (self.inputs, self.units), self.initializer, self.gain)

    def forward(self, w: Weights, x: Array) -> Array:
        return activate(self.activation, x @ w["kernel"] + w["bias"])

    def bound(self, w: Weights) -> Callable[[Tree], Array]:
        if type(self) is not Dense:  # a subclass may recompute its kernel at every step
            return super().bound(w)
        kernel = w["kernel"]
        bias = w["bias"]
        activation = _INTO.get(self.activation, partial(activate, self.activation))

        def run(x: Array) -> Array:
            # one product: 10% faster for one row, and several times for rows of sequences
            flat = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
            out: Array = np.dot(flat, kernel)
            out += bias  # in place, without another array
            out = activation(out)
            return out if x.ndim == 2 else out.reshape(*x.shape[:-1], out.shape[-1])

        return run


@dataclass(frozen=True)
class Conv(Layer):
    """A convolution over channels-last images [B, H, W, C] without padding, then an activation.
    kernel [k, k, C, filters]."""

    channels: int
    filters: int
    kernel: int
    stride: int
    activation: str = "relu"
    initializer: str = "uniform"
    gain: float = 1.0

    def init(self, rng: np.random.Generator) -> Weights:
        return draw(
            rng,
            (self.kernel, self.kernel, self.channels, self.filters),
            self.initializer,
            self.gain,
        )

    def forward(self, w: Weights, x: Array) -> Array:
        k, s = self.kernel, self.stride
        # [B, H', W', C, k, k]
        windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(1, 2))[:, ::s, ::s]
        patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(*windows.shape[:3], -1)
        return activate(
            self.activation, patches @ w["kernel"].reshape(-1, self.filters) + w["bias"]
        )


@dataclass(frozen=True)
class Activation(Layer):
    """A separate activation."""

    activation: str

    def forward(self, w: Weights, x: Array) -> Array:
        return activate(self.activation, x)


@dataclass(frozen=True)
class Flatten(Layer):
    """A layer that flattens all axes except the first."""

    def forward(self, w: Weights, x: Array) -> Array:
        return ops.of(x).reshape(x, (x.shape[0], -1))


@dataclass(frozen=True)
class Cast(Layer):
    """Conversion of numbers of any type to float32 vectors of `width`."""

    width: int

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        return xp.reshape(xp.cast(x), (-1, self.width))

    def bound(self, w: Weights) -> Callable[[Tree], Array]:
        whole = partial(self.forward, w)
        return lambda x: x if x.shape[1:] == (self.width,) and x.dtype == np.float32 else whole(x)


@dataclass(frozen=True)
class OneHot(Layer):
    """One-hot encoding of discrete observations, one number or one per position, as concatenated
    vectors."""

    sizes: tuple[int, ...]
    start: int = 0

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        if len(self.sizes) == 1:
            return xp.one_hot(xp.reshape(x, (-1,)) - self.start, self.sizes[0])
        return xp.concat([xp.one_hot(x[:, i], n) for i, n in enumerate(self.sizes)], -1)


@dataclass(frozen=True)
class Image(Layer):
    """Scaling of bytes to [0, 1], channels last."""

    channels_first: bool

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        x = xp.cast(x) * np.float32(1 / 255)
        return xp.swapaxes(xp.swapaxes(x, 1, 2), 2, 3) if self.channels_first else x


@dataclass(frozen=True)
class Normalize(Layer):
    """Normalization (x - mean) / sqrt(variance + 1e-8), clipped. The running statistics are set
    externally and have no gradient."""

    width: int
    clip: float = 10.0
    frozen: ClassVar[tuple[str, ...]] = ("mean", "variance")

    def init(self, rng: np.random.Generator) -> Weights:
        return {
            "mean": np.zeros(self.width, np.float32),
            "variance": np.ones(self.width, np.float32),
        }

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        return xp.clip((x - w["mean"]) / xp.sqrt(w["variance"] + 1e-8), -self.clip, self.clip)


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Layer normalization over the last axis (Ba et al. 2016, arXiv:1607.06450)."""

    width: int
    epsilon: float = 1e-5

    def init(self, rng: np.random.Generator) -> Weights:
        return {"scale": np.ones(self.width, np.float32), "bias": np.zeros(self.width, np.float32)}

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        centred = x - xp.mean(x, -1)[..., None]
        variance = xp.mean(centred * centred, -1)[..., None]
        return centred / xp.sqrt(variance + self.epsilon) * w["scale"] + w["bias"]

    def bound(self, w: Weights) -> Callable[[Tree], Array]:
        scale, bias, total = w["scale"], w["bias"], partial(np.add.reduce, axis=-1, keepdims=True)

        def run(x: Array) -> Array:  # bit-identical, in half the time
            out: Array = x - total(x) / self.width
            out /= np.sqrt(total(out * out) / self.width + self.epsilon)
            out *= scale
            out += bias
            return out

        return run


@dataclass(frozen=True)
class Scale(Layer):
    """A layer that appends a learned vector independent of the input: the log standard deviations
    of a Gaussian policy."""

    width: int
    initial: float = 0.0

    @property
    def outputs(self) -> int:
        return 2 * self.width

    def init(self, rng: np.random.Generator) -> Weights:
        return {"log_std": np.full(self.width, self.initial, np.float32)}

    def forward(self, w: Weights, x: Array) -> Array:
        return ops.of(x).concat([x, 0.0 * x + w["log_std"]], -1)


@dataclass(frozen=True)
class Half(Layer):
    """The first or second half of vectors of `inputs` numbers."""

    inputs: int
    second: bool

    @property
    def place(self) -> slice:
        middle = self.inputs // 2
        return slice(middle, self.inputs) if self.second else slice(0, middle)

    def forward(self, w: Weights, x: Array) -> Array:
        return x[..., self.place]


@dataclass(frozen=True)
class Streams(Layer):
    """Several plans on one input, with concatenated outputs. Its weights are
    "name/place/weight"."""

    plans: dict[str, Plan]

    @property
    def frozen_names(self) -> set[str]:
        return {f"{k}/{n}" for k, plan in self.plans.items() for n in frozen(plan)}

    def part(self, x: Tree, name: str) -> Tree:
        """Return the input of the plan of that name."""
        return x

    def joined(self, parts: list[Array]) -> Array:
        """Combine the outputs of the plans."""
        return ops.of(parts[0]).concat(parts, -1)

    def init(self, rng: np.random.Generator) -> Weights:
        return {f"{k}/{n}": v for k, plan in self.plans.items() for n, v in init(plan, rng).items()}

    def forward(self, w: Weights, x: Tree) -> Array:
        parts = [forward(plan, select(w, k), self.part(x, k)) for k, plan in self.plans.items()]
        return self.joined(parts)

    def bound(self, w: Weights) -> Callable[[Tree], Array]:
        twins = [(k, Twin(plan, select(w, k))) for k, plan in self.plans.items()]
        return lambda x: self.joined([twin(self.part(x, k)) for k, twin in twins])


@dataclass(frozen=True)
class Branches(Streams):
    """One plan per entry of a dict of inputs, with concatenated outputs."""

    def part(self, x: Tree, name: str) -> Tree:
        return x[name]


@dataclass(frozen=True)
class Dueling(Layer):
    """State value and advantages from separate streams: V + A - mean(A) (Wang et al. 2016,
    arXiv:1511.06581, eq. 9); for distributions, number by number (Hessel et al. 2018,
    arXiv:1710.02298, section 3)."""

    value: Plan
    advantage: Plan

    @property
    def plans(self) -> dict[str, Plan]:
        return {"value": self.value, "advantage": self.advantage}

    @property
    def frozen_names(self) -> set[str]:
        return {f"{k}/{n}" for k, plan in self.plans.items() for n in frozen(plan)}

    def init(self, rng: np.random.Generator) -> Weights:
        return {f"{k}/{n}": v for k, plan in self.plans.items() for n, v in init(plan, rng).items()}

    def forward(self, w: Weights, x: Array) -> Array:
        v = forward(self.value, select(w, "value"), x)
        a = forward(self.advantage, select(w, "advantage"), x)
        return combine_dueling(v, a)

    def bound(self, w: Weights) -> Callable[[Tree], Array]:
        v, a = Twin(self.value, select(w, "value")), Twin(self.advantage, select(w, "advantage"))
        return lambda x: combine_dueling(v(x), a(x))


def combine_dueling(value: Array, advantage: Array) -> Array:
    """Combine value [..., 1] and advantage [..., A] to [..., A]. For distributions of M numbers,
    value is [..., M], and advantage and the result are [..., A * M], one action after another."""
    xp, each = ops.of(value), value.shape[-1]
    if each > 1:
        # TensorFlow may know the number of rows only at run time
        lead = tuple(-1 if n is None else n for n in advantage.shape[:-1])
        apart = xp.reshape(advantage, (*lead, advantage.shape[-1] // each, each))
        base = (value - xp.mean(apart, -2))[..., None, :]
        return xp.reshape(base + apart, (*lead, advantage.shape[-1]))
    return value + advantage - xp.mean(advantage, -1)[..., None]


def init(plan: Plan, rng: np.random.Generator) -> Weights:
    """Return initial weights as "place/name", sampled layer after layer from one generator."""
    return {f"{i}/{n}": v for i, layer in enumerate(plan) for n, v in layer.init(rng).items()}


def frozen(plan: Plan) -> set[str]:
    """Return the names of weights without a gradient."""
    names: set[str] = set()
    for i, layer in enumerate(plan):
        names |= {f"{i}/{n}" for n in layer.frozen_names}
    return names


def select(w: Weights, place: str) -> Weights:
    """Return the weights under `place`, by their names there."""
    return {n[len(place) + 1 :]: v for n, v in w.items() if n.startswith(f"{place}/")}


def forward(plan: Plan, w: Weights, x: Tree) -> Array:
    """Return the plan's output for x [B, ...]."""
    for i, layer in enumerate(plan):
        x = layer.forward(select(w, str(i)), x)
    return x


class Twin:
    """A callable plan with NumPy weights: the network without its framework."""

    def __init__(self, plan: Plan, weights: Weights) -> None:
        self.plan = plan
        self.load(weights)

    def __reduce__(self) -> tuple[object, ...]:
        return Twin, (self.plan, self.weights)  # bound steps are not pickled

    def load(self, weights: Weights) -> None:
        self.weights = weights
        self._steps = [layer.bound(select(weights, str(i))) for i, layer in enumerate(self.plan)]

    def __call__(self, x: Tree) -> Array:
        for step in self._steps:
            x = step(x)
        return x


def with_last(head: Plan, kind: type[Dense]) -> Plan:
    """Replace the head's last `Dense` layer, in each stream of a fork, by a layer of another type.
    Subclasses of `Dense` are not replaced."""
    plan = list(head)
    for i, layer in reversed(list(enumerate(plan))):
        if isinstance(layer, Dueling):
            value, advantage = with_last(layer.value, kind), with_last(layer.advantage, kind)
            plan[i] = replace(layer, value=value, advantage=advantage)
        elif isinstance(layer, Streams):
            plan[i] = replace(layer, plans={k: with_last(p, kind) for k, p in layer.plans.items()})
        elif type(layer) is Dense:
            plan[i] = kind(**vars(layer))
        else:
            continue
        break
    return tuple(plan)


def width(plan: Plan) -> int:
    """Return the number of outputs of a plan, from its last layer that is not an activation."""
    for layer in reversed(plan):
        if isinstance(layer, Activation):
            continue
        if layer.outputs is not None:
            return layer.outputs
        if isinstance(layer, OneHot):
            return sum(layer.sizes)
        if isinstance(layer, Half):
            return layer.inputs - layer.inputs // 2 if layer.second else layer.inputs // 2
        if isinstance(layer, Streams):
            return sum(width(p) for p in layer.plans.values())
        if isinstance(layer, Dueling):
            return width(layer.advantage)
        break
    raise NetworkError(
        f"cannot tell the output width of {plan}.",
        "a plan that ends in a known width",
        "end it with a Dense layer.",
    )


def activate(name: str, x: Array) -> Array:
    """Apply the activation of that name."""
    return x if name == "linear" else getattr(ops.of(x), name)(x)


_INTO: dict[str, Callable[[Array], Array]] = {
    "tanh": lambda x: np.tanh(x, x),
    "relu": lambda x: np.maximum(x, 0.0, out=x),
}
ACTIVATIONS = ("linear", "tanh", "relu", "sigmoid", "softplus", "elu", "gelu", "silu")


def draw(
    rng: np.random.Generator, shape: tuple[int, ...], initializer: str, gain: float
) -> Weights:
    """Sample kernel and bias: orthogonal as in Saxe et al. (2014, arXiv:1312.6120), or uniform as
    in torch's Linear and Conv2d."""
    fan_in = int(np.prod(shape[:-1]))
    if initializer == "orthogonal":
        rows, cols = max(fan_in, shape[-1]), min(fan_in, shape[-1])
        q, r = np.linalg.qr(rng.standard_normal((rows, cols)))
        q *= np.sign(np.diag(r))
        kernel = (gain * (q if fan_in >= shape[-1] else q.T)).reshape(shape)
        return {"kernel": kernel.astype(np.float32), "bias": np.zeros(shape[-1], np.float32)}
    bound = 1.0 / np.sqrt(fan_in)
    draw = rng.uniform(-bound, bound, shape).astype(np.float32)
    return {"kernel": draw, "bias": rng.uniform(-bound, bound, shape[-1]).astype(np.float32)}
