"""Networks: described once, as plans (`plan`), from which PyTorch modules, Keras models and the
NumPy networks for acting are created. Frameworks are imported here and in `backends`. May import
the lowest layer and `math`."""

# their layers must be registered wherever plans are read
from tandem.networks import common_layers as common_layers
from tandem.networks import noisy as noisy
from tandem.networks import renorm as renorm
from tandem.networks import simba as simba
