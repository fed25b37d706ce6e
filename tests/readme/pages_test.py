#!/usr/bin/env python3
"""Commands and their output, as pages.py extracts them from a page."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position
from pages import blocks_of, commands_of, missing, sessions_of  # noqa: E402  pylint: disable=wrong-import-position

PAGE = """Text with `code`.

```sh
# a comment
first --flag \\
  value
second -d @- <<'END'
{"a": 1}
END
third    # ends here
```

```text
one
…
  two
```

```json
{}
```
"""


def commands_are_whole():
    session, = sessions_of("p.md", PAGE)
    assert session.where() == "p.md:3"
    assert commands_of(session) == ["first --flag \\\n  value", 'second -d @- <<\'END\'\n{"a": 1}\nEND', "third    # ends here"]
    assert session.prints == ["one", "two"]


def what_is_printed_comes_in_order():
    assert missing(["one", "two"], "zero one\nand two\n") is None
    assert missing(["two", "one"], "zero one\nand two\n") == "one"
    assert missing([], "") is None


def a_block_without_language_is_refused():
    for page in ("```\ndeploy/local/up\n```\n", "```sh\nnever closed\n"):
        try:
            blocks_of("p.md", page)
        except AssertionError:
            continue
        raise AssertionError("taken: " + page)


if __name__ == "__main__":
    run_tests(commands_are_whole, what_is_printed_comes_in_order, a_block_without_language_is_refused)
