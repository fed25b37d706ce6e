"""Load for the trial: clients that stream completions until standard input ends, and one that streams long ones.

  load.py URL MODEL CLIENTS     one JSON object a line for each request: what it asked, how it ended, seconds

The first long stream begins before the step does, so that the step meets it on its way.
A request fails when it gets no answer, a status other than 200, an error in its stream, or a stream that ends without [DONE].
Nothing is asked twice: a client that retries would hide what the trial looks for.
"""
import http.client
import json
import sys
import threading
import time
import urllib.parse

PROMPTS = ("Ana's red kite is in the barn. Where is Ana's red kite?", "Tell a short story about a cat and a market.",
           "Ben's favourite food is cheese. What is Ben's favourite food?", "Mia put her old drum behind the church. " * 40)
LENGTHS = (8, 24, 96)
LONG_TOKENS = 2000


def ask(url, model, number, long=False, timeout_s=120):
    """One request; returns what the line says."""
    began, first, tokens = time.time(), None, 0
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    failure = "stream ended early"
    try:
        body = {"model": model, "prompt": PROMPTS[number % len(PROMPTS)], "max_tokens": LENGTHS[number % len(LENGTHS)], "stream": True,
                "seed": number, "temperature": 0.7}
        if long:
            body.update(prompt=PROMPTS[0], max_tokens=LONG_TOKENS, ignore_eos=True)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            failure = "HTTP %d: %s" % (answer.status, message(answer.read().decode(errors="replace")))
        else:
            for line in answer:
                if line.startswith(b"data: [DONE]"):
                    failure = ""
                    break
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        failure = "error in the stream: " + str(event["error"].get("message", ""))[:200]
                        break
                    first = first or time.time()
                    tokens += 1
    except (OSError, http.client.HTTPException, ValueError) as error:
        failure = "%s: %s" % ("stream broke" if first else "no answer", error or type(error).__name__)
    finally:
        connection.close()
    return {"number": number, "began": began, "first_s": first and first - began, "seconds": time.time() - began, "tokens": tokens,
            "failure": failure, "long": long}


def message(body):
    try:
        return json.loads(body)["error"]["message"][:200]
    except (ValueError, KeyError, TypeError):
        return body[:200]


def summary(lines):
    """Counts of a list of lines: requests, failed, the kinds of failures, the slowest first token, the longest outage."""
    failures = {}
    for line in lines:
        if line["failure"]:
            failures[line["failure"]] = failures.get(line["failure"], 0) + 1
    firsts = [line["first_s"] for line in lines if line["first_s"] is not None]
    long = [line for line in lines if line["long"]]
    return {"long": len(long), "long_failed": sum(1 for line in long if line["failure"]),
            "long_max_s": max((line["seconds"] for line in long if not line["failure"]), default=0.0),
            "requests": len(lines), "failed": sum(failures.values()), "failures": failures, "first_token_max_s": max(firsts, default=0.0),
            "tokens": sum(line["tokens"] for line in lines), "outage_s": outage_s(lines)}


def outage_s(lines):
    """The longest time in which requests ended and all of them had failed."""
    longest, began = 0.0, None
    for ended, failure in sorted((line["began"] + line["seconds"], line["failure"]) for line in lines):
        if not failure:
            began = None
            continue
        began = ended if began is None else began
        longest = max(longest, ended - began)
    return longest


def main(url, model, clients):
    over, lock, count = threading.Event(), threading.Lock(), [0]

    def client(long):
        while not over.is_set():
            with lock:
                count[0] += 1
                number = count[0]
            line = ask(url, model, number, long)
            with lock:
                print(json.dumps(line), flush=True)
            if line["failure"]:
                time.sleep(0.2)  # a refusal takes no time; without a pause it would drown the rest

    threads = [threading.Thread(target=client, args=(i == 0,)) for i in range(int(clients) + 1)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
