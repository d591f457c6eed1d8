/* Files: sequential input (plain, gzip, zlib or zstd, recognised by content), output that appears whole or
 * not at all, read-only mappings, and paths.
 *
 * Every failure names the file and, for input, the byte offset. Objects belong to one thread at a time. */
#ifndef MST_BASE_FILE_H
#define MST_BASE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"

/* ---- input ---- */

typedef struct mst_in mst_in;

/* path "-" is standard input. *out is the caller's to close; set only on MST_OK. */
mst_status mst_in_open(const char *path, mst_in **out);
void mst_in_close(mst_in *in); /* NULL-safe */

/* Fills buf; *got < n only at the end of the (decompressed) input. A truncated or corrupt stream
 * is MST_EINPUT naming the path and the offset. Concatenated members/frames are read through. */
mst_status mst_in_read(mst_in *in, void *buf, size_t n, size_t *got);

/* Reads the bytes that are available, up to n. wait_ms < 0: waits for the first byte, so *got is 0 only at
 * the end; otherwise waits for it at most wait_ms, and *got may be 0 before the end. */
mst_status mst_in_read_some(mst_in *in, void *buf, size_t n, int wait_ms, size_t *got);

/* Once *stop is set, reading is MST_ESTOPPED, also while a read waits for a pipe; plain files that are
 * read whole are not stopped. Call before there are threads; NULL: never. */
void mst_in_stop_on(const atomic_bool *stop);
/* The same for one input: *stop must outlive it. */
void mst_in_stop_when(mst_in *in, const atomic_bool *stop);

const char *mst_in_path(const mst_in *in);   /* "standard input" for "-" */
uint64_t mst_in_offset(const mst_in *in);    /* decompressed bytes handed out so far */
uint64_t mst_in_file_size(const mst_in *in); /* bytes on disk; 0 when unknown (pipe) */
bool mst_in_compressed(const mst_in *in);

/* A file on disk that is not compressed: its bytes can also be read at any offset. */
bool mst_in_is_plain(const mst_in *in);
/* Reads n bytes of a plain file at the offset, independently of mst_in_read; any thread. MST_EINPUT if the
 * file ends before. */
mst_status mst_in_read_at(const mst_in *in, uint64_t offset, void *buf, size_t n);

/* Reads a whole file (decompressed) of at most `limit` bytes; *data is the caller's to mst_free,
 * NUL-terminated beyond *size. */
mst_status mst_file_read_all(const char *path, size_t limit, char **data, size_t *size);

/* ---- output ---- */

typedef struct mst_out mst_out;

/* Writes to a temporary file in the target's folder; commit syncs file and folder and renames it into place.
 * path "-" is standard output (commit flushes). Names ending in .gz or .zst are compressed. */
mst_status mst_out_open(const char *path, mst_out **out);
mst_status mst_out_write(mst_out *out, const void *data,
                         size_t n); /* buffered; MST_EIO names path and reason */
mst_status mst_out_printf(mst_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t mst_out_offset(const mst_out *out); /* bytes given so far */
mst_status mst_out_commit(mst_out *out);     /* on failure the target is untouched; still needs close */
/* Passes buffered bytes to the operating system, unless a compressor holds them. */
mst_status mst_out_flush(mst_out *out);
void mst_out_close(mst_out *out); /* NULL-safe; without commit nothing is left behind */

/* Appends bytes at an absolute position; only for uncompressed, committed-later files (headers known last).
 */
mst_status mst_out_patch(mst_out *out, uint64_t offset, const void *data, size_t n);

/* Whether a write to standard output has failed because its reader is gone, as in `predict ... | head`. */
bool mst_out_unread(void);

/* Test hook: the k-th write to the operating system from now fails with ENOSPC; 0 turns it off. */
void mst_out_fail_at(uint64_t k);

/* Leftovers of processes killed in mid-write carry the suffix ".tmp.PID.N"; names like that are never data.
 */
bool mst_path_is_temporary(const char *path);

/* ---- mappings ---- */

typedef struct mst_map_file mst_map_file;
typedef struct mst_map {
    const uint8_t *data; /* NULL when size is 0 */
    size_t size;
    mst_map_file *file;
} mst_map;

/* Maps a file: read-only, shared; MST_EINPUT when it is not a plain file. Other processes should not change
 * the file in place while it is mapped, but they can: its bytes then change under the reader, and bytes
 * beyond a new end read as zeros. So copy data before checking it, unless every possible value is harmless.
 */
mst_status mst_map_open(const char *path, mst_map *out);
/* MST_EINPUT, with a message that names the file, when it was cut or written to since it was opened. Takes a
 * microsecond. Any thread. */
mst_status mst_map_check(const mst_map *map);
void mst_map_close(mst_map *map);
/* Makes [offset, offset + size) of the mapping present in one go, instead of a fault every few pages; best
 * effort.
 */
void mst_map_populate(const mst_map *map, size_t offset, size_t size);

/* ---- paths ---- */

bool mst_ends_with(const char *text, const char *suffix);
bool mst_path_exists(const char *path);
bool mst_path_is_folder(const char *path);
mst_status mst_make_folders(const char *path); /* like mkdir -p; new ones are durable */
mst_status mst_sync_folder(const char *path);  /* makes the entries of a folder durable */
mst_status mst_sync_parent(const char *path);  /* the same for the folder that holds path */
mst_status mst_remove_tree(const char *path);  /* like rm -rf; fine when absent; does not follow links */

/* Expands each pattern (a file, a glob, a folder: its plain files, or "-"), sorted by name within a pattern,
 * leaving temporary files out. A pattern that matches nothing is MST_EINPUT naming it. */
mst_status mst_glob(const mst_text_list *patterns, mst_text_list *out);

/* The text as one word of a POSIX shell, quoted where it needs to be; cut off where out is too small. out is
 * returned. */
const char *mst_shell_word(const char *text, char *out, size_t size);

#endif
