"""`python -m octop` is the command `octop`."""

from octop.cli import main

if __name__ == "__main__":
    main()
