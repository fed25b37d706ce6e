"""@uplot: uPlot of npm, which draws the charts of the router's console.

It is taken from the folder of tests/tools/fetch_npm ($SKEIN_NPM, or where it is by default). Where it is not there, npm installs it into
a cache folder. Without npm both filegroups are empty, and the console shows numbers in place of charts.
"""

_VERSION = "1.6.32"

# sha256 of each file.
_FILES = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "dist/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}

def _is_right(rctx, folder):
    for name, digest in _FILES.items():
        path = rctx.path(folder + "/" + name)
        if not path.exists or rctx.execute(["sha256sum", path]).stdout.split(" ")[0] != digest:
            return False
    return True

# The package's folder; None: it is not to be had.
def _find(rctx):
    environ = rctx.os.environ
    cache = environ.get("XDG_CACHE_HOME", environ.get("HOME", "/nonexistent") + "/.cache") + "/skein"
    own = cache + "/uplot"
    for npm in [environ.get("SKEIN_NPM", ""), cache + "/npm", own]:
        folder = npm + "/node_modules/uplot"
        if npm and _is_right(rctx, folder):
            return folder
    if not rctx.which("npm"):
        return None
    installed = rctx.execute(
        ["npm", "install", "--prefix", own, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "uplot@" + _VERSION],
        timeout = 120,
    )
    folder = own + "/node_modules/uplot"
    if installed.return_code == 0 and not _is_right(rctx, folder):
        fail("uplot@%s of npm is not the one whose sha256 tools/build/uplot_configure.bzl has: %s" % (_VERSION, folder))
    return folder if installed.return_code == 0 else None

def _impl(rctx):
    folder = _find(rctx)
    names = []
    if folder:
        for name in _FILES:
            rctx.symlink(folder + "/" + name, name)
        names = _FILES.keys()
    else:
        print("npm's uplot is not to be had: the router's console will have no charts")  # buildifier: disable=print
    rctx.file("WORKSPACE", 'workspace(name = "%s")\n' % rctx.name)
    rctx.file("BUILD", 'filegroup(name = "files", srcs = %r, visibility = ["//visibility:public"])\n' % names)

uplot_configure = repository_rule(implementation = _impl, environ = ["SKEIN_NPM", "HOME", "XDG_CACHE_HOME"], local = True, configure = True)
