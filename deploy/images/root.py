"""Lays out the file trees of the images' layers. Called by deploy/images/build:

    python3 root.py programs OUT PROGRAMS VARIANT VERSION REVISION EPOCH [CUDA_HOME]
    python3 root.py weights OUT MODEL [BELOW]

PROGRAMS is a folder with programs under their installed names (skein-router …), MODEL a Hugging Face folder, which is put
into the folder BELOW of the image. OUT/libraries, OUT/programs and OUT/weights become one layer each; OUT/sbom.spdx.json is
also in the programs' layer. All names come sorted, and nothing depends on when
or where it runs: the same programs and Debian packages give the same trees.
"""
import glob
import json
import os
import shutil
import subprocess
import sys

import sbom
from libraries import Unfit, closure, cuda_version, debian_status

LIBRARY_FOLDER = "/usr/lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
USER = 65532

TEXTS = {
    "/etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nskein:x:%d:%d:Skein:/tmp:/sbin/nologin\n" % (USER, USER),
    "/etc/group": "root:x:0:\nskein:x:%d:\n" % USER,
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12, libraries only"\nNAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n'
                       'VERSION_CODENAME=bookworm\n',
}

NOTICE = """These libraries are NVIDIA's, copied unchanged from its CUDA Toolkit %s:

%s

LicenseRef-NVIDIA-CUDA-EULA is the NVIDIA CUDA Toolkit End User License Agreement, https://docs.nvidia.com/cuda/eula/, whose
attachment A names them as redistributable. NCCL's licence: https://github.com/NVIDIA/nccl/blob/master/LICENSE.txt
The texts that the toolkit brought are in this folder.
"""


class Tree:
    def __init__(self, root):
        self.root = root
        os.makedirs(root)

    def path(self, name):
        path = self.root + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def text(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(self.root + name, 0o644)

    def copy(self, source, name, mode=0o644):
        shutil.copyfile(source, self.path(name))
        os.chmod(self.root + name, mode)

    def link(self, name, target):
        path = self.path(name)
        if not os.path.lexists(path):
            os.symlink(target, path)

    def folder(self, name, mode):
        os.makedirs(self.root + name, exist_ok=True)
        os.chmod(self.root + name, mode)


def lay_out_libraries(tree, libraries):
    """Returns [(path, name in the image, package)] of what was copied."""
    for top in ("bin", "lib", "lib64", "sbin"):
        tree.link("/" + top, "usr/" + top)
    for name in ("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/sbin", "/proc", "/sys", "/dev", "/run", "/models"):
        tree.folder(name, 0o755)
    tree.folder("/tmp", 0o1777)
    for name, content in TEXTS.items():
        tree.text(name, content)
    copied = []
    for library in libraries:
        folder = LIBRARY_FOLDER + ("/ucx" if library.soname.startswith("ucx/") else "")
        soname = os.path.basename(library.soname)
        place = "%s/%s" % (folder, os.path.basename(library.source))
        tree.copy(library.source, place, 0o755 if soname == LOADER else 0o644)
        if os.path.basename(place) != soname:
            tree.link("%s/%s" % (folder, soname), os.path.basename(place))
        if soname == LOADER:
            tree.link("/usr/lib64/" + LOADER, "../lib/x86_64-linux-gnu/" + LOADER)
        if soname == "libuct_cma.so.0":  # UCX asks for the name without a version
            tree.link("%s/libuct_cma.so" % folder, os.path.basename(place))
        copied.append((library.source, place, library.package or library.soname))
    for package in sorted({library.package for library in libraries if library.package}):
        status = debian_status(package)
        name = status["Package"]
        tree.copy("/usr/share/doc/%s/copyright" % name, "/usr/share/doc/%s/copyright" % name)
        # Where scanners of images without a package manager look for what is installed.
        tree.text("/var/lib/dpkg/status.d/" + name, "".join("%s: %s\n" % field for field in status.items() if field[0] != "Conffiles"))
    return copied


def lay_out_programs(tree, folder):
    copied = []
    for name in sorted(os.listdir(folder)):
        place = "/usr/bin/" + name
        tree.copy(os.path.join(folder, name), place, 0o755)
        subprocess.run(["strip", "--strip-unneeded", tree.root + place], check=True)
        copied.append((tree.root + place, place, "skein"))
    return copied


def licences_of(cuda_home):
    """The licence texts that a toolkit brought, wherever its installer put them."""
    found = []
    for pattern in ("EULA.txt", "LICENSE*", "dist-info/nvidia_c*blas*/licenses/*", "dist-info/nvidia_cuda_runtime*/licenses/*",
                    "dist-info/nvidia_cuda_nvrtc*/licenses/*", "dist-info/nvidia_nccl*/licenses/*"):
        found += glob.glob(os.path.join(cuda_home, pattern))
    return sorted(found)


def programs(out, folder, variant, version, revision, epoch, cuda_home=""):
    found = closure([os.path.join(folder, name) for name in sorted(os.listdir(folder))], cuda_home)
    files = lay_out_libraries(Tree(os.path.join(out, "libraries")), found)
    tree = Tree(os.path.join(out, "programs"))
    files += lay_out_programs(tree, folder)
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    tree.copy(os.path.join(checkout, "LICENSE"), "/usr/share/doc/skein/copyright")
    bill = sbom.document("skein-%s-%s" % (version, variant), version, revision, int(epoch), found, files)
    text = json.dumps(bill, indent=1, sort_keys=True) + "\n"
    tree.text("/usr/share/doc/skein/sbom.spdx.json", text)
    with open(os.path.join(out, "sbom.spdx.json"), "w", encoding="utf-8") as file:
        file.write(text)
    if cuda_home:
        nvidia = [library for library in found if not library.package]
        for path in licences_of(cuda_home):
            tree.copy(path, "/usr/share/doc/nvidia/%s" % path[len(cuda_home):].strip("/").replace("/", "-"))
        tree.text("/usr/share/doc/nvidia/NOTICE", NOTICE % (cuda_version(cuda_home), "\n".join(
            "%s: %s" % (library.soname, library.licence) for library in nvidia)))
        print("images/build: NVIDIA's libraries in the image: %s" % ", ".join(
            "%s (%s)" % (library.soname, library.licence) for library in nvidia))


def weights(out, model, below=""):
    tree = Tree(os.path.join(out, "weights"))
    for name in sorted(os.listdir(model)):
        if name.endswith((".json", ".safetensors", ".model", ".jinja")) and not name.startswith(("demonstration", "eval_")):
            tree.copy(os.path.join(model, name), "%s/%s/%s" % (below, os.path.basename(model), name))


if __name__ == "__main__":
    try:
        {"programs": programs, "weights": weights}[sys.argv[1]](*sys.argv[2:])
    except Unfit as problem:
        sys.exit("images/build: %s" % problem)
