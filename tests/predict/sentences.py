"""For `pytest.raises(..., match=exactly(sentence))`: the whole sentence, read to its full stop."""

import re


def exactly(sentence: str) -> str:
    return f"^{re.escape(sentence)}$"
