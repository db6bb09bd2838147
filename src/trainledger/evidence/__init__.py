"""Ledgers from evidence: a trace of real code on tensors without storage, memory snapshots, and what they show."""
