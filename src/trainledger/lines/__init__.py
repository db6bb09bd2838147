"""Lines and moments: the flat ledger, and the folds that answer every question about it."""
