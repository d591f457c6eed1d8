/* Signals as flags; contract in signals.h. Handlers only touch lock-free atomics and call _exit.
 *
 * They run on a stack of their own: oneDNN's generated code keeps data below the stack pointer, further than
 * the 128 bytes that the system leaves alone, and a handler on the same stack writes over it. The system
 * gives signals of the process to its first thread, which is the one that installs them. */
#include "base/signals.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define EXIT_SIGNAL 128        /* + its number, as shells do */
#define STACK_SIZE  (64 << 10) /* of handlers: with AVX-512 the saved registers alone take several kB */

static atomic_bool g_stop, g_checkpoint;
static atomic_int g_signal, g_interrupts;

void mst_signals_note(int number)
{
    int none = 0;
    atomic_compare_exchange_strong(&g_signal, &none, number);
}

static void signals_on_signal(int number)
{
    if (number == SIGUSR1) {
        atomic_store(&g_checkpoint, true);
        return;
    }
    if (number == SIGINT && atomic_fetch_add(&g_interrupts, 1) > 0)
        _exit(EXIT_SIGNAL + SIGINT);
    mst_signals_note(number);
    atomic_store(&g_stop, true);
}

void mst_signals_install(void)
{
    static char stack[STACK_SIZE];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_handler = signals_on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    mst_in_stop_on(&g_stop);
}

const atomic_bool *mst_signals_stop(void)
{
    return &g_stop;
}

const char *mst_signals_name(void)
{
    switch (atomic_load(&g_signal)) {
    case SIGINT:
        return "SIGINT";
    case SIGTERM:
        return "SIGTERM";
    case SIGHUP:
        return "SIGHUP";
    default:
        return NULL;
    }
}

int mst_signals_exit_code(mst_status status)
{
    int number = atomic_load(&g_signal);
    if (status != MST_ESTOPPED)
        return mst_status_exit_code(status);
    return EXIT_SIGNAL + (number != 0 ? number : SIGTERM);
}

int mst_signals_of_exit_code(int code)
{
    int number = code - EXIT_SIGNAL;
    return number == SIGINT || number == SIGTERM || number == SIGHUP ? number : 0;
}

mst_status mst_signals_check(const char *what)
{
    if (!atomic_load_explicit(&g_stop, memory_order_relaxed))
        return MST_OK;
    return mst_fail_lead(MST_ESTOPPED, "stopped", "; %s", what);
}

bool mst_signals_take_checkpoint(void)
{
    return atomic_exchange(&g_checkpoint, false);
}

const char *mst_signal_name(int number, char *out, size_t size)
{
    const char *name = sigabbrev_np(number);
    if (name != NULL)
        snprintf(out, size, "SIG%s", name);
    else
        snprintf(out, size, "signal %d", number);
    return out;
}
