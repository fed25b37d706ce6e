"""An open-loop client of many streams: each request leaves at its time, whatever became of the others.

Only Python's standard library. A request is an HTTP/1.1 connection of its own to /v1/completions, streamed, with a prompt
of token ids.
"""
import asyncio
import dataclasses
import json
import math
import os
import random
import time
from typing import List, Optional


@dataclasses.dataclass
class Request:
    at_s: float
    prompt_tokens: int
    output_tokens: int
    seed: int = 0
    cancel_after_s: Optional[float] = None  # drop the connection so long after it was sent
    key: str = ""  # API key


@dataclasses.dataclass
class Outcome:
    request: Request
    ttft_s: Optional[float] = None  # from the moment at which it should have left
    end_s: Optional[float] = None
    tokens: List[int] = dataclasses.field(default_factory=list)
    ends: int = 0                   # finish reasons seen
    cancelled: bool = False
    error: str = ""
    id: str = ""                    # of the response
    late_s: float = 0.0             # how long after its time it left
    times_s: List[float] = dataclasses.field(default_factory=list)  # of the tokens, from when it should have left

    @property
    def whole(self):
        return not self.error and self.ends == 1 and len(self.tokens) == self.request.output_tokens


def prompt_of(request, vocab):
    """A few random ids, repeated: no two requests have the same prompt."""
    draw = random.Random(request.seed)
    some = [draw.randrange(vocab) for _ in range(61)]
    return (some * (request.prompt_tokens // 61 + 1))[:request.prompt_tokens]


def whole_tokens(tokenizer):
    """The ids of the tokens that are ASCII text, of byte-level BPE in the folder `tokenizer`. A client gets such a one at once; the
    router keeps one that ends within a character, and sends it with the next."""
    with open(os.path.join(tokenizer, "tokenizer.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)["model"]["vocab"]
    return {token for text, token in vocabulary.items() if all(33 <= ord(c) <= 126 or 256 <= ord(c) <= 289 for c in text)}


def body_of(model, request, vocab):
    return json.dumps({"model": model, "prompt": prompt_of(request, vocab), "max_tokens": request.output_tokens,
                       "ignore_eos": True, "temperature": 0, "return_token_ids": True, "stream": True}, separators=(",", ":")).encode()


async def events(reader):
    """The data of the server-sent events of a chunked answer."""
    pending = b""
    while True:
        size = int((await reader.readline()).strip() or b"0", 16)
        if size == 0:
            return
        pending += await reader.readexactly(size)
        await reader.readexactly(2)
        while b"\n\n" in pending:
            event, pending = pending.split(b"\n\n", 1)
            if event.startswith(b"data: "):
                yield event[6:]


async def read_answer(reader, outcome, due):
    status = (await reader.readline()).split()
    while (await reader.readline()).strip():
        pass
    if len(status) < 2 or status[1] != b"200":
        outcome.error = "HTTP %s %s" % (status[1:2], (await reader.read(300))[:300])
        return
    async for data in events(reader):
        if data == b"[DONE]":
            outcome.end_s = time.monotonic() - due
            return
        message = json.loads(data)
        if "error" in message:
            outcome.error = str(message["error"])
            continue
        outcome.id = message.get("id", outcome.id)
        for choice in message["choices"]:
            if choice.get("token_ids") and outcome.ttft_s is None:
                outcome.ttft_s = time.monotonic() - due
            outcome.tokens += choice.get("token_ids") or []
            outcome.times_s += [time.monotonic() - due] * (len(outcome.tokens) - len(outcome.times_s))
            outcome.ends += choice.get("finish_reason") is not None
    outcome.error = outcome.error or "the stream ended without [DONE]"


async def send(host, port, body, request, start):
    outcome = Outcome(request)
    due = start + request.at_s
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    outcome.late_s = max(0.0, time.monotonic() - due)
    writer = None
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
        key = b"Authorization: Bearer %s\r\n" % request.key.encode() if request.key else b""
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                     b"%sContent-Length: %d\r\n\r\n" % (key, len(body)) + body)
        await writer.drain()
        await asyncio.wait_for(read_answer(reader, outcome, due), request.cancel_after_s)
    except asyncio.TimeoutError:
        outcome.cancelled = True
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        outcome.error = repr(error)
    finally:
        if writer is not None:
            writer.close()
    return outcome


def replay(url, model, requests, vocab, limit_s):
    """All outcomes, in the order of the requests. Those that have not ended after limit_s are errors."""
    host, port = url[len("http://"):].split(":")
    bodies = [body_of(model, request, vocab) for request in requests]

    async def run():
        start = time.monotonic() + 0.2
        tasks = [asyncio.ensure_future(send(host, int(port), body, request, start))
                 for body, request in zip(bodies, requests)]
        await asyncio.wait(tasks, timeout=limit_s)
        outcomes = []
        for task, request in zip(tasks, requests):
            if task.done():
                outcomes.append(task.result())
            else:
                task.cancel()
                outcomes.append(Outcome(request, error="no end within %d s" % limit_s))
        await asyncio.gather(*tasks, return_exceptions=True)
        return outcomes
    return asyncio.run(run())


def percentile(values, share):
    """Nearest rank, as in skeinctl simulate."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
