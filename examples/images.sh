# shellcheck shell=bash
# How the images of the examples are made, with the tools of scripts/setup, which sources this: from Debian's packages and the sources
# here, without a registry. Each NAME_rootfs fills the folder that it is given.

# The images there are.
example_images="shell go python nodejs java long-connections"

# example_image NAME: makes target/images/example-NAME.tar, unless it is newer than everything it is made of.
example_image() {
    local name=$1 out=target/images/example-$1.tar work
    [ -e "$out" ] && [ -z "$(find "examples/$name" examples/images.sh -newer "$out" -type f ! -name '*.md' ! -name '*.yaml' -print -quit)" ] && return
    rm -f "$out"
    need skopeo umoci
    work=$(mktemp -d)
    mkdir -p "$work"/{etc,tmp}
    chmod 755 "$work"
    chmod 1777 "$work/tmp"
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >"$work/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$work/etc/group"
    "${name//-/_}_rootfs" "$work"
    # nginx starts as root, and its workers are nobody; all others have no need of anything.
    local user=65534:65534
    [ "$name" = shell ] && user=0:0
    image "example-$name" oci-archive "$work" --config.env PATH=/usr/sbin:/usr/bin:/bin --config.user "$user"
    rm -rf "$work"
}

shell_rootfs() {
    need busybox-static
    busybox_rootfs "$1"
    # Later, for its users: nginx wants to know nobody.
    nginx_rootfs "$1"
    cp examples/shell/nginx.conf "$1/etc/nginx/nginx.conf"
    cp examples/shell/wrapper.sh "$1/wrapper.sh"
}

# go_build SOURCE PROGRAM: a static program, built with a toolchain in a folder of its own.
go_build() {
    unpack target/tools/go golang-1.19-go golang-1.19-src
    GOROOT=$PWD/target/tools/go/usr/lib/go-1.19 GOCACHE=$PWD/target/tools/go-cache GO111MODULE=off CGO_ENABLED=0 \
        target/tools/go/usr/lib/go-1.19/bin/go build -trimpath -ldflags '-s -w' -o "$2" "$1"
}

go_rootfs() {
    go_build examples/go/main.go "$1/server"
}

long_connections_rootfs() {
    go_build examples/long-connections/room.go "$1/room"
}

python_rootfs() {
    local root=$1 version
    need python3
    version=$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    # The interpreter and its library as Debian divides them: without tests, headers and editors.
    dpkg -L "$version-minimal" "lib$version-minimal" "lib$version-stdlib" | grep -E '^/usr/(bin|lib)/.' | sed 's,^/,,' \
        | tar -C / --no-recursion -cf - -T - | tar -C "$root" -xf -
    ln -s "$version" "$root/usr/bin/python3"
    libraries "$root" "/usr/bin/$version"
    install -D -m 644 examples/python/server.py "$root/app/server.py"
}

nodejs_rootfs() {
    need nodejs
    install -D /usr/bin/node "$1/usr/bin/node"
    strip "$1/usr/bin/node"
    libraries "$1" /usr/bin/node
    install -D -m 644 examples/nodejs/server.js "$1/app/server.js"
}

java_rootfs() {
    local home=/usr/lib/jvm/java-17-openjdk-amd64
    need openjdk-17-jdk-headless
    "$home/bin/jlink" --add-modules java.base,jdk.httpserver --strip-java-debug-attributes --no-header-files --no-man-pages --output "$1/jre"
    "$home/bin/javac" -d "$1/app" examples/java/Server.java
    libraries "$1" "$1/jre/bin/java" "$1/jre/lib/server/libjvm.so"
}
