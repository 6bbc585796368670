"""Environments: whatever makes (`factory`) or wraps one, vectors that step several (`vector` and
its kinds), Atari games, teams of agents, games of two players. May import lower layers, but not
`algorithms`, `backends` or `replay`: environments are independent of learners."""
