"""Networks: described once, as plans (`plan`), from which come PyTorch modules, Keras models and
the NumPy networks that act. One of the two rooms of the library that name a framework. May import
the ground and `math`."""

from tandem.networks import noisy as noisy  # its layer has to be known wherever plans are read
