"""Draws the charts of the documentation as SVG, in colours that can be read on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

_WIDTH, _HEIGHT = 720, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 64, 44
_TEXT, _GRID = "#7d858f", "#7d858f"
_COLOURS = ("#3f86c9", "#d9822b", "#4a9e6a", "#a169b8")
_TICKS = 5


@dataclass(slots=True)
class _Drawing:
    """
    :param most: the greatest value of the vertical axis.
    """

    title: str
    unit: str
    most: float
    series: Sequence[str]
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text(_LEFT, 20, self.title, size=15, anchor="start")
        x = float(_LEFT)
        for number, name in enumerate(self.series):
            self.box(x, 34, 11, 11, _COLOURS[number])
            self.text(x + 16, 44, name, anchor="start")
            x += 32 + 6.6 * len(name)
        for tick in range(_TICKS + 1):
            value = self.most * tick / _TICKS
            y = self.y(value)
            self.line(_LEFT, y, _WIDTH - _RIGHT, y)
            self.text(_LEFT - 6, y + 4, f"{value:g}{self.unit}", anchor="end")

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / self.most

    def text(self, x: float, y: float, content: str, *, size: int = 12, anchor: str = "middle") -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{_TEXT}"'
        self.parts.append(f"<text {place}>{escape(content)}</text>")

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect {place} fill="{colour}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.parts.append(f'<line {ends} stroke="{_GRID}" stroke-opacity="0.35"/>')

    def write(self, path: Path) -> None:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
            f'role="img"><title>{escape(self.title)}</title>'
        )
        path.write_text("\n".join([head, *self.parts, "</svg>"]) + "\n")


def bars(
    path: Path, title: str, unit: str, most: float, groups: Mapping[str, Mapping[str, tuple[float, float]]]
) -> None:
    """Draw a bar for each series of each group, with a mark for its least member.

    :param groups: groups by name, each with the height of the bar and the height of the mark for each series.
    """
    series = list(next(iter(groups.values())))
    drawing = _Drawing(title, unit, most, series)
    room = (_WIDTH - _LEFT - _RIGHT) / len(groups)
    width = room * 0.7 / len(series)
    for place, (group, values) in enumerate(groups.items()):
        first = _LEFT + room * place + room * 0.15
        for number, name in enumerate(series):
            height, mark = values[name]
            x = first + width * number
            drawing.box(x, drawing.y(height), width - 3, drawing.y(0) - drawing.y(height), _COLOURS[number])
            drawing.box(x, drawing.y(mark) - 1.5, width - 3, 3, "#10151b")
            drawing.text(x + (width - 3) / 2, drawing.y(height) - 5, f"{height:.0f}")
        drawing.text(_LEFT + room * (place + 0.5), _HEIGHT - _BOTTOM + 18, group)
    drawing.write(path)


def lines(
    path: Path, title: str, unit: str, most: float, series: Mapping[str, Sequence[float]], x_name: str
) -> None:
    """Draw a line for each series, whose values belong to 1, 2, 3 and so on."""
    drawing = _Drawing(title, unit, most, list(series))
    count = max(map(len, series.values()))
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, count - 1)
    for number, values in enumerate(series.values()):
        points = " ".join(
            f"{_LEFT + step * at:.1f},{drawing.y(value):.1f}" for at, value in enumerate(values)
        )
        colour = _COLOURS[number]
        drawing.parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        )
    for at in range(0, count, 5):
        drawing.text(_LEFT + step * at, _HEIGHT - _BOTTOM + 18, str(at + 1))
    drawing.text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, x_name)
    drawing.write(path)
