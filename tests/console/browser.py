"""A browser with the console in it: page.mjs in Debian's Chromium, driven line by line."""
import json
import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ("chromium-headless-shell", "chromium")


def why_not():
    """Why there is no browser here; None: there is one."""
    if not any(shutil.which(name) for name in PROGRAMS):
        return "no %s: tools/install_deps test" % PROGRAMS[0]
    modules = os.path.join(os.environ.get("SKEIN_NPM", ""), "node_modules")
    missing = [name for name in ("playwright-core", "axe-core") if not os.path.isdir(os.path.join(modules, name))]
    return "%s has no %s: tests/tools/fetch_npm" % (modules, missing[0]) if missing else None


class Browser:
    def __enter__(self):
        program = next(path for path in map(shutil.which, PROGRAMS) if path)
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "node", os.path.join(HERE, "page.mjs"),
                                         os.path.join(os.environ["SKEIN_NPM"], "node_modules"), program],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def do(self, command, **arguments):
        """What came of it."""
        self.process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the browser ended with %s" % self.process.poll()
        answer = json.loads(line)
        assert answer["ok"], answer["why"]
        return answer

    def sees(self, matches, selector="#events li"):
        """Waits until the page shows it; when, in milliseconds since 1970."""
        return self.do("await", selector=selector, matches=matches)["at_ms"]
