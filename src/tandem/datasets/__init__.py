"""Data sets of episodes in Minari's format.

`record` writes them from any agent, `load` reads them.

    data = tandem.datasets.load("cartpole/ppo-v0")
    for episode in data:
        print(episode.observations.shape, episode.score, episode.ended)
"""

from __future__ import annotations

from tandem.datasets.reading import Dataset, Episode, load
from tandem.datasets.recording import record

__all__ = ["Dataset", "Episode", "load", "record"]
