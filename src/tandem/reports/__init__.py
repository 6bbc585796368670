"""What is made of runs: plots, comparisons, reports, animations and exported agents."""
