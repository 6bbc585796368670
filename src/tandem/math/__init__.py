"""Equations: one function per equation of a paper, documented with paper, year and number. They
work on arrays of NumPy, torch, JAX and TensorFlow, except for `effective`, `moments` and
`statistics`, which run on the host. May import the lowest layer only."""
