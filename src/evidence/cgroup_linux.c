/* How long this process's cgroup was throttled, having used up its CPU quota: thread_files.h. Twin:
 * thread_files_portable.c.
 *
 * Where the account is: in the cpu controller's hierarchy, which is a v1 one or the unified one;
 * both may be mounted, and the key is only in the files of the one that has the controller.
 * /proc/self/cgroup names the process's path in each hierarchy, /proc/self/mountinfo where a
 * hierarchy, or a part of it, is mounted. In a cgroup namespace the path is relative to the
 * namespace's root; "/.." before it says that the process lies outside, and then there is no file
 * that we could reach.
 *
 * What it counts: cpu.stat has the time that this one group's quota took. A group is also throttled
 * when an ancestor is; only the ancestor's cpu.stat says so. cpu.stat.local (Linux 6.7) counts
 * both, once: it is taken alone where it is. Else the group's and its ancestors' times are summed,
 * which is exact when they throttle one after the other, and too much when both are throttled at
 * once. All of them count each CPU for itself, and a throttle when it ends: what a program with
 * several busy threads reads is an upper limit of what one thread lost, whose run-queue wait is
 * another.
 *
 * Everything here runs on the watchdog thread, without the GIL, and allocates nothing.
 */
#if defined(__linux__) && !defined(LW_PORTABLE)

#include "thread_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LW_PATH_MAX 1024
#define LW_V1_KEY "throttled_time " /* ns */
#define LW_V2_KEY "throttled_usec " /* us */

/* A hierarchy that may have the cpu controller. */
typedef struct hierarchy {
    bool unified;
    char path[LW_PATH_MAX]; /* of the process in it, as /proc/self/cgroup has it; "": it has none */
} hierarchy;

/* --- reading line by line --- */

typedef struct line_reader {
    int fd;
    size_t begin, end; /* what of `text` is not handed out yet */
    char text[4096];
} line_reader;

/* The next line, or NULL at the end. One that does not fit is left out: a mount with that many
 * options is no cgroup's. */
static char *
next_line(line_reader *lines)
{
    bool too_long = false;
    for (;;) {
        char *begin = lines->text + lines->begin;
        char *newline = memchr(begin, '\n', lines->end - lines->begin);
        if (newline) {
            *newline = '\0';
            lines->begin = (size_t)(newline - lines->text) + 1;
            if (!too_long) {
                return begin;
            }
            too_long = false;
            continue;
        }
        if (lines->end - lines->begin == sizeof lines->text) {
            too_long = true;
            lines->end = lines->begin;
        }
        memmove(lines->text, begin, lines->end - lines->begin);
        lines->end -= lines->begin;
        lines->begin = 0;
        ssize_t n = read(lines->fd, lines->text + lines->end, sizeof lines->text - lines->end);
        if (n <= 0) {
            return NULL;
        }
        lines->end += (size_t)n;
    }
}

/* --- where the process is --- */

static bool
copy_text(char *to, size_t size, const char *from)
{
    size_t length = strlen(from);
    if (length >= size) {
        return false;
    }
    memcpy(to, from, length + 1);
    return true;
}

/* Is `word` one of the words that commas separate? */
static bool
has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, word, length) && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Lines such as "4:cpu,cpuacct:/path" and, of the unified hierarchy, "0::/path". */
static void
find_paths(hierarchy *v1, hierarchy *v2)
{
    line_reader lines = {.fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC)};
    v1->path[0] = v2->path[0] = '\0';
    for (char *line; lines.fd >= 0 && (line = next_line(&lines));) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path || !strncmp(path, ":/..", 4)) {
            continue;
        }
        *path++ = '\0';
        controllers++;
        hierarchy *which = !*controllers ? v2 : has_word(controllers, "cpu") ? v1 : NULL;
        if (which && !copy_text(which->path, sizeof which->path, path)) {
            which->path[0] = '\0';
        }
    }
    if (lines.fd >= 0) {
        close(lines.fd);
    }
}

/* --- where it is mounted --- */

/* "\040" and the like, as mountinfo writes blanks. */
static void
unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && from[1] && from[2] && from[3]) {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        }
        else {
            *to = *from++;
        }
    }
    *to = '\0';
}

typedef struct mount_line {
    char *root, *point; /* the part of the hierarchy that is mounted, and where */
    char *type, *options;
} mount_line;

/* "36 35 98:0 ROOT POINT rw,noatime shared:1 - cgroup SOURCE rw,cpu,cpuacct" */
static bool
parse_mount(char *line, mount_line *out)
{
    char *tail = strstr(line, " - ");
    char *saved = NULL;
    if (!tail) {
        return false;
    }
    *tail = '\0';
    out->type = strtok_r(tail + 3, " ", &saved);
    (void)strtok_r(NULL, " ", &saved);
    out->options = strtok_r(NULL, " ", &saved);
    for (int i = 0; i < 3; i++) {
        (void)strtok_r(i ? NULL : line, " ", &saved);
    }
    out->root = strtok_r(NULL, " ", &saved);
    out->point = strtok_r(NULL, " ", &saved);
    if (!out->type || !out->options || !out->root || !out->point) {
        return false;
    }
    unescape(out->root);
    unescape(out->point);
    return true;
}

/* The process's path below a mounted root, "" for the root itself; NULL where it lies elsewhere. */
static const char *
path_below(const char *root, const char *path)
{
    size_t length = strlen(root);
    if (length == 1) {
        return path[1] ? path : "";
    }
    bool below = !strncmp(root, path, length) && (path[length] == '/' || path[length] == '\0');
    return below ? path + length : NULL;
}

/* --- the files --- */

static bool
throttled(int fd, uint64_t *value, uint64_t *unit_ns)
{
    static const struct {
        const char *key;
        uint64_t unit_ns;
    } keys[] = {{LW_V1_KEY, 1}, {LW_V2_KEY, LW_NS_PER_US}};
    char text[1024];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *found = strstr(text, keys[i].key);
        if (found && (found == text || found[-1] == '\n')) {
            *value = strtoull(found + strlen(keys[i].key), NULL, 10);
            *unit_ns = keys[i].unit_ns;
            return true;
        }
    }
    return false;
}

/* Takes the file of one cgroup in, where it has the key. */
static bool
add_file(lw_cgroup_files *files, const char *directory, const char *name)
{
    char path[2 * LW_PATH_MAX];
    uint64_t value;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) {
        return false;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    if (!throttled(fd, &value, &files->unit_ns[files->n])) {
        close(fd);
        return false;
    }
    files->stat_fds[files->n++] = fd;
    return true;
}

/* From the process's cgroup upwards to the mounted root. Those without the key have no quota: the
 * controller is not switched on in them, and their nearest ancestor's holds. */
static void
add_all(lw_cgroup_files *files, const char *point, const char *below)
{
    char directory[2 * LW_PATH_MAX];
    int length = snprintf(directory, sizeof directory, "%s%s", point, below);
    size_t top = strlen(point);
    if (length >= (int)sizeof directory) {
        return;
    }
    for (;;) {
        if (files->n == 0 && add_file(files, directory, "cpu.stat.local")) {
            return;
        }
        if (files->n < LW_CGROUPS_MAX) {
            add_file(files, directory, "cpu.stat");
        }
        char *slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < top) {
            return;
        }
        *slash = '\0';
    }
}

static bool
has_hierarchy(const mount_line *mount, const hierarchy *which)
{
    if (which->unified) {
        return !strcmp(mount->type, "cgroup2");
    }
    return !strcmp(mount->type, "cgroup") && has_word(mount->options, "cpu");
}

static void
open_in(lw_cgroup_files *files, const hierarchy *which)
{
    line_reader lines = {.fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)};
    for (char *line; lines.fd >= 0 && !files->n && (line = next_line(&lines));) {
        mount_line mount;
        const char *below;
        if (parse_mount(line, &mount) && has_hierarchy(&mount, which) &&
            (below = path_below(mount.root, which->path))) {
            add_all(files, mount.point, below);
        }
    }
    if (lines.fd >= 0) {
        close(lines.fd);
    }
}

void
lw_cgroup_files_open(lw_cgroup_files *files)
{
    hierarchy v1 = {.unified = false}, v2 = {.unified = true};
    files->n = 0;
    find_paths(&v1, &v2);
    if (v1.path[0]) {
        open_in(files, &v1);
    }
    if (!files->n && v2.path[0]) {
        open_in(files, &v2);
    }
}

void
lw_cgroup_files_close(lw_cgroup_files *files)
{
    while (files->n) {
        close(files->stat_fds[--files->n]);
    }
}

/* All or nothing: a sum that lacks one of its parts would run backwards. */
bool
lw_cgroup_files_read(const lw_cgroup_files *files, lw_ns *throttled_ns)
{
    lw_ns sum_ns = 0;
    *throttled_ns = 0;
    for (int i = 0; i < files->n; i++) {
        uint64_t value, unit_ns;
        if (!throttled(files->stat_fds[i], &value, &unit_ns)) {
            return false;
        }
        sum_ns += value * unit_ns;
    }
    *throttled_ns = sum_ns;
    return files->n > 0;
}

#else
typedef int lw_cgroup_linux_not_built; /* ISO C wants something in each file */
#endif
