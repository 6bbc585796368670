"""Training an agent on several devices: `distributed_training`."""

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
from tandem.agents.reach import reach
from tandem.errors import SettingError, warn

Method = Callable[..., np.float32]


def batch_may_come_first(method: Method) -> Method:
    """Allow the global batch size as first positional argument of `distributed_training`."""

    @wraps(method)
    def either(self: Any, *arguments: Any, **named: Any) -> np.float32:
        if arguments and isinstance(arguments[0], Integral):
            named["batch"], *arguments = arguments  # type: ignore[assignment]
        return method(self, *arguments, **named)

    return either


class DistributedTraining(SavedAgent):
    """Distributed training of agents."""

    _train: Callable[..., np.float32]
    coordinator: Any = None  # of a ParameterServerStrategy's workers; None: create one

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
        """Train like `train`, with the rows of each minibatch divided among several devices.

        With a MultiWorkerMirroredStrategy, each worker in TF_CONFIG's cluster runs the same program
        with its own environments and pool. In each round a worker plays one episode in each of its
        environments. Then all workers make the same number of updates together (see `CTL`), each
        on `batch` / (number of workers) rows. Training ends after the round in which
        the last worker has played its `num_episodes`; with a single worker, as soon as they are
        played. Initial weights are the first worker's. Its `criterion`, `stop_training` and
        `patience` end the training of all workers. Its files are at `path`; those of worker 1 are
        in the folder worker1 next to it, and so on. `restore` with the first worker's path finds
        them. Create one such strategy per process: TensorFlow's workers lose each other over a
        second one.

        With a ParameterServerStrategy (see `tandem.parameter_server_strategy`), this process
        collects experience and sends each minibatch to one of the workers, which then updates the
        weights on the servers. `update_param`, callbacks and files wait for all workers. Runs are
        therefore not reproducible, and jit_compile has no effect. `agent.coordinator` is used if
        set.

        On PyTorch, each device has its own process, to which the agent is sent once, pickled. Later
        changes to objects in its loss are not sent, except networks, tensors and plain numbers. A
        process that dies, or does not respond for two minutes, raises a WorkerError that names it.
        jit_compile has no effect. If torchrun has started one process per device, each running the
        program, these are used: the agent of rank 0 is trained, and the others receive its weights
        and loss.

        A scalar loss counts as the mean over its device's rows, and its mean over devices is
        minimized. For a mean, or a loss per sample, this is the loss of the whole batch. A loss
        that mixes samples is computed on each device's rows separately.

        Args:
            strategy: On TensorFlow, a MirroredStrategy, MultiWorkerMirroredStrategy or
                ParameterServerStrategy of tf.distribute, in whose scope the agent was created
                (optimizers from outside the scope are recreated in it). On JAX, a
                jax.sharding.Mesh. On every backend, the number of devices; PyTorch takes nothing
                else.
            num_episodes: Another name of `episodes`, which it overrides.
            batch: Minibatch size over all devices (default: that of `set`). It can be given as
                first positional argument, before the optimizer. A size that does not divide evenly
                is lowered to the next one that does, with a warning.

        The other arguments are those of `train`.

        Returns:
            The last episode's loss.

        Raises:
            SettingError: if the strategy is none of these, or if the agent, or an optimizer with
                training state, was created outside its scope.
            EngineError: if there are fewer devices.
            WorkerError: if another worker ends early.
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
        """Make the updates that follow a round with several workers; return (the sum of their
        losses, their number).

        A subclass can override it. It receives an iterable of minibatches (s, a, next_s, r, d),
        NumPy arrays [B, ...] of this worker's rows, and must pass each to `distributed_train_step`
        once. Without an override, all updates are made in one equivalent compiled call.
        """
        total, batches = 0.0, 0
        for inputs in multi_worker_dataset:
            total += self.distributed_train_step(inputs)
            batches += 1
        return total, batches

    def distributed_train_step(self, inputs: object) -> float:
        """Make an update within `CTL` with one of its minibatches and those of all other workers.
        Returns its loss. Raises SettingError for anything else."""
        loop = self._assembly.learner.loop if self._assembly is not None else None
        if loop is None:
            loop = CustomLoop(self, 1.0, False)  # raises an error
        return loop.step(inputs)

    @property
    def has_own_loop(self) -> bool:  # type: ignore[override]
        """True if a subclass defines `CTL`."""
        return type(self).CTL is not DistributedTraining.CTL

    def _restore_own(self, path: Path, layout: Any) -> None:
        """Restore this worker's own file, in a folder next to the first worker's, if it exists."""
        own = Path(own_path(path, layout))
        if own.exists():
            self.restore(own)
        elif path.parent.name != own.parent.name:
            warn(
                f"{own} does not exist, so this worker resumes with the first worker's "
                f"transitions and episodes from {path}."
            )

    def _layout_of(self, strategy: Any) -> Any:
        """Return the devices of a strategy, reusing those of the previous training if it had the
        same one."""
        if self._layout is None or not self._layout.fits(strategy):
            kind: Any = CompanionDevices
            if not self.torch:
                kind = backends.devices_of(assembly.engine(self.torch))
            self._layout = kind.of(strategy, self.coordinator)
        if self._layout.asynchronous:
            self.coordinator = self._layout.coordinator
        return self._layout


def parameter_server_strategy(
    cluster_resolver: Any = None, *, patience: float = 60.0, **options: Any
) -> Any:
    """Return a tf.distribute.ParameterServerStrategy, created once all workers and servers of the
    cluster listen. One that is created earlier can wait for them forever.

    Args:
        cluster_resolver: Cluster resolver (default: that of TF_CONFIG).
        patience: Seconds to wait.
        **options: Options of the strategy.

    Raises:
        WorkerError: for the first worker or server that does not start.
    """
    servers = importlib.import_module("tandem.backends.keras_tensorflow_servers")
    return servers.strategy_when_ready(cluster_resolver, patience, options)


def check_alone(agent: AgentMembers) -> None:
    """Raise SettingError if an agent to be trained on one device was created for several."""
    if not agent.torch and backends.running() == "tensorflow":
        backends.devices_of("tensorflow").check_alone(variables_of(agent))


def variables_of(agent: AgentMembers) -> list[Any]:
    """Return all variables of an agent."""
    reached = reach(agent)
    modules = reached.modules.values()
    inside = [] if agent.torch else [v for module in modules for v in module.variables]
    return [*inside, *reached.variables.values(), *param_variables(agent)]


def for_devices(arguments: SetArguments, train: TrainArguments) -> SetArguments:
    """Return the arguments of `set` with the minibatch size per worker. Raises SettingError if
    there are fewer rows than devices."""
    if train.layout is None:
        return arguments
    layout, wanted = train.layout, train.batch or arguments.minibatch
    devices = layout.count
    if wanted < devices:
        raise SettingError(
            f"a minibatch of {wanted} cannot be divided among {devices} devices.",
            "at least one row per device",
            f"give batch={devices}, or a multiple of it.",
        )
    even = wanted // devices * devices
    if even != wanted:
        warn(
            f"a minibatch of {wanted} is not divisible by {devices} devices; {even} rows are "
            "used instead."
        )
    criterion = arguments.criterion if layout.rank == 0 else None  # the first worker decides
    return replace(arguments, batch=even // layout.workers, criterion=criterion)


def check_workers(agent: AgentMembers, layout: Any) -> None:
    """Raise SettingError for hooks whose results would differ between workers."""
    hooks = [n for n in ("adjust_func", "batch_size_fn") if getattr(agent, n, None) is not None]
    if hooks and layout.workers > 1:
        raise SettingError(
            f"{type(agent).__name__}.{hooks[0]} is called in {layout.workers} workers, where its "
            "results would differ.",
            "the same batches and numbers in all workers",
            f"leave {' and '.join(hooks)} out, or train in one process, with a MirroredStrategy.",
        )


def own_path(path: PathLike, layout: Any) -> PathLike:
    """Return a worker's own path for `path`: the same for the first worker, in a folder next to it
    for each other one."""
    if layout is None or layout.rank == 0:
        return path
    return Path(path).parent / f"worker{layout.rank}" / Path(path).name
