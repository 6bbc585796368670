"""Sharing of runs on the Hugging Face Hub: `tandem.push` and `tandem.pull`."""

from __future__ import annotations

from tandem.hub.pulling import pull
from tandem.hub.pushing import push

__all__ = ["pull", "push"]
