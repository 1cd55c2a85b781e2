"""What `octop init` writes: the files of this folder, as they are."""
