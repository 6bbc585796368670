"""Worker processes and Ray actors, and jobs that run in them. Independent of reinforcement
learning. May import the lowest layer only."""
