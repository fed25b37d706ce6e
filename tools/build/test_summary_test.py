#!/usr/bin/env python3
"""test_summary.py's counts: a test that did not run never counts as passed."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SUMMARY = os.path.join(os.path.dirname(os.path.realpath(__file__)), "test_summary.py")


def configured(label):
    return {"id": {"targetConfigured": {"label": label}}, "configured": {"testSize": "SMALL"}}


def incompatible(label):
    return {"id": {"targetCompleted": {"label": label}}, "aborted": {"reason": "SKIPPED"}}


class SummaryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def ran(self, label, status, xml="", log=""):
        """The events of a test that ran."""
        name = label.strip("/").replace("/", "_").replace(":", "_")
        files = [("test.log", self.write(name + ".log", log)), ("test.xml", self.write(name + ".xml", xml))]
        outputs = [{"name": n, "uri": "file://" + path} for n, path in files]
        return [configured(label),
                {"id": {"testResult": {"label": label}}, "testResult": {"status": status, "testActionOutput": outputs}},
                {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}]

    def summary(self, *runs):
        """(exit status, last line) for the events of each Bazel command."""
        beps = [self.write("bep%d" % i, "\n".join(json.dumps(e) for e in events)) for i, events in enumerate(runs)]
        done = subprocess.run([sys.executable, SUMMARY, *beps], stdout=subprocess.PIPE, check=False, text=True)
        return done.returncode, done.stdout.splitlines()[-1]

    def passes(self):
        return self.ran("//a:a", "PASSED", "<testsuites><testcase name='x'/></testsuites>")

    def test_a_target_that_cannot_run_is_skipped(self):
        events = self.passes() + [configured("//b:b"), incompatible("//b:b")]
        self.assertEqual(self.summary(events), (0, "1 passed, 0 failed, 1 skipped"))

    def test_what_one_command_cannot_run_and_another_did_is_not_skipped(self):
        first = [configured("//a:a"), incompatible("//a:a")]
        self.assertEqual(self.summary(first, self.passes()), (0, "1 passed, 0 failed, 0 skipped"))

    def test_nothing_but_skipped_is_no_success(self):
        self.assertEqual(self.summary([configured("//b:b"), incompatible("//b:b")]), (1, "0 passed, 0 failed, 1 skipped"))

    def test_skipped_cases_are_skipped(self):
        xml = ("<testsuites><testcase name='x' status='run' result='completed'/><testcase name='y' result='skipped'/>"
               "<testcase name='z'><skipped message='no GPU'/></testcase></testsuites>")
        self.assertEqual(self.summary(self.ran("//a:a", "PASSED", xml)), (0, "1 passed, 0 failed, 2 skipped"))

    def test_what_a_log_declares_counts(self):
        log = "skipped  one\nCASES 2 passed, 0 failed, 1 skipped\n"
        self.assertEqual(self.summary(self.ran("//a:a", "PASSED", log=log)), (0, "2 passed, 0 failed, 1 skipped"))

    def test_what_did_not_build_or_crashed_failed(self):
        crashed = self.ran("//c:c", "FAILED", log="[ RUN      ] A.B\n")
        self.assertEqual(self.summary(self.passes() + crashed + [configured("//d:d")]), (1, "1 passed, 2 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
