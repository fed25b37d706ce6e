"""The machines of the trial: three groups of namespaces on this host, and the processes in them.

A Machine is a network namespace, a PID namespace and a mount namespace whose first process only reaps. Killing that process
ends everything in the machine and drops its mounts, so that nothing is left behind, however the trial ends. /run and /var of
a machine are its own folders; everything else is the host's.
"""
import ctypes
import os
import signal
import subprocess
import time

INIT = """set -e
mount --make-rprivate /
mount --bind "$1/var" /var
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock
mount --make-rshared /
trap 'exit 0' TERM
: >"$1/up"
while :; do sleep 1000 & wait; done
"""
LIBC = ctypes.CDLL(None, use_errno=True)


def sh(*command, check=True, **options):
    """Runs a command and returns what it wrote; an error quotes the command and its last words."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          stdin=None if "input" in options else subprocess.DEVNULL, **options)
    if check and done.returncode != 0:
        raise RuntimeError("%s: exit status %d: %s" % (" ".join(map(str, command))[:300], done.returncode,
                                                       (done.stderr or done.stdout).strip()[-1500:]))
    return done.stdout if check else done


def enter_network(name):
    """This process, and what it starts from now on, is in the network namespace NAME."""
    with open("/run/netns/" + name, encoding="ascii") as namespace:
        if LIBC.setns(namespace.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "cannot enter the network namespace " + name)


def alive(pid, started):
    return started != "" and start_time(pid) == started


def start_time(pid):
    """When the process began, in clock ticks since the boot: tells it from a later one with the same number; '' if gone."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def end(pid, started, grace_s=5.0):
    """Ends one process that the trial started: SIGTERM, then SIGKILL."""
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        if not alive(pid, started):
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        until = time.monotonic() + wait_s
        while alive(pid, started) and time.monotonic() < until:
            time.sleep(0.02)


class Machine:
    def __init__(self, name, network, folder):
        self.name, self.network, self.folder = name, network, os.path.join(folder, name)
        self.init = 0

    def start(self):
        for path in ("var/lib", "var/log", "var/tmp", "logs"):
            os.makedirs(os.path.join(self.folder, path), exist_ok=True)
        if not os.path.islink(os.path.join(self.folder, "var/run")):
            os.symlink("/run", os.path.join(self.folder, "var/run"))
        up = os.path.join(self.folder, "up")
        if os.path.exists(up):
            os.remove(up)
        command = ["nsenter", "--net=/run/netns/" + self.network, "unshare", "--mount", "--pid", "--fork", "--kill-child",
                   "--mount-proc", "bash", "-c", INIT, "init", self.folder]
        with open(os.path.join(self.folder, "logs", "init.log"), "w", encoding="utf-8") as log:
            # It outlives the trial with --keep; down() finds it by the file.
            outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._await(lambda: os.path.exists(up) or outer.poll() is not None, "its first process")
        self.init = int(sh("pgrep", "-P", outer.pid, check=False).stdout.split()[0])
        with open(os.path.join(self.folder, "pid"), "w", encoding="ascii") as file:
            file.write("%d %s\n" % (self.init, start_time(self.init)))

    def _await(self, done, what, limit_s=30):
        until = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > until:
                raise RuntimeError("%s: %s did not come up within %d s; see %s/logs" % (self.name, what, limit_s, self.folder))
            time.sleep(0.05)

    def inside(self, *command):
        return ["nsenter", "--target", str(self.init), "--net", "--mount", "--pid", "--", *map(str, command)]

    def run(self, name, *command):
        """Starts a program in the machine; its output goes to logs/NAME.log."""
        with open(self.log(name), "a", encoding="utf-8") as log:
            return subprocess.Popen(self.inside("nice", "-n", "5", *command), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    start_new_session=True)

    def sh(self, *command, **options):
        return sh(*self.inside(*command), **options)

    def log(self, name):
        return os.path.join(self.folder, "logs", name + ".log")

    def stop(self):
        """Ends everything in the machine. Also for a machine that an earlier trial left."""
        try:
            with open(os.path.join(self.folder, "pid"), encoding="ascii") as file:
                pid, started = file.read().split()
        except (FileNotFoundError, ValueError):
            return
        end(int(pid), started, grace_s=0.5)
        os.remove(os.path.join(self.folder, "pid"))
