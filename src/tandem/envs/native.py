"""An environment's own vector entry point (Gymnasium's `vector_entry_point`), and its state as
plain data."""

from __future__ import annotations

import types
from enum import Enum
from typing import Any

import numpy as np

from tandem.envs.vector import (
    Arrays,
    Environments,
    Step,
    all_finite,
    bad_rows,
    episode_seed,
    no_choice,
    not_finite,
    other_number,
    raised,
)
from tandem.errors import EnvironmentFault, ResumeError, SettingError
from tandem.spaces import MASK, Leaf
from tandem.types import Array, JSONDict, Tree, leaves
from tandem.vector_actions import vector_space


class Native(Environments):
    """A Gymnasium vector environment that resets on the step after an end (autoreset mode
    NEXT_STEP).

    The whole vector has one generator, seeded once; its episodes have no seeds of their own. Its
    state is taken by copying its attributes, which works where they are arrays, numbers, strings,
    containers of these, and NumPy generators.
    """

    def __init__(self, name: str, envs: Any, seed: int = 0, first: int = 0) -> None:
        mode = envs.metadata.get("autoreset_mode")
        if getattr(mode, "name", None) != "NEXT_STEP":
            raise SettingError(
                f"the vector environment of {name} has autoreset mode {mode}.",
                "AutoresetMode.NEXT_STEP",
                "make it with that mode, or use mode='plain'.",
            )
        if vector_space(envs.single_action_space) is not None:
            raise SettingError(
                f"the vector environment of {name} takes actions of {envs.single_action_space}.",
                "numbers or vectors for actions, in each environment",
                "use vectorization='plain', where such actions are put together.",
            )
        super().__init__(
            name, envs.num_envs, envs.single_observation_space, envs.single_action_space
        )
        self._dtype = self.action.own or None  # of the actions that it gets; None: as they come
        self._envs, self._seed = envs, episode_seed(seed, first, 0)
        self._steps = 0  # since the reset
        self._ended = np.zeros(self.n, np.bool_)  # these only reset in the coming step

    def reset(self) -> Tree:
        try:
            seen, info = self._envs.reset(seed=self._seed)
        except Exception as error:
            raise raised(self.name, None, 0, error) from error
        if MASK in info and not self.action.masked:
            raise SettingError(
                f"the vector environment of {self.name} gives action masks in its info.",
                "masks as a part of the observation",
                "use mode='plain' (vectorization='plain'), which makes them one.",
            )
        self._steps, self._ended = 0, np.zeros(self.n, np.bool_)
        obs = self._read(seen)
        self._check(obs, "the observation")
        self._check_masks(obs, ~self._ended)
        return obs

    def step(self, actions: Array) -> Step:
        try:
            seen, reward, terminated, truncated, _ = self._envs.step(np.array(actions, self._dtype))
        except Exception as error:
            raise raised(self.name, None, None, error) from error
        valid = ~self._ended
        self._steps += 1
        obs, reward = self._read(seen), np.array(reward, np.float32)
        terminated, truncated = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        self._check(reward, "the reward")
        self._check(obs, "the observation")
        self._ended = terminated | truncated
        self._check_masks(obs, ~terminated)
        return Step(obs, reward, terminated, truncated, valid)

    def state(self) -> tuple[JSONDict, Arrays]:
        arrays: Arrays = {"ended": self._ended.copy()}
        return {"steps": self._steps, "envs": snapshot(self._envs, arrays)}, arrays

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        if arrays["ended"].shape != (self.n,):
            raise other_number(len(arrays["ended"]), self.n)
        self._steps, self._ended = data["steps"], arrays["ended"].copy()
        restore(self._envs, data["envs"], arrays)
        self._compare(data, arrays)

    def close(self) -> None:
        self._envs.close()

    def _compare(self, data: JSONDict, arrays: Arrays) -> None:
        """What was restored is what was saved; two attributes that are one array would come out
        wrong."""
        now, now_arrays = self.state()
        wrong = [
            key
            for key, x in arrays.items()
            if key not in now_arrays or x.tobytes() != now_arrays[key].tobytes()
        ]
        if wrong or now != data:
            raise ResumeError(
                f"the vector environment of {self.name} could not be restored: "
                f"{wrong or 'a number'} came out different.",
                "the state that was saved",
                "train with mode='plain', which replays episodes instead.",
            )

    def _read(self, seen: Tree) -> Tree:
        """The observations as new arrays in C order (a transposed one could change the last bit of
        a matrix product)."""
        if isinstance(self.observation, dict):
            flat = self.flatten(seen)
            return {key: self._read_leaf(flat[key], spec) for key, spec in self.observation.items()}
        return self._read_leaf(seen, self.observation)

    def _read_leaf(self, value: object, spec: Leaf) -> Array:
        x = np.array(value, spec.dtype, order="C")
        if x.shape != (self.n, *spec.shape):
            raise EnvironmentFault(
                f"the vector environment of {self.name} gave observations of shape {x.shape}.",
                f"{(self.n, *spec.shape)}",
                "correct the environment's observation or its observation_space.",
            )
        return x

    def _check_masks(self, obs: Tree, going: Array) -> None:
        if self.action.masked and len(rows := [i for i in self.stuck(obs) if going[i]]):
            raise no_choice(self.name, int(rows[0]), f"at step {self._steps} since the first reset")

    def _check(self, tree: Tree, what: str) -> None:
        for x in leaves(tree):
            if x.dtype.kind == "f" and not all_finite(x):
                i = int(bad_rows(x)[0])
                raise not_finite(
                    self.name, what, i, f"at step {self._steps} since the first reset", x[i]
                )


_FIXED = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    Enum,
)


def snapshot(envs: Any, arrays: Arrays) -> list[Any]:
    """The attributes of a vector environment and of each wrapper around it, outermost first, as
    JSON; arrays go to `arrays`.

    Raises ResumeError for an attribute that may change and is of a kind that plain data cannot
    hold."""
    return [
        {
            key: _encode(value, f"{depth}.{key}", arrays)
            for key, value in vars(layer).items()
            if not _constant(key, value)
        }
        for depth, layer in enumerate(_layers(envs))
    ]


def restore(envs: Any, data: list[Any], arrays: Arrays) -> None:
    """Give a vector environment the attributes that `snapshot` took."""
    for layer, saved in zip(_layers(envs), data, strict=True):
        for key, node in saved.items():
            value = _decode(node, arrays)
            now = vars(layer).get(key)
            if isinstance(value, np.ndarray) and isinstance(now, np.ndarray) and _alike(value, now):
                now[...] = value  # in place: other attributes may be views of it
            elif isinstance(value, np.random.Generator) and isinstance(now, np.random.Generator):
                now.bit_generator.state = value.bit_generator.state
            else:
                setattr(layer, key, value)


def _alike(a: Array, b: Array) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype and b.flags.writeable)


def _layers(envs: Any) -> list[Any]:
    layers = [envs]
    while "env" in vars(layers[-1]):
        layers.append(layers[-1].env)
    return layers


def _constant(key: str, value: object) -> bool:
    """Attributes that stepping does not change: spaces, specs, functions, what belongs to the
    class, the layer below."""
    from gymnasium import Space
    from gymnasium.envs.registration import EnvSpec

    return key in ("env", "metadata", "_saved_kwargs") or isinstance(
        value, (*_FIXED, Space, EnvSpec)
    )


def _encode(value: object, path: str, arrays: Arrays) -> Any:
    """`value` as [kind, JSON]."""
    if value is None or isinstance(value, (bool, int, str)):
        return ["plain", value]
    # before float: np.float64 is one too
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        arrays[path] = np.array(value, order="C")
        return ["array" if isinstance(value, np.ndarray) else "scalar", path]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, np.random.Generator):
        return ["generator", _encode(value.bit_generator.state, path, arrays)]
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        kind = type(value).__name__
        return [kind, [_encode(v, f"{path}.{j}", arrays) for j, v in enumerate(value)]]
    if type(value) is dict and all(isinstance(k, str) for k in value):
        return ["dict", {k: _encode(v, f"{path}.{k}", arrays) for k, v in value.items()}]
    raise ResumeError(
        f"the vector environment keeps a {type(value).__name__} in {path.partition('.')[2]!r}: it "
        "is not exactly resumable.",
        "attributes that are arrays, numbers, strings, containers of these or NumPy generators",
        "train with mode='plain', which replays episodes instead.",
    )


def _decode(node: Any, arrays: Arrays) -> Any:
    kind, value = node
    if kind == "plain":
        return value
    if kind == "float":
        return float.fromhex(value)
    if kind in ("array", "scalar"):
        return arrays[value].copy() if kind == "array" else arrays[value][()]
    if kind == "generator":
        state = _decode(value, arrays)
        bits = getattr(np.random, str(state["bit_generator"]))()
        bits.state = state
        return np.random.Generator(bits)
    if kind == "dict":
        return {k: _decode(v, arrays) for k, v in value.items()}
    items = [_decode(v, arrays) for v in value]
    return tuple(items) if kind == "tuple" else items
