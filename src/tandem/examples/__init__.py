"""Programs that use the library, each to be run by `python -m tandem.examples.NAME`. They may
import any package; no package imports them."""
