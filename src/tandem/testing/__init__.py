"""Environments with known solutions, checks of environments, and contracts of algorithms and
backends, for tandem's tests and yours; and `python -m tandem.testing`, a test of the installation.
May import lower layers, up to `zoo`."""
