"""The images that the trial brings to its nodes, as archives that containerd imports."""
import glob
import hashlib
import os
import shutil

from machine import sh

BUSYBOX = "localhost/skein-try/busybox:1"
PROMETHEUS = "localhost/skein-try/prometheus:1"
ETCD = "localhost/skein-try/etcd:1"


def save(image, cache, make):
    """Returns the archive of an image; make(root) fills its root folder. Made once for each version of what it is made of."""
    archive = os.path.join(cache, "images", image.split("/")[-1].replace(":", "-") + ".tar")
    if os.path.exists(archive):
        return archive
    os.makedirs(os.path.dirname(archive), exist_ok=True)
    environment = dict(os.environ, BUILDAH_ISOLATION="chroot", STORAGE_DRIVER="vfs")
    container = sh("buildah", "from", "scratch", env=environment).strip()
    try:
        make(sh("buildah", "mount", container, env=environment).strip())
        sh("buildah", "umount", container, env=environment)
        sh("buildah", "config", "--env", "PATH=/bin", "--cmd", "[\"/bin/sleep\",\"infinity\"]", "--entrypoint", "[]", container, env=environment)
        sh("buildah", "commit", "--quiet", "--rm", container, image, env=environment)
        container = ""
        sh("buildah", "push", "--quiet", image, "docker-archive:%s.draft:%s" % (archive, image), env=environment)
        sh("buildah", "rmi", image, env=environment)
    finally:
        if container:
            sh("buildah", "rm", container, env=environment, check=False)
    os.replace(archive + ".draft", archive)
    return archive


def busybox(root):
    for folder in ("bin", "tmp", "etc", "proc", "sys", "dev"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    shutil.copy("/bin/busybox", os.path.join(root, "bin"))
    for command in ("sh", "sleep", "cat", "wget", "nslookup", "httpd", "hostname", "nc", "echo", "date", "touch", "test"):
        os.symlink("busybox", os.path.join(root, "bin", command))


def prometheus(root):
    program(root, "/usr/bin/prometheus")


def etcd(root):
    program(root, "/usr/bin/etcd")


def program(root, path):
    """A program of this machine, with the libraries that it is loaded with."""
    for folder in ("bin", "data", "etc", "tmp"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    shutil.copy(path, os.path.join(root, "bin"))
    done = sh("ldd", path, check=False)  # it fails for a program that needs none
    for word in done.stdout.split() if done.returncode == 0 else ():
        if word.startswith("/"):
            os.makedirs(root + os.path.dirname(word), exist_ok=True)
            shutil.copy(word, root + word)


def base_images(cache):
    return [save(BUSYBOX, cache, busybox), save(PROMETHEUS, cache, prometheus), save(ETCD, cache, etcd)]
