"""A web server with a worker beside it that leaves well. Standard library only, Python 3.9 or newer.

GET / answers "ok"; GET /MS takes so many milliseconds for it; GET /ready is for the readiness probe.
"""

import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# How long connections that were kept alive may bring one more request after TERM.
LINGER_MOST = 5
# How long what is under way may take after that. Together less than terminationGracePeriodSeconds (30).
DRAIN_MOST = 20
# How long a request may ask the server to take.
REQUEST_MOST = 10

leaving = threading.Event()


def say(text):
    # One write for a line: several threads speak.
    print(f"{time.strftime('%H:%M:%S')} {text}\n", end="", flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60  # of an idle connection
    wbufsize = -1  # an answer leaves in one piece

    def do_GET(self):
        ready = self.path != "/ready" or not leaving.is_set()
        if self.path[1:].isdecimal():
            time.sleep(min(int(self.path[1:6]) / 1000, REQUEST_MOST))
        body = b"ok" if ready else b"leaving"
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        # Looked at after the work: TERM may have come meanwhile. Whoever asked for the end of the connection is told of it, too.
        if leaving.is_set() or self.close_connection:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    # With daemon threads the process would end in the middle of an answer.
    daemon_threads = False
    # server_close() waits for threads without a deadline; main does that, with one.
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address):
        super().__init__(address, Handler)
        self.open = set()
        self.changed = threading.Condition()

    def process_request(self, request, client_address):
        with self.changed:
            self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        super().shutdown_request(request)
        with self.changed:
            self.open.discard(request)
            self.changed.notify_all()

    def wait_for_connections(self, seconds):
        with self.changed:
            return self.changed.wait_for(lambda: not self.open, seconds)


def work():
    """Does one item after another, and looks whether it is asked to leave between two, never in the middle of one."""
    item = 0
    while not leaving.is_set():
        item += 1
        say(f"item {item} begun")
        time.sleep(0.7)
        say(f"item {item} finished")
        leaving.wait(1)


def main():
    # No handler: a handler runs in the midst of whatever the main thread does, sys.exit() in it raises SystemExit there, and
    # any `except BaseException` or `finally: return` on the way swallows it. Blocked and waited for, TERM is a line of main.
    # Threads inherit the mask, so it is set before the first of them.
    asked = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)

    server = Server(("", 8080))
    # In a thread: server.shutdown() waits for serve_forever() to return, and both in one thread wait for ever.
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    worker = threading.Thread(target=work)
    serving.start()
    worker.start()
    say("ready")

    signal.sigwait(asked)
    # Whoever sends a second TERM means it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, asked)
    leaving.set()
    say(f"asked to leave: {len(server.open)} connections are open")

    # From now on every answer says "Connection: close", and clients hang up by themselves.
    server.wait_for_connections(LINGER_MOST)
    server.shutdown()
    server.server_close()
    deadline = time.monotonic() + DRAIN_MOST
    with server.changed:
        idle = list(server.open)
    for request in idle:
        try:
            request.shutdown(0)  # SHUT_RD: whoever waits for a request hears the end; an answer under way goes on
        except OSError:
            pass  # it has ended by itself
    answered = server.wait_for_connections(deadline - time.monotonic())
    worker.join(max(0, deadline - time.monotonic()))
    if answered and not worker.is_alive():
        say("left: every request is answered, the worker has finished")
    else:
        say("left: something is cut off")


if __name__ == "__main__":
    main()
