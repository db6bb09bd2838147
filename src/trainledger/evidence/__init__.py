"""Ledgers from evidence: a trace of real code on tensors without storage, and what runs leave behind."""
