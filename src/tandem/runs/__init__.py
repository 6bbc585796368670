"""A run's folder and its life: the session, what it does beside learning (`observers`),
checkpoints, the table, callbacks, signals, resuming, verification. May import lower layers, up
to `compiled`."""
