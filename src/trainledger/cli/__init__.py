"""One file per verb. Reads files, prints, and sets exit codes; decides nothing about memory."""
