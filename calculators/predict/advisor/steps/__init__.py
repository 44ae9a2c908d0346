"""The steps of the procedure: how each question is answered from the facts, a file for what the questions are about.

rules       sizes that do not go together, and what to use instead
work        whether the devices have work, and what they wait for
exchanges   whether exchanges take as long as they should, and what makes them slow
sharding    what replicas hold of the model, and where what they shard is gathered
places      where the devices are, and how they reach each other
fit         one copy fits on one device: what to do with the others
pieces      what does not fit, piece by piece

A step's function gives None where the facts say nothing about its question, else a `Said`.
"""
