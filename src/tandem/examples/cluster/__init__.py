"""One short program for each algorithm, with the cluster API: runners with environments, an agent
with a name."""
