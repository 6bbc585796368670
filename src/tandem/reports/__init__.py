"""Output made from runs: plots, comparisons, reports, animations and exported agents."""
