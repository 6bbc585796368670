"""Environments: creation (`factory`), wrappers, vectors (`vector` and its subclasses), Atari games,
teams of agents, and two-player games. May import lower layers, but not `algorithms`, `backends` or
`replay`: environments are independent of learners."""
