"""Environments with known answers, checks of environments, and what every algorithm and backend
promises: for the tests of tandem and for yours; and `python -m tandem.testing`, a test of what is
installed. May import lower layers, up to `zoo`."""
