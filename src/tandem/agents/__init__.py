"""The agent door: a user's own agent (`rl`) becomes an algorithm, an actor and a learner, which
the loop of `learning` runs like its own. May import any room but `examples`."""
