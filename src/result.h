/* What the GIL-free core answers where something can fail. The glue turns one into an exception,
 * once, in state.c's lw_raise(); the message table is in result.c. Grouped by subject. */
#ifndef LW_RESULT_H
#define LW_RESULT_H

typedef enum lw_result {
    LW_OK = 0,
    LW_ERR_MEMORY, /* an allocation failed, at install */
    LW_ERR_SYSTEM, /* errno says what */

    /* frames */
    LW_ERR_FRAMES_VERSION,   /* no layout for this interpreter */
    LW_ERR_FRAMES_READ,      /* no way to read guarded */
    LW_ERR_FRAMES_CALIBRATE, /* a probe object did not look as expected */
    LW_ERR_FRAMES_SELFTEST,  /* a snapshot differs from sys._getframe */

    /* the watchdog's thread */
    LW_ERR_THREAD, /* pthread_create failed, errno */

    LW_RESULT_COUNT
} lw_result;

/* One sentence, static, never NULL. */
const char *lw_result_message(lw_result result);

#endif
