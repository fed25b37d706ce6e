"""@local_tests: what some tests need and this machine may not have. A test without it is skipped by Bazel, not passed.

defs.bzl of it: NPM, the folder of tests/tools/fetch_npm ($SKEIN_NPM), "" if it or node is missing; SHARED, as SKEIN_SHARED
names it; HAS_TORCH, whether the python3 of tests has torch.
"""

# As Bazel gives it to tests.
_PATH = "/bin:/usr/bin:/usr/local/bin"

def _runs(rctx, command):
    return rctx.execute(["/usr/bin/env", "-i", "PATH=" + _PATH, "/bin/sh", "-c", command]).return_code == 0

def _folder(rctx, variable, holds):
    path = rctx.os.environ.get(variable, "")
    return path if path and rctx.path(path + "/" + holds).exists else ""

def _impl(rctx):
    npm = _folder(rctx, "SKEIN_NPM", "node_modules")
    if not _runs(rctx, "command -v node"):
        npm = ""
    rctx.file("WORKSPACE", 'workspace(name = "%s")\n' % rctx.name)
    rctx.file("BUILD", "")
    rctx.file("defs.bzl", "NPM = %r\nSHARED = %r\nHAS_TORCH = %r\n" % (
        npm,
        _folder(rctx, "SKEIN_SHARED", "models"),
        _runs(rctx, "python3 -c 'import torch'"),
    ))

local_configure = repository_rule(implementation = _impl, environ = ["SKEIN_NPM", "SKEIN_SHARED"], local = True, configure = True)
