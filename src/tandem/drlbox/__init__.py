"""The API for programs written for drlbox: `make_trainer` and `make_evaluator`, with drlbox's
arguments and defaults. May import any package but `examples`."""
