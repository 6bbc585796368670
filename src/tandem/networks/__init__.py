from tandem.networks import noisy as noisy  # its layer has to be known wherever plans are read
