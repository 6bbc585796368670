"""A package whose plug-ins are broken, for tests."""
