"""The agent API: write a network, an action and a loss; the library does the rest.

Subclass `RL` with Keras networks, or `RL_pytorch` with PyTorch modules, and define

    env                            an environment, or a list of them
    param                          the trainable variables; a list for each optimizer where there
                                   are several
    action(s)                      what a policy chooses from, or the action itself, for states
                                   [B, ...]
    __call__(s, a, next_s, r, d)   the loss of a batch, or one for each optimizer: a number, or one
                                   for each sample
    update_param()                 copies weights to target networks, or to the old policy

s, next_s are [B, ...], a is [B] of discrete actions (int64) or [B, ...], r and d are [B] float32; d
is 1 where the episode terminated, and not where a limit cut it. With num_steps=n, r is the
discounted sum and d is 1 - gamma ** (m - 1) where the episode goes on after m steps, so that gamma
* (1 - d) is the discount of what follows.
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
    """What agents of both frameworks can do."""

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
        """Sets how to train: the next `train` begins anew, from the networks and records as they
        are. See `tandem.agents.contract.SetArguments` for each argument.

        After each environment step, once the pool holds `batch` transitions, there is a training
        phase of `num_updates` mini-batches (a pass over the pool, but no more than 20,000 divided
        by the number of transitions in it), and `update_param` after every `update_steps` phases
        (1), or every `update_batches` mini-batches. With PPO=True a phase comes after every
        `update_steps` steps: ten passes over the pool, or `num_updates` mini-batches, then
        `update_param`, and the pool is emptied. Without `update_steps` it comes once each
        environment has ended an episode, and `update_param` every `update_batches` mini-batches,
        which ends the phase. Raises SettingError for arguments that contradict
        each other.
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
        self._start_size()  # while its pool is known
        self._undo_moves()
        self._chosen, self._assembly = True, None
        self._anew = self._restored is not None

    def _train(self, train: TrainArguments, metric: object, jit: bool) -> np.float32:
        """What `train` does in both frameworks: see `RL.train`."""
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
        self.optimizer = optimizer  # not before: one that was refused may be followed by another
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
        """Returns the parts of the training for a call of `train`: those of the call before, or new
        ones where the agent has another environment or optimizer than they were made for, or steps
        its environments in another number of processes, or has lost those. After `restore` they are
        where the file says."""
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
            except BaseException:  # the agent's environments were begun anew meanwhile
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
        """Returns how many processes step the environments: as many as before, where that is left
        open; else a choice, which is printed."""
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
        """Returns whether other processes step the environments while this one learns: as before,
        where that is left open; never with pool_network=False."""
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

    # What the hooks of a subclass may call, beside loss, criterion and average_reward

    def get_optimal_processes(
        self, memory_mb: float, safety_factor: float = 0.75, min_exp_per_proc: int | None = None
    ) -> int:
        """Returns how many processes to `train` with, by memory and pool: the most, up to the
        number of cores, for which the pool and the workers (64 MiB each; environments may need
        more) fit into memory_mb * safety_factor MiB, and each process has min_exp_per_proc (10
        mini-batches) of the pool's transitions. How fast they are is for `processes=None` to
        try."""
        arguments = self._set_arguments("get_optimal_processes")
        pool = (self._assembly or Assembly(self, arguments, [])).learner.ring.nbytes
        minimum = 10 * arguments.minibatch if min_exp_per_proc is None else min_exp_per_proc
        memory = memory_mb * safety_factor * 2**20
        return collection.most_processes(pool, arguments.size, minimum, memory)

    # Looking

    def visualize_loss(self) -> Any:
        """Returns a matplotlib figure of each episode's mean loss, shown where there is a
        screen."""
        return plots.episodes({"loss": self.loss_list})

    def visualize_reward(self) -> Any:
        """Returns a matplotlib figure of each episode's return, shown where there is a screen."""
        return plots.episodes({"reward": self.reward_list})

    def visualize_reward_loss(self) -> Any:
        """Returns a matplotlib figure of both, shown where there is a screen."""
        return plots.episodes({"reward": self.reward_list, "loss": self.loss_list})

    def run_agent(self, max_steps: int, seed: int | None = None) -> tuple[list[Tree], float, int]:
        """Plays an episode without exploration, and returns (the states seen, the sum of rewards,
        the number of steps). Where a policy chooses in training, the action is the best one; else
        what `action` gives."""
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
        """Plays such an episode, writes it as a GIF or MP4, by the name of save_path, and returns
        the file. `writer` is not needed: no other program is."""
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
        """Returns a function of one observation, and an environment of its own to play in."""
        check_count("max_steps", max_steps, none=False)
        assembly = self._assembly or Assembly(self, self._arguments or SetArguments(), [])
        return assembly.act, assembly.play_env(mode)


class RL(BaseAgent):
    """An agent built with Keras, on TensorFlow or JAX."""

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
        """Trains for `episodes` episodes, or until `criterion` is met or `stop_training` set; gives
        the last episode's loss.

        train_loss: a Keras metric, which is reset and given each episode's losses; None for their
        mean. optimizer: one, or one for each entry of `param`; `agent.optimizer` is kept where it
        is set. jit_compile: whether updates are compiled by XLA, with equal results. processes: how
        many step the environments of a list, this one among them, or copies of the only one; None:
        as many as make it faster, by a trial, if pool_network. random, processes_her, processes_pr:
        there is nothing to choose by them here, which is said once. window_size: how many of the
        oldest transitions go when the pool is full (1); window_size_ of them every `clearing_freq`
        stored ones; window_size_ppo or window_size_pr at `update_param` with PR=True where the
        agent has no window_size_fn.
        save_data: whether pools stay from one `train` to the next, and go into files. num_store:
        how many episodes end before there are phases, then one for each of their steps; None: a
        phase after each step. PPO goes by update_steps, or without it by so many episodes of each
        environment (1). p: how many lines are printed (10), 0 for
        none. parallel_store_and_training: `processes` others step all environments while this one
        learns, always one step ahead of it; the phases of a round of num_store episodes are made
        while the next round is collected. Not for PPO, which says so. None: as before.
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
    """An agent built with PyTorch."""

    torch = True

    def __setattr__(self, name: str, value: object) -> None:
        """`param` may be what `parameters()` gives, which could be read only once: it is kept as a
        list."""
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
        """Trains for `episodes` episodes; see `RL.train` for the arguments."""
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
    """Returns `param` with generators as lists, within lists too."""
    if isinstance(param, (list, tuple, Iterator)):
        return [listed(part) for part in param]
    return param
