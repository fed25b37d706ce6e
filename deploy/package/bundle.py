"""Copies the libraries that programs need into the tarball's folder. Called by deploy/package/build:

    python3 bundle.py PROGRAMS OUT

glibc stays the system's: its parts work only with each other and with the loader.
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "images"))
from libraries import Unfit, closure  # noqa: E402  pylint: disable=wrong-import-position


def main(programs, out):
    packages = set()
    for library in closure([os.path.join(programs, name) for name in sorted(os.listdir(programs))]):
        if library.package.split(":")[0] == "libc6":
            continue
        place = os.path.join(out, library.soname)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copyfile(library.source, place)
        os.chmod(place, 0o644)
        if library.soname == "ucx/libuct_cma.so.0":  # UCX asks for the name without a version
            os.symlink("libuct_cma.so.0", os.path.join(out, "ucx", "libuct_cma.so"))
        packages.add(library.package.split(":")[0])
    for package in sorted(packages):
        folder = os.path.join(out, "licences")
        os.makedirs(folder, exist_ok=True)
        shutil.copyfile("/usr/share/doc/%s/copyright" % package, os.path.join(folder, package))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Unfit as problem:
        sys.exit("package/build: %s" % problem)
