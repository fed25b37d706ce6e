"""Batch jobs over HTTP as any client of OpenAI's API sends them: a file of lines, a batch, its output.

    job = Job(cluster.urls, lines_of(model, 200))
    job.submit()
    job.check(job.await_end(60))

A call that meets a broken or an unready router is sent again to the next one, within a bound, as a client would.
"""
import json
import os
import time
import urllib.error
import urllib.request

from emulated import continuation

CALL_S = 60
UNREADY = (429, 502, 503, 504)
ENDED = ("completed", "failed", "expired", "cancelled")


class Refused(Exception):
    def __init__(self, code, body):
        super().__init__("HTTP %d: %s" % (code, body[:500]))
        self.code, self.body = code, body


def call(urls, method, path, data=None, content_type="application/json", seconds=CALL_S, each=lambda: None):
    """The answer's bytes, of the first router that gives one. `each` is called before each try."""
    end, turn = time.monotonic() + seconds, 0
    while True:
        each()
        url = urls[turn % len(urls)]
        turn += 1
        request = urllib.request.Request(url + path, data, {"Content-Type": content_type} if data is not None else {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            body = error.read().decode(errors="replace")
            if error.code not in UNREADY or time.monotonic() > end:
                raise Refused(error.code, body) from None
        except (OSError, EOFError) as error:  # refused, reset, or ended in the midst of the answer
            if time.monotonic() > end:
                raise AssertionError("%s %s: no router answers: %r" % (method, path, error)) from None
        except Exception as error:  # pylint: disable=broad-except
            if type(error).__name__ not in ("RemoteDisconnected", "IncompleteRead", "BadStatusLine") or time.monotonic() > end:
                raise
        time.sleep(0.1)


def upload(urls, content, name="input.jsonl", purpose="batch"):
    """The file object of a multipart upload."""
    edge = "skein-%s" % os.urandom(12).hex()
    head = ('--%s\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n%s\r\n'
            '--%s\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\nContent-Type: application/jsonl\r\n\r\n' % (
                edge, purpose, edge, name)).encode()
    return json.loads(call(urls, "POST", "/v1/files", head + content + ("\r\n--%s--\r\n" % edge).encode(),
                           "multipart/form-data; boundary=" + edge))


def lines_of(model, count, tokens=40):
    """Lines for emulated workers, by custom_id: the request's body, greedy ones of different lengths with shared prefixes."""
    return {"line-%d" % i: {"model": model, "prompt": [1 + i % 7] * 16 + [3 + (31 * i + k) % 1999 for k in range(8 + i % 40)],
                            "max_tokens": tokens // 2 + i % tokens, "ignore_eos": True, "temperature": 0, "return_token_ids": True}
            for i in range(count)}


class Job:
    """One batch of completions; `lines` as lines_of. `each` is called again and again while an answer is waited for."""

    def __init__(self, urls, lines, each=lambda: None):
        self.urls, self.lines, self.each, self.id, self.seen = urls, lines, each, None, []

    def submit(self):
        content = "".join(json.dumps({"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body}) + "\n"
                          for name, body in self.lines.items()).encode()
        self.input = upload(self.urls, content)
        assert self.input["bytes"] == len(content) and self.input["purpose"] == "batch", self.input
        made = json.loads(call(self.urls, "POST", "/v1/batches", json.dumps({
            "input_file_id": self.input["id"], "endpoint": "/v1/completions", "completion_window": "24h"}).encode()))
        self.id = made["id"]
        return made

    def state(self):
        return json.loads(call(self.urls, "GET", "/v1/batches/" + self.id, each=self.each))

    def await_completed(self, lines, seconds):
        """Waits until so many lines are completed, or the job has ended."""
        end = time.monotonic() + seconds
        while True:
            state = self.state()
            done = state["request_counts"]["completed"]
            assert done >= (self.seen[-1] if self.seen else 0), "completed lines went from %d to %d" % (self.seen[-1], done)
            self.seen.append(done)
            if done >= lines or state["status"] in ENDED:
                return state
            assert time.monotonic() < end, "not within %d s: %d lines: %s" % (seconds, lines, state)
            time.sleep(0.05)

    def await_end(self, seconds):
        return self.await_completed(len(self.lines) + 1, seconds)

    def output(self, state):
        """The lines of the output file, in order."""
        content = call(self.urls, "GET", "/v1/files/%s/content" % state["output_file_id"])
        return [json.loads(line) for line in content.splitlines()]

    def check(self, state):
        """Each line was answered exactly once, with the tokens that the model gives alone. Counts them by problem."""
        assert state["status"] == "completed", state
        assert state["request_counts"] == {"total": len(self.lines), "completed": len(self.lines), "failed": 0}, state
        assert not state.get("error_file_id"), state
        found = {}
        for line in self.output(state):
            found.setdefault(line["custom_id"], []).append(line)
        lost = sorted(set(self.lines) - set(found))
        doubled = sorted(name for name, all_of in found.items() if len(all_of) != 1)
        wrong = []
        for name, body in self.lines.items():
            for line in found.get(name, []):
                response = line["response"]
                same = line["error"] is None and response["status_code"] == 200 and \
                    response["body"]["choices"][0]["token_ids"] == continuation(body["prompt"], body["max_tokens"])
                if not same:
                    wrong.append(name)
        problems = {"lost": lost, "doubled": doubled, "wrong": wrong, "unknown": sorted(set(found) - set(self.lines))}
        assert not any(problems.values()), {kind: (len(names), names[:5]) for kind, names in problems.items()}
