"""From environments and an actor to trajectories (`collector`), evaluations, and trained agents.
May import lower layers, but not `replay`: what is collected is returned."""
