"""Processes and Ray actors that work for this process, and jobs for them. Knows nothing of
reinforcement learning. May import the lowest layer only."""
