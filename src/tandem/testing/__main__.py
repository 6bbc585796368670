"""`python -m tandem.testing`."""

import sys

from tandem.testing.self_test import main

if __name__ == "__main__":
    sys.exit(main())
