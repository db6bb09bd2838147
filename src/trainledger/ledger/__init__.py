"""Lines of one rank by formula: the programs of a model walked forward and backward under a stack's rules."""
