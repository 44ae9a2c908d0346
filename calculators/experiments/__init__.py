"""The pages of guided experiments: every claim and how it fared in this ledger, and each with its runs.

The claims, their runs and their judges are the lab's (`calculators/lab/guided`); `trying` reads and starts trials,
`shown` says what pages show of them.
"""
