"""Models: their sizes as data, their parameters counted, a configuration read, a model as a short text.

catalogue   the models that people ask about, and how to find one
parameters  how many parameters sizes make, part by part
configs     the sizes in a Hugging Face config.json
codes       any model as a text for addresses
formulas    the counts as formulas
"""
