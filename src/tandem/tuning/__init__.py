"""Comparison of short trainings, to choose settings: the finders of the agent API (`lr_finder`,
`opt_finder`, `parallel_finder`), those of the trainer API (`search`), and its sweeps (`sweep`). May
import any package but `examples`."""
