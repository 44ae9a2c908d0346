"""What the page *Model* asks: a model, and how many parameters its maker states."""

from calculators.fields import AddressForm, Decimal, ModelField


class ModelForm(AddressForm):
    """A model, and the number of parameters that whoever made it states."""

    DEFAULTS = {"model": "llama-3.1-8b", "published": ""}  # noqa: RUF012

    model = ModelField()
    published = Decimal(
        label="Published parameters",
        low=0.001,
        high=1_000_000,
        instead="the catalogue's",
        help_text="in billions, to compare with; empty for the catalogue’s own",
    )
