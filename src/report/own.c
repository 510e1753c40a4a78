/* Which source files are the program's own: own.h. A handful of prefixes, compared one by one. */
#include "own.h"

#include <stdlib.h>
#include <string.h>

static struct {
    size_t n;
    char *directories[LW_LIBRARIES_MAX];
} libraries;

bool
lw_own_set_libraries(const char *const *directories, size_t n)
{
    if (n > LW_LIBRARIES_MAX || libraries.n) {
        return libraries.n != 0;
    }
    for (size_t i = 0; i < n; i++) {
        libraries.directories[i] = strdup(directories[i]);
        if (!libraries.directories[i]) {
            return false;
        }
        libraries.n = i + 1;
    }
    return true;
}

static bool
below(const char *filename, const char *directory)
{
    size_t length = strlen(directory);
    return strncmp(filename, directory, length) == 0 && filename[length] == '/';
}

bool
lw_own_file(const char *filename)
{
    if (strncmp(filename, "<frozen ", 8) == 0 || strcmp(filename, "<unknown>") == 0 ||
        strstr(filename, "/site-packages/") || strstr(filename, "/dist-packages/")) {
        return false;
    }
    for (size_t i = 0; i < libraries.n; i++) {
        if (below(filename, libraries.directories[i])) {
            return false;
        }
    }
    return true;
}
