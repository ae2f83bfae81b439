"""A hub on this machine that answers one question: what files does a model or data set have?"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], dict[str, object]]
"""Status, headers, body."""
NOT_FOUND: Answer = (404, {"X-Error-Code": "RepoNotFound"}, {})
GATED: Answer = (403, {"X-Error-Code": "GatedRepo"}, {})
BROKEN: Answer = (503, {}, {})


def with_files(name: str, *files: str) -> Answer:
    """The hub's answer for a repository that holds these files."""
    return 200, {}, {"id": name, "sha": "0" * 40, "siblings": [{"rfilename": file} for file in files]}


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Address of a server that gives one answer to everything."""
    status, headers, body = answer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            for key, value in {**headers, "Content-Type": "application/json", "Content-Length": len(content)}.items():
                self.send_header(key, str(value))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
