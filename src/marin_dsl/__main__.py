"""`python -m marin_dsl` is the `marin` command."""

from marin_command import main

if __name__ == "__main__":  # worker processes import this module
    main()
