"""How a run is trained: the plan, its validation, its degrees, and the defaults of what it leaves out."""
