"""The run of a trial: what it installs and builds, the cluster, the steps one after the other, and the end."""
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

import images
import network
from arguments import STEPS

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


class Failed(Exception):
    """A step did not show what it should; the text says what was seen."""


class Skipped(Exception):
    """A step could not be tried here; the text says why."""


def interrupt(*_):
    raise KeyboardInterrupt


class Report:
    def __init__(self):
        self.began, self.step = time.monotonic(), ""
        self.passed, self.failed, self.skipped = [], [], []

    def say(self, text):
        for line in text.splitlines():
            print("[%7.1f s] %s%s" % (time.monotonic() - self.began, self.step and self.step + ": ", line), flush=True)

    def take(self, name, step):
        """Goes through one step and says how it ended."""
        self.step, began = name, time.monotonic()
        self.say(STEPS[name])
        try:
            step()
            self.passed.append(name)
            self.say("passed in %.1f s" % (time.monotonic() - began))
        except Skipped as why:
            self.skipped.append(name)
            self.say("SKIPPED: %s" % why)
        except KeyboardInterrupt:
            raise
        except Exception as error:  # pylint: disable=broad-except  # the other steps are still worth their time
            self.failed.append(name)
            self.say("FAILED: %s%s" % ("" if isinstance(error, (Failed, TimeoutError)) else type(error).__name__ + ": ", error))
        self.step = ""

    def last_line(self):
        return "try: %d steps passed, %d failed%s, %d skipped%s, in %d s" % (
            len(self.passed), len(self.failed), self.failed and " (%s)" % ", ".join(self.failed) or "", len(self.skipped),
            self.skipped and " (%s)" % ", ".join(self.skipped) or "", time.monotonic() - self.began)


def prepare(options, report):
    """Packages, Kubernetes and Skein's images."""
    for script, arguments in (("install.sh", []), ("build.sh", [options.cache])):
        if subprocess.run(["bash", os.path.join(HERE, script), *arguments], check=False).returncode:
            raise Failed(script + " failed")
    folder = options.images
    if not folder:
        folder = os.path.join(options.cache, "images", "skein")
        build = [os.path.join(TOP, "deploy/images/build"), "cpu", "--output-dir", folder] + (["--bin", options.bin] if options.bin else [])
        log = os.path.join(options.cache, "images.log")
        report.say("building Skein's images; the log is " + log)
        with open(log, "w", encoding="utf-8") as file:
            if subprocess.run(build, stdout=file, stderr=file, check=False).returncode:
                raise Failed("deploy/images/build failed; see " + log)
    archives = sorted(glob.glob(os.path.join(folder, "skein*-cpu.oci.tar")))
    if not any("fledgling" in a for a in archives):
        raise Failed("no archives skein-*-cpu.oci.tar in " + folder)
    return images.base_images(options.cache) + archives


def alone(options):
    """Only one trial at a time: they would share addresses. The lock ends with the process."""
    os.makedirs(options.cache, exist_ok=True)
    lock = open(os.path.join(options.cache, "trial.lock"), "w", encoding="ascii")  # pylint: disable=consider-using-with
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failed("another trial runs; end it with Ctrl-C") from None
    return lock


def run(options):
    from kubernetes import Cluster  # pylint: disable=import-outside-toplevel
    from steps import Steps  # pylint: disable=import-outside-toplevel
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    report, cluster = Report(), Cluster(options.cache)
    try:
        lock = alone(options)
    except Failed as why:
        print("try: %s" % why, file=sys.stderr)
        return 1
    try:
        cluster.down()
        archives = prepare(options, report)
        cluster.up(report.say, archives)
        steps = Steps(cluster, report.say)
        for name in options.steps:
            report.take(name, getattr(steps, name.replace("-", "_")))
        ended = 1 if report.failed else 0
        if options.keep:
            hold(cluster)
    except KeyboardInterrupt:
        report.step, ended = "", 1
        report.say("interrupted")
    except Exception as error:  # pylint: disable=broad-except
        report.step, ended = "", 1
        report.failed.append("start")
        report.say("FAILED: %s" % error)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ended = 1 if take_down(cluster, options, report) else ended
        lock.close()
    print(report.last_line())
    return ended


def take_down(cluster, options, report):
    logs = os.path.join(options.cache, "logs")
    shutil.rmtree(logs, ignore_errors=True)
    for machine in cluster.machines:
        folder = os.path.join(cluster.folder, machine, "logs")
        if os.path.isdir(folder):
            shutil.copytree(folder, os.path.join(logs, machine))
    left = cluster.down()
    report.say("everything is taken down; the logs are in " + logs if not left else "could not remove: " + ", ".join(left))
    return left


def hold(cluster):
    """The cluster stays until Ctrl-C: its names and policies follow the pods only while this process runs."""
    inside = "nsenter --net=/run/netns/" + network.namespace(network.NODES[0])
    print("The cluster runs on until Ctrl-C. Reach it from another terminal with\n  %s kubectl --kubeconfig %s get pods -A -o wide" % (
        inside, cluster.control.kubeconfig("admin")), flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass


def down(options):
    from kubernetes import Cluster  # pylint: disable=import-outside-toplevel
    try:
        lock = alone(options)
    except Failed as why:
        print("try: %s" % why, file=sys.stderr)
        return 1
    left = Cluster(options.cache).down()
    lock.close()
    print("try: " + ("could not remove: " + ", ".join(left) if left else "nothing of a trial is left on this machine"))
    return 1 if left else 0

