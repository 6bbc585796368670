"""Trajectory collection (`collector`), evaluation, and trained agents. May import lower layers, but
not `replay`: collected data is returned."""
