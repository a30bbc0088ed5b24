"""A scripted OpenAI-compatible server, as a process of its own: ``python -m tests.llm_server PORT_FILE``.

``POST /script`` sets what the next calls get: ``[{"kind": "ok"|"slow"|"429"|"500"|"401"|"truncated"|"schema"|
"refusal"|"empty"|"error_body"|"hang"|"drip"|"html"|"no_schema"|"fenced", "times": n, "seconds": s}]``; after the
script every call is ``ok``. ``match`` limits an entry to prompts that hold that text, and it is then kept for ever
unless ``times`` is given. ``GET /calls`` lists the calls with their prompts; ``DELETE /calls`` forgets them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.script: list[dict] = []
        self.calls: list[dict] = []
        self.latency = 0.0
        self.in_flight = 0
        self.most_in_flight = 0

    def next(self, prompt: str) -> dict:
        with self.lock:
            for entry in self.script:
                if entry.get("match") and entry["match"] not in prompt:
                    continue
                if entry.get("match") and "times" not in entry:
                    return entry
                entry["times"] = entry.get("times", 1) - 1
                if entry["times"] <= 0:
                    self.script.remove(entry)
                return entry
        return {"kind": "ok"}


STATE = State()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        if self.path == "/calls":
            with STATE.lock:
                self.send(200, {"calls": STATE.calls, "most_in_flight": STATE.most_in_flight})
        else:
            self.send(200, {"data": [{"id": "scripted"}]})

    def do_DELETE(self) -> None:
        with STATE.lock:
            STATE.calls.clear()
            STATE.most_in_flight = 0
        self.send(200, {})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(raw)
        if self.path == "/script":
            with STATE.lock:
                STATE.script = request["script"]
                STATE.latency = request.get("latency", STATE.latency)
            self.send(200, {})
            return
        prompt = "\n".join(m["content"] for m in request["messages"])
        entry = STATE.next(prompt)
        with STATE.lock:
            STATE.calls.append(
                {"at": time.time(), "kind": entry["kind"], "request": request, "messages": len(request["messages"])}
            )
            STATE.in_flight += 1
            STATE.most_in_flight = max(STATE.most_in_flight, STATE.in_flight)
        try:
            time.sleep(STATE.latency)
            getattr(self, f"answer_{entry['kind']}")(request, entry)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with STATE.lock:
                STATE.in_flight -= 1

    def answer_ok(self, request: dict, _entry: dict) -> None:
        self.chat(json.dumps(answer_to(request), ensure_ascii=False), request)

    def answer_slow(self, request: dict, entry: dict) -> None:
        time.sleep(entry["seconds"])
        self.answer_ok(request, entry)

    def answer_hang(self, _request: dict, entry: dict) -> None:
        time.sleep(entry.get("seconds", 30))
        self.close_connection = True

    def answer_drip(self, _request: dict, entry: dict) -> None:
        """A byte a while: no single read ever times out."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "10000")
        self.end_headers()
        for _ in range(int(entry.get("seconds", 10) / 0.1)):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.1)
        self.close_connection = True

    def answer_429(self, _request: dict, entry: dict) -> None:
        self.send(429, {"error": {"message": "slow down"}}, {"Retry-After": str(entry.get("seconds", 1))})

    def answer_500(self, _request: dict, _entry: dict) -> None:
        self.send(500, {"error": {"message": "boom"}})

    def answer_401(self, _request: dict, _entry: dict) -> None:
        self.send(401, {"error": {"message": "bad key"}})

    def answer_400(self, _request: dict, _entry: dict) -> None:
        self.send(400, {"error": {"message": "context too long"}})

    def answer_truncated(self, request: dict, _entry: dict) -> None:
        whole = json.dumps(answer_to(request), ensure_ascii=False)
        self.chat(whole[: len(whole) // 2], request, finish="length")

    def answer_schema(self, request: dict, _entry: dict) -> None:
        self.chat('{"label": "x"}', request)

    def answer_say(self, request: dict, entry: dict) -> None:
        self.chat(entry["text"], request)

    def answer_fenced(self, request: dict, _entry: dict) -> None:
        body = json.dumps(answer_to(request), ensure_ascii=False)
        self.chat(f"<think>a {{ brace</think>\n```json\n{body}\n```", request)

    def answer_refusal(self, request: dict, _entry: dict) -> None:
        self.chat(None, request, refusal="I cannot help with that")

    def answer_empty(self, request: dict, _entry: dict) -> None:
        self.chat("", request)

    def answer_error_body(self, _request: dict, entry: dict) -> None:
        self.send(200, {"error": {"message": "upstream failed", "code": entry.get("code", 502)}})

    def answer_html(self, _request: dict, _entry: dict) -> None:
        self.raw(200, b"<html>login</html>", "text/html")

    def answer_no_schema(self, request: dict, entry: dict) -> None:
        if "response_format" in request:
            self.send(400, {"error": {"message": "response_format is not supported"}})
        else:
            self.answer_ok(request, entry)

    def answer_no_bounds(self, request: dict, entry: dict) -> None:
        if "maxItems" in json.dumps(request["response_format"]):
            self.send(400, {"error": {"message": "Invalid schema: 'maxItems' is not permitted"}})
        else:
            self.answer_ok(request, entry)

    def chat(self, content: str | None, request: dict, *, finish: str = "stop", refusal: str | None = None) -> None:
        message = {"role": "assistant", "content": content, "refusal": refusal}
        self.send(
            200,
            {
                "id": "c",
                "object": "chat.completion",
                "created": 0,
                "model": request["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
            },
        )

    def send(self, status: int, body: dict, headers: dict[str, str] | None = None) -> None:
        self.raw(status, json.dumps(body).encode(), "application/json", headers)

    def raw(self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def answer_to(request: dict) -> dict:
    """A valid answer that depends on the input, in its language, so that tests see which input it came from."""
    user = request["messages"][1]["content"]
    mark = hashlib.sha256(user.encode()).hexdigest()[:8]
    chinese = any("\u4e00" <= c <= "\u9fff" for c in user)
    if "<domain" in user:
        return {
            "description": f"领域摘要 {mark}" if chinese else f"domain summary {mark}",
            "when_to_retrieve": f"用户询问 {mark}" if chinese else f"questions about {mark}",
        }
    return {
        "covers": [f"场景 {mark}", "支付超时"] if chinese else [f"case {mark}", "timeouts"],
        "when_to_retrieve": f"用户遇到 {mark}" if chinese else f"a user meets {mark}",
    }


def main() -> None:
    """Serves on a free port and writes the port to the file named on the command line."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    path = Path(sys.argv[1])
    path.with_suffix(".new").write_text(str(server.server_port))
    os.replace(path.with_suffix(".new"), path)
    server.serve_forever()


if __name__ == "__main__":
    main()
