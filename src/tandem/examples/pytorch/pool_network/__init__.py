"""The same agents, each with a list of environments that step in several processes."""
