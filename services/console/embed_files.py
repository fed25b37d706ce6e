#!/usr/bin/env python3
"""Writes a C++ source with the files of the console (services/console/console_files.h).

    embed_files.py OUTPUT FILE...
"""
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".txt": "text/plain; charset=utf-8"}
NAMES = {"LICENSE": "uPlot-LICENSE.txt"}  # uPlot's (tools/build/uplot_configure.bzl), which has to come with it
PIECE = 12000  # bytes of one literal: compilers must take 65,536 characters, and an escaped byte has four


def literal(data):
    """Bytes as C++ string literals."""
    out = []
    for at in range(0, len(data), PIECE):
        piece = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else "\\%03o" % b for b in data[at:at + PIECE])
        out.append('"%s"' % piece)
    return "\n    ".join(out) or '""'


def main():
    output, *paths = sys.argv[1:]
    rows = []
    for path in sorted(paths, key=os.path.basename):
        with open(path, "rb") as source:
            data = source.read()
        name = NAMES.get(os.path.basename(path), os.path.basename(path))
        rows.append('      {"%s", "%s",\n       std::string_view(\n    %s, %d)},\n' % (
            name, TYPES[os.path.splitext(name)[1]], literal(data), len(data)))
    with open(output, "w", encoding="ascii") as out:
        out.write('#include "services/console/console_files.h"\n\nnamespace skein::services {\n\n'
                  "const std::vector<ConsoleFile>& ConsoleFiles() {\n  static const std::vector<ConsoleFile> files = {\n"
                  + "".join(rows) + "  };\n  return files;\n}\n\n}  // namespace skein::services\n")


if __name__ == "__main__":
    main()
