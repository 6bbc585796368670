from __future__ import annotations

from benchmarks.size import Size, packages, size_of, table

SOURCE = '''"""What the file is for,
in two lines."""

import os  # a comment


def f(x: int) -> str:
    """A docstring."""
    return (
        f"{x} of {os.name!r}"
    )
'''


def test_comments_docstrings_and_layout_are_no_tokens() -> None:
    # import os | def f ( x : int ) -> str : | return ( f"…" )
    assert size_of(SOURCE) == Size(files=1, physical=11, logical=5, tokens=2 + 10 + 4)
    assert size_of("") == Size(files=1)
    assert size_of("x = 'no docstring'; y = 2\n") == Size(1, 1, 1, 7)


def test_each_package_is_counted(tmp_path) -> None:
    for path in ("src/tandem/math/a", "src/tandem/ops", "src/tandem/examples/b", "tests/c", "d"):
        file = (tmp_path / path).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SOURCE)
    sizes = packages(tmp_path)
    logical = {name: size.logical for name, size in sizes.items()}
    assert logical == {"math": 5, "ops": 5, "examples": 5}
    text = table(tmp_path)
    assert "| **src, without examples** | 2 | 10 | 32 | 3.20 |" in text
    assert "| **src** | 3 | 15 | 48 | 3.20 |" in text
    assert "tests: 11 physical lines, 1 files" in text
