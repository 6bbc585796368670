"""Whether a Ray cluster listens at an address, answered within seconds.

It guards `ray.init`, which waits for minutes where nobody listens at HOST:PORT, or another program
does, most often Ray's own dashboard, whose address is the one that a browser shows. Ray has no
public call that asks, and an open port alone does not tell the dashboard from the cluster. The
cluster speaks gRPC, so HTTP/2, whose servers send a SETTINGS frame first (RFC 9113, section 3.4);
the dashboard speaks HTTP/1.1. So one greeting by hand tells them apart: a client for HTTP/2 would
be a library more to install for these few lines."""

from __future__ import annotations

import os
import socket

TIMEOUT = 10.0  # seconds to reach an address
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # a client's first bytes (RFC 9113, section 3.4)
SETTINGS = 4  # the type of a frame (RFC 9113, section 6.5)
# A frame begins with its length (3 bytes), its type (1), flags (1) and the number of a stream (4).
EMPTY_SETTINGS = bytes((0, 0, 0, SETTINGS, 0, 0, 0, 0, 0))


def check_cluster(address: str) -> None:
    """OSError where nobody listens at HOST:PORT, or who listens is no Ray cluster. Addresses of
    another form ("auto", "local") are not looked at; where connections are encrypted
    (RAY_USE_TLS), only whether somebody listens is."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and "/" not in host):
        return
    with socket.create_connection((host, int(port)), TIMEOUT) as connection:
        if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
            return
        connection.sendall(PREFACE + EMPTY_SETTINGS)
        answer = b""
        while len(answer) < 4 and (more := connection.recv(4 - len(answer))):
            answer += more
        if answer[3:] != bytes((SETTINGS,)):
            raise OSError("no Ray cluster listens there")
