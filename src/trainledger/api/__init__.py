"""The Python library: `trainledger.estimate`, with thin results that print, serialise and show themselves."""
