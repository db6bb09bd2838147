"""What the words mean: units, sources, named dims, problems. Nothing here knows a model or a framework."""
