"""Text output to streams that may be missing, closed, or unable to encode a character."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from typing import Any

from tandem.platforms import FULL

# Replacements for characters that an encoding lacks; "?" for any other.
PLAIN = {"…": "...", "±": "+-", "×": "x", "²": "^2", "·": ".", "–": "-", "—": "-", "→": "->"}
PLAIN |= {"τ": "tau", "µ": "u", "−": "-", "≥": ">=", "≤": "<=", "ó": "o", "ñ": "n"}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # the only type that `encode` raises
    return PLAIN.get(error.object[error.start], "?"), error.start + 1


codecs.register_error("tandem.plain", _plainly)

# Otherwise the next opened file would take the place of a standard stream, and receive all printed
# text.
for _number in range(3):
    try:
        os.fstat(_number)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_RDWR), _number)


class _Nowhere(io.TextIOBase):
    """A text stream that discards everything."""

    def write(self, text: str) -> int:
        return len(text)


class Display:
    """A stream that accepts all text: text that can no longer be shown is dropped, and characters
    that the encoding lacks are replaced. It never raises, so that a run survives its terminal.

    Args:
        stream: None if the process has none, as under pythonw.
        raised: Types of stream errors that `write` and `flush` raise nevertheless. If there are
            any, errors of a full disk are raised too.
    """

    def __init__(self, stream: Any, raised: tuple[type[OSError], ...] = ()) -> None:
        missing = stream is None or getattr(stream, "closed", False)
        self._stream, self._raised = _Nowhere() if missing else stream, raised

    def write(self, text: str) -> int:
        """Write text; see the class."""
        try:
            self._try(self._stream.write, text)
        except UnicodeEncodeError:
            encoding = getattr(self._stream, "encoding", None) or "ascii"
            self._try(self._stream.write, text.encode(encoding, "tandem.plain").decode(encoding))
        return len(text)

    def flush(self) -> None:
        """Flush what was written; see the class."""
        self._try(self._stream.flush)

    def end(self) -> None:
        """Flush, or else discard the buffer: the interpreter fails at exit if it cannot flush."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def _try(self, act: Any, *text: str) -> None:
        try:
            act(*text)
        except UnicodeEncodeError:
            raise
        except self._raised:
            raise
        except ValueError:  # already closed
            pass
        except OSError as error:  # EIO: the terminal no longer exists
            if self._raised and error.errno in FULL and error.errno != errno.EIO:
                raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def say(text: str) -> None:
    """Print a line that the caller can do without."""
    print(text, file=Display(sys.stdout), flush=True)
