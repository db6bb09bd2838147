"""Numbers to text, figures, JSON and HTML. Every number shown was computed below; nothing is added up here."""
