"""The door for programs written for drlbox: `make_trainer` and `make_evaluator`, with its
arguments and defaults. May import any room but `examples`."""
