#!/usr/bin/env python3
"""Objects of our kernels have machine code for sm_80 and sm_90a, and PTX that newer GPUs' drivers
compile. Usage: fatbin_test.py OBJECT..."""
import struct
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)  # of a fat binary
PTX, ELF = 1, 2


def images(data):
    """(kind, architecture) of every image of every fat binary in an object."""
    at = data.find(MAGIC)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, bytes_, = struct.unpack_from("<HHIQ", data, entry)
            yield kind, struct.unpack_from("<I", data, entry + 28)[0]
            entry += entry_header + bytes_
        at = data.find(MAGIC, end)


def main():
    assert len(sys.argv) > 1, "no objects"
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            found = set(images(file.read()))
        assert {(ELF, 80), (ELF, 90), (PTX, 80)} <= found, f"{path}: {sorted(found)}"
        print(path, sorted(found))


main()
