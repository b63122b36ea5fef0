# Run as the first process of a container, or as an exec in it: shows all it can see of itself.
section() { echo "== $1"; }
for file in status limits mountinfo stat oom_score_adj uid_map gid_map cgroup coredump_filter timerslack_ns personality; do
    section $file
    cat /proc/$$/$file 2>&1
done
section environ; busybox tr '\0' '\n' </proc/$$/environ
section cwd; readlink /proc/$$/cwd
section umask; umask
section hostname; hostname
section ns; for name in cgroup ipc mnt net pid time user uts; do echo "$name $(readlink /proc/$$/ns/$name)"; done
section fd; for fd in /proc/$$/fd/*; do [ -e $fd ] || [ -L $fd ] && echo "${fd##*/} $(readlink $fd)"; done
section null; for fd in 0 1 2; do [ "$(busybox stat -L -c %d:%i /proc/$$/fd/$fd)" = "$(busybox stat -c %d:%i /dev/null)" ] && echo "$fd"; done
section dev; busybox find /dev -mindepth 1 -maxdepth 1 | sort | while read -r path; do
    if [ -L $path ]; then echo "$path link to $(readlink $path)"
    else echo "$path $(busybox stat -c '%F %a %u:%g %t:%T' $path)"; fi
done
section sysctl; for name in net/ipv4/ip_unprivileged_port_start net/ipv4/ping_group_range; do echo "$name $(cat /proc/sys/$name | busybox tr '\t' ' ')"; done
attempt() {
    name=$1; shift
    if why=$( ("$@") 2>&1 >/dev/null); then echo "$name: done"
    else echo "$name: $(echo "$why" | busybox sed 's/.*: //' | head -n 1)"; fi
}
# Opened to be written, and left as it is.
write() { : >>"$1"; }
section attempts
attempt "write /proc/sys/vm/swappiness" write /proc/sys/vm/swappiness
attempt "write /proc/sys/net/ipv4/ip_forward" write /proc/sys/net/ipv4/ip_forward
attempt "write /proc/sysrq-trigger" write /proc/sysrq-trigger
attempt "list /proc/acpi" sh -c 'ls /proc/acpi | grep .'
attempt "read /proc/kcore" sh -c 'head -c 1 /proc/kcore | grep .'
attempt "read /proc/timer_list" sh -c 'head -c 1 /proc/timer_list | grep .'
attempt "list /sys/firmware" sh -c 'ls /sys/firmware | grep .'
attempt "write in /sys" mkdir /sys/kernel/new
attempt "write in /" touch /new
attempt "write in /tmp" touch /tmp/new
attempt "write in /dev" touch /dev/new
attempt "write in /volume" touch /volume/new
attempt "write in /volume-ro" touch /volume-ro/new
attempt "mount" mount -t tmpfs none /tmp
attempt "hostname" hostname other
rm -f /volume/disk /volume/memory
attempt "make a block device" mknod /volume/disk b 7 0
attempt "make a character device" mknod /volume/memory c 1 1
attempt "open a block device" head -c 1 /volume/disk
attempt "open a character device" head -c 1 /volume/memory
attempt "new user namespace" unshare -U true
attempt "chroot" busybox chroot / true
attempt "bind port 80" busybox timeout 0.1 nc -l -p 80
attempt "lower nice" busybox nice -n -5 true
section seccomp
[ -x /observe/calls ] && [ -z "$SKIP_CALLS" ] && /observe/calls
section end
