"""Runs in functional environments that never leave the device: acting, preparing and updating as
one function of JAX, with the algorithms as they are."""
