/* Which source files are the program's own, told from their names: not below the standard library,
 * not below a site-packages or dist-packages directory, not frozen or made up ("<string>" is own:
 * somebody's exec).
 *
 * The prefixes come from the package at import; they are written once, before the watchdog starts.
 * GIL-free.
 */
#ifndef LW_OWN_H
#define LW_OWN_H

#include <stdbool.h>
#include <stddef.h>

#define LW_LIBRARIES_MAX 16

/* With the GIL, once: copies the directory names (without trailing slash). False without memory or
 * with too many. */
bool lw_own_set_libraries(const char *const *directories, size_t n);

bool lw_own_file(const char *filename);

#endif
