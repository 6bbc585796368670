"""Transformer layers (Vaswani et al. 2017, arXiv:1706.03762) over the members of a sequence [B,
members, width], as in Wen et al. 2022 (arXiv:2205.14953, figure 2): normalized after each sum, and
with GELU. One forward function over the callables of the parts serves every backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tandem import ops
from tandem.math.masks import FORBIDDEN
from tandem.networks.plan import Dense, Layer, LayerNorm, Weights
from tandem.types import Array, Tree

Parts = dict[str, Callable[[Tree], Array]]
SMALL, RELU = 0.01, 2**0.5  # initial weight gains: of layers added to a stream; before GELU


@dataclass(frozen=True)
class Block(Layer):
    """A layer composed of other layers, its `parts`, whose weights are named "part_weight". `run`
    is its forward function, given those of its parts."""

    @property
    def parts(self) -> dict[str, Layer]:
        raise NotImplementedError

    def run(self, f: Parts, x: Tree) -> Array:
        raise NotImplementedError

    def init(self, rng: np.random.Generator) -> Weights:
        return {f"{k}_{n}": v for k, part in self.parts.items() for n, v in part.init(rng).items()}

    def forward(self, w: Weights, x: Tree) -> Array:
        return self.run({k: partial(p.forward, _of(w, k)) for k, p in self.parts.items()}, x)

    def bound(self, w: Weights) -> Callable[[Tree], Array]:
        return partial(self.run, {k: p.bound(_of(w, k)) for k, p in self.parts.items()})


def _of(w: Weights, part: str) -> Weights:
    return {n[len(part) + 1 :]: v for n, v in w.items() if n.startswith(f"{part}_")}


@dataclass(frozen=True)
class Attention(Block):
    """Multi-head attention (section 3.2) of {"query", "key"} [B, members, width], with the keys as
    values. With `causal`, members do not attend to later ones."""

    width: int
    heads: int
    causal: bool
    initializer: str = "orthogonal"

    @property
    def parts(self) -> dict[str, Layer]:
        dense = Dense(self.width, self.width, "linear", self.initializer, SMALL)
        return dict.fromkeys(("query", "key", "value", "output"), dense)

    def run(self, f: Parts, x: Tree) -> Array:
        xp, each = ops.of(x["query"]), self.width // self.heads
        query, key, value = (
            self._apart(f[n](x["query" if n == "query" else "key"]))
            for n in ("query", "key", "value")
        )
        scores = query @ xp.swapaxes(key, -1, -2) * each**-0.5  # eq. 1
        if self.causal:
            members = scores.shape[-1]
            later = np.triu(np.full((members, members), FORBIDDEN, np.float32), 1)
            scores = scores + xp.constant(later, scores)
        seen = xp.swapaxes(xp.exp(xp.log_softmax(scores)) @ value, 1, 2)
        return f["output"](xp.reshape(seen, (-1, seen.shape[1], self.width)))

    def _apart(self, x: Array) -> Array:
        """Reshape [B, members, width] to [B, heads, members, width / heads]."""
        xp = ops.of(x)
        split = xp.reshape(x, (-1, x.shape[1], self.heads, self.width // self.heads))
        return xp.swapaxes(split, 1, 2)


@dataclass(frozen=True)
class FeedForward(Block):
    """Hidden layers, followed by a linear one back to `width`."""

    width: int
    hidden: tuple[int, ...]
    activation: str = "gelu"
    initializer: str = "orthogonal"

    @property
    def parts(self) -> dict[str, Layer]:
        sizes = (self.width, *self.hidden)
        parts: dict[str, Layer] = {
            f"hidden{i}": Dense(sizes[i], n, self.activation, self.initializer, RELU)
            for i, n in enumerate(self.hidden)
        }
        return parts | {"output": Dense(sizes[-1], self.width, "linear", self.initializer, SMALL)}

    def run(self, f: Parts, x: Tree) -> Array:
        for layer in f.values():
            x = layer(x)
        return x


@dataclass(frozen=True)
class Transformer(Block):
    """The base class of layers with attention and feed-forward networks of one `width`."""

    width: int
    heads: int
    hidden: tuple[int, ...]
    activation: str = "gelu"
    initializer: str = "orthogonal"

    @property
    def feed(self) -> FeedForward:
        return FeedForward(self.width, self.hidden, self.activation, self.initializer)


@dataclass(frozen=True)
class EncoderBlock(Transformer):
    """An encoder block: each member of [B, members, width] attends to all members, followed by a
    feed-forward network."""

    @property
    def parts(self) -> dict[str, Layer]:
        return {
            "attention": Attention(self.width, self.heads, False, self.initializer),
            "norm1": LayerNorm(self.width),
            "feed": self.feed,
            "norm2": LayerNorm(self.width),
        }

    def run(self, f: Parts, x: Tree) -> Array:
        x = f["norm1"](x + f["attention"]({"query": x, "key": x}))
        return f["norm2"](x + f["feed"](x))


@dataclass(frozen=True)
class DecoderBlock(Transformer):
    """A decoder block for {"x", "encoded"} [B, members, width]. Each member attends to its own x
    and earlier ones; its encoding then attends to the results and replaces them."""

    @property
    def parts(self) -> dict[str, Layer]:
        attention = Attention(self.width, self.heads, True, self.initializer)
        return {
            "attention": attention,
            "norm1": LayerNorm(self.width),
            "cross": attention,
            "norm2": LayerNorm(self.width),
            "feed": self.feed,
            "norm3": LayerNorm(self.width),
        }

    def run(self, f: Parts, x: Tree) -> Array:
        before, encoded = x["x"], x["encoded"]
        before = f["norm1"](before + f["attention"]({"query": before, "key": before}))
        out = f["norm2"](encoded + f["cross"]({"query": encoded, "key": before}))
        return f["norm3"](out + f["feed"](out))


@dataclass(frozen=True)
class Decoder(Transformer):
    """A decoder from each member's encoding [B, members, width] and information about the previous
    member [B, members, inputs] ({"encoded", "before"}) to features [B, members, width], which do
    not depend on any later member's "before"."""

    inputs: int = field(kw_only=True)
    blocks: int = 1

    @property
    def parts(self) -> dict[str, Layer]:
        block = DecoderBlock(self.width, self.heads, self.hidden, self.activation, self.initializer)
        return {
            "embed": Dense(self.inputs, self.width, self.activation, self.initializer, RELU),
            "norm": LayerNorm(self.width),
            **{f"block{i}": block for i in range(self.blocks)},
        }

    def run(self, f: Parts, x: Tree) -> Array:
        out = f["norm"](f["embed"](x["before"]))
        for i in range(self.blocks):
            out = f[f"block{i}"]({"x": out, "encoded": x["encoded"]})
        return out
