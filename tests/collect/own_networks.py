"""Networks of layers that no library knows, as a user's module has them."""

import os
from typing import Any

if "KERAS_BACKEND" in os.environ:
    import keras

    class KerasSine(keras.layers.Layer):
        """A dense layer, then a sine."""

        def __init__(self, units: int = 16, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.dense = keras.layers.Dense(units)
            self.units = units

        def build(self, shape: Any) -> None:
            self.dense.build(shape)

        def call(self, x: Any) -> Any:
            return keras.ops.sin(self.dense(x))

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "units": self.units}

    def body(space: Any) -> Any:
        return keras.Sequential([keras.Input(space.shape), KerasSine(16)])

    def with_lambda(space: Any) -> Any:
        layers = keras.layers.Dense(8), keras.layers.Lambda(lambda x: keras.ops.sin(x))
        return keras.Sequential([keras.Input(space.shape), *layers])

else:
    import torch

    class TorchSine(torch.nn.Module):
        """A dense layer, then a sine."""

        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(inputs, 16)

        def forward(self, x: Any) -> Any:
            return torch.sin(self.dense(x))

    def body(space: Any) -> Any:
        return TorchSine(space.shape[0])
