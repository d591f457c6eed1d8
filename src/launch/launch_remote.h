/* Starting a program on another host through ssh, or through any command that is given a host and a command
 * line and connects its standard streams to it (`scripts/netlab exec`).
 *
 * The command on the other host is always `sh`; the script goes to its standard input. So it makes no
 * difference whether the words pass through another shell on the way (ssh) or not. The job's secret is on no
 * command line and in no environment: it follows on standard input once the program has started. */
#ifndef MST_LAUNCH_LAUNCH_REMOTE_H
#define MST_LAUNCH_LAUNCH_REMOTE_H

#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"
#include "base/strings.h"
#include "launch/supervisor.h"

/* Printed on standard error by the other side before the program begins; the supervisor removes the line. */
#define MST_REMOTE_STARTED "muster-remote: started"
/* Printed on standard output when the program has been copied. */
#define MST_REMOTE_COPIED "muster-remote: copied"

#define MST_REMOTE_SSH "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5"

/* The words of command (split at blanks), then host and "sh", NULL at the end. The caller ends the list. */
mst_status mst_remote_argv(const char *command, const char *host, mst_text_list *out);

/* Name and value of a variable, NULL name at the end. */
typedef struct mst_variable {
    const char *name, *value;
} mst_variable;

/* Writes the program to folder/muster, prints MST_REMOTE_COPIED, and removes the folder when its standard
 * input ends. The script makes the folder, whose name has no characters that a shell would interpret. out is
 * the caller's to fini, also on failure. */
mst_status mst_remote_copy_script(const char *program, const char *folder, mst_string *out);

/* This process's environment with the variables set (NULL value: unset), NULL at the end. The
 * caller ends the list. */
mst_status mst_local_env(const mst_variable *variables, mst_text_list *out);

/* Starts words as the child with the variables set: on this host (ssh NULL), or on the given one. secret: a
 * line for its standard input (MST_PARENT_SECRET_ENV). */
mst_status mst_start_anywhere(mst_child *child, const char *ssh, const char *host, const char *secret,
                              const mst_variable *variables, const char *const *words);

/* The path of this program. MST_EIO if the system does not have it. MUSTER_LAUNCH_BINARY takes its place in
 * tests. */
mst_status mst_own_program(char *out, size_t size);

/* The secret of a job. This process writes no core dump from here on. */
#define MST_SECRET_DIGITS 64
mst_status mst_random_secret(char out[MST_SECRET_DIGITS + 1]);

#endif
