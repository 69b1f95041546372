"""The kernel of the interpreter's self-check; a file of its own, as Triton reads a kernel's source."""

# mypy: disable-error-code="untyped-decorator,misc,no-untyped-def"
import triton
import triton.language as tl


@triton.jit
def multiply_and_dot(left, right, product, dot, SIDE: tl.constexpr):
    """Write product = left * right by element; dot = left @ right in float32; all SIDE x SIDE."""
    row = tl.arange(0, SIDE)[:, None]
    column = tl.arange(0, SIDE)[None, :]
    at = row * SIDE + column
    a = tl.load(left + at)
    b = tl.load(right + at)
    tl.store(product + at, a * b)
    tl.store(dot + at, tl.dot(a, b))
