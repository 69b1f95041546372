from __future__ import annotations

import pytest

from attngate.validators.source import SourceCache, is_lfs_pointer, read_source


@pytest.mark.parametrize(
    ("raw", "line", "column", "words"),
    [
        (b"x = (\n", 1, 5, "never closed"),
        (b"x = 1\r\ny = (\r\n", 2, 5, "never closed"),
        (b"x = 1\ry = (\r", 2, 5, "never closed"),
        (b"'''\n\x0c\n\x0c\n'''\n)", 5, 1, "unmatched"),
        (b"x = 1\n\0\n", 2, 1, "null byte"),
        (b"x = 1\nname = '\xe9'\n", 2, 9, "0xe9 is not UTF-8"),
        (b"x = 1\r\nname = '\xe9'\r\n", 2, 9, "0xe9 is not UTF-8"),
        (b"\xef\xbb\xbfx = 1\n\xe9", 2, 1, "0xe9 is not UTF-8"),
        (b"#!/bin/python\n# coding: nothing-like-it\n", 2, 1, "nothing-like-it"),
        (b"# coding: hex\n", 1, 1, "not a text encoding"),
        (b"\xef\xbb\xbf# coding: latin-1\n", 1, 1, "encoding problem"),
        (b"\xff\xfex\0", 1, 1, "null byte"),
        (b"return 1\n", 1, 1, "outside function"),
        (b"-" * 100000 + b"1", 1, 1, "nested too deeply"),
    ],
)
def test_says_what_is_wrong_and_where(raw: bytes, line: int, column: int, words: str) -> None:
    problem = read_source(raw).problem
    assert problem is not None
    assert (problem.line, problem.column) == (line, column)
    assert words in problem.message


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b"\xef\xbb\xbfx = 1", "x = 1"),
        ("# coding: gbk\nx = '中'".encode("gbk"), "# coding: gbk\nx = '中'"),
        (b"#!/bin/sh\n# vim: set fileencoding=latin-1 :\nx = '\xe9'", None),
        (b"x = '\\d'", "x = '\\d'"),
        (b"x = 1  # coding: nothing-like-it\n", "x = 1  # coding: nothing-like-it\n"),
        (b"x = 1\n\n# coding: nothing-like-it\n", None),
    ],
)
def test_reads_what_python_reads(raw: bytes, text: str | None) -> None:
    source = read_source(raw)
    assert source.problem is None
    assert text is None or source.text == text


def test_lines_end_where_the_parser_ends_them() -> None:
    source = read_source("a = 1\r\nb = '\x0c\u2028'\rc = 3\n".encode())
    assert source.line(3) == "c = 3"
    assert source.tree.body[2].lineno == 3
    assert source.line(99) == ""


def test_a_blob_is_compiled_once() -> None:
    cache = SourceCache(kept=2)
    first = cache.get("one", b"x = 1")
    assert cache.get("one", b"never read") is first
    cache.get("two", b"y = 1")
    cache.get("three", b"z = 1")
    assert cache.get("one", b"x = 2") is not first


def test_knows_a_pointer_of_git_lfs() -> None:
    assert is_lfs_pointer(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    assert not is_lfs_pointer(b"version = 1\n")
