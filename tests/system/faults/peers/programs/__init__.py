"""The adapters. Each runs under the Python of its contender's own environment: nothing here may import Octop, but Octop's own program."""
