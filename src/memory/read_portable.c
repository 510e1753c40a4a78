/* Guarded reads on a platform of which nothing is known: there are none. Each read copies nothing
 * and raw capture stays off. Twin of read_linux.c. */
#ifdef LW_PORTABLE

#include "read_backends.h"

const lw_read_ops *const lw_read_backends[LW_READ_BACKENDS] = {NULL};

#else
typedef int lw_read_portable_not_built; /* ISO C wants something in each file */
#endif
