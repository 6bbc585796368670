"""Several compiled runs that differ in their seeds, as one: their calls are one call, with an axis
in front, and so are their evaluations. Each is a session of its own, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tandem.collect.evaluation import EvaluationStopped, Played
from tandem.compiled.blocks import padded
from tandem.compiled.evaluation import with_more
from tandem.errors import SettingError
from tandem.types import Tree

MOST = 0.8  # of the device's memory, for what runs keep


class Wish(NamedTuple):
    """What a run waits for: those of one `kind` with the same `key` are computed together."""

    kind: str  # "agree", "run" or "evaluate"
    key: Any
    given: Any


class Group:
    """Runs in lock-step. A run waits in `ask` until all others that are under way wait too."""

    def __init__(self, loops: Sequence[Any]) -> None:
        self.loops = list(loops)
        self._active = set(range(len(loops)))
        self._wishes: dict[int, Wish] = {}
        self._answers: dict[int, Any] = {}
        self._turn = threading.Condition()
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self._own = [(loop.blocks, loop.evaluator) for loop in loops]
        check_memory([blocks for blocks, _ in self._own])
        for i, loop in enumerate(loops):
            loop.blocks, loop.evaluator = Member(self, i), Judge(self, i)

    def leave(self, i: int) -> None:
        """Run i is over: nobody waits for it any more."""
        with self._turn:
            self._active.discard(i)
            self._answer_all()

    def ask(self, i: int, wish: Wish) -> Any:
        """What comes of run i's wish. Raises what it raised."""
        with self._turn:
            self._wishes[i] = wish
            self._answer_all()
            self._turn.wait_for(lambda: i in self._answers)
            answer = self._answers.pop(i)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _answer_all(self) -> None:
        """Where all who are under way wait, gives each what it waits for."""
        if not self._active or not self._active <= set(self._wishes):
            return
        wishes, self._wishes = self._wishes, {}
        groups: dict[Any, list[int]] = {}
        for i, wish in sorted(wishes.items()):
            groups.setdefault((wish.kind, wish.key), []).append(i)
        for (kind, _), members in groups.items():
            try:
                answers = getattr(self, f"_{kind}")(members, [wishes[i] for i in members])
            except BaseException as error:
                answers = [error] * len(members)
            self._answers |= dict(zip(members, answers, strict=True))
        self._turn.notify_all()

    # Each kind of wish

    def _begin(self, members: list[int], wishes: list[Wish]) -> list[Any]:
        """The carries of beginnings."""
        keys = jnp.stack([jax.random.key(wish.given) for wish in wishes])
        return _apart(len(members))(jax.jit(jax.vmap(self._own[0][0].begun))(keys))

    def _agree(self, members: list[int], wishes: list[Wish]) -> list[int]:
        """Calls of as many blocks as the shortest that somebody wants."""
        return [min(wish.given for wish in wishes)] * len(members)

    def _run(self, members: list[int], wishes: list[Wish]) -> list[Any]:
        blocks = [self._own[i][0] for i in members]
        learns = wishes[0].key[0]
        if len(members) < len(self.loops):  # another number would be compiled anew
            return [
                b.run(w.given[0], learns, w.given[1]) for b, w in zip(blocks, wishes, strict=True)
            ]
        one, said = blocks[0], wishes[0].given[1]
        state = [(b.updates.current(), w.given[0]) for b, w in zip(blocks, wishes, strict=True)]
        values, carry = self._stacked(state)
        key = "run", learns
        if key not in self._compiled:
            whole = jax.vmap(partial(one.many, learns), in_axes=(0, 0, None, None))
            self._compiled[key] = jax.jit(
                whole, donate_argnums=(0, 1), compiler_options=one.updates.options
            )
        count = len(said.chance)
        told = jax.tree.map(lambda x: padded(x, one.capacity), said)
        values, carry, report = self._compiled[key](values, carry, told, np.int32(count))
        report = jax.tree.map(lambda x: np.asarray(x)[:, :count], report)
        answers = []
        for i, (own, carried) in enumerate(self._apart((values, carry))):
            blocks[i].updates.assign(own)
            blocks[i].told(one)
            answers.append((carried, jax.tree.map(lambda x, i=i: x[i], report)))
        return answers

    def _evaluate(self, members: list[int], wishes: list[Wish]) -> list[Any]:
        judges = [self._own[i][1] for i in members]
        if len(members) < len(self.loops):
            return [_tried(judge, wish.given) for judge, wish in zip(judges, wishes, strict=True)]
        episodes, most = wishes[0].key
        one, lanes = judges[0], judges[0].lanes
        values = self._stacked([j.values(w.given[0]) for j, w in zip(judges, wishes, strict=True)])
        if "evaluate" not in self._compiled:
            self._compiled["begin"] = jax.jit(jax.vmap(one.begun))
            played = jax.vmap(one.played, in_axes=(0, 0, None))
            self._compiled["evaluate"] = jax.jit(played, donate_argnums=1)
        seeds, stops = ([w.given[k] for w in wishes] for k in (2, 4))
        results = [Played([], [], [], 0) for _ in members]
        for number in range(-(-episodes // lanes)):
            keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), number) for seed in seeds])
            now = jax.tree.map(jnp.copy, self._compiled["begin"](keys))
            while not np.asarray(now.done).all():
                if any(stopped() for stopped in stops):
                    return [_tried(j, w.given) for j, w in zip(judges, wishes, strict=True)]
                now = self._compiled["evaluate"](values, now, np.int32(most))
            for i in range(len(members)):
                judges[i].check(now.faults[i], now.length[i])
                mine = now.score[i], now.length[i], now.cut[i]
                results[i] = with_more(results[i], *mine, episodes)
        return results

    def _stacked(self, trees: list[Tree]) -> Tree:
        """Trees of arrays as one, with an axis in front."""
        if "stack" not in self._compiled:
            self._compiled["stack"] = jax.jit(
                lambda trees: jax.tree.map(lambda *xs: jnp.stack(xs), *trees)
            )
        return self._compiled["stack"](trees)

    def _apart(self, tree: Tree) -> list[Tree]:
        if "apart" not in self._compiled:
            self._compiled["apart"] = _apart(len(self.loops))
        parts: list[Tree] = self._compiled["apart"](tree)
        return parts


def _apart(count: int) -> Callable[[Tree], list[Tree]]:
    """The rows of a tree's arrays, each with memory of its own."""

    def rows(tree: Tree) -> list[Tree]:
        return [jax.tree.map(itemgetter(i), tree) for i in range(count)]

    return jax.jit(rows)  # type: ignore[no-any-return]


def _tried(judge: Any, given: Any) -> Any:
    """What it comes to by itself, or what it raises."""
    try:
        return judge(*given)
    except EvaluationStopped as stopped:
        return stopped


class Member:
    """A run's blocks, which are computed with those of others."""

    def __init__(self, group: Group, i: int) -> None:
        self._group, self._i, self._blocks = group, i, group.loops[i].blocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    def begin(self, seed: int) -> Any:
        """See `Blocks.begin`."""
        return self._group.ask(self._i, Wish("begin", None, seed))

    def agree(self, learns: bool, count: int) -> int:
        """See `Blocks.agree`."""
        return int(self._group.ask(self._i, Wish("agree", learns, count)))

    def run(self, carry: Any, learns: bool, said: Any) -> Any:
        """See `Blocks.run`."""
        return self._group.ask(self._i, Wish("run", (learns, len(said.chance)), (carry, said)))


class Judge:
    """A run's evaluator, likewise."""

    def __init__(self, group: Group, i: int) -> None:
        self._group, self._i = group, i

    def __call__(self, *given: Any) -> Any:
        """See `Evaluator.__call__`."""
        _, episodes, _, most, _ = given
        return self._group.ask(self._i, Wish("evaluate", (episodes, most), given))


def check_memory(blocks: list[Any]) -> None:
    """SettingError where what runs keep, replay buffers for the most part, is more than the
    device's memory."""
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)
    kept = jax.eval_shape(blocks[0].begun, jax.random.key(0)).kept
    each = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(kept))
    if limit and each * len(blocks) > MOST * limit:
        raise SettingError(
            f"{len(blocks)} seeds at once keep {each * len(blocks) / 1e9:.1f} GB, of the "
            f"{limit / 1e9:.1f} GB of the device.",
            "runs that fit into its memory together",
            f"give at most --seeds {max(1, int(MOST * limit / each))}, or a smaller --buffer-size.",
        )
