"""How fast it is beside other libraries (`make bench`), and how well it learns (`make learn`)."""
