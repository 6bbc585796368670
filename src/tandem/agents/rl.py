"""The agent API: define networks, an action and a loss; tandem does the rest.

Subclass `RL` with Keras networks, or `RL_pytorch` with PyTorch modules, and define

    env                            an environment, or a list of them
    param                          the trainable variables; with several optimizers, a list for each
    action(s)                      the policy's input, or the action itself, for states [B, ...]
    __call__(s, a, next_s, r, d)   the loss of a batch, or one per optimizer: a scalar, or one value
                                   per sample
    update_param()                 copies weights to target networks, or to the old policy

s and next_s are [B, ...], a is [B] for discrete actions (int64) or [B, ...], r and d are [B]
float32. d is 1 where the episode terminated and 0 where it was truncated. With num_steps=n, r is
the discounted sum of rewards, and d is 1 - gamma ** (m - 1) where the episode continues after m
steps, so that gamma * (1 - d) is the discount of the bootstrap value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tandem.agents import agent_checkpoint, collection
from tandem.agents.agent_checkpoint import PathLike, restore_param
from tandem.agents.assembly import Assembly
from tandem.agents.companion_agents import LaunchedDevices
from tandem.agents.contract import SetArguments, TrainArguments, as_list, check_count
from tandem.agents.distributed import DistributedTraining, check_alone, for_devices, own_path
from tandem.agents.train_call import (
    LambdaCallback,
    TrainCall,
    say_once,
    say_what_becomes_of_priorities,
    say_what_is_not_used,
)
from tandem.agents.views import AttributeViews
from tandem.backends.variables import assign_param
from tandem.errors import SettingError, warn
from tandem.reports import animation, plots
from tandem.runs.rotation import BackgroundWriter, Rotation, SavePolicy
from tandem.streams import say
from tandem.types import Array, Tree

__all__ = ["RL", "LambdaCallback", "RL_pytorch", "assign_param", "restore_param"]


class BaseAgent(DistributedTraining, AttributeViews):
    """Methods that Keras and PyTorch agents share."""

    def set(
        self,
        policy: Any = None,
        noise: Any = None,
        pool_size: int | None = None,
        batch: int | None = None,
        num_updates: int | None = None,
        num_steps: int | None = None,
        update_batches: int | None = None,
        update_steps: int | None = None,
        trial_count: int | None = None,
        criterion: float | None = None,
        PPO: bool = False,
        HER: bool = False,
        MARL: bool = False,
        PR: bool = False,
        IRL: bool = False,
        epsilon: float | None = None,
        initial_ratio: float = 1.0,
        initial_TD: float = 7.0,
        lambda_: float = 0.5,
        alpha: float = 0.7,
        *,
        TRL: bool = False,
        beta: float = 0.4,
        k: float | None = 4.0,
        strategy: str = "future",
    ) -> None:
        """Configure training. The next `train` starts over from the current networks and records.

        See `tandem.agents.contract.SetArguments` for each argument.

        Once the pool holds `batch` transitions, each environment step is followed by a training
        phase of `num_updates` minibatches (default: one pass over the pool, but at most 20,000
        divided by the number of transitions in it). `update_param` is called after every
        `update_steps` phases (default: 1), or after every `update_batches` minibatches.

        With PPO=True, a phase follows every `update_steps` steps. It makes ten passes over the
        pool, or `num_updates` minibatches, then calls `update_param` and empties the pool. Without
        `update_steps`, a phase follows once each environment has finished an episode; it ends with
        the first `update_param`, which is called every `update_batches` minibatches.

        Raises:
            SettingError: if arguments contradict each other.
        """
        self._arguments = SetArguments(
            policy,
            noise,
            pool_size,
            batch,
            num_updates,
            num_steps,
            update_batches,
            update_steps,
            trial_count,
            criterion,
            PPO,
            HER,
            MARL,
            PR,
            IRL,
            epsilon,
            initial_ratio,
            initial_TD,
            lambda_,
            alpha,
            TRL,
            beta,
            k,
            strategy,
        )
        self._start_size()  # needs the current pool
        self._undo_moves()
        self._chosen, self._assembly = True, None
        self._anew = self._restored is not None

    def _train(self, train: TrainArguments, metric: object, jit: bool) -> np.float32:
        """Implement `train` for both frameworks: see `RL.train`."""
        arguments = self._set_arguments("train")
        if train.layout is None:
            check_alone(self)
        optimizer = train.optimizer if self.optimizer is None else self.optimizer
        if optimizer is None or optimizer == []:
            raise SettingError(
                "no optimizer was given.",
                "an optimizer, or a list with one for each entry of agent.param",
                "pass one to train, or set agent.optimizer.",
            )
        others = {id(one) for one in as_list(train.optimizer)} - {*map(id, as_list(optimizer))}
        if others:
            warn(
                "train was given another optimizer, but it still uses agent.optimizer. To train "
                "with the new one and an empty pool, assign it to agent.optimizer."
            )
        policy = SavePolicy(**{f.name: getattr(self, f.name) for f in fields(SavePolicy)})
        policy.check()
        if policy.path is not None:
            self.path = Path(policy.path).absolute()
            policy = replace(policy, path=self.path)
        if train.layout is not None and train.layout.rank:
            own = policy.path if policy.path is None else own_path(policy.path, train.layout)
            policy = replace(policy, path=own, patience=None)
        arguments = for_devices(arguments, train)
        say_what_is_not_used(arguments, train)
        self._saves_pools = train.save_data
        self._assembly = assembly = self._assembled(arguments, optimizer, train)
        self._restored = None
        self.optimizer = optimizer  # set last, so that a rejected optimizer can be replaced
        learner = assembly.learner
        learner.compile(jit)
        if train.layout is not None and train.layout.workers > 1:
            assembly.backend.share()
        if not self._saves_pools:
            learner.forget()
        state = self._rotation_record()
        self._rotation = rotation = Rotation(policy, self._snapshot, BackgroundWriter())
        if state is not None:
            rotation.load_state(state)
        call = TrainCall(self, assembly.loop, assembly.actor, learner, train, metric, rotation)
        run = partial(call.run, assembly)
        if isinstance(train.layout, LaunchedDevices):
            return train.layout.led(run, assembly)
        return run()

    def _assembled(
        self, arguments: SetArguments, optimizer: object, train: TrainArguments
    ) -> Assembly:
        """Return the training components for a call of `train`.

        Reuse those of the previous call, unless the environment, the optimizers or the number of
        processes changed, or the processes were lost. After `restore`, load their state from the
        file.
        """
        processes, optimizers = self._processes(train), as_list(optimizer)
        before, beside = self._assembly, self._beside(arguments, train)
        loaded = agent_checkpoint.present(self, self._loaded) if self._restored else {}
        if before is None or not before.fits(self.env, optimizers):
            self._start_size()
            self._undo_moves()
            assembly = Assembly(self, arguments, optimizers, processes, beside, train.layout)
        elif before.stays(arguments, processes, beside, train.layout):
            assembly = before
        else:
            before.check_copies(processes)
            with before:
                data, groups = agent_checkpoint.whole(self, before, pools=True)
            try:
                assembly = Assembly(self, arguments, optimizers, processes, beside, train.layout)
                with assembly:
                    agent_checkpoint.move_training(assembly, data, groups)
            except BaseException:  # the agent's environments have been restarted meanwhile
                if not before.environments.gone:
                    with before:
                        agent_checkpoint.move_training(before, data, groups)
                raise
        ring = assembly.learner.ring
        if assembly is not before and ring.capacity != arguments.size and train.p != 0:
            say(
                f"the pool holds {ring.capacity} transitions of pool_size={arguments.size}: "
                f"{ring.capacity // ring.envs} of each of {ring.envs} environments"
            )
        assembly.set_windows(train)
        if self._restored is not None:
            self._anew |= say_what_becomes_of_priorities(arguments, self._restored)
            agent_checkpoint.load_training(assembly, self._restored, loaded, self._anew)
        if self._restored is not None and self._anew:
            self._forget_moves(assembly)
        elif assembly is not before:
            self._load_adjusted(assembly)
        self._keep_store(assembly, train.num_store)
        return assembly

    def _processes(self, train: TrainArguments) -> int:
        """Return the number of processes that step the environments. If the user left it open: the
        number used before, else a choice, which is printed."""
        before, left_open = self._assembly, train.processes is None and train.pool_network
        if left_open and self._restored is not None:
            return int(self._restored.data.get("processes", 1))
        if left_open and before and before.is_for(self.env):
            return before.processes
        processes, why = collection.choose_processes(self.env, train.processes, train.pool_network)
        if why and train.p != 0:
            say(why)
        return processes

    def _beside(self, arguments: SetArguments, train: TrainArguments) -> bool:
        """Return whether other processes step the environments while this one learns. If the user
        left it open: as before. Always False with pool_network=False."""
        beside = train.parallel_store_and_training
        if not train.pool_network:
            beside = False
        elif beside is None and self._restored is not None:
            beside = self._restored.data.get("beside", False)
        elif beside is None:
            beside = self._assembly is not None and self._assembly.beside
        if beside and arguments.PPO:
            say_once(
                "parallel_store_and_training",
                "parallel_store_and_training=True: PPO learns only from steps of its newest "
                "policy, so collection and learning wait for each other.",
            )
        return bool(beside) and not arguments.PPO

    # For the hooks of a subclass, in addition to loss, criterion and average_reward

    def get_optimal_processes(
        self, memory_mb: float, safety_factor: float = 0.75, min_exp_per_proc: int | None = None
    ) -> int:
        """Return how many processes memory and pool size allow `train` to use.

        This is the largest number, up to the number of cores, for which the pool and the workers
        (64 MiB each; environments may need more) fit into memory_mb * safety_factor MiB, and each
        process has at least min_exp_per_proc (default: 10 minibatches) of the pool's transitions.
        Speed is not considered; `processes=None` measures it.
        """
        arguments = self._set_arguments("get_optimal_processes")
        pool = (self._assembly or Assembly(self, arguments, [])).learner.ring.nbytes
        minimum = 10 * arguments.minibatch if min_exp_per_proc is None else min_exp_per_proc
        memory = memory_mb * safety_factor * 2**20
        return collection.most_processes(pool, arguments.size, minimum, memory)

    # Plots and animations

    def visualize_loss(self) -> Any:
        """Return a matplotlib figure of each episode's mean loss, and show it if there is a
        screen."""
        return plots.episodes({"loss": self.loss_list})

    def visualize_reward(self) -> Any:
        """Return a matplotlib figure of each episode's return, and show it if there is a screen."""
        return plots.episodes({"reward": self.reward_list})

    def visualize_reward_loss(self) -> Any:
        """Return a matplotlib figure of returns and losses, and show it if there is a screen."""
        return plots.episodes({"reward": self.reward_list, "loss": self.loss_list})

    def run_agent(self, max_steps: int, seed: int | None = None) -> tuple[list[Tree], float, int]:
        """Play an episode without exploration, and return (the observed states, the sum of rewards,
        the number of steps). If a policy chooses actions in training, the best action is taken,
        else the output of `action`."""
        act, env = self._player(max_steps)
        return animation.play(act, env, max_steps, self.seed if seed is None else seed)

    def animate_agent(
        self,
        max_steps: int,
        mode: str = "rgb_array",
        save_path: PathLike | None = None,
        fps: float | None = None,
        writer: str | None = None,
    ) -> Path:
        """Play an episode as `run_agent` does, write it as a GIF or MP4 (by the suffix of
        save_path), and return the file. `writer` is ignored: no external program is needed."""
        if writer is not None:
            say_once(
                "writer",
                f"writer={writer!r} is not used: Pillow writes GIFs and the ffmpeg of "
                "imageio-ffmpeg MP4s, by the suffix of save_path; no other program is needed.",
            )
        animation.without_screen()
        path = None if save_path is None else Path(save_path).absolute()
        act, env = self._player(max_steps, mode)
        return animation.animate(act, env, path, 1, self.seed, max_steps, fps)

    def _player(
        self, max_steps: int, mode: str | None = None
    ) -> tuple[Callable[[Tree], Array], Any]:
        """Return a function that maps one observation to an action, and a separate environment to
        play in."""
        check_count("max_steps", max_steps, none=False)
        assembly = self._assembly or Assembly(self, self._arguments or SetArguments(), [])
        return assembly.act, assembly.play_env(mode)


class RL(BaseAgent):
    """Base class of agents built with Keras, on TensorFlow or JAX."""

    def train(
        self,
        train_loss: Any = None,
        optimizer: Any = None,
        episodes: int | None = None,
        jit_compile: bool = True,
        pool_network: bool = True,
        processes: int | None = None,
        processes_her: int | None = None,
        processes_pr: int | None = None,
        window_size: int | None = None,
        clearing_freq: int | None = None,
        window_size_: int | None = None,
        window_size_ppo: int | None = None,
        window_size_pr: int | None = None,
        random: bool = False,
        save_data: bool = True,
        num_store: int | None = None,
        p: int | None = None,
        parallel_store_and_training: bool | None = None,
    ) -> np.float32:
        """Train for `episodes` episodes, until `criterion` is met, or until `stop_training` is set.

        Args:
            train_loss: A Keras metric, reset and updated with each episode's losses; None for their
                mean.
            optimizer: One optimizer, or one per entry of `param`. Ignored if `agent.optimizer` is
                set.
            episodes: Number of episodes; None for no limit.
            jit_compile: Whether XLA compiles the updates. Results are equal.
            pool_network: Whether other processes may step the environments.
            processes: Number of processes, including this one, that step the environments of a
                list, or copies of a single one. None chooses the fastest number by a trial, if
                pool_network is True.
            processes_her: Ignored; a warning says so once.
            processes_pr: Ignored; a warning says so once.
            window_size: Number of oldest transitions to drop when the pool is full (default: 1).
            clearing_freq: Number of stored transitions after which `window_size_` are dropped.
            window_size_: Number of oldest transitions to drop every `clearing_freq` stored ones.
            window_size_ppo: Number to drop at `update_param` with PPO=True and PR=True, unless the
                agent has a window_size_fn.
            window_size_pr: The same with PR=True and without PPO.
            random: Ignored; a warning says so once.
            save_data: Whether pools are kept between calls of `train` and saved to files.
            num_store: Number of episodes to finish before training phases start; then one phase
                follows for each of their steps. None: a phase after each step. PPO uses
                update_steps instead, or, without it, this number of episodes of each environment
                (default: 1).
            p: Number of lines to print (default: 10); 0 for none.
            parallel_store_and_training: Whether `processes` other processes step all environments
                while this one learns, always one step ahead of it. The phases of a round of
                num_store episodes are made while the next round is collected. Not supported with
                PPO, which warns. None: as before.

        Returns:
            The last episode's loss.
        """
        arguments = TrainArguments(
            optimizer,
            episodes,
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
        )
        return self._train(arguments, train_loss, jit_compile)


class RL_pytorch(BaseAgent):
    """Base class of agents built with PyTorch."""

    torch = True

    def __setattr__(self, name: str, value: object) -> None:
        """Store `param` and `shared_param` as lists: the generator that `parameters()` returns can
        be read only once."""
        super().__setattr__(name, listed(value) if name in ("param", "shared_param") else value)

    def train(
        self,
        optimizer: Any = None,
        episodes: int | None = None,
        pool_network: bool = True,
        processes: int | None = None,
        processes_her: int | None = None,
        processes_pr: int | None = None,
        window_size: int | None = None,
        clearing_freq: int | None = None,
        window_size_: int | None = None,
        window_size_ppo: int | None = None,
        window_size_pr: int | None = None,
        random: bool = False,
        save_data: bool = True,
        num_store: int | None = None,
        p: int | None = None,
        parallel_store_and_training: bool | None = None,
    ) -> np.float32:
        """Train for `episodes` episodes; see `RL.train` for the arguments."""
        arguments = TrainArguments(
            optimizer,
            episodes,
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
        )
        return self._train(arguments, None, True)


def listed(param: Any) -> Any:
    """Return `param` with generators replaced by lists, also within lists."""
    if isinstance(param, (list, tuple, Iterator)):
        return [listed(part) for part in param]
    return param
