"""A package that adds one of each to tandem, for tests."""
