"""Adapter of any `gymnasium.vector.VectorEnv` to the collector, in each of Gymnasium's autoreset
modes (https://gymnasium.farama.org/api/vector/)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tandem.envs.calls import (
    EnvironmentCall,
    from_vector,
    has_methods,
    in_vector,
    layers,
    metadata_of,
    spec_of,
)
from tandem.envs.checks import not_resumable, opened, other_number, raised, raising
from tandem.envs.tensors import library_of, maker, off_host, replaced
from tandem.envs.vector import Arrays, Environments, Step, close, episode_seed
from tandem.envs.vector_reading import Reader, masked_space, may_have_masks
from tandem.envs.vector_state import decode, encode, restore, snapshot
from tandem.errors import EnvironmentFault, ResumeError, UnrepeatableError
from tandem.spaces import MASK, leaf
from tandem.types import Array, Info, JSONDict, Tree, leaves, tree_map
from tandem.vector_actions import restored, vector_space

MODES = ("NEXT_STEP", "SAME_STEP", "DISABLED")


def is_vector(env: object) -> bool:
    """Return true for a Gymnasium vector environment, or an object with its attributes."""
    return not isinstance(env, (str, type)) and all(
        hasattr(env, name) for name in ("num_envs", "single_observation_space", "reset", "step")
    )


def has_state(envs: Any, registered: bool) -> bool:
    """Return true if a vector's state can be saved and restored: by `get_state` and `set_state`, or
    by its attributes if it is `registered` or from `gymnasium.envs`."""
    if has_methods(envs, "get_state", "set_state"):
        return True
    *wrappers, innermost = (type(layer).__module__ for layer in layers(envs))
    is_own = innermost.startswith("gymnasium.envs.") and all(
        name.startswith("gymnasium.wrappers.") for name in wrappers
    )
    if not (registered or is_own):
        return False
    try:
        snapshot(envs, {})
    except ResumeError:
        return False
    return True


class VectorEnvironments(Environments):
    """The N environments of a vector.

    Masks of discrete actions become part of the observation. They come from
    `info["action_mask"]` [N, choices], or from a method `action_masks()` of the vector or its
    environments; the vector is reset to look for them. Actions with several axes, and Dict and
    Tuple actions, are flattened to vectors for algorithms. A vector with torch or JAX arrays
    receives such arrays on its device, and its outputs are read by DLPack.

    A vector resumes exactly if it has two methods. `get_state()` returns everything that its next
    steps depend on, as dicts, lists and tuples of arrays, numbers, strings and NumPy generators.
    `set_state(state)` restores it in another vector that was reset. Vectors from `gymnasium.envs`
    and registered ones also resume exactly if their attributes are such data. With any other vector
    (`resumable` is False), a resumed run begins new episodes.

    Args:
        name: Name of the environment, for messages.
        envs: The vector. Its metadata name the autoreset mode. NEXT_STEP: the step after an end
            only resets. SAME_STEP: the last observations are in `info["final_obs"]`. DISABLED:
            ended environments are reset here, by `reset(options={"reset_mask": ...})`.
        seed: The vector is reset with `episode_seed(seed, first, 0)`, and with those of 1, 2, ...
            at restarts. Single episodes have no seeds.
        first: Number of the first environment.
        remake: For a vector whose seeds are fixed at creation: creates another vector, for start
            number 0, 1, 2, ...
        owned: If true, `close` closes the vector.
        registered: True for the vector entry point of a registered id.
    """

    def __init__(
        self,
        name: str,
        envs: Any,
        seed: int = 0,
        first: int = 0,
        *,
        remake: Callable[[int], Any] | None = None,
        owned: bool = True,
        registered: bool = False,
    ) -> None:
        _refuse_parts(name, envs)
        self.name, self.mode = name, autoreset_mode(name, envs)
        self.spec = spec_of(envs)  # its step limit determines the budget of evaluations
        self._envs, self._seed, self._first, self._owned = envs, seed, first, owned
        self._registered = registered
        self._remake, self._number = remake, 0  # number of restarts of all episodes
        self._was_reset = False
        self._opened: tuple[Tree, Info] | None = None  # result of a reset not yet followed by steps
        # converts NumPy arrays to the vector's array library
        self._tensor: Callable[[Array], Array] | None = None
        taken = vector_space(envs.single_action_space)
        actions = envs.single_action_space if taken is None else taken
        masks, method = self._gives_masks()
        shown, wraps = envs.single_observation_space, False
        if masks:
            shown, wraps = masked_space(shown, leaf(actions).width)
        super().__init__(name, int(envs.num_envs), shown, actions)
        self._reader = Reader(self, masks, wraps, method)
        self._restored = None if taken is None else restored(self.action)
        self._all = np.ones(self.n, np.bool_)
        self._ended = np.zeros(self.n, np.bool_)  # these only reset in the next step
        self.resumable, self.around = has_state(envs, registered), envs

    # Beginning

    def reset(self) -> Tree:
        if self._number:
            self._opened = None
        self._number = 0
        obs = self._begin()
        if self.resumable:
            self.state()  # raise errors about unsavable state before training starts
        return obs

    def begin_at(self, seed: int) -> None:
        """Make the next `reset` use this seed, as if the vector had been created with it."""
        if seed != self._seed:
            self._seed, self._opened = seed, None

    def restart(self) -> Tree:
        self._number += 1
        self._opened = None
        if self._remake is not None:
            self._envs.close()
            self._envs, self._was_reset = self._remake(self._number), False
            self._call_again(self.calls)
        return self._begin()

    def episodes(self) -> list[int]:
        return [self._number]

    def device_library(self) -> str:
        """Return "torch" or "jax" if observations are that library's arrays outside CPU memory,
        otherwise ""."""
        self._opened = self._opened or self._reset(seed=self.next_seed())
        first = leaves(self._opened[0])[0]
        return library_of(first) if off_host(first) else ""

    def stay_on_device(self) -> None:
        """Keep observations as tensors from now on where the vector returns tensors."""
        self._reader.stay()

    def own(self, obs: Tree) -> Tree:
        make = self._tensor
        if make is None or not self._reader.stays:
            return obs
        if not isinstance(obs, dict):
            return make(obs)
        return {k: make(x) if k in self._reader.stays else x for k, x in obs.items()}

    def skip(self, episodes: list[int]) -> None:
        self._number = episodes[0] if episodes else 0

    def next_seed(self) -> int:
        """Return the seed of the next start or restart."""
        return episode_seed(self._seed, self._first, self._number)

    def _begin(self) -> Tree:
        seen, info = self._opened = self._opened or self._reset(seed=self.next_seed())
        self._reader.steps = 0
        self._ended = np.zeros(self.n, np.bool_)
        return self._reader.observations(seen, info, self._all)

    def _reset(self, **given: object) -> tuple[Tree, Info]:
        with raising(self.name, step=0):
            came = self._envs.reset(**given)
        self._was_reset = True
        seen, info = opened(self.name, came)
        self._tensor = maker(leaves(seen)[0])
        return seen, info

    def _gives_masks(self) -> tuple[bool, Callable[[Array], Any] | None]:
        """Return whether there are masks of discrete actions outside the observations, and the
        function that returns them if they are not in the info."""
        shown = self._envs.single_observation_space
        if not may_have_masks(shown, self._envs.single_action_space):
            return False, None
        self._opened = self._reset(seed=self.next_seed())
        if MASK in self._opened[1]:
            return True, None
        from tandem.envs.action_masks import vector_method  # imports Gymnasium

        method = vector_method(self._envs)
        if method is not None and self.mode == "SAME_STEP":
            raise EnvironmentFault(
                f"the vector environment of {self.name} resets in the same step, so "
                "action_masks() no longer returns the mask of the last observation.",
                "autoreset mode NEXT_STEP, or masks in info",
                "make it with autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP.",
            )
        return method is not None, method

    # Stepping

    def step(self, actions: Array) -> Step:
        self._opened = None
        try:  # faster than `raising`
            seen, rewards, over, cut, info = self._envs.step(self._as_taken(actions))
        except Exception as error:
            raise raised(self.name, None, None, error) from error
        read = self._reader
        read.steps += 1
        reward = read.numbers("the reward", rewards, np.float32)
        terminated = read.numbers("terminated", over, np.bool_)
        truncated = read.numbers("truncated", cut, np.bool_)
        ended, valid = terminated | truncated, self._all.copy()
        if self.mode == "NEXT_STEP":
            valid, self._ended = ~self._ended, ended
            # the bootstrap value after truncation requires a mask
            obs, final = read.observations(seen, info, ~terminated), list[tuple[int, Tree]]()
        elif not np.count_nonzero(ended):
            obs, final = read.observations(seen, info, self._all), []
        elif self.mode == "SAME_STEP":
            obs = read.observations(seen, info, self._all)
            final = [
                (i, read.last(i, info, bool(terminated[i]))) for i in np.flatnonzero(ended).tolist()
            ]
        else:
            obs, final = self._reopen(read.observations(seen, info, ~terminated), ended, terminated)
        success = read.successes(info, ended) if np.count_nonzero(ended) else {}
        return Step(obs, reward, terminated, truncated, valid, final, success=success)

    def _as_taken(self, actions: Array) -> Tree:
        """Convert actions to the vector's format, as a copy, since it may modify them."""
        taken = np.array(actions, self._dtype)
        if self._restored is not None:
            taken = self._restored(taken)
        return taken if self._tensor is None else tree_map(self._tensor, taken)

    def _reopen(
        self, obs: Tree, ended: Array, terminated: Array
    ) -> tuple[Tree, list[tuple[int, Tree]]]:
        """Reset the environments whose episodes `ended`. Return the next observations of all
        environments, and the last ones of the ended episodes."""
        final = []
        for i in np.flatnonzero(ended).tolist():
            last = tree_map(
                lambda x, i=i: np.array(x[i]) if isinstance(x, np.ndarray) else x[i], obs
            )
            self.check_last(i, last, self._reader.when(), bool(terminated[i]))
            final.append((i, last))
        which = ended.copy() if self._tensor is None else self._tensor(ended.copy())
        first = self._reader.observations(*self._reset(options={"reset_mask": which}), going=ended)
        return tree_map(lambda x, new: replaced(x, ended, new), obs, first), final

    def make_calls(self, calls: Sequence[Any]) -> None:
        if not self._was_reset:
            self._reset(seed=self.next_seed())
        self._opened = None  # the calls may change the first observations
        super().make_calls(calls)

    def _call(self, call: EnvironmentCall) -> None:
        in_vector(self._envs, call, self.name)

    def _call_again(self, calls: Sequence[Any]) -> None:
        """Repeat the calls of another vector in this new one."""
        self.calls = []
        if calls:
            self.make_calls(calls)

    def attribute(self, name: str) -> list[object]:
        return from_vector(self._envs, name, self.name)

    # Saving

    def state(self) -> tuple[JSONDict, Arrays]:
        arrays: Arrays = {"ended": self._ended.copy()}
        data: JSONDict = {"steps": self._reader.steps, "number": self._number}
        if self.calls:
            data["calls"] = [list(call) for call in self.calls]
        if not has_methods(self._envs, "get_state"):
            return data | {"envs": snapshot(self._envs, arrays)}, arrays
        return data | {"state": encode(self._envs.get_state(), "state", arrays)}, arrays

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        if arrays["ended"].shape != (self.n,):
            raise other_number(len(arrays["ended"]), self.n)
        self._number = data.get("number", 0)  # missing in older files
        self._call_again(data.get("calls", []))
        try:
            if "state" in data:
                self._reset(seed=self.next_seed())
                self._envs.set_state(decode(data["state"], arrays))
            else:
                restore(self._envs, data["envs"], arrays)
        except Exception as error:
            raise not_resumable(self.name, None, f"it raised {error!r}") from error
        self._opened, self._was_reset = None, True
        self._reader.steps, self._ended = data["steps"], arrays["ended"].copy()
        self._compare(data, arrays)

    def close(self) -> None:
        if self._owned:
            close(self.name, [self._envs])

    def _compare(self, data: JSONDict, arrays: Arrays) -> None:
        """Check that the restored state equals the saved one. It differs, for example, if two
        attributes share an array."""
        now, now_arrays = self.state()
        wrong = [
            key
            for key, x in arrays.items()
            if key not in now_arrays or x.tobytes() != now_arrays[key].tobytes()
        ]
        if wrong or {key: now.get(key) for key in data} != data:
            raise UnrepeatableError(
                f"the vector environment of {self.name} could not be restored: "
                f"{wrong or 'a number'} differs.",
                "the saved state",
                self._instead(),
            )

    def _instead(self) -> str:
        if self._registered:
            return "train with mode='plain', which replays episodes instead."
        return (
            "let get_state() give again what set_state(state) was given; or leave both methods "
            "out: a resumed run then begins new episodes."
        )


def _refuse_parts(name: str, envs: Any) -> None:
    """Refuse vectors that step only part of their environments at a time, as EnvPool can."""
    if getattr(envs, "is_async", False) is True:
        raise EnvironmentFault(
            f"the vector environment of {name} steps only a part of its environments at a time.",
            "all of them in each step, in order",
            "make it with batch_size=num_envs, or leave batch_size out.",
        )


def autoreset_mode(name: str, envs: Any) -> str:
    """Return the name of a vector's autoreset mode. Raises EnvironmentFault if it has none."""
    mode = metadata_of(envs).get("autoreset_mode")
    said = getattr(mode, "name", None) or str(mode)
    # vectors that support several Gymnasium versions use strings instead of the enumeration
    said = said.replace("-", "_").replace("NextStep", "NEXT_STEP").replace("SameStep", "SAME_STEP")
    if said.upper() not in MODES:
        raise EnvironmentFault(
            f"the vector environment of {name} has autoreset_mode={mode!r} in its metadata.",
            f"one of gymnasium.vector.AutoresetMode: {', '.join(MODES)}",
            "set envs.metadata['autoreset_mode'] = gymnasium.vector.AutoresetMode.NEXT_STEP if "
            "the step after the end of an episode only resets, or set the actual mode.",
        )
    return said.upper()
