"""`octop bench`: how fast tasks go in and out, and how much of that is ours to lose."""
