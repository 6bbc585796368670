"""The agent door: write a network, an action and a loss; the library does the rest.

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

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tandem import animation, plots
from tandem.agents import saving
from tandem.agents.assembly import Assembly
from tandem.agents.callbacks import LambdaCallback
from tandem.agents.choices import NAMES, Choices, counted
from tandem.agents.environments import choose, fitting, say_once
from tandem.agents.reports import PrioritizedReplay
from tandem.agents.saving import restore_param
from tandem.agents.train_call import TrainCall
from tandem.backends.variables import assign_param
from tandem.errors import SettingError
from tandem.math.effective import effective_sample_size, rows_to_drop, smoothed
from tandem.runs import checkpoint
from tandem.runs.autosave import Autosave, Policy, Writer

__all__ = ["RL", "LambdaCallback", "RL_pytorch", "assign_param", "restore_param"]

MORE = ("processes_her", "processes_pr", "save_data", "num_store", "p")
WINDOWS = ("window_size", "clearing_freq", "window_size_", "window_size_ppo", "window_size_pr")
COUNTED = {
    "episodes": 0,
    "processes": 1,
    "clearing_freq": 1,
    "num_store": 0,
    "p": 0,
} | dict.fromkeys(("window_size", "window_size_", "window_size_ppo", "window_size_pr"), 0)
POLICY = [f.name for f in fields(Policy)]
OPTIMIZER = "an optimizer, or a list with one for each entry of agent.param"


class _Agent:
    """What both doors share."""

    torch = False

    env: Any = None
    param: Any = None
    optimizer: Any = None  # the first that `train` is given, unless it is set before
    seed = 7  # of everything random in training; set it before the first `train`
    # False where `action` does more than compute, a search for example: then it is not compiled
    jit_action = True
    stop_training = False  # set it, in a callback for example, to end the training

    # Saving while training, see `tandem.runs.autosave.Policy`
    path: str | Path | None = None
    save_freq: int | None = 1
    save_freq_: int | None = None
    max_save_files: int | None = None
    save_best_only = False
    save_param_only = False
    save_top_k: int | None = None
    save_last = False
    parallel_dump = False  # `save` and `save_param` obey it too
    patience: int | None = None

    # Records; reward_list and loss_list have one number for each episode
    callbacks: list[Any]
    prioritized_replay: PrioritizedReplay
    loss_list: list[float]
    reward_list: list[float]
    total_episode = 0
    time = 0.0  # seconds of the last `train`
    total_time = 0.0

    _loss: float | None = None
    _choices: Choices | None = None
    _assembly: Assembly | None = None
    _pending: checkpoint.Checkpoint | None = None  # what the next `train` goes on from
    _autosave: Any = None  # which files were written; after `restore` its state
    _pools = True  # whether transitions stay and are saved
    _sizes: dict[int | None, float]  # smoothed effective sample sizes, by process

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Lists and the like are there whether or not a subclass calls super().__init__()."""
        agent = super().__new__(cls)
        agent.callbacks, agent.loss_list, agent.reward_list = [], [], []
        agent.prioritized_replay = PrioritizedReplay()
        agent._sizes = {}
        return agent

    @property
    def loss(self) -> float | None:
        """The mean loss of the last episode that had updates."""
        return self._loss

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
        """How to train; training that was under way begins anew. See
        `tandem.agents.choices.Choices` for each argument.

        After each environment step, once the pool holds `batch` transitions, there is a training
        phase of `num_updates` mini-batches (1), and `update_param` after every `update_steps`
        phases (1), or every `update_batches` mini-batches. With PPO=True a phase comes after every
        `update_steps` steps: ten passes over the pool, or `num_updates` mini-batches, then
        `update_param`, and the pool is emptied. Raises SettingError for arguments that contradict
        each other.
        """
        given = {name: value for name, value in locals().items() if name in NAMES}
        self._choices, self._assembly, self._pending = Choices(**given), None, None

    def _train(
        self,
        optimizer: Any,
        episodes: int | None,
        metric: Any,
        jit: bool,
        processes: tuple[int | None, bool],
        more: dict[str, Any],
    ) -> np.float32:
        if self._choices is None:
            raise SettingError(
                "train was called before set.",
                "agent.set(...), then agent.train(...)",
                "call set first.",
            )
        for name, value in {"episodes": episodes, "processes": processes[0], **more}.items():
            if name in COUNTED:
                counted(name, value, COUNTED[name])
        chosen = optimizer if self.optimizer is None else self.optimizer
        if chosen is None or chosen == []:
            raise SettingError(
                "there is no optimizer.", OPTIMIZER, "give one to train, or set agent.optimizer."
            )
        policy = Policy(**{name: getattr(self, name) for name in POLICY})
        policy.check()
        say_once(*(more.pop(name) for name in MORE[:2]))
        self._pools, store, p = (more.pop(name) for name in MORE[2:])
        assembly = self._assembled(chosen, more, self._processes(*processes, quiet=p == 0))
        self.optimizer = chosen  # not before: one that was refused may be followed by another
        assembly.learner.compile(jit)
        assembly.learner.rhythm.store = None if self._choices.PPO else store
        if not self._pools:
            assembly.learner.sampler.forget()
        writer = Writer()
        before, self._autosave = self._autosave, Autosave(policy, self._snapshot, writer)
        if before is not None:
            self._autosave.load_state(before if isinstance(before, dict) else before.state())
        return TrainCall(self, assembly, episodes, metric, p).run(self._autosave, writer)

    def _processes(self, number: int | None, pool_network: bool, quiet: bool) -> int:
        """How many step the environments: as many as before, where that is left open."""
        if number is None and self._pending is not None:
            return int(self._pending.data.get("processes", 1))
        if (
            number is None
            and pool_network
            and self._assembly is not None
            and self._assembly.is_for(self.env)
        ):
            return self._assembly.processes
        found, why = choose(self.env, number, pool_network)
        if why and not quiet:
            print(why)
        return found

    def _assembled(self, optimizer: Any, windows: dict[str, Any], processes: int) -> Assembly:
        """The parts of the training, new ones where the agent has another environment or optimizer
        than they were made for, or steps its environments in another number of processes."""
        optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        assembly = self._assembly
        if assembly is None or not assembly.fits(self.env, optimizers):
            assembly = self._assembly = Assembly(
                self, self._choices or Choices(), optimizers, self.torch, processes
            )
        elif assembly.processes != processes:
            with assembly:
                before = saving.whole(self, assembly, pools=True)
            assembly = self._assembly = Assembly(
                self, self._choices or Choices(), optimizers, self.torch, processes
            )
            with assembly:
                saving.move(assembly, *before)
        assembly.windows(windows)
        if self._pending is not None:
            saving.load(assembly, self._pending)
            self._pending = None
        return assembly

    # What the hooks of a subclass may call

    def average_reward(self) -> float | None:
        """The mean return of the last trial_count episodes; None while there are fewer."""
        count = self._choices.trial_count if self._choices is not None else None
        if count is None or len(self.reward_list) < count:
            return None
        return float(np.mean(self.reward_list[-count:]))

    @property
    def criterion(self) -> float | None:
        """The mean return at which training ends."""
        return self._choices.criterion if self._choices is not None else None

    def adjust_window_size(
        self, p: int | None = None, scale: float = 1.0, smooth_alpha: float = 0.2
    ) -> int:
        """How many of the oldest transitions to drop, so that as many stay as their effective
        sample size says: n - clip(int(E scale), 1, n - 1), where E is the exponential moving
        average of 1 / sum p ** 2 over the calls, and p the priorities. 0 for fewer than two.
        Changes nothing in the pool; p is the number of a process."""
        powers = self.prioritized_replay.powers()
        if len(powers) < 2:
            return 0
        self._sizes[p] = smoothed(self._sizes.get(p), effective_sample_size(powers), smooth_alpha)
        return rows_to_drop(self._sizes[p], len(powers), scale)

    def get_optimal_processes(
        self, memory_mb: float, safety_factor: float = 0.75, min_exp_per_proc: int | None = None
    ) -> int:
        """How many processes to `train` with, by memory and pool: the most, up to the number of
        cores, for which the pool and the workers (64 MiB each; environments may need more) fit into
        memory_mb * safety_factor MiB, and each process has min_exp_per_proc (10 mini-batches) of
        the pool's transitions. How fast they are is for `processes=None` to try."""
        if self._choices is None:
            raise SettingError(
                "get_optimal_processes was called before set.",
                "agent.set(...) first",
                "call set first.",
            )
        choices = self._choices
        assembly = self._assembly or Assembly(self, choices, [], self.torch)
        least = 10 * choices.minibatch if min_exp_per_proc is None else min_exp_per_proc
        memory = memory_mb * safety_factor * 2**20
        return fitting(assembly.learner.ring.nbytes, choices.size, least, memory)

    # Saving

    def save_param(self, path: str | Path) -> None:
        """Writes the parameters to one file, whatever its name: a zip of JSON and safetensors; with
        `parallel_dump` to a folder, a file for each array."""
        checkpoint.write(saving.place(path), *saving.parameters(self), self.parallel_dump)

    def restore_param(self, path: str | Path) -> None:
        """Gives the parameters the values in a file of `save_param` or `save`. CheckpointError
        where they do not fit."""
        found = saving.read(path)
        saving.put(self, found.group("param"), path)

    def save(self, path: str | Path) -> None:
        """Writes all that training needs to go on exactly: networks, optimizers, counters,
        generators, and the pools, unless the last `train` had save_data=False."""
        assembly = self._assembly
        with assembly if assembly is not None else nullcontext():
            checkpoint.write(saving.place(path), *self._snapshot(False), self.parallel_dump)

    def restore(self, path: str | Path) -> None:
        """Becomes what `save` wrote: in an agent made and set with the same arguments the next
        `train` goes on as if there had been no break. CheckpointError where it does not fit."""
        file = saving.read(path, saving.WHOLE)
        saving.put(self, file.group("param"), path)
        for name, value in file.data["records"].items():
            vars(self)["_loss" if name == "loss" else name] = value
        self._assembly, self._autosave = None, file.data["files"]
        self._sizes = dict(file.data.get("sizes", []))
        self._pending = file if "loop" in file.data else None
        if self._pending is not None:
            saving.hold(self, file.group("engine"))

    def _snapshot(self, param_only: bool) -> tuple[dict[str, Any], checkpoint.Groups]:
        if param_only:
            return saving.parameters(self)
        if self._pending is not None:  # restored, and not trained since
            data, groups = saving.again(self, self._pending)
        else:
            data, groups = saving.whole(self, self._assembly, self._pools)
        files = self._autosave
        return data | {"files": files.state() if isinstance(files, Autosave) else files}, groups

    # Looking

    def visualize_loss(self) -> Any:
        """The mean losses of all episodes as a matplotlib figure, shown where there is a screen."""
        return plots.episodes({"loss": self.loss_list})

    def visualize_reward(self) -> Any:
        """The returns of all episodes as a matplotlib figure, shown where there is a screen."""
        return plots.episodes({"reward": self.reward_list})

    def visualize_reward_loss(self) -> Any:
        """Both."""
        return plots.episodes({"reward": self.reward_list, "loss": self.loss_list})

    def run_agent(self, max_steps: int, seed: int | None = None) -> tuple[list[Any], float, int]:
        """Plays an episode without exploration: (the states seen, the sum of rewards, the number of
        steps). Where a policy chooses in training, the action is the best one; else what `action`
        gives."""
        act, env = self._player(max_steps)
        return animation.play(act, env, max_steps, self.seed if seed is None else seed)

    def animate_agent(
        self,
        max_steps: int,
        mode: str = "rgb_array",
        save_path: str | Path | None = None,
        fps: float | None = None,
        writer: str | None = None,
    ) -> Path:
        """Plays such an episode and writes it as a GIF or MP4, by the name of save_path; gives the
        file. `writer` is not needed: no other program is."""
        animation.without_screen()
        act, env = self._player(max_steps, mode)
        return animation.animate(
            act, env, None if save_path is None else Path(save_path), 1, self.seed, max_steps, fps
        )

    def _player(self, max_steps: Any, mode: str | None = None) -> tuple[Any, Any]:
        """A function of one observation, and an environment of its own to play in."""
        counted("max_steps", max_steps, none=False)
        assembly = self._assembly or Assembly(self, self._choices or Choices(), [], self.torch)
        return assembly.act, assembly.stage(mode)


class RL(_Agent):
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
    ) -> np.float32:
        """Trains for `episodes` episodes, or until `criterion` is met or `stop_training` set; gives
        the last episode's loss.

        train_loss: a Keras metric, which is reset and given each episode's losses; None for their
        mean. optimizer: one, or one for each entry of `param`; `agent.optimizer` is kept where it
        is set. jit_compile: whether updates are compiled by XLA, with equal results. processes: how
        many step the environments of a list, this one among them, or copies of the only one; None:
        as many as make it faster, by a trial, if pool_network. random: nothing to choose here, as
        all environments store alike; processes_her, processes_pr: nothing either, as batches are
        built in one go. window_size: how many of the oldest transitions go when the pool is full
        (1); window_size_ of them every `clearing_freq` stored ones; window_size_ppo or
        window_size_pr at `update_param` with PR=True where the agent has no window_size_fn.
        save_data: whether pools stay from one `train` to the next, and go into files. num_store:
        how many episodes end before there are phases, then one for each of their steps; None: a
        phase after each step (PPO goes by update_steps). p: how many lines are printed (10), 0 for
        none.
        """
        more = {name: value for name, value in locals().items() if name in (*WINDOWS, *MORE)}
        return self._train(
            optimizer, episodes, train_loss, jit_compile, (processes, pool_network), more
        )


class RL_pytorch(_Agent):
    """An agent built with PyTorch."""

    torch = True

    def __setattr__(self, name: str, value: Any) -> None:
        """`param` may be what `parameters()` gives, which could be read only once: it is kept as a
        list."""
        super().__setattr__(name, listed(value) if name == "param" else value)

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
    ) -> np.float32:
        """Trains for `episodes` episodes; see `RL.train` for the arguments."""
        more = {name: value for name, value in locals().items() if name in (*WINDOWS, *MORE)}
        return self._train(optimizer, episodes, None, True, (processes, pool_network), more)


def listed(param: Any) -> Any:
    """Generators as lists, in lists too."""
    if isinstance(param, (list, tuple, Iterator)):
        return [listed(part) for part in param]
    return param
