"""Learning: from trajectories to updates. The loop (`loop`) and its events, the learners for
rollouts, transitions and sequences, asynchronous learners, normalization, seeds, and a run's
settings (`config`). Independent of run folders. May import lower layers, up to `parallel`."""
