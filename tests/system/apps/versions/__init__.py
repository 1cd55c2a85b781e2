"""One application in the versions that a roll-out lets meet each other."""
