"""`octop schedules`: one file per kind of command."""
