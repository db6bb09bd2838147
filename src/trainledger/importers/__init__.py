"""From outside files to drafts: plans, model configurations, run records. Nothing is imported before it is needed."""
