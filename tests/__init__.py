"""Tests. Folders mirror `src/trainledger/`; `house` holds the rules that the source itself must keep."""
