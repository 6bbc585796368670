"""Trust in names that lead to code. A name in a file is imported or called only if someone vouches
for it: the user who wrote the run on this machine, or the user who resumes it and repeats the
name."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from tandem.errors import ResumeError, TandemError, note
from tandem.platforms import user_folder
from tandem.types import JSONDict

SIGNED = ("own_env", "env", "vector", "env_kwargs", "network", "wrappers", "command", "file")
WORDS = re.compile(r"[\w -]*|[+-]?[\d.]+(e[+-]?\d+)?", re.IGNORECASE)  # text that cannot name code
KEY_BYTES = 32


class Names(NamedTuple):
    """Names that a command or a call repeats. `trust` vouches for all names in the file."""

    env: Any = None
    vector: str | None = None
    env_kwargs: Mapping[str, Any] | None = None
    network: str | None = None
    cluster: str | None = None
    trust: bool = False
    wrappers: Sequence[str] | None = None
    algorithm: Any = None  # or the class of a custom algorithm


NONE = Names()


def signature(data: JSONDict, folder: Path) -> str:
    """Return the HMAC (SHA-256, hexadecimal) with this user's key over the names in the file's data
    and the identity of its folder, so that a copy is not signed. Empty without a key."""
    cluster = (data.get("options") or {}).get("cluster") or ""
    with suppress(OSError):
        signed = [folder.stat().st_ino, cluster, *(data.get(name) or "" for name in SIGNED)]
        if (key := _key()) is not None:
            text = json.dumps(signed, sort_keys=True)
            return hmac.digest(key, text.encode(), hashlib.sha256).hex()
    return ""


def is_signed(data: JSONDict, folder: Path, written: object) -> bool:
    """Return True if `written`, the signature in the file, is this user's signature of the data."""
    expected = signature(data, folder)
    return bool(expected) and hmac.compare_digest(expected, str(written))


def fault(
    data: JSONDict,
    place: Path,
    written: object,
    names: Names,
    fix: Callable[[dict[str, Any]], str],
    error: type[TandemError],
    used: JSONDict | None = None,
) -> TandemError | None:
    """Return the error if names in a file may lead to code and nobody vouches for them, else None.

    Args:
        data: The contents of a config.json, or of another file with entries of the same names.
        place: The run folder, or the file.
        written: The signature in the file.
        names: The names that the command or the call repeats.
        fix: Returns the advice for the missing names and their values.
        error: The type of the error.
        used: `data` with the values that a command overrides; None: `data` itself.
    """
    used = data if used is None else used
    kwargs, found = used.get("env_kwargs") or {}, _leading_to_code(used)
    if names.trust or not (found or kwargs):  # read the key only if it matters
        return None
    if is_signed(data, place if place.is_dir() else place.parent, written):
        return None
    found = {name: value for name, value in found.items() if not _repeats(names, name, value)}
    if not found:
        if kwargs and names.env_kwargs is None:
            note(f"{place} was written elsewhere; its environment is made with {kwargs}")
        return None
    shown = ", ".join(f"{name}={value!r}" for name, value in found.items())
    return error(
        f"{place} names {shown}, which may run code, and was copied, changed or written by "
        "somebody else.",
        "names that you trust, given again",
        fix(found),
    )


def expect(
    data: JSONDict,
    place: Path,
    written: object,
    names: Names,
    command: str,
    error: type[TandemError],
    flag: str = "",
    used: JSONDict | None = None,
) -> None:
    """Raise the `fault` of a file, advising a command with the missing names. `command` has {} for
    the environment id; `flag` precedes the id."""

    def fix(found: dict[str, Any]) -> str:
        texts = {n: quote(x if isinstance(x, str) else json.dumps(x)) for n, x in found.items()}
        env = f"{flag}{texts.pop('env')} " if "env" in texts else ""
        texts.pop("wrappers", "")
        flags = "".join(f" --{n.replace('_', '-')} {text}" for n, text in texts.items())
        flags += wrapper_flags(found)
        return (
            f"if you trust them: {command.replace('{}', env, 1)}{flags}; or add --trust. In "
            "Python, repeat env= and env_kwargs=, or give trust=True."
        )

    if (found := fault(data, place, written, names, fix, error, used)) is not None:
        raise found


def expect_same(conf: Any, folder: Path, names: Names) -> None:
    """Raise ResumeError if a repeated name differs from the run's Config."""
    env, vector = (names.env, None) if isinstance(names.env, str) else (None, names.vector)
    algorithm = names.algorithm if isinstance(names.algorithm, str) else None
    repeated: dict[str, Any] = {"algorithm": algorithm}
    repeated |= {} if conf.own_env else {"env": env, "vector": vector}
    repeated |= {"env_kwargs": names.env_kwargs, "network": names.network}
    repeated |= {"wrappers": None if names.wrappers is None else list(names.wrappers)}
    for name, value in repeated.items():
        if value is not None and value != getattr(conf, name):
            raise ResumeError(
                f"the run {folder} has {name}={getattr(conf, name)!r}; {name}={value!r} was given.",
                "the same value, since a resumed run keeps its settings",
                f"leave {name} out, or train a new run.",
            )


def _leading_to_code(data: JSONDict) -> dict[str, Any]:
    """Return the entries whose values may lead to code, by name. Ids registered by an installed
    package are safe; arguments of a user's function or class are not."""
    found: dict[str, Any] = {}
    vector, env = data.get("vector"), data.get("env")
    if vector not in (None, "", "own", "id"):
        found["vector"] = vector
    elif env is not None and not data.get("own_env") and not _is_id(str(env)):
        found["env"] = env
    found |= {name: x for name in ("network", "wrappers") if (x := data.get(name))}
    kwargs = data.get("env_kwargs") or {}
    if kwargs and (found or data.get("own_env") or data.get("vector") or _names_code(kwargs)):
        found["env_kwargs"] = kwargs
    cluster = (data.get("options") or {}).get("cluster")
    if cluster not in (None, "", "auto", "local"):
        found["cluster"] = cluster
    return found


def wrapper_flags(data: JSONDict) -> str:
    """Return the command-line flags for the wrappers in a run's config."""
    return "".join(f" --wrapper {quote(str(x))}" for x in data.get("wrappers") or ())


def _repeats(names: Names, name: str, value: Any) -> bool:
    """Return True if a name from a file is given again: literally, or as the function itself for a
    vector."""
    if name == "cluster":  # any given cluster replaces the file's
        return names.cluster is not None
    if name == "wrappers":
        return value == list(names.wrappers or ())
    env = names.env
    function = f"{getattr(env, '__module__', '')}:{getattr(env, '__qualname__', '')}"
    return value == getattr(names, name) or (name == "vector" and value == function)


def _is_id(env: str) -> bool:
    return re.fullmatch(r"[\w-]+(/[\w-]+)?", env.replace(".", "-")) is not None


def _names_code(value: Any) -> bool:
    """Return True if text in JSON data may name a file, a module or an address."""
    if isinstance(value, Mapping):
        return any(_names_code(part) for item in value.items() for part in item)
    if isinstance(value, list | tuple):
        return any(map(_names_code, value))
    return isinstance(value, str) and (not WORDS.fullmatch(value) or os.path.lexists(value))


def _key() -> bytes | None:
    """Return this user's key, created on first use; None if the system has no folder for it."""
    folder = user_folder("state")
    if folder is None:
        return None
    path = folder / "key"
    if not _is_private(path):
        # a new key is put in place atomically, so that two processes starting together agree on one
        new = path.with_name(f"key.{secrets.token_hex(8)}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        try:
            if path.exists():
                new.replace(path)
            else:
                os.link(new, path)
        except FileExistsError:
            pass  # another process was first
        finally:
            new.unlink(missing_ok=True)
    return path.read_bytes()


def _is_private(path: Path) -> bool:
    """Return True if the file is a complete key that only this user can read."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return False
    if os.name == "posix" and (found.st_mode & 0o077 or found.st_uid != os.geteuid()):
        return False
    return found.st_size == KEY_BYTES
