#!/bin/sh
# wrapper.sh PROGRAM [ARGUMENTS]: process 1 of a container that prepares, runs a program, passes the stop signal on to it, waits for
# its end, and cleans up. Its exit code is the program's. For dash, busybox and bash.
#
# Without anything to clean up there is no need for it: end the script with `exec PROGRAM`.
set -u
child=
status=0
asked=

# TERM and not SIGTERM: dash knows no other name. STOP_SIGNAL is what the program understands; nginx, for one, drops what it is doing
# at TERM and finishes it at QUIT.
ask_to_leave() {
    asked=yes
    [ -z "$child" ] || kill -s "${STOP_SIGNAL:-TERM}" "$child" 2>/dev/null
}

# To standard error, like nginx: lines of two streams may change places in a log.
say() {
    echo "wrapper: $*" >&2
}

prepare() {
    say "prepared"
}

clean_up() {
    say "cleaned up after exit code $status"
}

# Before the program starts: a signal between its start and the trap would be lost, for process 1 has no default for it.
trap ask_to_leave TERM INT
prepare
# In the background: a trap waits until the command in the foreground has ended, and that is what was asked to end.
"$@" &
child=$!
# Asked before there was anybody to ask.
[ -z "$asked" ] || ask_to_leave

# `wait` returns as soon as a trap has run, with 128 + the signal, while the program is still at work. Process 1 that exits then takes
# every other process of the container with it. So: again, until the program is gone. Orphans are reaped by the same `wait`.
while :; do
    wait "$child"
    status=$?
    kill -0 "$child" 2>/dev/null || break
done

clean_up
exit "$status"
