"""Learning: from trajectories to updates. The loop (`loop`) and its events, the learners for
rollouts, transitions and sequences, asynchronous learners, normalization, seeds, and a run's
settings (`config`). It knows no folder. May import lower layers, up to `parallel`."""
