"""trainledger: what every rank of a training run holds in memory, line by line and moment by moment."""

__version__ = "0.1.0"
