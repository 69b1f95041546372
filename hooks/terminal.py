"""What the terminal can show: colour, width, progress; and text that cannot control it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN_INTERVAL_S = 15.0
_STYLES = {"red": "31", "yellow": "33", "green": "32", "bold": "1", "dim": "2"}
_ERASE_LINE = "\r\x1b[K"


def escape(text: str) -> str:
    """Text with control characters, line feeds and undecodable bytes written as escapes.

    A path or a message of a checked repository must not be able to move the cursor, recolour the
    terminal or forge a line of the report. Bidirectional controls and other format characters count.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def has_colour(stream: TextIO, env: Mapping[str, str]) -> bool:
    """True for a terminal that shows colour, unless NO_COLOR (set to anything) or TERM=dumb say no."""
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM", "dumb") != "dumb"


def paint(text: str, style: str, *, colour: bool) -> str:
    """The text in a style ("red", "yellow", "green", "bold", "dim") where there is colour."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if colour else text


def width(stream: TextIO) -> int:
    """Columns of the terminal; 100 where the stream is none."""
    return shutil.get_terminal_size((100, 24)).columns if stream.isatty() else 100


class ProgressLine:
    """One line that is rewritten on a terminal; elsewhere a new line now and then.

    Args:
        stream: Where it is written, usually stderr.
        interval_s: Least seconds between two lines on a stream that is no terminal.
    """

    def __init__(self, stream: TextIO | None = None, interval_s: float = PLAIN_INTERVAL_S) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._interval_s = interval_s
        self._live = self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._shown_at = time.monotonic()
        self._text = ""

    def show(self, text: str) -> None:
        """Say where things stand."""
        text = escape(text)
        if self._live:
            if text != self._text:
                self._write(_ERASE_LINE + text[: width(self._stream) - 1])
        elif time.monotonic() - self._shown_at >= self._interval_s:
            self._write(text + "\n")
            self._shown_at = time.monotonic()
        self._text = text

    def close(self) -> None:
        """Remove the line from a terminal."""
        if self._live and self._text:
            self._write(_ERASE_LINE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
