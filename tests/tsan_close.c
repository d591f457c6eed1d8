/* Part of programs with the thread sanitizer. libuv closes descriptors with syscall(), which the sanitizer
 * does not see: the next open file of another thread that has the number of a closed descriptor would be a
 * data race. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long system_call(long number, long a, long b, long c, long d, long e, long f);

long syscall(long number, ...)
{
    static system_call *real; /* every thread finds the same */
    long a[6];
    va_list args;
    va_start(args, number);
    for (size_t i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_close)
        return close((int)a[0]);
    system_call *found = __atomic_load_n(&real, __ATOMIC_RELAXED);
    if (found == NULL) {
        found = (system_call *)dlsym(RTLD_NEXT, "syscall");
        __atomic_store_n(&real, found, __ATOMIC_RELAXED);
    }
    return found(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
