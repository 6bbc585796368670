"""Imports what is not installed."""

import no_such_library_anywhere  # noqa: F401
