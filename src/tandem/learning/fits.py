"""Whether the numbers of a run go into one another: rollouts, batches, sequences, buffers, devices.
Of settings alone, so that what is asked for can be judged before anything is made."""

from __future__ import annotations

import math
from typing import Any

from tandem.errors import SettingError
from tandem.learning.devices import check_even, multiples
from tandem.settings import nearest_multiple


def check(needs: str, s: Any, devices: int = 1) -> None:
    """Refuses settings of an algorithm that `needs` rollouts, transitions or sequences, where its
    learner would."""
    if needs == "sequences":
        sequences(s, devices)
    elif needs == "transitions":
        transitions(s, s.sequence if s.recurrent else 0, devices)
    else:
        rollouts(s, (s.sequence or s.rollout) if s.recurrent else 0, devices)


def rollouts(s: Any, sequence: int, devices: int = 1) -> None:
    """SettingError where rollouts do not divide into batches, batches into sequences (0: a row is a
    step), or these among the devices."""
    rows, each = s.rollout * s.envs, sequence or 1
    batch = s.batch_size or rows
    if rows % batch:
        raise SettingError(
            f"a rollout of {s.rollout} steps x {s.envs} environments has {rows} rows, "
            f"batches have {batch}.",
            "rows that divide into batches evenly",
            f"use batch_size={min(_divisors(rows), key=lambda d: abs(d - batch))}, or another "
            "rollout.",
        )
    if s.rollout % each or batch % each:
        raise SettingError(
            f"sequences of {each} steps, rollouts of {s.rollout} steps and batches of "
            f"{batch} rows.",
            "rollouts and batches that divide into sequences evenly",
            f"use {_either('sequence', each, math.gcd(s.rollout, batch))}, or another rollout or "
            "batch_size.",
        )
    if s.batch_size:
        even = range(each * devices, rows + 1, each * devices)
        whole = (d for d in even if rows % d == 0)
        check_even(batch // each, devices, "batch_size", whole, s.batch_size)
    else:
        check_even(batch // each, devices, "envs", multiples(devices, s.envs), s.envs)
    if s.normalize_rewards and s.standardize_rewards:
        raise SettingError(
            "settings normalize_rewards=True and standardize_rewards=True.",
            "one of them: the first scales rewards by their returns, the second centres them "
            "as well",
            "leave one out.",
        )


def transitions(s: Any, sequence: int, devices: int = 1) -> None:
    """SettingError where steps do not divide among environments, batches into sequences (0: a row
    is a step) or among devices, where the buffer is too small for them, or where settings say how
    many updates there are, or how they are changed, twice or for nothing."""
    if s.train_every % s.envs:
        raise SettingError(
            f"train_every={s.train_every} with {s.envs} environments.",
            "a multiple of the number of environments, since they step together",
            f"use train_every={nearest_multiple(s.envs, s.train_every)}.",
        )
    each = sequence or 1
    if s.batch_size % each:
        raise SettingError(
            f"sequences of {each} steps, and batches of {s.batch_size}.",
            "batches that divide into sequences evenly",
            f"use {_either('sequence', each, s.batch_size)}, or another batch_size.",
        )
    near = multiples(devices * each, s.batch_size)
    check_even(s.batch_size // each, devices, "batch_size", near, s.batch_size)
    if s.updates_per_step != "auto" and s.updates_per_call != type(s)().updates_per_call:
        raise SettingError(
            f"updates_per_step={s.updates_per_step:g} and updates_per_call={s.updates_per_call}.",
            "one of them: both say how many updates there are",
            "leave updates_per_call out.",
        )
    steps = each + s.burn_in  # of what is drawn
    if s.buffer_size < steps * s.envs:
        raise SettingError(
            f"buffer_size={s.buffer_size} with {s.envs} environments and sequences of {steps} "
            "steps.",
            "room for a whole sequence of each environment",
            f"give buffer_size={max(steps * s.envs, s.batch_size)} or more.",
        )
    if s.buffer_size < s.batch_size:
        raise SettingError(
            f"buffer_size={s.buffer_size} with batch_size={s.batch_size}.",
            "room for the transitions of a batch, else it has some of them twice",
            f"give buffer_size={s.batch_size} or more, or batch_size={s.buffer_size // each * each}"
            " or less.",
        )
    _relabelling(s)


def _relabelling(s: Any) -> None:
    if s.hindsight != "no" and s.n_step > 1:
        raise SettingError(
            f"hindsight={s.hindsight!r} and n_step={s.n_step}.",
            "one-step transitions: rewards of the steps between would be of the old goal",
            "give n_step=1, or hindsight='no'.",
        )


def sequences(s: Any, devices: int = 1) -> None:
    """SettingError where there is nothing to learn from, where the buffer never has what replaying
    waits for, or where sequences do not divide among the devices."""
    replays = s.replay != "none" and s.replay_ratio > 0
    if not (s.online or replays):
        raise SettingError(
            f"online={s.online}, replay={s.replay!r} and replay_ratio={s.replay_ratio}.",
            "something to learn from: what comes in, or what is replayed",
            "give online=True, or replay='uniform' and replay_ratio=1.",
        )
    if replays and s.replay_starts > s.replay_size:
        raise SettingError(
            f"replay_starts={s.replay_starts} and replay_size={s.replay_size}.",
            "a replay buffer that can hold the sequences that replaying waits for",
            f"give replay_starts={s.replay_size} or less, or replay_size={s.replay_starts} or "
            "more.",
        )
    check_even(s.envs, devices, "envs", multiples(devices, s.envs), s.envs)


def _divisors(of: int) -> list[int]:
    return [d for d in range(1, of + 1) if of % d == 0]


def _either(name: str, now: int, of: int) -> str:
    """The divisors of a number next to what a setting is now, as advice: the largest one below, and
    the smallest one above, where there is one."""
    fits = _divisors(of)
    low = max(d for d in fits if d <= now)
    high = min((d for d in fits if d > now), default=None)
    return f"{name}={low}" + ("" if high is None else f" or {name}={high}")
