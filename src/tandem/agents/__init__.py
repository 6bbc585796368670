"""What stands behind the agent door: a user's own agent as an algorithm, an actor and a learner of
the house."""
