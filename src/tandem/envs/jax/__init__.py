"""Environments as pure JAX functions: their interface, adapters for other libraries, and vectorized
stepping. Public names are in `tandem.functional`."""
