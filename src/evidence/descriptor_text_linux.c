/* A descriptor of the program in words: descriptor_text.h.
 *
 * The link in /proc names everything but sockets: it has a path, or a kind and an inode number. A
 * socket says who it talks to through getpeername, on a copy of the descriptor in the watchdog's
 * table, which is closed at once. Where the table is the program's own no copy is made: the number
 * serves as it is, and closing a copy of a file would drop the program's locks on it. Where a copy
 * is forbidden the answer is "socket".
 */
#if defined(__linux__) && !defined(LW_PORTABLE)

#include "descriptor_text.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

typedef struct socket_address {
    struct sockaddr_storage at;
    socklen_t length;
} socket_address;

/* --- addresses --- */

static bool
inet_text(const socket_address *address, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    const struct sockaddr_in *v4 = (const void *)&address->at;
    const struct sockaddr_in6 *v6 = (const void *)&address->at;
    if (address->at.ss_family == AF_INET && address->length >= sizeof *v4) {
        return inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host) &&
               snprintf(out, size, "%s:%d", host, ntohs(v4->sin_port)) > 0;
    }
    if (address->at.ss_family == AF_INET6 &&
        address->length >= offsetof(struct sockaddr_in6, sin6_scope_id)) {
        return inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host) &&
               snprintf(out, size, "[%s]:%d", host, ntohs(v6->sin6_port)) > 0;
    }
    return false;
}

/* The path, or @ and the abstract name. An unnamed socket has an address without a path. */
static bool
unix_text(const socket_address *address, char *out, size_t size)
{
    const struct sockaddr_un *at = (const void *)&address->at;
    size_t head = offsetof(struct sockaddr_un, sun_path);
    if (address->at.ss_family != AF_UNIX || address->length <= head) {
        return false;
    }
    size_t length = address->length - head;
    length = length < sizeof at->sun_path ? length : sizeof at->sun_path;
    if (at->sun_path[0]) {
        snprintf(out, size, "%.*s", (int)length, at->sun_path);
        return true;
    }
    out[0] = '@';
    size_t n = 1;
    for (; n < length && n < size - 1; n++) {
        out[n] = at->sun_path[n] ? at->sun_path[n] : '@';
    }
    out[n] = '\0';
    return true;
}

static bool
address_text(const socket_address *address, char *out, size_t size)
{
    return inet_text(address, out, size) || unix_text(address, out, size);
}

static bool
ask_address(int fd, int (*ask)(int, struct sockaddr *, socklen_t *), socket_address *out)
{
    out->length = sizeof out->at;
    return ask(fd, (struct sockaddr *)&out->at, &out->length) == 0;
}

static int
option(int fd, int name)
{
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) ? -1 : value;
}

/* While a connection is being made getpeername knows nothing, but this option does (it cannot be
 * asked for more bytes than the address has). A socket with a timeout connects like that, in poll.
 */
static bool
ask_future_peer(int fd, socket_address *out)
{
    const socklen_t lengths[] = {sizeof(struct sockaddr_in6), sizeof(struct sockaddr_in)};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        out->length = lengths[i];
        if (!getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &out->at, &out->length)) {
            return true;
        }
    }
    return false;
}

/* --- sockets --- */

static const char *
inet_kind(int fd)
{
    switch (option(fd, SO_PROTOCOL)) {
    case IPPROTO_TCP:
    case IPPROTO_MPTCP:
        return "tcp";
    case IPPROTO_UDP:
        return "udp";
    case IPPROTO_SCTP:
        return "sctp";
    case IPPROTO_ICMP:
    case IPPROTO_ICMPV6:
        return "icmp";
    }
    return "ip";
}

static const char *
socket_kind(int fd)
{
    switch (option(fd, SO_DOMAIN)) {
    case AF_INET:
    case AF_INET6:
        return inet_kind(fd);
    case AF_UNIX:
        return "unix";
    case AF_NETLINK:
        return "netlink";
    case AF_PACKET:
        return "packet";
    case AF_VSOCK:
        return "vsock";
    }
    return "socket";
}

/* `fd` is valid in the calling thread's table. */
static void
socket_text(int fd, const socket_address *to, char out[LW_TARGET_MAX])
{
    socket_address address;
    char name[sizeof(struct sockaddr_un) + 1];
    const char *kind = socket_kind(fd);
    bool listening = option(fd, SO_ACCEPTCONN) == 1;
    bool is_unix = !strcmp(kind, "unix");
    bool is_tcp = !strcmp(kind, "tcp");
    if (to && address_text(to, name, sizeof name)) {
        snprintf(out, LW_TARGET_MAX, "%s %s", kind, name);
        return;
    }
    bool connected = ask_address(fd, getpeername, &address) || ask_future_peer(fd, &address);
    if (connected && address_text(&address, name, sizeof name)) {
        snprintf(out, LW_TARGET_MAX, "%s %s", kind, name);
        return;
    }
    if (is_tcp && !listening) { /* its own address says nothing of whom it waits for */
        snprintf(out, LW_TARGET_MAX, "tcp");
        return;
    }
    if (ask_address(fd, getsockname, &address) && address_text(&address, name, sizeof name)) {
        snprintf(out, LW_TARGET_MAX, "%s %s%s", kind, listening ? "listening " : "", name);
        return;
    }
    snprintf(out, LW_TARGET_MAX, "%s%s", kind, is_unix && connected ? " socketpair" : "");
}

static void
program_socket_text(const lw_fdtable *fds, int fd, const socket_address *to,
                    char out[LW_TARGET_MAX])
{
    int copy = fds->own ? lw_fdtable_adopt(fds, fd) : fd;
    if (copy < 0) {
        snprintf(out, LW_TARGET_MAX, "socket");
        return;
    }
    socket_text(copy, to, out);
    if (fds->own) {
        close(copy);
    }
}

/* --- everything else --- */

static bool
starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* A pidfd's process, from its fdinfo; 0 where it has none left. */
static int
pidfd_pid(pid_t tid, int fd)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/fdinfo/%d", (int)tid, fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0) {
        return 0;
    }
    ssize_t n = read(info, text, sizeof text - 1);
    close(info);
    text[n > 0 ? n : 0] = '\0';
    const char *found = strstr(text, "\nPid:");
    long pid = found ? strtol(found + 5, NULL, 10) : 0;
    return pid > 0 ? (int)pid : 0;
}

static void
pidfd_text(pid_t tid, int fd, char out[LW_TARGET_MAX])
{
    int pid = pidfd_pid(tid, fd);
    if (pid) {
        snprintf(out, LW_TARGET_MAX, "child %d", pid);
    }
    else {
        snprintf(out, LW_TARGET_MAX, "child");
    }
}

/* "anon_inode:[timerfd]", "anon_inode:inotify": the word alone. */
static void
anonymous_text(const char *link, char out[LW_TARGET_MAX])
{
    const char *word = link + strlen("anon_inode:");
    word += *word == '[';
    snprintf(out, LW_TARGET_MAX, "%.*s", (int)strcspn(word, "]"), word);
    if (!strcmp(out, "eventpoll")) {
        snprintf(out, LW_TARGET_MAX, "epoll");
    }
}

static void
describe(pid_t tid, const lw_fdtable *fds, int fd, const socket_address *to,
         char out[LW_TARGET_MAX])
{
    char path[64], link[LW_TARGET_MAX];
    out[0] = '\0';
    snprintf(path, sizeof path, "/proc/self/task/%d/fd/%d", (int)tid, fd);
    ssize_t length = fd < 0 ? -1 : readlink(path, link, sizeof link - 1);
    if (length <= 0) {
        return;
    }
    link[length] = '\0';
    if (starts_with(link, "socket:")) {
        program_socket_text(fds, fd, to, out);
    }
    else if (starts_with(link, "pipe:")) {
        snprintf(out, LW_TARGET_MAX, "pipe");
    }
    else if (starts_with(link, "anon_inode:[pidfd]") || starts_with(link, "pidfd:")) {
        pidfd_text(tid, fd, out);
    }
    else if (starts_with(link, "anon_inode:")) {
        anonymous_text(link, out);
    }
    else {
        memcpy(out, link, (size_t)length + 1);
    }
}

void
lw_descriptor_text(pid_t tid, const lw_fdtable *fds, int fd, char out[LW_TARGET_MAX])
{
    describe(tid, fds, fd, NULL, out);
}

void
lw_descriptor_text_to(pid_t tid, const lw_fdtable *fds, int fd,
                      const struct sockaddr_storage *address, socklen_t length,
                      char out[LW_TARGET_MAX])
{
    socket_address to = {*address, length};
    describe(tid, fds, fd, &to, out);
}

#else
typedef int lw_descriptor_text_linux_not_built; /* ISO C wants something in each file */
#endif
