/* The uv pulse: what its tests ask on the watchdog's behalf, as often as they can. */
#include "testcore.h"

#include "glue/py_slot.h"
#include "pulses/uv_handle.h"

/* Without the GIL, for so long: how often the pulse was asked about a waiting loop, and how often
 * it said that the loop is back. */
static PyObject *
uv_look(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long length_ns;
    lw_slot *slot = lw_test_slot_and_number(args, &length_ns);
    if (!slot) {
        return NULL;
    }
    unsigned long looks = 0, back = 0;
    Py_BEGIN_ALLOW_THREADS
    lw_ns end_ns = lw_now_ns() + length_ns;
    for (lw_ns now_ns = lw_now_ns(); now_ns < end_ns; now_ns = lw_now_ns()) {
        lw_beat beat;
        if (lw_cell_read(&slot->cell, &beat) && beat.phase == LW_PHASE_WAIT) {
            lw_uv_refine(slot, &beat, now_ns);
            looks++;
            back += beat.phase == LW_PHASE_BUSY;
        }
    }
    Py_END_ALLOW_THREADS
    return Py_BuildValue("kk", looks, back);
}

PyMethodDef lw_test_uv_pulse_methods[] = {
    {"uv_look", uv_look, METH_VARARGS, "uv_look(slot, nanoseconds) -> (looks, back)"},
    {NULL, NULL, 0, NULL},
};
