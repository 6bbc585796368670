"""Quick check for a Ray cluster at an address.

It guards `ray.init`, which waits for minutes if nothing listens at HOST:PORT, or if another program
does, most often Ray's own dashboard, whose address is shown in the browser. Ray has no public call
for this check, and an open port does not distinguish the dashboard from the cluster. The cluster
speaks gRPC, thus HTTP/2, whose servers first send a SETTINGS frame (RFC 9113, section 3.4); the
dashboard speaks HTTP/1.1. A handwritten handshake therefore distinguishes them, without another
dependency for an HTTP/2 client.
"""

from __future__ import annotations

import os
import socket

TIMEOUT = 10.0  # seconds to connect
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # a client's first bytes (RFC 9113, section 3.4)
SETTINGS = 4  # type of a frame (RFC 9113, section 6.5)
# Header of a frame: length (3 bytes), type (1), flags (1) and stream number (4).
EMPTY_SETTINGS = bytes((0, 0, 0, SETTINGS, 0, 0, 0, 0, 0))


def check_cluster(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT, or if it is not a Ray cluster. Other forms of
    addresses ("auto", "local") are not checked. With encrypted connections (RAY_USE_TLS), only the
    port is checked."""
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
