"""`octop check`: compares an application with what is queued and who runs it."""
