"""The agent API: turns a user's agent (`rl`) into an algorithm, an actor and a learner, which run
in the loop of `learning`. May import any package but `examples`."""
