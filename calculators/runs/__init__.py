"""The pages of runs: a list to look through, one run, two beside each other, a new one, and what can be taken away.

`views` and `actions` read requests, `starting` has the page of a new run. What they show is made of values in
modules of one subject, each with the tables and pictures that it is shown by; `opening` opens the ledger.
"""

from calculators.runs.opening import WORK_COMMAND as WORK_COMMAND
from calculators.runs.opening import ledger as ledger
from calculators.runs.words import title_of as title_of
