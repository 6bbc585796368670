"""Run folders and the life of a run: the session, its other tasks while training (`observers`),
checkpoints, the table, callbacks, signals, resuming and verification. May import lower layers, up
to `compiled`."""
