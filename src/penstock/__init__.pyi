from penstock.api import Loader as Loader
from penstock.api import connect_to as connect_to
from penstock.api import load as load

__all__ = ["Loader", "__version__", "connect_to", "load"]

__version__: str
