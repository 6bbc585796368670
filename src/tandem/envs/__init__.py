"""Environments: whatever makes (`factory`) or wraps one, vectors that step several (`vector` and
its kinds), Atari games, teams of agents, games of two players. May import the rooms below, but not
`algorithms`, `backends` or `replay`: an environment knows no learner."""
