"""`python -m calculators.lab`: the lab on the command line."""

import sys

if __name__ == "__main__":  # the fork server's processes import this module, too
    from calculators.lab.cli import main

    sys.exit(main())
