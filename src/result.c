/* The message of each result: result.h. */
#include "result.h"

#include <assert.h>

static const char *const messages[] = {
    [LW_OK] = "no error",
    [LW_ERR_MEMORY] = "out of memory",
    [LW_ERR_SYSTEM] = "a system call failed",
    [LW_ERR_FRAMES_VERSION] = "the memory layout of this interpreter version is not known",
    [LW_ERR_FRAMES_READ] = "this system offers no way to read memory guarded",
    [LW_ERR_FRAMES_CALIBRATE] = "an object made to find the layout did not look as expected",
    [LW_ERR_FRAMES_SELFTEST] = "frames read from memory differ from the interpreter's own",
    [LW_ERR_THREAD] = "the watchdog thread could not be started",
};

static_assert(sizeof messages / sizeof *messages == LW_RESULT_COUNT, "a message for each result");

const char *
lw_result_message(lw_result result)
{
    return (unsigned)result < LW_RESULT_COUNT ? messages[result] : "unknown error";
}
