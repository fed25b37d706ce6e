#!/usr/bin/env python3
"""tools/lint: the commit that it compares with, and a source that clang-tidy cannot compile. clang-tidy is a stub here."""
import os
import shutil
import subprocess
import sys
import tempfile

TOOLS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(TOOLS), "tests", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

CLEAN = "exit 0"
COMMANDS = """#!/bin/sh
echo '[{"file": "a.cc"}, {"file": "b.cc"}, {"file": "c.cc"}]' >compile_commands.json
"""


class Checkout:
    """A checkout whose three commits each add a source: a.cc, b.cc, c.cc. clang-tidy is `tidy`, the end of a shell script."""

    def __init__(self, folder, tidy):
        self.root = os.path.join(folder, "checkout")
        os.makedirs(os.path.join(self.root, "tools"))
        shutil.copy(os.path.join(TOOLS, "lint"), os.path.join(self.root, "tools", "lint"))
        self.script(os.path.join(self.root, "tools", "compile_commands"), COMMANDS)
        self.seen = os.path.join(folder, "seen")
        stubs = os.path.join(folder, "bin")
        os.mkdir(stubs)
        self.script(os.path.join(stubs, "clang-format-14"), "#!/bin/sh\nexit 0\n")
        self.script(os.path.join(stubs, "clang-tidy-14"),
                    "#!/bin/sh\nfor last; do :; done\necho \"$last\" >>'%s'\n%s\n" % (self.seen, tidy))
        self.environment = {"PATH": stubs + ":" + os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8",
                            "PYTHONDONTWRITEBYTECODE": "1"}
        self.git("init", "-q", "-b", "main")
        for name in "abc":
            with open(os.path.join(self.root, name + ".cc"), "w", encoding="utf-8") as source:
                source.write("int %s;\n" % name)
            self.git("add", "-A")
            self.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "Add " + name)

    @staticmethod
    def script(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.root, env=self.environment, check=True)

    def lint(self, *arguments, **environment):
        """The finished process, and the sources that clang-tidy was given."""
        done = subprocess.run([sys.executable, "tools/lint", *arguments], cwd=self.root, text=True, check=False,
                              env=dict(self.environment, **environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        seen = []
        if os.path.exists(self.seen):
            with open(self.seen, encoding="utf-8") as file:
                seen = sorted(file.read().split())
            os.remove(self.seen)
        return done, seen


def ci_says_with_what_to_compare():
    with tempfile.TemporaryDirectory() as folder:
        checkout = Checkout(folder, CLEAN)
        for done, seen, expected in ((*checkout.lint(), ["c.cc"]),
                                     (*checkout.lint(SKEIN_LINT_BASE="HEAD~2"), ["b.cc", "c.cc"]),
                                     (*checkout.lint("--base", "HEAD~1", SKEIN_LINT_BASE="HEAD~2"), ["c.cc"])):
            assert done.returncode == 0, done
            assert seen == expected, (seen, expected, done)


def a_base_that_is_not_here_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        checkout = Checkout(folder, CLEAN)
        for done, _ in (checkout.lint(SKEIN_LINT_BASE="no-such"), checkout.lint("--base", "no-such")):
            assert done.returncode == 2 and "no commit no-such here" in done.stderr, done


def a_source_that_clang_tidy_cannot_compile_is_a_failure():
    with tempfile.TemporaryDirectory() as folder:
        done, seen = Checkout(folder, "echo 'no header' >&2; exit 1").lint()
        assert seen == ["c.cc"] and done.returncode == 1, done
        assert "c.cc: clang-tidy ended with status 1: no header" in done.stdout, done


def a_source_that_needs_a_newer_clang_is_named_and_not_checked():
    with tempfile.TemporaryDirectory() as folder:
        done, seen = Checkout(folder, "echo 'f16.h:7:13: error: _Float16 is not supported on this target'; exit 1").lint()
        assert seen == ["c.cc"] and done.returncode == 0, done
        assert "c.cc: not checked, clang-tidy-14 lacks _Float16" in done.stdout, done


def what_clang_tidy_writes_beside_its_findings_is_no_finding():
    with tempfile.TemporaryDirectory() as folder:
        done, _ = Checkout(folder, "echo '12 warnings generated.' >&2; exit 0").lint()
        assert done.returncode == 0, done


if __name__ == "__main__":
    run_tests(ci_says_with_what_to_compare, a_base_that_is_not_here_is_refused,
              a_source_that_clang_tidy_cannot_compile_is_a_failure, a_source_that_needs_a_newer_clang_is_named_and_not_checked,
              what_clang_tidy_writes_beside_its_findings_is_no_finding)
