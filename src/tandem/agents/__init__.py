"""The agent API: a user's agent (`rl`) becomes an algorithm, an actor and a learner, which the loop
of `learning` runs like its own. May import any package but `examples`."""
