"""One Python source of a snapshot: bytes to text to syntax tree, each step at most once a blob.

Everything here speaks of the committed bytes. Lines are Python's (ended by LF, CR LF or CR, never by
a form feed), so a number printed here is the number an editor shows.
"""

from __future__ import annotations

import ast
import codecs
import gc
import io
import re
import tokenize
import warnings
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from attngate.validators.facts import Facts, facts_of
from attngate.validators.names import FileNames
from attngate.validators.symbols import Summary, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON_SUFFIXES = (b".py", b".pyi")
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_KEPT_SOURCES = 4096
_DECLARED_WITHIN = 4096
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+")


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """Why a file is no Python source, and where (1-based line and column)."""

    line: int
    column: int
    message: str
    advice: str


@dataclass(eq=False)
class Source:
    """A Python file of a tree by its contents; the path is kept by whoever asks.

    Attributes:
        raw: The committed bytes.
        text: The decoded text; "" where it cannot be decoded.
        undecodable: Why it cannot be decoded, None where it can.
    """

    raw: bytes
    text: str
    undecodable: SyntaxProblem | None = field(default=None)

    @cached_property
    def problem(self) -> SyntaxProblem | None:
        """The syntax problem, None for a file that compiles; compiled when first asked for."""
        return self.undecodable or _compile_problem(self.text)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; an empty module for a file that does not parse."""
        try:
            with quiet_parser():
                return ast.parse(self.text)
        except (SyntaxError, RecursionError, MemoryError, ValueError):
            self.parses = False
            return ast.Module(body=[], type_ignores=[])

    parses: bool = True

    @cached_property
    def names(self) -> FileNames:
        """The scopes of the syntax tree, kept with the blob like the tree itself."""
        return FileNames(self.tree)

    @cached_property
    def symbols(self) -> Summary:
        """What other files can see of this one."""
        return summarise(self.tree, self.text)

    @cached_property
    def facts(self) -> Facts:
        """What is asked of every file, by its text alone."""
        return facts_of(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def line(self, number: int) -> str:
        """The text of a 1-based line without surrounding blanks, "" where there is none."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""


@contextmanager
def quiet_parser() -> Iterator[None]:
    """Parse without warnings about the source and without garbage collection.

    A syntax tree is many small objects and no garbage: the collector would walk them again and again,
    which costs twice the parsing itself.
    """
    with without_collector(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def without_collector() -> Iterator[None]:
    """Leave garbage collection off for a while; nested uses leave it off to the end of the outermost."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()


class SourceCache:
    """Sources by object id: the same blob in two trees is read and compiled once."""

    def __init__(self, kept: int = _KEPT_SOURCES) -> None:
        self._kept = kept
        self._sources: OrderedDict[str, Source] = OrderedDict()

    def get(self, oid: str, raw: bytes) -> Source:
        """The source of a blob, compiled now if it was not before."""
        source = self._sources.get(oid)
        if source is None:
            source = self._sources[oid] = read_source(raw)
            if len(self._sources) > self._kept:
                self._sources.popitem(last=False)
        return source


SOURCES = SourceCache()


def is_python(path: bytes) -> bool:
    """True for the names that Python imports as source, and for stubs."""
    return path.endswith(PYTHON_SUFFIXES)


def is_lfs_pointer(raw: bytes) -> bool:
    """True for the small text that git-lfs commits instead of a file's contents."""
    return raw.startswith(LFS_POINTER)


def read_source(raw: bytes) -> Source:
    """Decode; whatever is wrong with the bytes is in `problem`, never raised."""
    null = raw.find(b"\0")
    if null >= 0:
        line = _line_of(raw, null)
        advice = "Remove it; a UTF-16 file must be saved as UTF-8."
        return Source(raw, "", SyntaxProblem(line, 1, "the source contains a null byte", advice))
    try:
        encoding = _encoding(raw)
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        return Source(raw, "", _undecodable(raw, encoding, error))
    except (SyntaxError, LookupError) as error:
        advice = "Declare an encoding that Python knows, or none: UTF-8 is the default."
        words = error.msg if isinstance(error, SyntaxError) else str(error).partition(";")[0]
        return Source(raw, "", SyntaxProblem(_declaration(raw), 1, words, advice))
    return Source(raw, text)


def _encoding(raw: bytes) -> str:
    """The encoding by byte order mark and declaration; SyntaxError where they cannot be used."""
    if not _declaration(raw):
        return "utf-8-sig"
    head = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in raw else raw
    name, _ = tokenize.detect_encoding(io.BytesIO(head).readline)
    return name


def _declaration(raw: bytes) -> int:
    """The line (1 or 2) that declares an encoding, 0 where none does."""
    for number, line in enumerate(
        re.split(rb"\r\n|\r|\n", raw[:_DECLARED_WITHIN], maxsplit=2)[:2], start=1
    ):
        text = line.removeprefix(codecs.BOM_UTF8)
        if _CODING.match(text):
            return number
        if text.strip() and not text.lstrip().startswith(b"#"):
            break
    return 0


def _undecodable(raw: bytes, encoding: str, error: UnicodeDecodeError) -> SyntaxProblem:
    start = error.start + (len(codecs.BOM_UTF8) if raw.startswith(codecs.BOM_UTF8) else 0)
    line_start = max(raw.rfind(b"\n", 0, start), raw.rfind(b"\r", 0, start)) + 1
    message = f"byte 0x{raw[start]:02x} is not {encoding.upper().replace('-SIG', '')}"
    advice = "Save the file as UTF-8, or declare its encoding in the first two lines."
    return SyntaxProblem(_line_of(raw, start), start - line_start + 1, message, advice)


def _compile_problem(text: str) -> SyntaxProblem | None:
    """What the compiler says, or None.

    The whole compiler is asked, not only the parser: a `return` outside a function passes the parser
    and still stops the import.
    """
    try:
        with quiet_parser():
            compile(text, "<source>", "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:
        return SyntaxProblem(error.lineno or 1, max(error.offset or 1, 1), error.msg, "")
    except (RecursionError, MemoryError):
        return SyntaxProblem(1, 1, "the source is nested too deeply for the compiler", "")
    except ValueError as error:
        return SyntaxProblem(1, 1, str(error), "")
    return None


def _line_of(raw: bytes, offset: int) -> int:
    before = raw[:offset].replace(b"\r\n", b"\n")
    return 1 + before.count(b"\n") + before.count(b"\r")
