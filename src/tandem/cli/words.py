"""Words of a command, before they are parsed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def without(words: Iterable[str], flags: dict[str, int]) -> list[str]:
    """Return the words of a command without these flags, each of which takes a value."""
    rest, drop = [], False
    for word in words:
        if drop:
            drop = False
        elif word in flags:
            drop = True
        elif word.partition("=")[0] not in flags:
            rest.append(word)
    return rest


def value_of(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of a flag in a command; None if it is not there."""
    for word, after in zip(words, [*words, ""][1:], strict=True):
        if word == flag:
            return after
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None
