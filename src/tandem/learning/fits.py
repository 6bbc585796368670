"""Checks that the sizes of a run fit together: rollouts, batches, sequences, buffers and devices.
They use only settings, so that they can run before anything is created."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tandem.errors import SettingError, note
from tandem.learning.devices import check_even, multiples
from tandem.settings import by_name, nearest_multiple
from tandem.spaces import Leaf


def of_length(s: Any, steps: int) -> Any:
    """Return an algorithm's defaults for a run of `steps`: learning starts within a tenth of it."""
    most = {
        "learning_starts": steps // 10,
        "replay_starts": steps // 10 // by_name(s).get("rollout", 1),
    }
    waiting = {n: min(x, most[n]) for n, x in by_name(s).items() if n in most}
    return replace(s, steps=steps, **waiting)


def fitted(
    needs: str, s: Any, devices: int, given: Iterable[str], tries: int = 10
) -> tuple[Any, list[str]]:
    """Return the settings, with numbers changed that contradict others and that the user has not
    `given`, and notes on the changes. Contradictions that remain are left for `check`."""
    try:
        check(needs, s, devices)
    except SettingError as error:
        for name, value in error.instead.items():
            if tries and name not in given and by_name(s).get(name) != value:
                fit, _ = fitted(needs, replace(s, **{name: value}), devices, given, tries - 1)
                return fit, [_changed(s, fit, [n for n in error.instead if n in given])]
    return s, []


def _changed(before: Any, after: Any, asked: list[str]) -> str:
    """Return a note on numbers that were changed to fit the given ones."""
    old, new = by_name(before), by_name(after)
    changed = [f"{n} set to {x} instead of {old[n]}" for n, x in new.items() if x != old[n]]
    kept = [f"{n}={new[n]}" for n in asked] or ["the other settings"]
    return f"{' and '.join(changed)}, to fit {' and '.join(kept)}."


def to_actions(action: Leaf, s: Any, given: Iterable[str]) -> Any:
    """Reset log_std to its default if no part of the action is a Box, with a note if the user has
    `given` it."""
    boxes = any(part.kind == "box" for _, part in action.parts or (("", action),))
    usual, log_std = (by_name(x).get("log_std") for x in (type(s)(), s))
    if boxes or "log_std" not in given or log_std == usual:
        return s
    note(f"log_std={log_std} has no effect on actions that are not a Box.")
    return replace(s, log_std=usual)


def note_few(s: Any, learners: int) -> None:
    """Print a note on a run with fewer than 100 updates, or without any in its first half."""
    rows, values = s.block * s.envs, by_name(s)
    online, kept = values.get("online", False), values.get("replay_starts", 0) * s.block * learners
    waits = max(0, -(-max(values.get("learning_starts", 0), kept) // rows) - 1)  # blocks
    blocks, first = -(-s.steps // rows), rows * (1 if online else waits + 1)
    each = rows if values.get("updates_per_call", 1) < 0 else s.update_rate * rows - online
    updates = round(online * blocks + each * max(0, blocks - waits))
    if updates < 100 or first > s.steps / 2:
        names = ["rollout", "envs", "learning_starts", "train_every"]
        names += [] if online else ["replay_starts"]
        why = ", ".join(f"{n}={x}" for n in names if (x := values.get(n, 0)))
        note(
            f"This run makes {updates:,} updates in {max(s.steps, first):,} steps, "
            f"the first after step {first:,} ({why})."
        )


def check(needs: str, s: Any, devices: int = 1) -> None:
    """Raise the SettingErrors of the learner of an algorithm that `needs` rollouts, transitions or
    sequences."""
    if needs == "sequences":
        sequences(s, devices)
    elif needs == "transitions":
        transitions(s, s.sequence if s.recurrent else 0, devices)
    else:
        rollouts(s, (s.sequence or s.rollout) if s.recurrent else 0, devices)


def rollouts(s: Any, sequence: int, devices: int = 1) -> None:
    """Raise SettingError if rollouts do not divide evenly into batches, batches into sequences
    (0: a row is a step), or sequences among the devices."""
    rows, each = s.rollout * s.envs, sequence or 1
    batch = s.batch_size or rows
    unit = 1 if s.rollout % each else each
    if rows % batch:
        near = unit * _nearest(batch // unit, rows // unit)
        raise SettingError(
            f"a rollout of {s.rollout} steps x {s.envs} environments has {rows} rows, "
            f"but batches have {batch}.",
            "rows that divide evenly into batches",
            f"use batch_size={near}, or another rollout.",
            batch_size=near,
            rollout=nearest_multiple(batch // math.gcd(batch, s.envs), s.rollout),
            envs=nearest_multiple(batch // math.gcd(batch, s.rollout), s.envs),
        )
    if s.rollout % each or batch % each:
        near = _nearest(each, math.gcd(s.rollout, batch))
        raise SettingError(
            f"sequences of {each} steps, rollouts of {s.rollout} steps and batches of "
            f"{batch} rows.",
            "rollouts and batches that divide evenly into sequences",
            f"use sequence={near}, or another rollout or batch_size.",
            sequence=near,
            rollout=nearest_multiple(each, s.rollout),
            batch_size=unit * _nearest(batch // unit, rows // unit),
        )
    if s.batch_size:
        even = range(each * devices, rows + 1, each * devices)
        whole = (d for d in even if rows % d == 0)
        envs = nearest_multiple(devices, s.envs)
        check_even(batch // each, devices, "batch_size", whole, s.batch_size, envs=envs)
    else:
        check_even(batch // each, devices, "envs", multiples(devices, s.envs), s.envs)
    if s.normalize_rewards and s.standardize_rewards:
        raise SettingError(
            "settings normalize_rewards=True and standardize_rewards=True.",
            "only one of them: the first scales rewards by their returns, the second also "
            "centers them",
            "leave one out.",
            normalize_rewards=False,
            standardize_rewards=False,
        )


def transitions(s: Any, sequence: int, devices: int = 1) -> None:
    """Raise SettingError if steps do not divide evenly among environments, or batches into
    sequences (0: a row is a step) or among devices; if the buffer is too small for them; or if
    settings of the number of updates, or of hindsight and n-step returns, contradict each other."""
    if s.train_every % s.envs:
        raise SettingError(
            f"train_every={s.train_every} with {s.envs} environments.",
            "a multiple of the number of environments, since they step together",
            f"use train_every={nearest_multiple(s.envs, s.train_every)}.",
            envs=_nearest(s.envs, s.train_every),
        )
    each = sequence or 1
    if s.batch_size % each:
        raise SettingError(
            f"sequences of {each} steps, and batches of {s.batch_size}.",
            "batches that divide evenly into sequences",
            f"use sequence={_nearest(each, s.batch_size)}, or another batch_size.",
            sequence=_nearest(each, s.batch_size),
            batch_size=nearest_multiple(each, s.batch_size),
        )
    near = multiples(devices * each, s.batch_size)
    check_even(s.batch_size // each, devices, "batch_size", near, s.batch_size)
    if s.updates_per_step != "auto" and s.updates_per_call != type(s)().updates_per_call:
        raise SettingError(
            f"updates_per_step={s.updates_per_step:g} and updates_per_call={s.updates_per_call}.",
            "only one of them: both set the number of updates",
            "leave updates_per_call out.",
            updates_per_call=type(s)().updates_per_call,
            updates_per_step="auto",
        )
    steps = each + s.burn_in  # length of the sampled sequences
    if s.buffer_size < steps * s.envs:
        raise SettingError(
            f"buffer_size={s.buffer_size} with {s.envs} environments and sequences of {steps} "
            "steps.",
            "room for a whole sequence of each environment",
            f"give buffer_size={max(steps * s.envs, s.batch_size)} or more.",
            buffer_size=max(steps * s.envs, s.batch_size),
            envs=max(1, s.buffer_size // steps),
        )
    if s.buffer_size < s.batch_size:
        raise SettingError(
            f"buffer_size={s.buffer_size} with batch_size={s.batch_size}.",
            "room for all transitions of a batch, without duplicates",
            f"give buffer_size={s.batch_size} or more, or batch_size={s.buffer_size // each * each}"
            " or less.",
            buffer_size=s.batch_size,
            batch_size=s.buffer_size // each * each,
        )
    if s.hindsight != "no" and s.n_step > 1:
        raise SettingError(
            f"hindsight={s.hindsight!r} and n_step={s.n_step}.",
            "one-step transitions: rewards in between would belong to the old goal",
            "give n_step=1, or hindsight='no'.",
            n_step=1,
        )


def sequences(s: Any, devices: int = 1) -> None:
    """Raise SettingError if there is no training data, if the buffer is too small for replay to
    start, or if sequences do not divide evenly among the devices."""
    replays = s.replay != "none" and s.replay_ratio > 0
    if not (s.online or replays):
        raise SettingError(
            f"online={s.online}, replay={s.replay!r} and replay_ratio={s.replay_ratio}.",
            "a source of training data: new data or replay",
            "give online=True, or replay='uniform' and replay_ratio=1.",
        )
    if replays and s.replay_starts > s.replay_size:
        raise SettingError(
            f"replay_starts={s.replay_starts} and replay_size={s.replay_size}.",
            "a replay buffer with room for the first replay_starts sequences",
            f"give replay_starts={s.replay_size} or less, or replay_size={s.replay_starts} or "
            "more.",
            replay_starts=s.replay_size,
            replay_size=s.replay_starts,
        )
    check_even(s.envs, devices, "envs", multiples(devices, s.envs), s.envs)


def _nearest(near: int, of: int) -> int:
    """Return the divisor of `of` that is nearest to `near`."""
    divisors = [d for d in range(1, of + 1) if of % d == 0]
    return min(divisors, key=lambda d: abs(d - near))
