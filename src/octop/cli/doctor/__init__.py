"""`octop doctor`: what is wrong with an installation, why it matters, and the command that cures it."""
