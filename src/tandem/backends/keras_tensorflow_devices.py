"""Devices of TensorFlow, from their number or from a user's strategy."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tandem.backends import keras_tensorflow, no_strategy
from tandem.backends.keras_tensorflow_layout import TensorFlowLayout, strategy_of
from tandem.backends.keras_tensorflow_servers import ServerLayout
from tandem.backends.keras_tensorflow_workers import WorkerLayout
from tandem.errors import SettingError
from tandem.types import Variable

LAYOUT = TensorFlowLayout  # looked up by `devices_of`


def make_host_devices(count: int) -> None:
    """Make TensorFlow create this number of CPU devices. No effect after TensorFlow has started, or
    if the program has set the number."""
    (processor,) = tf.config.list_physical_devices("CPU")
    if tf.config.get_logical_device_configuration(processor) is not None:
        return
    parts = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(processor, parts)
    except RuntimeError:  # already started: `TensorFlowLayout` checks their number
        return


def of(
    given: object, coordinator: tf.distribute.coordinator.ClusterCoordinator | None = None
) -> TensorFlowLayout:
    """Create a layout from a user's strategy or a number of devices. Raises SettingError for
    anything else. coordinator: the user's coordinator of a ParameterServerStrategy."""
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        make_host_devices(given)
        return TensorFlowLayout(keras_tensorflow.choose_device("auto", 1), given, "strategy")
    if isinstance(given, tf.distribute.MultiWorkerMirroredStrategy):
        return WorkerLayout(given)
    if isinstance(given, tf.distribute.ParameterServerStrategy):
        return ServerLayout(given, coordinator)
    if isinstance(given, tf.distribute.MirroredStrategy):
        return TensorFlowLayout.of_strategy(given)
    expected = (
        "a MirroredStrategy, MultiWorkerMirroredStrategy or ParameterServerStrategy of "
        "tf.distribute, or how many devices"
    )
    raise no_strategy(given, expected)


def check_alone(variables: Iterable[Variable]) -> None:
    """Raise SettingError for variables created in a strategy's scope: they are on all its devices,
    and can be changed only there."""
    for v in variables:
        if (strategy := strategy_of(v)) is not None:
            raise SettingError(
                f"the variable {v.name!r} was created in the scope of a "
                f"{type(strategy).__name__}, but train supports one device only.",
                "distributed_training with that strategy",
                "call agent.distributed_training(optimizer, strategy, ...), or create the agent "
                "outside strategy.scope().",
            )
