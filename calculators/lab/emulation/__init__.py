"""Hosts that do not exist: each a network namespace with a cable to a switch, on this one machine."""
