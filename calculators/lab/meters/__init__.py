"""Meters that read what really moved, was held or was waited for, one module a kind of counter.

Each says what it saw, or raises `CannotSee` with the reason why it cannot see here.
"""

from calculators.lab.meters.problems import CannotSee as CannotSee
