"""The questions people ask: estimate, check, verdict, advice, search, reconcile. Pure: effects are passed in."""
