"""
A report of a comparison as a page of its own: the verdict, the picture, and the tables.

Source: docs/guide/jobs.rst, Verify.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rmqha.pipeline.jobs.plots import svg
from rmqha.pipeline.jobs.verify.findings import ComparisonReport, ComparisonResult
from rmqha.pipeline.jobs.verify.picture import picture

MOST_ROWS = 500
"""Rows of a table on the page; the JSON report has all."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 68em; color: #222;
       padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; padding: .25em .7em .25em 0; border-bottom: 1px solid #ddd;
         vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
svg { max-width: 100%; height: auto }
.equal { color: #2e7d32 } .different { color: #c8102e }
"""


def page(report: ComparisonReport) -> str:
    """
    The page, as HTML in one piece.
    """
    parts = [
        f'<h1>The copies are <span class="{report.verdict}">{report.verdict}</span></h1>',
        f"<p>{escape(summary(report))}</p>",
        svg(picture(report)),
        *_table(
            "Copies",
            ("name", "store", "broker", "#first byte", "#end", "#behind", "how its end is known"),
            (
                (
                    copy.name,
                    copy.root or "elsewhere",
                    copy.broker or "",
                    copy.first,
                    copy.end,
                    report.behind.get(copy.name, 0),
                    _known(copy.published, copy.whole, copy.end),
                )
                for copy in report.copies
            ),
        ),
        *_table(
            "Differences",
            ("copy", "#from byte", "#to byte", "#bytes", "why"),
            (
                (each.store, each.start, each.end, each.count, each.absent or "other bytes")
                for each in report.differences
            ),
        ),
        *_table(
            f"Records ({report.record_count})",
            (
                "copy",
                "#offset",
                "#size",
                "kind",
                "topic",
                "#queue",
                "#queue offset",
                "key",
                "fields",
                f"in {report.copies[0].name}",
                "in the copy",
            ),
            (
                (
                    each.store,
                    each.offset,
                    each.size,
                    each.kind,
                    each.topic or "",
                    "" if each.queue_id is None else each.queue_id,
                    "" if each.queue_offset is None else each.queue_offset,
                    each.key or "",
                    ", ".join(each.fields),
                    each.reference or "",
                    each.other or "",
                )
                for each in report.records
            ),
        ),
        *_table(
            "Not compared",
            ("copy", "#from byte", "#to byte", "why"),
            ((each.store, each.start, each.end, each.reason) for each in report.skipped),
        ),
    ]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>rmqha: copies are {report.verdict}</title>"
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def summary(report: ComparisonReport) -> str:
    """
    A report in a sentence or three.
    """
    size = report.high - report.low
    text = (
        f"{size} bytes from {report.low} to {report.high}, in {report.chunks} chunks of "
        f"{report.chunk} bytes, were compared in {report.seconds:.1f} s."
    )
    if report.verdict is ComparisonResult.DIFFERENT:
        places = len(report.differences)
        text += f" They differ at {places} place{'s' if places > 1 else ''}"
        text += f", in {report.record_count} records." if report.record_count else "."
    left_out = sum(each.end - each.start for each in report.skipped)
    if left_out:
        text += f" {left_out} bytes were not compared."
    for name, lag in report.behind.items():
        text += f" {name} ends {lag} bytes before the longest copy."
    return text


def _known(published: bool, whole: int, end: int) -> str:
    if published:
        return "published"
    if whole < end:
        return f"last written byte; records are whole up to byte {whole}"
    return "last written byte"


def _table(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterable[str]:
    """
    A table with a title; nothing if it has no rows.

    @param names: Of columns; a C{#} before one makes it one of numbers.
    """
    found = list(rows)
    if not found:
        return []
    classes = [' class="number"' if name.startswith("#") else "" for name in names]
    cells = [
        f"<th{kind}>{escape(name.lstrip('#'))}</th>"
        for kind, name in zip(classes, names, strict=True)
    ]
    lines = [f"<h2>{escape(title)}</h2>", "<table>", f"<tr>{''.join(cells)}</tr>"]
    for row in found[:MOST_ROWS]:
        cells = [
            f"<td{kind}>{escape(str(value))}</td>" for kind, value in zip(classes, row, strict=True)
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</table>")
    if len(found) > MOST_ROWS:
        lines.append(f"<p>and {len(found) - MOST_ROWS} more</p>")
    return lines
