"""Words and values: what all floors above speak in. Standard library only."""
