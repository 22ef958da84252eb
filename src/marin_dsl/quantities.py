"""Numbers with units, as a reader wants them: three digits that matter and a unit that fits."""

from __future__ import annotations

import math

ABSENT = "–"


def duration(seconds: float | None) -> str:
    """Seconds as text.

    >>> [duration(s) for s in (0.004, 0.31, 9.87, 75, 7384, None)]
    ['4 ms', '0.31 s', '9.9 s', '1 min 15 s', '2 h 3 min', '–']
    """
    if seconds is None or not math.isfinite(seconds):
        return ABSENT
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _scaled(value: float, base: float, units: tuple[str, ...]) -> str:
    index = 0
    while abs(value) >= base * 0.9995 and index + 1 < len(units):
        value, index = value / base, index + 1
    digits = 0 if index == 0 or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f} {units[index]}".rstrip()


def memory(size: int | None) -> str:
    """Bytes as text.

    >>> [memory(b) for b in (512, 3 * 2**20, 1.5 * 2**30, None)]
    ['512 B', '3.00 MiB', '1.50 GiB', '–']
    """
    return ABSENT if size is None else _scaled(float(size), 1024.0, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def operations(flops: float | None) -> str:
    """Floating-point operations as text.

    >>> [operations(f) for f in (0, 2.5e9, 4.13e13, None)]
    ['0 FLOP', '2.50 GFLOP', '41.3 TFLOP', '–']
    """
    if flops is None or not math.isfinite(flops):
        return ABSENT
    return _scaled(float(flops), 1000.0, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"))


def number(value: float, digits: int) -> str:
    """A number with a fixed count of decimals, thousands apart, and a true minus sign.

    >>> [number(v, 2) for v in (1234.5, -0.125, 7, float("nan"), float("inf"))]
    ['1,234.50', '−0.12', '7', 'not a number', '∞']
    """
    if isinstance(value, int):
        return f"{value:,}".replace("-", "\N{MINUS SIGN}")
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "\N{MINUS SIGN}∞"
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def scale(largest: float) -> tuple[float, str]:
    """A divisor and its name that bring numbers up to `largest` to a readable size.

    >>> [scale(x) for x in (800, 25_000, 3e6, 2e9)]
    [(1.0, ''), (1000.0, 'thousands'), (1000000.0, 'millions'), (1000000000.0, 'billions')]
    """
    for factor, name in ((1e9, "billions"), (1e6, "millions"), (1e4, "thousands")):
        if largest >= factor:
            return (1e3 if name == "thousands" else factor), name
    return 1.0, ""


def short_digest(digest: str) -> str:
    """The beginning of a digest, enough to name it.

    >>> short_digest("sha256:0123456789abcdef")
    '0123456789ab…'
    """
    return f"{digest.removeprefix('sha256:')[:12]}…"
