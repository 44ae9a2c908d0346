"""No ranks at all: a program that never speaks to another."""

import sys

print("computed", sum(range(10)))
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
