/* Passes: numbers by which a server recognises that the coordinator has named a worker the chief, without
 * waiting for a message of the coordinator. A pass is the start of HMAC-SHA256 over the worker and its
 * incarnation; the coordinator shares the key with the servers only. */
#ifndef MST_PS_PASS_H
#define MST_PS_PASS_H

#include <stdint.h>

#define MST_PASS_KEY 65 /* bytes of a key: 64 hexadecimal digits, and the zero */

/* 0: there is none, because the key is empty or the computation fails. */
uint64_t mst_pass_of(const char *key, uint32_t worker, uint64_t incarnation);

#endif
