"""Short trainings compared, to choose what to train with: the finders of the agent door
(`lr_finder`, `opt_finder`, `parallel_finder`), those of the trainer door (`search`), and its sweeps
(`sweep`). May import any room but `examples`."""
