"""Runs real framework code on a CPU and records every storage it makes and frees."""
