"""Numbers as a page prints them: bytes in 1024s with the exact count, seconds, rates, plain counts."""

import math

_IEC = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SI_RATE = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def exact_bytes(value: float) -> str:
    """The count of bytes itself.

    >>> exact_bytes(8192), exact_bytes(1365.333)
    ('8,192 B', '1,365.33 B')
    """
    return f"{plain(value)} B"


def iec_bytes(value: float) -> str:
    """Bytes in the largest unit of 1024s that leaves at least 1 of it.

    >>> iec_bytes(8192), iec_bytes(1048576), iec_bytes(1000), iec_bytes(0)
    ('8 KiB', '1 MiB', '1,000 B', '0 B')
    """
    size, unit = abs(value), 0
    while size >= 1024 and unit < len(_IEC) - 1:
        size, unit = size / 1024, unit + 1
    sign = "\N{MINUS SIGN}" if value < 0 else ""
    return f"{sign}{_three_digits(size)} {_IEC[unit]}"


def both_bytes(value: float) -> str:
    """Bytes twice: to compare at a glance, and to the byte.

    >>> both_bytes(8192), both_bytes(512)
    ('8 KiB (8,192 B)', '512 B')
    """
    return exact_bytes(value) if abs(value) < 1024 else f"{iec_bytes(value)} ({exact_bytes(value)})"


def plain(value: float) -> str:
    """A number with commas; two decimals only where it is not whole, powers of ten where it is huge.

    >>> plain(1536), plain(1.75), plain(-0.5), plain(2e20)
    ('1,536', '1.75', '−0.5', '2×10²⁰')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "not a number"
    if abs(value) >= 1e18:
        mantissa, exponent = f"{value:.2e}".split("e")
        power = str(int(exponent)).translate(_SUPERSCRIPTS)
        return f"{mantissa.rstrip('0').rstrip('.')}×10{power}".replace("-", "\N{MINUS SIGN}")
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """A difference: its sign always shown, except on zero.

    >>> signed(48), signed(-48), signed(0)
    ('+48', '−48', '0')
    """
    return f"+{plain(value)}" if value > 0 else plain(value)


def seconds(value: float) -> str:
    """A time to three digits in the unit that suits it.

    >>> seconds(0.0069), seconds(3.2e-6), seconds(95), seconds(0)
    ('6.9 ms', '3.2 µs', '95 s', '0 s')
    """
    if not value or not math.isfinite(value):
        return f"{plain(value)} s"
    scale, unit = next((pair for pair in _SECONDS if abs(value) >= pair[0]), _SECONDS[-1])
    return f"{_three_digits(value / scale)} {unit}"


def rate(bytes_per_second: float) -> str:
    """A link's speed in bytes per second, in 1000s as links are sold.

    >>> rate(450e9), rate(312.5e6)
    ('450 GB/s', '312 MB/s')
    """
    for scale, unit in _SI_RATE:
        if bytes_per_second >= scale:
            return f"{_three_digits(bytes_per_second / scale)} {unit}"
    return f"{plain(bytes_per_second)} B/s"


def percent(share: float) -> str:
    """A share as a percentage.

    >>> percent(0.0701), percent(0), percent(float("inf"))
    ('7.01 %', '0 %', '∞ %')
    """
    return f"{plain(share * 100)} %"


def small(value: float) -> str:
    """A small number to three digits, as differences of floats are told.

    >>> small(1.1920929e-07), small(0), small(float("nan"))
    ('1.19×10⁻⁷', '0', 'not a number')
    """
    if not value or not math.isfinite(value):
        return plain(value)
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}×10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def whole_percent(share: float) -> str:
    """A share as a percentage, when digits after the point would say too much.

    >>> whole_percent(0.123), whole_percent(0.999)
    ('12 %', '100 %')
    """
    return f"{round(share * 100)} %"


def counted(value: float, noun: str) -> str:
    """A count and what is counted, in the singular where it is one.

    >>> counted(1, "rank"), counted(128, "call")
    ('1 rank', '128 calls')
    """
    return f"{plain(value)} {noun if value == 1 else noun + 's'}"


def _three_digits(value: float) -> str:
    if abs(value) >= 100 or value == int(value):
        return plain(round(value))
    digits = 1 if abs(value) >= 10 else 2
    return plain(round(value, digits))
