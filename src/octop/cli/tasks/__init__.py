"""`octop tasks`: one file per duty; `group` lists them."""
