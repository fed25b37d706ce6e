#!/usr/bin/env python3
"""500 malformed HTTP requests get a 4xx each, in OpenAI's shape; 300 mutated ones get an answer or a closed connection. The
router goes on serving all the while and does not grow."""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import generators  # noqa: E402

SEED, MALFORMED, MUTATED = 20260, 500, 300
TIMEOUT_S = 60


def write_model(folder):
    """A model folder with one token per byte."""
    letters, extra = {}, 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
            letters[chr(byte)] = byte
        else:
            letters[chr(256 + extra)] = byte
            extra += 1
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}
    files = {"tokenizer.json": {"added_tokens": [], "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                                "model": {"type": "BPE", "vocab": letters, "merges": []}},
             "tokenizer_config.json": {"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"},
             "config.json": {"max_position_embeddings": 1024, "vocab_size": 256, "eos_token_id": 0}}
    os.makedirs(folder)
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(content, out)
    return folder


def start(binary, folder):
    port_file = os.path.join(folder, "port")
    log = open(os.path.join(folder, "router.log"), "wb")
    process = subprocess.Popen([binary, "--model=m=" + write_model(os.path.join(folder, "m")), "--port=0", "--port-file=" + port_file,
                                "--orchestrator=127.0.0.1:1", "--max-body-bytes=1000000"], stdout=log, stderr=log)
    limit = time.monotonic() + TIMEOUT_S
    while not (os.path.exists(port_file) and os.path.getsize(port_file) > 0):
        assert process.poll() is None and time.monotonic() < limit, open(log.name).read()
        time.sleep(0.02)
    return process, int(open(port_file).read())


def exchange(port, request):
    """Everything the router sends back; the client reads before it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as s:
        try:
            s.sendall(request)
            s.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before it was sent completely
        return receive(s)


def receive(s):
    answer = b""
    try:
        while True:
            piece = s.recv(65536)
            if not piece:
                return answer
            answer += piece
    except ConnectionResetError:
        return answer


def status_of(answer):
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


def ask(port, request):
    """The first answer to a request whose client stays connected; half-closing would count as leaving."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as s:
        try:
            s.sendall(request)
        except OSError:
            pass
        answer = b""
        while b"\r\n\r\n" not in answer:
            try:
                piece = s.recv(65536)
            except ConnectionResetError:
                return answer
            if not piece:
                return answer
            answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")))
        while len(body) < length:
            body += s.recv(65536)
        return head + b"\r\n\r\n" + body


def complete(generator, request):
    """Whether the router detects the fault without waiting for more bytes."""
    return generator not in (generators.bad_request_line, generators.bad_length, generators.bad_chunk, generators.long_header)


def rss_kib(pid):
    for line in open("/proc/%d/status" % pid, encoding="utf-8"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def check_malformed(port, process):
    rng, failures, counts = random.Random(SEED), [], {}
    for i in range(MALFORMED):
        generator = generators.GENERATORS[i % len(generators.GENERATORS)]
        request = generator(rng)
        # An incomplete head is recognised only when the client sends nothing more.
        answer = ask(port, request) if complete(generator, request) else exchange(port, request)
        status = status_of(answer)
        counts[status] = counts.get(status, 0) + 1
        if not 400 <= status < 500:
            failures.append("%s: %d for %r" % (generator.__name__, status, request[:300]))
        elif b'{"error":{"message":' not in answer:
            failures.append("%s: no error object: %r" % (generator.__name__, answer[:300]))
        assert process.poll() is None, "the router died of %r" % request[:1000]
    assert not failures, "\n".join(failures[:20])
    return counts


def check_mutated(port, process):
    rng = random.Random(SEED + 1)
    for _ in range(MUTATED):
        request = generators.mutated(rng)
        exchange(port, request)
        assert process.poll() is None, "the router died of %r" % request


def main():
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    process, port = start(os.path.abspath(sys.argv[1]), folder)
    try:
        counts = check_malformed(port, process)
        before = rss_kib(process.pid)
        check_mutated(port, process)
        assert status_of(ask(port, generators.http("GET", "/livez"))) == 200
        assert status_of(ask(port, generators.http("POST", "/tokenize", b'{"prompt":"a"}'))) == 200
        grown = rss_kib(process.pid) - before
        assert grown < 32 * 1024, "grew by %d KiB" % grown
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
        print("answers by status:", dict(sorted(counts.items())))
    finally:
        if process.poll() is None:
            process.kill()


if __name__ == "__main__":
    main()
