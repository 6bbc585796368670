"""From environments and an actor to trajectories (`collector`), evaluations, and trained agents.
May import the rooms below, but not `replay`: what is collected is handed over."""
