"""One short program for each algorithm by the cluster door: runners with environments, an agent
with a name."""
