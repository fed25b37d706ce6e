"""Which shared libraries programs need, and which Debian package each comes from.

Debian's libraries are taken from this machine as they were linked; a file that differs from what its package brought is
refused. CUDA's come from NVIDIA's toolkit, and only those that its licence lets us pass on.
"""
import dataclasses
import os
import re
import subprocess

PLUGINS = ("/usr/lib/x86_64-linux-gnu/ucx/libuct_cma.so.0",)  # loaded by UCX when it is there; RDMA's are left out

# NVIDIA CUDA Toolkit End User License Agreement, Attachment A, "redistributable software", as far as Skein links it.
# NCCL is not part of the toolkit; its own licence (BSD 3-clause) allows it.
CUDA_REDISTRIBUTABLE = ("libcudart.so", "libcublas.so", "libcublasLt.so", "libnvrtc.so", "libnvrtc-builtins.so")
NCCL = "libnccl.so"
DRIVER = ("libcuda.so", "libnvidia-ml.so")  # comes with the node's driver, never with an image


class Unfit(Exception):
    """This machine cannot give what an image needs; the text says what and why."""


@dataclasses.dataclass(frozen=True)
class Library:
    source: str  # the file on this machine, no link
    soname: str  # the name under which programs ask for it
    package: str  # Debian's package, or "" for one of CUDA's
    licence: str = ""  # of one that is not Debian's


def _output(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}, check=False)
    if done.returncode != 0:
        raise Unfit("%s: %s" % (" ".join(command), (done.stderr or done.stdout).strip()))
    return done.stdout


def needed(path):
    """{soname: path} of everything that the program or library `path` is loaded with."""
    found = {}
    for line in _output("ldd", path).splitlines():
        words = line.split()
        if "=>" in words:
            if words[2] == "not":
                raise Unfit("%s needs %s, which is not on this machine" % (path, words[0]))
            found[words[0]] = words[2]
        elif words[0].startswith("/"):
            found[os.path.basename(words[0])] = words[0]
    return found


def packages_of(paths):
    """{path: the Debian package that brought it, or ""}."""
    forms = {}  # /lib is /usr/lib: packages know a file by one of the two
    for path in paths:
        for one in (path, os.path.realpath(path)):
            forms[one] = path
            forms[one[4:] if one.startswith("/usr/") else "/usr" + one] = path
    done = subprocess.run(["dpkg-query", "-S", *sorted(forms)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False)  # fails for the forms that no package knows
    found = dict.fromkeys(paths, "")
    for line in done.stdout.splitlines():
        package, _, form = line.partition(": ")
        found[forms[form]] = package
    return found


def check_unchanged(packages):
    done = subprocess.run(["dpkg", "--verify", *packages], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False)
    changed = [line for line in done.stdout.splitlines()
               if re.search(r"\.so(\.|$)", line) and not line.startswith("missing")]
    if changed:
        raise Unfit("libraries differ from what their Debian packages brought: %s" % "; ".join(changed))


def _cuda_library(soname, path):
    stem = re.sub(r"\.so\..*$", ".so", soname)
    if stem == NCCL:
        return Library(os.path.realpath(path), soname, "", "BSD-3-Clause")
    if stem not in CUDA_REDISTRIBUTABLE:
        raise Unfit("%s (%s) belongs to no Debian package and is not on the list of CUDA's redistributable libraries" %
                    (soname, path))
    return Library(os.path.realpath(path), soname, "", "LicenseRef-NVIDIA-CUDA-EULA")


def closure(programs, cuda_home=""):
    """All libraries of `programs`, sorted by soname. With CUDA also NCCL, which is loaded at run time where it is."""
    paths = {}
    plugins = list(PLUGINS)
    for program in list(programs) + plugins:
        paths.update(needed(program))
    if cuda_home:
        nccl = re.search(r"libnccl\.so\.2 .*=> (\S+)", _output("/sbin/ldconfig", "-p"))
        if nccl:
            paths["libnccl.so.2"] = nccl.group(1)
    packages = packages_of(list(paths.values()) + plugins)
    found = []
    for soname, path in sorted(paths.items()):
        if re.sub(r"\.so\..*$", ".so", soname) in DRIVER:
            continue
        package = packages[path]
        nvidia = cuda_home and (not package or os.path.realpath(path).startswith(os.path.realpath(cuda_home)) or
                                soname.startswith(NCCL))
        if not package and not cuda_home:
            raise Unfit("%s (%s) belongs to no Debian package" % (soname, path))
        found.append(_cuda_library(soname, path) if nvidia else Library(os.path.realpath(path), soname, package))
    for plugin in plugins:
        found.append(Library(os.path.realpath(plugin), "ucx/" + os.path.basename(plugin), packages[plugin]))
    check_unchanged(sorted({one.package for one in found if one.package}))
    return found


def cuda_version(cuda_home):
    """The toolkit's, as its compiler says it: 13.0.88."""
    found = re.search(r"\bV([0-9.]+)", _output(os.path.join(cuda_home, "bin", "nvcc"), "--version"))
    if not found:
        raise Unfit("%s/bin/nvcc --version says no version" % cuda_home)
    return found.group(1)


def debian_status(package):
    """{field: value} of an installed package, as dpkg has it."""
    fields = {}
    name = ""
    for line in _output("dpkg-query", "-s", package).splitlines():
        if line[:1] in (" ", "\t"):
            fields[name] += "\n" + line
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    return fields
