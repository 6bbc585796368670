"""Any `gymnasium.vector.VectorEnv` as the collector sees it, in each of Gymnasium's autoreset modes
(https://gymnasium.farama.org/api/vector/)."""

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
from tandem.envs.stepped import not_resumable
from tandem.envs.tensors import library_of, maker, off_host, replaced
from tandem.envs.vector import (
    Arrays,
    Environments,
    Step,
    close,
    episode_seed,
    opened,
    other_number,
    raised,
)
from tandem.envs.vector_reading import Reader, masked_space, may_have_masks
from tandem.envs.vector_state import decode, encode, restore, snapshot
from tandem.errors import EnvironmentFault, ResumeError, UnrepeatableError
from tandem.spaces import MASK, leaf
from tandem.types import Array, Info, JSONDict, Tree, leaves, tree_map
from tandem.vector_actions import restored, vector_space

MODES = ("NEXT_STEP", "SAME_STEP", "DISABLED")


def is_vector(env: object) -> bool:
    """Whether this is a vector of environments: Gymnasium's, or what has its attributes."""
    return not isinstance(env, (str, type)) and all(
        hasattr(env, name) for name in ("num_envs", "single_observation_space", "reset", "step")
    )


def has_state(envs: Any, registered: bool) -> bool:
    """Whether a vector can be brought back to where it was: by `get_state` and `set_state`, or,
    of one that is `registered` or of Gymnasium's own `gymnasium.envs`, by its attributes."""
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

    envs: the vector. Its metadata say which autoreset mode it has: with NEXT_STEP the step after an
        end only resets, with SAME_STEP the last observations are in `info["final_obs"]`, with
        DISABLED those that ended are reset here, by `reset(options={"reset_mask": ...})`.
    seed: the vector is reset by `episode_seed(seed, first, 0)`; where it has to begin anew, by
        those of 1, 2, ... Its episodes have no seeds of their own.
    remake: for a vector whose seeds are fixed as it is made: makes another one, for its beginning
        number 0, 1, 2, ...
    owned: whether `close` closes the vector.
    registered: whether it is the vector that an id is registered with.

    Masks of discrete actions in `info["action_mask"]` [N, choices], or of a method
    `action_masks()` of the vector or of its environments, become a part of the observation; to look
    for them, the vector is reset. Actions of several axes, and Dicts and
    Tuples of them, are vectors to algorithms. Where the vector's arrays are torch's or JAX's, it is
    given such ones, on their device, and its own are read by DLPack.

    A vector is resumed exactly where it has two methods: `get_state()` gives all that its next
    steps depend on, as dicts, lists and tuples of arrays, numbers, strings and NumPy generators;
    `set_state(state)` takes that, in another vector that was reset. So are vectors of Gymnasium's
    own `gymnasium.envs`, and registered ones, whose attributes are such data. With any other
    (`resumable` is False) a resumed run begins new episodes.
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
        self.spec = spec_of(envs)  # evaluations go by its limit
        self._envs, self._seed, self._first, self._owned = envs, seed, first, owned
        self._registered = registered
        self._remake, self._number = remake, 0  # how often all episodes were begun anew
        self._was_reset = False
        self._opened: tuple[Tree, Info] | None = None  # of a reset that no step followed yet
        # from NumPy's arrays to those of the library whose arrays the vector has
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
        self._ended = np.zeros(self.n, np.bool_)  # these only reset in the coming step
        self.resumable, self.around = has_state(envs, registered), envs

    # Beginning

    def reset(self) -> Tree:
        if self._number:
            self._opened = None
        self._number = 0
        obs = self._begin()
        if self.resumable:
            self.state()  # what cannot be kept is told before anything is learned
        return obs

    def begin_at(self, seed: int) -> None:
        """The next `reset` is by this seed, as if the vector had been made with it."""
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
        """The library, "torch" or "jax", whose arrays on another device than this memory the
        observations are; "" where they are none."""
        self._opened = self._opened or self._reset(seed=self.next_seed())
        first = leaves(self._opened[0])[0]
        return library_of(first) if off_host(first) else ""

    def stay_on_device(self) -> None:
        """From now on observations are tensors, where those of the vector are."""
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
        """The seed by which it begins (anew)."""
        return episode_seed(self._seed, self._first, self._number)

    def _begin(self) -> Tree:
        seen, info = self._opened = self._opened or self._reset(seed=self.next_seed())
        self._reader.steps = 0
        self._ended = np.zeros(self.n, np.bool_)
        return self._reader.observations(seen, info, self._all)

    def _reset(self, **given: object) -> tuple[Tree, Info]:
        try:
            came = self._envs.reset(**given)
        except Exception as error:
            raise raised(self.name, None, 0, error) from error
        self._was_reset = True
        seen, info = opened(self.name, came)
        self._tensor = maker(leaves(seen)[0])
        return seen, info

    def _gives_masks(self) -> tuple[bool, Callable[[Array], Any] | None]:
        """Whether it has masks of discrete actions that are not in its observations; and the
        function that returns them, where its info does not have them."""
        shown = self._envs.single_observation_space
        if not may_have_masks(shown, self._envs.single_action_space):
            return False, None
        self._opened = self._reset(seed=self.next_seed())
        if MASK in self._opened[1]:
            return True, None
        from tandem.envs.action_masks import vector_method  # brings Gymnasium

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
        try:
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
            # what was only cut is valued, which takes a mask
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
        """Actions as the vector takes them; a copy, since it may write into them."""
        taken = np.array(actions, self._dtype)
        if self._restored is not None:
            taken = self._restored(taken)
        return taken if self._tensor is None else tree_map(self._tensor, taken)

    def _reopen(
        self, obs: Tree, ended: Array, terminated: Array
    ) -> tuple[Tree, list[tuple[int, Tree]]]:
        """Resets the environments whose episodes `ended`. Returns the observations with which all
        go on, and the last ones."""
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
        self._opened = None  # it is another beginning now
        super().make_calls(calls)

    def _call(self, call: EnvironmentCall) -> None:
        in_vector(self._envs, call, self.name)

    def _call_again(self, calls: Sequence[Any]) -> None:
        """Makes the calls of another vector in this one, which is new."""
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
        self._number = data.get("number", 0)  # none in files from before there was one
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
        """What was restored is what was saved; two attributes that are one array would come out
        wrong."""
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
    """EnvPool's way to step a part of the environments in each step."""
    if getattr(envs, "is_async", False) is True:
        raise EnvironmentFault(
            f"the vector environment of {name} steps only a part of its environments at a time.",
            "all of them in each step, in order",
            "make it with batch_size=num_envs, or leave batch_size out.",
        )


def autoreset_mode(name: str, envs: Any) -> str:
    """The name of a vector's autoreset mode. Raises EnvironmentFault where it says none."""
    mode = metadata_of(envs).get("autoreset_mode")
    said = getattr(mode, "name", None) or str(mode)
    # of a vector for several versions of Gymnasium, which cannot name the enumeration
    said = said.replace("-", "_").replace("NextStep", "NEXT_STEP").replace("SameStep", "SAME_STEP")
    if said.upper() not in MODES:
        raise EnvironmentFault(
            f"the vector environment of {name} has autoreset_mode={mode!r} in its metadata.",
            f"one of gymnasium.vector.AutoresetMode: {', '.join(MODES)}",
            "set envs.metadata['autoreset_mode'] = gymnasium.vector.AutoresetMode.NEXT_STEP if "
            "the step after the end of an episode only resets, or set the actual mode.",
        )
    return said.upper()
