"""Clients that load a cluster while a test does something to it."""
import threading

from cluster import HttpFailure


class Clients:
    """Threads that call `turn(number)` of a derived class again and again until the block is left. One whose turn fails stops, and `failures`
    says why; `answered` counts the turns that did not."""

    def __init__(self, cluster, clients):
        self.cluster, self.stopped, self.answered, self.failures = cluster, False, 0, []
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped = True
        for thread in self.threads:
            thread.join()

    def run(self, number):
        while not self.stopped:
            try:
                self.turn(number)
                self.answered += 1
            except (HttpFailure, OSError, AssertionError) as failure:
                self.failures.append(repr(failure))
                return

    def await_more(self, count, what):
        """Waits until that many further turns have ended well."""
        before = self.answered
        self.cluster.until(lambda: self.failures or self.answered >= before + count, what)
        assert not self.failures, self.failures
