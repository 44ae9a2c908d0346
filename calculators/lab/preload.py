"""What the fork server imports before it forks ranks: torch and all jobs, and a tie to its launcher.

The ranks of a run hold the fork server's own lifeline open, so without the tie a killed launcher would leave the
fork server waiting for ranks that wait for it.
"""

from calculators.lab import ranks as ranks
from calculators.lab.lifeline import die_with_parent

die_with_parent()
