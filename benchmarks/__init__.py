"""How fast it is beside other libraries (`make bench`), how well it learns (`make learn`), how much
code it is (`size`), and whether its results are still the same (`fingerprints`)."""
