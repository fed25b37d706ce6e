"""The cluster's binaries, as bazel builds them."""
import os
import pathlib
import subprocess

from cluster import NAMES

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(config):
    """Builds them and returns bazel-bin; `config` "" is fastbuild."""
    flags = ["--config=" + config] if config else []
    subprocess.run(["bazel", "build", *flags, *("//services/%s" % name for name in NAMES)], cwd=ROOT, check=True)
    return subprocess.run(["bazel", "info", *flags, "bazel-bin"], cwd=ROOT, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, universal_newlines=True).stdout.strip()


def binaries(folder, config):
    """Paths by name, in `folder` or else built."""
    folder = folder or build(config)
    return {name: os.path.join(folder, "services", name, name) for name in NAMES}
