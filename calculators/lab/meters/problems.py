"""Why a meter has nothing to say."""


class CannotSee(RuntimeError):
    """A meter that cannot work here; the text says why, as the end of a sentence."""
