"""Plays the system manager to a real logind on a bus of its own, with nothing but sockets: says that every unit is there, and
tells when logind has it started. A line on standard input is a method of logind to call: "Reboot" asks for a reboot; or
"cancel": what was started last is cancelled, as by `systemctl cancel`."""

import os
import socket
import struct
import sys
import threading

LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")


def pad(data, to):
    return data + b"\0" * (-len(data) % to)


def text(data, words):
    return pad(data, 4) + struct.pack("<I", len(words)) + words.encode() + b"\0"


def field(fields, code, kind, value):
    fields = pad(fields, 8) + bytes([code, 1, ord(kind), 0])
    if kind == "u":
        return pad(fields, 4) + struct.pack("<I", value)
    if kind == "g":
        return fields + bytes([len(value)]) + value.encode() + b"\0"
    return text(fields, value)


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.serial = 0
        self.lock = threading.Lock()
        self.socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
        assert self.socket.recv(4096).startswith(b"OK")
        self.socket.sendall(b"BEGIN\r\n")
        self.file = self.socket.makefile("rb")

    def send(self, kind, fields, signature="", body=b""):
        with self.lock:
            self.serial += 1
            if signature:
                fields = field(fields, 8, "g", signature)
            head = struct.pack("<cBBBIII", b"l", kind, 0, 1, len(body), self.serial, len(fields))
            self.socket.sendall(pad(head + fields, 8) + body)

    def call(self, whom, member, signature="", body=b""):
        fields = field(b"", 1, "o", whom[1])
        fields = field(fields, 2, "s", whom[2])
        fields = field(fields, 3, "s", member)
        self.send(1, field(fields, 6, "s", whom[0]), signature, body)

    def signal(self, who, member, signature, body):
        fields = field(b"", 1, "o", who[1])
        fields = field(fields, 2, "s", who[2])
        self.send(4, field(fields, 3, "s", member), signature, body)

    def answer(self, message, signature, body):
        if not message["wants answer"]:
            return
        fields = field(b"", 5, "u", message["serial"])
        self.send(2, field(fields, 6, "s", message[7]), signature, body)

    def read(self):
        head = self.file.read(16)
        if not head:
            # The bus is gone, and with it everyone to play to.
            sys.exit()
        _, kind, flags, _, length, serial, fields_length = struct.unpack("<cBBBIII", head)
        data = self.file.read(len(pad(head + b"\0" * fields_length, 8)) - 16)
        message, at = {"kind": kind, "serial": serial, "wants answer": not flags & 1}, 0
        while at < fields_length:
            at += -at % 8
            code, letter = data[at], chr(data[at + 2])
            at += 4
            if letter == "g":
                message[code] = data[at + 1 : at + 1 + data[at]].decode()
                at += data[at] + 2
            else:
                at += -at % 4
                (value,) = struct.unpack_from("<I", data, at)
                at += 4
                if letter != "u":
                    message[code] = data[at : at + value].decode()
                    at += value + 1
        message["body"] = self.file.read(length)
        return message


def first_word(body):
    (length,) = struct.unpack_from("<I", body)
    return body[4 : 4 + length].decode()


def main():
    bus = Connection(sys.argv[1])
    bus.call(BUS, "Hello")
    name = text(b"", "org.freedesktop.systemd1") + b""
    bus.call(BUS, "RequestName", "su", pad(name, 4) + struct.pack("<I", 4))
    rule = "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='org.freedesktop.login1'"
    bus.call(BUS, "AddMatch", "s", text(b"", rule))

    jobs = []

    def cancel():
        number, job, unit = len(jobs), f"/org/freedesktop/systemd1/job/{len(jobs)}", jobs[-1]
        body = text(text(text(struct.pack("<I", number), job), unit), "canceled")
        bus.signal(MANAGER, "JobRemoved", "uoss", body)

    def obey():
        for line in sys.stdin:
            if line.strip() == "cancel":
                cancel()
                continue
            bus.call(LOGIND, line.strip(), "b", struct.pack("<I", 0))

    threading.Thread(target=obey, daemon=True).start()
    print("ready", flush=True)
    while True:
        message = bus.read()
        member = message.get(3)
        if member == "NameOwnerChanged":
            print("logind is there", flush=True)
        elif message["kind"] == 3:
            print("error", message.get(4), message["body"], flush=True)
        elif message["kind"] == 1 and member == "Get":
            # A variant that holds a text.
            bus.answer(message, "v", pad(b"\x01s\0", 4) + text(b"", "loaded"))
        elif message["kind"] == 1 and member == "StartUnit":
            jobs.append(first_word(message["body"]))
            bus.answer(message, "o", text(b"", f"/org/freedesktop/systemd1/job/{len(jobs)}"))
            print("start", jobs[-1], flush=True)
        elif message["kind"] == 1:
            bus.answer(message, "", b"")


main()
