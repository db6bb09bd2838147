"""Tables. Every number from the world is a row here, and every row carries its source."""
