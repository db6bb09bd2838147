"""What runs leave behind, read as the same kinds of lines, moments and streams that the formulas give."""
