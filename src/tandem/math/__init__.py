"""The equations: one function for one equation of a paper, named with paper, year and number. They
run on the arrays of NumPy, torch, JAX and TensorFlow alike. May import the ground (`ops`, `types`,
`errors`) only."""
