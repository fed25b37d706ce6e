"""The commands in README.md and docs/, and the output that these pages promise.

A block marked sh holds commands. A block marked text behind it is what they print, at least: each of its lines stands in the
output, in this order; a line with … alone stands for whatever is between.
"""
import re

FENCE = re.compile(r"^```(\w*)\s*$")
HEREDOC = re.compile(r"<<'?(\w+)'?")


class Block:
    def __init__(self, page, line, language):
        self.page, self.line, self.language, self.lines = page, line, language, []
        self.prints = []

    def where(self):
        return "%s:%d" % (self.page, self.line)


def blocks_of(page, text):
    """The fenced blocks. Each must name its language, so that no command is missed."""
    found, block = [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence is None:
            if block is not None:
                block.lines.append(line)
        elif block is None:
            block = Block(page, number, fence.group(1))
            assert block.language, "%s: this block names no language" % block.where()
        else:
            found.append(block)
            block = None
    assert block is None, "%s: this block has no end" % block.where()
    return found


def sessions_of(page, text):
    """The sh blocks, each with its expected output from the text block right after it."""
    found = blocks_of(page, text)
    for block, following in zip(found, found[1:]):
        if block.language == "sh" and following.language == "text":
            block.prints = [line.strip() for line in following.lines if line.strip() not in ("", "…")]
    return [block for block in found if block.language == "sh"]


def commands_of(block):
    """The commands of a block: lines, each with its continuations and its here-document; comments left out."""
    found, lines = [], iter(block.lines)
    for line in lines:
        command = [line]
        while command[-1].endswith("\\"):
            command.append(next(lines))
        end = HEREDOC.search(line)
        while end and command[-1] != end.group(1):
            command.append(next(lines))
        text = "\n".join(command).strip()
        if text and not text.startswith("#"):
            found.append(text)
    return found


def missing(expected, output):
    """The first expected line that is missing from the output, in order; None if all are there."""
    at = 0
    for line in expected:
        found = output.find(line, at)
        if found < 0:
            return line
        at = found + len(line)
    return None
