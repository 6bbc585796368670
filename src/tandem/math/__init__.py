"""The equations: one function for one equation of a paper, named with paper, year and number. They
run on the arrays of NumPy, torch, JAX and TensorFlow alike, but for `effective`, `moments` and
`statistics`, which run on the host. May import the lowest layer only."""
