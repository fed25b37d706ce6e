"""HTTP requests that are certainly malformed, from a seeded generator."""
import json

POSTS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
MESSAGES = [{"role": "user", "content": "hi"}]


def http(method, path, body=b"", headers=(), version="HTTP/1.1"):
    lines = ["%s %s %s" % (method, path, version), "Host: t"]
    lines += ["%s: %s" % h for h in headers]
    if body:
        lines += ["Content-Type: application/json", "Content-Length: %d" % len(body)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def noise(rng, size, alphabet=None):
    return bytes(rng.choice(alphabet) if alphabet else rng.randrange(256) for _ in range(size))


# ---- the head ----

def bad_request_line(rng):
    return rng.choice([
        b"GET\r\n\r\n", b"GET /livez\r\n\r\n", b"GET  /livez HTTP/1.1\r\nHost: t\r\n\r\n", b"/livez HTTP/1.1\r\nHost: t\r\n\r\n",
        b"GET /livez HTTP/1.1 extra\r\nHost: t\r\n\r\n", b"GET /livez HTTX/1.1\r\nHost: t\r\n\r\n",
        b"GET /livez HTTP/%d.%d\r\nHost: t\r\n\r\n" % (rng.randrange(2, 10), rng.randrange(10)),
        b"GET /livez http/1.1\r\nHost: t\r\n\r\n", b"G(T /livez HTTP/1.1\r\nHost: t\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /li\x00vez HTTP/1.1\r\nHost: t\r\n\r\n", b"GET /livez\x01 HTTP/1.1\r\nHost: t\r\n\r\n",
        b"\x16\x03\x01" + noise(rng, 60), b"\x00" * rng.randrange(1, 60), b"{\"model\": \"m\"}\r\n\r\n"])


def bad_target(rng):
    target = rng.choice(["livez", "%", "/%", "/%4", "/%zz", "/%00", "ftp://x/", "/a#b", "//%G1"])
    return http("GET", target)


def bad_header(rng):
    line = rng.choice([b"No colon here", b": no name", b"Bad Name: x", b"Bad\x00: x", b"X: a\x00b", b"X\t: y", b"(x): y",
                       b"X: \x01\x02", b"Host: again", b"Expect: the unexpected"])
    return b"GET /livez HTTP/1.1\r\nHost: t\r\n" + line + b"\r\n\r\n"


def missing_host(rng):
    return b"GET /livez HTTP/1.1\r\nX-%d: y\r\n\r\n" % rng.randrange(1000)


def long_header(rng):
    size = rng.randrange(40_000, 200_000)
    return rng.choice([http("GET", "/livez", headers=[("X", "y" * size)]), b"GET /" + b"a" * size,
                       http("GET", "/livez", headers=[("X-%d" % i, "v" * 20) for i in range(size // 20)])])


def bad_length(rng):
    post = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
    return post + rng.choice([
        b"Content-Length: -1\r\n\r\n", b"Content-Length: abc\r\n\r\n", b"Content-Length: 1e3\r\n\r\n", b"Content-Length: 0x10\r\n\r\n",
        b"Content-Length: 99999999999999999999999\r\n\r\n", b"Content-Length: %d\r\n\r\n" % rng.randrange(2_000_000, 1 << 60),
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"Content-Length: 2, 3\r\n\r\n{}",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n"])


def bad_chunk(rng):
    post = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return post + rng.choice([
        b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"2\r\n{}XX0\r\n\r\n", b"ffffffffffffffffff\r\n", b"\r\n\r\n",
        b"2;" + b"e" * 80_000 + b"\r\n{}\r\n0\r\n\r\n", b"1e8480\r\n" + b"x" * 2_000_000 + b"\r\n0\r\n\r\n"])


def wrong_place(rng):
    path = rng.choice(["/", "/v1", "/v2/completions", "/v1/completions/x", "/admin", "/../etc/passwd", "/%2e%2e/", "/v1/models/none"])
    return rng.choice([http("GET", path), http(rng.choice(["PUT", "DELETE", "PATCH", "BREW", "GET"]), rng.choice(POSTS)),
                       http("POST", "/livez", b"{}"), http("DELETE", "/v1/models")])


def wrong_type(rng):
    kind = rng.choice(["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "", "multipart/form-data; boundary=x"])
    body = json.dumps({"model": "m", "prompt": "p"}).encode()
    head = "POST %s HTTP/1.1\r\nHost: t\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (rng.choice(POSTS), kind, len(body))
    return head.encode() + body


# ---- the body ----

def bad_json(rng):
    body = rng.choice([
        b"{", b"}", b"[", b"nul", b"{\"a\":}", b"{'model':'m'}", b"{\"model\":\"m\",}", b"\"text\"", b"[1,2]", b"12", b"true",
        b"{\"model\":\"m\"} x", b"{\"model\":\"\xff\xfe\"}", b"{\"model\":\"\xed\xa0\x80\"}", b"{\"model\":\"\\ud800\"}", b"{\"model\":\"\x01\"}",
        b"{\"n\":NaN}", b"{\"n\":Infinity}", b"{\"n\":1e999}", b"{\"n\":01}", b"\xef\xbb\xbf\xef\xbb\xbf{}", b"[" * rng.randrange(65, 100_000),
        b"{\"a\":" * rng.randrange(65, 50_000), noise(rng, rng.randrange(1, 200), b"{}[]\",:\\u0tfn") + b"\x00"])
    return http("POST", rng.choice(POSTS), body)


def cut_json(rng):
    body = json.dumps({"model": "m", "messages": MESSAGES, "prompt": "p", "tokens": [1]}).encode()
    return http("POST", rng.choice(POSTS), body[:rng.randrange(1, len(body))])


def bad_field(rng):
    junk = rng.choice(["x", -7, 1e300, {}, [[]], [None], True, 3.5, {"a": [1]}])
    numbers = [("temperature", rng.choice([-1, 2.5, "hot", [], True])), ("top_p", rng.choice([-0.1, 1.1, "x"])),
               ("n", rng.choice([0, -1, 10 ** 6, 1.5, "1", True])), ("seed", rng.choice(["x", 1.5, {}, 1e300])),
               ("presence_penalty", rng.choice([-2.1, 2.1, "x"])), ("frequency_penalty", rng.choice([-9, 9, []])),
               ("stop", rng.choice([1, [1], [""], ["a"] * 99, {"a": 1}])), ("stream", rng.choice([1, "true", []])),
               ("logit_bias", rng.choice([[1], {"x": 1}, {"1": 999}, {"-1": 1}])), ("stream_options", {"include_usage": True}),
               ("min_p", rng.choice([-1, 2])), ("top_k", rng.choice([-2, "x", 1.5])), ("stop_token_ids", rng.choice([5, ["a"], [-1]])),
               ("repetition_penalty", rng.choice([0, -1, "x"])), ("user", 5), ("model", rng.choice([5, [], "unknown", "", "../m"])),
               ("response_format", {"type": "json_object"}), ("guided_regex", "a+"), ("max_tokens", rng.choice([-1, 1.5, "x", 10 ** 9, 10 ** 30]))]
    name, value = rng.choice(numbers)
    if rng.random() < 0.5:
        body = {"model": "m", "prompt": "p"}
        if rng.random() < 0.4:
            name, value = rng.choice([("prompt", rng.choice([5, {}, [], [[]], ["a", 1], [1, "a"], [-1], [99999], [1.5], None, True])),
                                      ("logprobs", rng.choice([-1, 21, True, "x"])), ("echo", "x"), ("suffix", "s"), ("best_of", 129)])
        path = "/v1/completions"
    else:
        body = {"model": "m", "messages": MESSAGES}
        if rng.random() < 0.6:
            name, value = rng.choice([("messages", rng.choice([[], {}, "hi", None, [junk], [{"role": "user"}], [{"role": 5, "content": "x"}]])),
                                      ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
                                      ("messages", [{"role": "wizard", "content": "x"}]), ("tools", rng.choice([5, [5], {}, [{"type": "x"}]])),
                                      ("tool_choice", "required"), ("top_logprobs", 3), ("logprobs", "x"), ("functions", [{"name": "f"}])])
        path = "/v1/chat/completions"
    body[name] = value
    return http("POST", path, json.dumps(body).encode())


def bad_tokenize(rng):
    path, body = rng.choice([
        ("/tokenize", {}), ("/tokenize", {"prompt": 5}), ("/tokenize", {"prompt": "a", "model": "unknown"}),
        ("/tokenize", {"messages": []}), ("/tokenize", {"prompt": "a", "add_special_tokens": "x"}), ("/detokenize", {}),
        ("/detokenize", {"tokens": "a"}), ("/detokenize", {"tokens": [-1]}), ("/detokenize", {"tokens": [1.5]}),
        ("/detokenize", {"tokens": [10 ** 12]}), ("/detokenize", {"tokens": [[1]]})])
    return http("POST", path, json.dumps(body).encode())


GENERATORS = (bad_request_line, bad_target, bad_header, missing_host, long_header, bad_length, bad_chunk, wrong_place, wrong_type,
              bad_json, cut_json, bad_field, bad_field, bad_field, bad_tokenize)


def mutated(rng):
    """A valid request with some bytes changed; it may still be valid."""
    request = bytearray(http("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "hello", "max_tokens": 3}).encode()))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(request))
        action = rng.randrange(3)
        if action == 0:
            request[at] = rng.randrange(256)
        elif action == 1:
            del request[at]
        else:
            request.insert(at, rng.randrange(256))
    return bytes(request)
