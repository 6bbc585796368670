"""Training an agent on many devices: `distributed_training`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from tandem import backends
from tandem.agents import assembly
from tandem.agents.agent_checkpoint import PathLike, SavedAgent
from tandem.agents.companion_agents import CompanionDevices
from tandem.agents.contract import (
    AgentMembers,
    SetArguments,
    TrainArguments,
    as_list,
    check_count,
    param_variables,
)
from tandem.agents.custom_loop import CustomLoop
from tandem.backends.reach import reach
from tandem.errors import SettingError, warn

Method = Callable[..., np.float32]


def batch_may_come_first(method: Method) -> Method:
    """`distributed_training` as one example calls it: with the global batch before all else."""

    @wraps(method)
    def either(self: Any, *arguments: Any, **named: Any) -> np.float32:
        if arguments and isinstance(arguments[0], Integral):
            named["batch"], *arguments = arguments  # type: ignore[assignment]
        return method(self, *arguments, **named)

    return either


class DistributedTraining(SavedAgent):
    """What agents do with many devices."""

    _train: Callable[..., np.float32]
    coordinator: Any = None  # of a ParameterServerStrategy's workers; made where it is None

    @batch_may_come_first
    def distributed_training(
        self,
        optimizer: Any = None,
        strategy: Any = None,
        episodes: int | None = None,
        num_episodes: int | None = None,
        jit_compile: bool = True,
        pool_network: bool = True,
        processes: int | None = None,
        processes_her: int | None = None,
        processes_pr: int | None = None,
        window_size: int | None = None,
        clearing_freq: int | None = None,
        window_size_: int | None = None,
        window_size_ppo: int | None = None,
        random: bool = False,
        save_data: bool = True,
        p: int | None = None,
        *,
        train_loss: Any = None,
        batch: int | None = None,
        window_size_pr: int | None = None,
        num_store: int | None = None,
        parallel_store_and_training: bool | None = None,
    ) -> np.float32:
        """Trains as `train` does, with the rows of each mini-batch divided among several devices,
        and gives the last episode's loss.

        strategy: on TensorFlow a MirroredStrategy, MultiWorkerMirroredStrategy or
        ParameterServerStrategy of tf.distribute, in whose scope the agent was made (optimizers that
        were made outside of it are recreated there); on JAX a jax.sharding.Mesh; everywhere also
        how many devices, on PyTorch nothing else. `batch` is of all devices together, and may be
        given first, before the optimizer; without it that of `set`. One that does not divide evenly
        is lowered to the next that does, which is said. num_episodes is another name of `episodes`
        and overrides it. The others are those of `train`.

        With a MultiWorkerMirroredStrategy each worker of TF_CONFIG's cluster runs the same program
        with environments and a pool of its own. In each round it plays an episode of each of its
        environments; then all make the same number of updates together (see `CTL`), of `batch`
        divided by the number of workers rows each. Training ends after the round in which the last
        worker has played its `num_episodes`, and in a cluster of one as soon as they are played.
        Weights begin as the first worker's. Its
        `criterion`, `stop_training` and `patience` end the training of all, and its files are at
        `path`; those of worker 1 are in the folder worker1 beside it, and so on, where `restore`
        of the first one's path finds them.

        With a ParameterServerStrategy (see `tandem.parameter_server_strategy`) this process
        collects, and hands each mini-batch to one of the workers, which moves the weights on the
        servers when it is done; `update_param`, callbacks and files wait for all of them. So a run
        is not reproducible, and jit_compile means nothing. `agent.coordinator` is used where it is
        set.

        On PyTorch each device is a process's, to which the agent goes once, pickled: what it needs
        in its loss beside networks, tensors and plain numbers stays there as it was. A process that
        dies, or stands still for two minutes, is a WorkerError that names it. jit_compile means
        nothing there. Where torchrun has started as many processes, each with the program, they are
        the devices: the agent of rank 0 is trained, and the others come to its weights and loss.

        A loss that is one number counts as the mean of its device's rows, and the mean over devices
        is what is followed: with a mean, or a loss for each sample, that is the loss of the whole
        batch. A loss that mixes its samples is one of each device's rows.

        Raises SettingError for a strategy that is none of these, and where the agent, or an
        optimizer that has trained, was made outside of its scope; EngineError where there are fewer
        devices; WorkerError where another worker ends early.
        """
        check_count("episodes", episodes, 0)
        check_count("num_episodes", num_episodes, 0)
        if self.torch and train_loss is not None:
            raise SettingError(
                f"train_loss={train_loss!r} is not supported by {type(self).__name__}, a PyTorch "
                "agent.",
                "a Keras metric for tandem.RL agents only; others use the mean loss",
                "leave train_loss out.",
            )
        layout = self._layout_of(strategy)
        arguments = TrainArguments(
            optimizer,
            episodes if num_episodes is None else num_episodes,
            pool_network,
            processes,
            processes_her,
            processes_pr,
            window_size,
            clearing_freq,
            window_size_,
            window_size_ppo,
            window_size_pr,
            random,
            save_data,
            num_store,
            p,
            parallel_store_and_training,
            layout,
            batch,
        )
        check_count("batch", batch)
        self._set_arguments("distributed_training")
        layout.check(variables_of(self), as_list(self.optimizer or optimizer))
        check_workers(self, layout)
        if self.torch and self._assembly is not None and self._assembly.layout is layout:
            layout.check_trained(param_variables(self))
        if self._restored is not None and layout.rank:
            self._restore_own(self._restored.path, layout)
        with layout.scope():
            return self._train(arguments, train_loss, jit_compile)

    def CTL(self, multi_worker_dataset: Iterable[Any]) -> tuple[float, int]:
        """Makes the updates after a round with several workers; returns (the sum of their losses,
        how many). A subclass may define it in its own way: it is given an iterable of mini-batches
        (s, a, next_s, r, d), NumPy arrays [B, ...] of this worker's rows, each to be handed to
        `distributed_train_step` once. Without such a definition, all of them are made in one
        compiled call, which comes to the same."""
        total, batches = 0.0, 0
        for inputs in multi_worker_dataset:
            total += self.distributed_train_step(inputs)
            batches += 1
        return total, batches

    def distributed_train_step(self, inputs: object) -> float:
        """Within `CTL`: an update by one of its mini-batches and those of all other workers.
        Returns its loss. SettingError for anything else."""
        loop = self._assembly.learner.loop if self._assembly is not None else None
        if loop is None:
            loop = CustomLoop(self, 1.0, False)  # which refuses it
        return loop.step(inputs)

    @property
    def has_own_loop(self) -> bool:  # type: ignore[override]
        """Whether a subclass defines `CTL`."""
        return type(self).CTL is not DistributedTraining.CTL

    def _restore_own(self, path: Path, layout: Any) -> None:
        """Goes on with this worker's own file beside the first one's, where it is there."""
        own = Path(own_path(path, layout))
        if own.exists():
            self.restore(own)
        elif path.parent.name != own.parent.name:
            warn(
                f"{own} does not exist, so this worker resumes with the first worker's "
                f"transitions and episodes from {path}."
            )

    def _layout_of(self, strategy: Any) -> Any:
        """Returns the devices of a strategy: those of the training before, where it was the
        same."""
        if self._layout is None or not self._layout.fits(strategy):
            kind: Any = CompanionDevices
            if not self.torch:
                kind = backends.devices_of(assembly.engine(self.torch)).LAYOUT
            self._layout = kind.of(strategy, self.coordinator)
        if self._layout.asynchronous:
            self.coordinator = self._layout.coordinator
        return self._layout


def parameter_server_strategy(
    cluster_resolver: Any = None, *, patience: float = 60.0, **options: Any
) -> Any:
    """Returns a tf.distribute.ParameterServerStrategy, made once all workers and servers of the
    cluster listen: one that is made before may wait for them for ever.

    cluster_resolver: by default that of TF_CONFIG. patience: seconds to wait. The options are those
    of the strategy. WorkerError for the first that does not come.
    """
    servers = importlib.import_module("tandem.backends.keras_tensorflow_servers")
    return servers.strategy_when_ready(cluster_resolver, patience, options)


def check_alone(agent: AgentMembers) -> None:
    """SettingError where an agent that is to be trained on one device was made for several."""
    if not agent.torch and backends.running() == "tensorflow":
        backends.devices_of("tensorflow").check_alone(variables_of(agent))


def variables_of(agent: AgentMembers) -> list[Any]:
    """All variables of an agent."""
    reached = reach(agent)
    modules = reached.modules.values()
    inside = [] if agent.torch else [v for module in modules for v in module.variables]
    return [*inside, *reached.variables.values(), *param_variables(agent)]


def for_devices(arguments: SetArguments, train: TrainArguments) -> SetArguments:
    """Returns the arguments of `set` with the mini-batch that devices are given. SettingError for
    fewer rows than devices."""
    if train.layout is None:
        return arguments
    layout, wanted = train.layout, train.batch or arguments.minibatch
    devices = layout.count
    if wanted < devices:
        raise SettingError(
            f"a mini-batch of {wanted} cannot be divided among {devices} devices.",
            "at least one row per device",
            f"give batch={devices}, or a multiple of it.",
        )
    even = wanted // devices * devices
    if even != wanted:
        warn(
            f"a mini-batch of {wanted} is not divisible by {devices} devices; {even} rows are "
            "used instead."
        )
    criterion = arguments.criterion if layout.rank == 0 else None  # the first worker's decides
    return replace(arguments, batch=even // layout.workers, criterion=criterion)


def check_workers(agent: AgentMembers, layout: Any) -> None:
    """SettingError for hooks by which workers would come to steps that differ."""
    hooks = [n for n in ("adjust_func", "batch_size_fn") if getattr(agent, n, None) is not None]
    if hooks and layout.workers > 1:
        raise SettingError(
            f"{type(agent).__name__}.{hooks[0]} is called in {layout.workers} workers, where its "
            "results would differ.",
            "the same batches and numbers in all workers",
            f"leave {' and '.join(hooks)} out, or train in one process, with a MirroredStrategy.",
        )


def own_path(path: PathLike, layout: Any) -> PathLike:
    """Returns where a worker keeps what others have at `path`: the first one there, each other in
    a folder beside it."""
    if layout is None or layout.rank == 0:
        return path
    return Path(path).parent / f"worker{layout.rank}" / Path(path).name
