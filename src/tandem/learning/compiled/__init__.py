"""Runs in functional environments that stay on the device: acting, preparing and updating as one
JAX function, with unchanged algorithms."""
