# SPDX-License-Identifier: Apache-2.0
"""A plot of what customers.py found, as SVG."""

WIDTH, HEIGHT = 480, 300  #: of the area of the plot, in pixels
LEFT, TOP = 50, 20
LINES = (
    ("converged", "#1b6ca8", "customers whose network knows its samples"),
    ("mean", "#2a9d4a", "held-out accuracy, mean"),
    ("least", "#c8442b", "held-out accuracy, least of a customer"),
)


def _text(x, y, anchor, text):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def _axes(batches, x_of, y_of):
    for percent in range(0, 101, 20):
        y = y_of(percent)
        yield f'<path d="M{LEFT} {y:.0f}h{WIDTH}" stroke="#ddd"/>'
        yield _text(LEFT - 6, y + 4, "end", f"{percent} %")
    for number, row in enumerate(batches):
        yield _text(x_of(number), TOP + HEIGHT + 18, "middle", row["batch"])
    yield _text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "middle", "samples in a batch")


def plot(batches):
    """`batches`: rows of customers.summary, whose places on the axis have equal distances."""

    def x_of(number):
        return LEFT + WIDTH * (number + 0.5) / len(batches)

    def y_of(percent):
        return TOP + HEIGHT * (1 - percent / 100)

    parts = list(_axes(batches, x_of, y_of))
    for number, (key, colour, label) in enumerate(LINES):
        points = [(x_of(i), y_of(row[key])) for i, row in enumerate(batches)]
        line = " ".join(f"{x:.0f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.0f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        y = TOP + HEIGHT - 50 + 16 * number
        parts.append(f'<path d="M{LEFT + 8} {y - 4}h20" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(LEFT + 34, y, "start", label))
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 70}" height="{HEIGHT + 70}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{inside}\n</svg>\n'
    )
