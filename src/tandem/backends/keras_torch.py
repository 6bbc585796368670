"""Keras models on PyTorch. There a Keras model is a torch module, so the torch backend trains it.
Only creating, calling, reading and writing networks differ."""

from __future__ import annotations

from collections.abc import Callable

import keras
import torch

from tandem.backends.keras_frozen import FrozenModel
from tandem.backends.torch import TorchBackend
from tandem.backends.torch_networks import TorchNetwork
from tandem.networks import keras_bodies
from tandem.networks import keras_layers as models
from tandem.networks.defaults import CustomNetwork, Source
from tandem.networks.plan import Plan, Weights
from tandem.types import AnyArray, Array, Tree, Variable


class KerasTorchNetwork(TorchNetwork):
    """A Keras model as a torch module."""

    def __init__(
        self,
        name: str,
        model: keras.Model,
        plan: Plan | None,
        variables: dict[str, Variable],
        device: torch.device,
    ) -> None:
        super().__init__(name, model, plan, device, {n: v.value for n, v in variables.items()})
        self._named = variables
        # torch's own lists sort by names, which contain counters
        self.weights = [v.value for v in model.trainable_variables]
        # seeds of dropout and similar layers: int32, [2]
        self.seeds = [v.value for v in model.variables if v.name == "seed_generator_state"]
        self.constrained = [v for v in model.trainable_variables if v.constraint is not None]
        noise_ids = {id(t) for t in self.noise.values()}
        self._statistics = [
            v.value
            for v in model.non_trainable_variables
            if "float" in v.dtype and id(v.value) not in noise_ids
        ]
        self.rebinds = False  # Keras updates its variables in place

    def __call__(self, x: Tree, training: bool | None = None) -> Array:
        return self.module(x, training=self.learning if training is None else training)

    def mode_dependent_layer(self) -> str:
        return models.mode_dependent_layer(self.module)

    def tensors(self) -> list[torch.Tensor]:
        return [v.value.detach() for v in self.module.variables]

    def read(self) -> Weights:
        return models.read(self._named) if self.plan is not None else super().read()

    def frozen(self, weights: Weights) -> Callable[[Tree], AnyArray]:
        return FrozenModel(
            self.module, [weights[str(i)] for i in range(len(self.module.variables))]
        )

    def write(self, weights: Weights) -> None:
        if self.plan is not None:
            models.write(self._named, weights)
        else:
            super().write(weights)


class KerasTorchBackend(TorchBackend):
    """Keras 3 models with Keras on torch; eager."""

    framework = "keras-torch"

    def _new_network(self, name: str, source: Source) -> TorchNetwork:
        if isinstance(source, CustomNetwork):
            return KerasTorchNetwork(name, *keras_bodies.given(name, source), self._device)
        model, variables = models.build(source.plan, models.symbolic(source.inputs))
        models.write(variables, source.weights)
        return KerasTorchNetwork(name, model, source.plan, variables, self._device)


BACKEND = KerasTorchBackend  # looked up by `backends.make`
