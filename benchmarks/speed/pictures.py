"""Two small pictures as SVG: stacked bars, and curves on logarithmic axes."""

from __future__ import annotations

import math
from typing import Any
from xml.sax.saxutils import escape

COLORS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb")
FONT = 'font-family="sans-serif" font-size="12" fill="#444"'


def picture(width: int, height: int, parts: list[str]) -> str:
    body = "\n".join(parts)
    background = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    frame = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
    return f"<svg {frame}>\n{background}\n{body}\n</svg>\n"


def words(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {FONT}>{escape(text)}</text>'


def bars(shares: dict[str, dict[str, float]]) -> str:
    """One bar per algorithm, of shares that add up to one."""
    left, width, step = 90, 640, 26
    kinds = list(next(iter(shares.values())))
    parts = []
    for i, kind in enumerate(kinds):
        x, y = left + 160 * (i % 4), 16 + 18 * (i // 4)
        parts += [f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLORS[i]}"/>', words(x + 14, y, kind)]
    top = 16 + 18 * (len(kinds) // 4 + 1)
    for row, (name, values) in enumerate(shares.items()):
        x, y = float(left), top + step * row
        parts.append(words(left - 8, y + 14, name, "end"))
        for color, value in zip(COLORS, values.values(), strict=False):
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{value * width:.1f}" height="18" fill="{color}"/>')
            if value >= 0.06:
                parts.append(words(x + value * width / 2, y + 13, f"{100 * value:.0f}", "middle"))
            x += value * width
    return picture(left + width + 20, top + step * len(shares) + 8, parts)


def curves(series: list[dict[str, Any]]) -> str:
    """Small panels of three in a row: microseconds against size, both logarithmic."""
    wide, high, gap = 240, 170, 20
    parts = []
    for i, curve in enumerate(series):
        x0, y0 = gap + (wide + gap) * (i % 3), gap + (high + gap) * (i // 3)
        parts += panel(curve, x0, y0, wide, high)
    return picture(gap + 3 * (wide + gap), gap + (high + gap) * math.ceil(len(series) / 3), parts)


def panel(curve: dict[str, Any], x0: float, y0: float, wide: float, high: float) -> list[str]:
    xs, ys = [math.log10(x) for x, _ in curve["points"]], [math.log10(y) for _, y in curve["points"]]
    low, top = math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1)
    inner = (x0 + 34, y0 + 22, wide - 44, high - 52)

    def place(x: float, y: float) -> tuple[float, float]:
        return inner[0] + inner[2] * (x - xs[0]) / (xs[-1] - xs[0]), inner[1] + inner[3] * (top - y) / (top - low)

    parts = [words(x0 + 4, y0 + 12, curve["title"])]
    for y in range(low, top + 1):
        height = place(xs[0], y)[1]
        parts.append(
            f'<line x1="{inner[0]:.1f}" x2="{inner[0] + inner[2]:.1f}" y1="{height:.1f}" y2="{height:.1f}" stroke="#ddd"/>'
        )
        parts.append(words(inner[0] - 4, height + 4, f"{10**y:g}", "end"))
    for x, (size, _) in ((xs[0], curve["points"][0]), (xs[-1], curve["points"][-1])):
        parts.append(words(place(x, low)[0], inner[1] + inner[3] + 16, f"{size:,g}", "middle"))
    parts.append(words(inner[0] + inner[2] / 2, inner[1] + inner[3] + 28, curve["axis"], "middle"))
    points = [place(x, y) for x, y in zip(xs, ys, strict=True)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLORS[0]}"/>' for x, y in points]
    return [*parts, f'<polyline points="{line}" fill="none" stroke="{COLORS[0]}" stroke-width="1.5"/>', *dots]
