"""Floor 0: the engine itself, as SQL files. This package holds data, no code."""
