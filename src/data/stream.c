/* The stream dataset: bytes of the files to blocks of whole records (read), and blocks to chunks (parse).
 *
 * read fills a buffer with the rest of the previous block and with new bytes, ends the block after its last
 * whole record and keeps the rest for the next one. Records do not continue from file to file. Buffers are
 * used again: parse and skip put them on a list from which read takes them.
 *
 * Lines of plain files are not read but only divided: read looks at the end of the next block for its last
 * line feed, and parse reads the bytes, so that several threads read and parse at once. Lines are counted
 * only for a message about one of them.
 *
 * Live input (a pipe whose rows are needed as they arrive) is not read in full blocks: a block is the whole
 * records that are available.
 *
 * Invariants
 * 1. A block never holds bytes of two files, so path, offset and line of its first byte describe all of it.
 * 2. Everything but the list of free blocks belongs to the thread in read or rewind (one at a time:
 * dataset.h); the context is read-only once open has returned, so parse needs no lock but the list's.
 * 3. `first` is the block that open has read; until read returns it, the stream is at its start.
 * 4. The ends of blocks of input that is not live depend on the bytes of the files and block_bytes alone, not
 * on the buffers: workers that each parse every n-th block of the same file parse every record once. */
#include "data/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/chunk_pool.h"
#include "data/guess.h"
#include "data/text.h"

#define DEALT_BLOCKS    16  /* at least, to each of those a stream is dealt to: so that one more is little */
#define MIN_DEALT_BLOCK 512 /* bytes */
/* Text of plain files, after the first block: text, parsed entries and packed rows of a block stay in the
 * core's cache. */
#define DIVIDED_BLOCK (256u << 10)
#define LOOK_BYTES    4096       /* in search of a line feed */
#define COUNT_BYTES   (1u << 20) /* read at a time to count lines */

/* A plain file: the stream and its blocks hold references. */
typedef struct mst_stream_file {
    mst_in *in;
    uint64_t size;
    atomic_uint references;
} mst_stream_file;

typedef struct stream {
    mst_dataset base;
    mst_parse_context context;
    mst_text_list paths;
    bool once_used;
    const char *once; /* the first input that can be read only once; NULL: none */
    uint32_t settle_ms;
    atomic_bool interrupted;

    size_t block_bytes;       /* read at a time */
    size_t most_bytes;        /* dealing makes blocks no larger */
    size_t file;              /* the next to open, or the open one */
    mst_in *in;               /* NULL: none open */
    mst_stream_file *divided; /* the owner of `in`, if it is text of a plain file; else NULL */
    bool in_live;             /* `in` is read as it comes */
    bool in_done;             /* `in` is at its end; the remaining bytes are in carry */
    uint64_t offset, line, sequence;
    uint8_t *carry;
    size_t n_carry, carry_capacity;
    mst_raw_block *first;
    bool at_start;

    mst_in *opened; /* the first input that is read once, until it is its turn */
    uint8_t *head;
    size_t n_head;

    pthread_mutex_t free_mutex; /* guards free_blocks */
    mst_raw_block *free_blocks;
    mst_chunk_pool *pool; /* memory of chunks */
} stream;

const char *mst_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

const char *mst_path_shown(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

bool mst_path_reads_once(const char *path)
{
    struct stat info;
    return strcmp(path, "-") == 0 ||
           (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

char *mst_paths_name(const mst_text_list *paths)
{
    const char *first = mst_path_shown(paths->items[0]);
    size_t n = strlen(first) + 32;
    char *name = mst_alloc(n);
    if (name == NULL)
        return NULL;
    if (paths->n == 1)
        snprintf(name, n, "%s", first);
    else
        snprintf(name, n, "%s and %zu more", first, paths->n - 1);
    return name;
}

uint64_t mst_paths_bytes(const mst_text_list *paths)
{
    uint64_t bytes = 0;
    struct stat info;
    for (size_t i = 0; i < paths->n; i++)
        if (stat(paths->items[i], &info) == 0 && S_ISREG(info.st_mode))
            bytes += (uint64_t)info.st_size;
    return bytes;
}

/* ---- files ---- */

static mst_status file_new(mst_in *in, mst_stream_file **out)
{
    mst_stream_file *file = mst_zalloc(sizeof *file);
    if (file == NULL)
        return mst_fail_memory();
    *file = (mst_stream_file){.in = in, .size = mst_in_file_size(in), .references = 1};
    *out = file;
    return MST_OK;
}

static void file_release(mst_stream_file *file) /* NULL-safe */
{
    if (file == NULL || atomic_fetch_sub(&file->references, 1) != 1)
        return;
    mst_in_close(file->in);
    mst_free(file);
}

/* The line, from 1, that begins at the offset. */
static mst_status file_count_lines(const mst_stream_file *file, uint64_t offset, uint64_t *line)
{
    mst_status st = MST_OK;
    uint8_t *bytes = mst_alloc(COUNT_BYTES);
    if (bytes == NULL)
        return mst_fail_memory();
    *line = 1;
    for (uint64_t at = 0; at < offset; at += COUNT_BYTES) {
        size_t n = offset - at < COUNT_BYTES ? (size_t)(offset - at) : COUNT_BYTES;
        TRY_OUT(st, mst_in_read_at(file->in, at, bytes, n));
        *line += mst_count_newlines(bytes, n);
    }
out:
    mst_free(bytes);
    return st;
}

/* The size of the n bytes at the offset up to their last line feed; 0: they have none. */
static mst_status file_find_end(const mst_stream_file *file, uint64_t offset, size_t n, size_t *whole)
{
    uint8_t bytes[LOOK_BYTES];
    for (*whole = 0; n > 0 && *whole == 0;) {
        size_t look = n < LOOK_BYTES ? n : LOOK_BYTES;
        TRY(mst_in_read_at(file->in, offset + n - look, bytes, look));
        const uint8_t *newline = memrchr(bytes, '\n', look);
        n -= look;
        *whole = newline != NULL ? n + (size_t)(newline - bytes) + 1 : 0;
    }
    return MST_OK;
}

/* ---- blocks ---- */

static void block_free(mst_raw_block *raw)
{
    if (raw != NULL)
        file_release(raw->file);
    if (raw != NULL)
        mst_free(raw->bytes);
    mst_free(raw);
}

static void block_give_back(stream *s, mst_raw_block *raw)
{
    if (raw == NULL)
        return;
    file_release(raw->file);
    raw->file = NULL;
    if (raw->capacity > 4 * MST_STREAM_BLOCK) { /* made for one long record */
        block_free(raw);
        return;
    }
    pthread_mutex_lock(&s->free_mutex);
    raw->next = s->free_blocks;
    s->free_blocks = raw;
    pthread_mutex_unlock(&s->free_mutex);
}

static mst_status block_reserve(mst_raw_block *raw, size_t capacity)
{
    if (capacity <= raw->capacity)
        return MST_OK;
    uint8_t *bytes = mst_realloc(raw->bytes, capacity);
    if (bytes == NULL)
        return mst_fail_memory();
    raw->bytes = bytes;
    raw->capacity = capacity;
    return MST_OK;
}

static mst_status block_take(stream *s, mst_raw_block **out)
{
    pthread_mutex_lock(&s->free_mutex);
    mst_raw_block *raw = s->free_blocks;
    if (raw != NULL)
        s->free_blocks = raw->next;
    pthread_mutex_unlock(&s->free_mutex);
    if (raw == NULL)
        raw = mst_zalloc(sizeof *raw);
    if (raw == NULL)
        return mst_fail_memory();
    *out = raw;
    return MST_OK;
}

/* ---- reading ---- */

static void stream_close_file(stream *s)
{
    if (s->divided != NULL)
        file_release(s->divided);
    else
        mst_in_close(s->in);
    s->divided = NULL;
    s->in = NULL;
    s->n_carry = 0;
}

static mst_status stream_keep(stream *s, const uint8_t *data, size_t n)
{
    if (!mst_grow(&s->carry, &s->carry_capacity, n, 1))
        return mst_fail_memory();
    if (n > 0)
        memcpy(s->carry, data, n);
    s->n_carry = n;
    return MST_OK;
}

/* A byte order mark before text is not part of it. */
static mst_status stream_skip_mark(stream *s)
{
    static const uint8_t all[] = {0xef, 0xbb, 0xbf};
    uint8_t bytes[sizeof all] = {0};
    size_t n = 0, got = 1;
    if (!s->base.format->text)
        return MST_OK;
    if (s->n_carry == 0) { /* a pipe may hold one short line so far */
        for (; got > 0 && n < sizeof all && memcmp(bytes, all, n) == 0; n += got)
            TRY(mst_in_read_some(s->in, bytes + n, sizeof all - n, -1, &got));
        TRY(stream_keep(s, bytes, n));
        s->in_done = got == 0;
    }
    size_t mark = mst_text_mark(s->carry, s->n_carry);
    if (mark > 0)
        memmove(s->carry, s->carry + mark, s->n_carry - mark);
    s->n_carry -= mark;
    s->offset = mark;
    return MST_OK;
}

static mst_status stream_open_file(stream *s)
{
    const char *path = s->paths.items[s->file];
    s->in_done = s->in_live = false;
    s->offset = 0;
    s->line = 1;
    s->n_carry = 0;
    if (mst_path_reads_once(path)) {
        s->once_used = true;
        s->in_live = s->base.live;
        if (s->opened != NULL) {
            TRY(stream_keep(s, s->head, s->n_head));
            s->in = s->opened;
            s->opened = NULL;
        }
    }
    if (s->in == NULL) {
        TRY(mst_in_open(path, &s->in));
        if (mst_format_has_lines(s->base.format) && mst_in_is_plain(s->in))
            TRY(file_new(s->in, &s->divided));
    }
    mst_in_stop_when(s->in, &s->interrupted);
    TRY(stream_skip_mark(s));
    s->n_carry = s->divided != NULL ? 0 : s->n_carry; /* the carried bytes are read with their block */
    return MST_OK;
}

/* Bytes of the whole records at the start of the n bytes of raw. */
static mst_status stream_find_end(stream *s, mst_raw_block *raw, size_t n, size_t *whole)
{
    const mst_format *format = s->base.format;
    raw->block = (mst_block){
        .path = mst_in_path(s->in), .data = raw->bytes, .size = n, .offset = s->offset, .line = s->line};
    if (format->text && s->in_done) {
        *whole = n;
        return MST_OK;
    }
    if (mst_format_has_lines(format)) {
        const uint8_t *newline = memrchr(raw->bytes, '\n', n);
        *whole = newline != NULL ? (size_t)(newline - raw->bytes) + 1 : 0;
        return MST_OK;
    }
    *whole = 0;
    TRY(format->find_end(&s->context, &raw->block, whole));
    if (s->in_done && *whole == 0 && s->context.options->skip_bad_rows)
        *whole = n; /* parse leaves it out */
    else if (s->in_done && *whole == 0)
        return mst_format_advise(&s->context, mst_block_fail(format, &raw->block, raw->bytes,
                                                             "the file ends in the middle of a record"));
    return MST_OK;
}

/* The next block of text of a plain file, without its bytes; size 0 at the end. */
static mst_status stream_divide(stream *s, mst_raw_block *raw)
{
    const size_t most = (size_t)MST_STREAM_MAX_RECORD + 1;
    uint64_t left = s->divided->size > s->offset ? s->divided->size - s->offset : 0;
    size_t room = s->block_bytes, whole = 0;
    if (s->sequence > 0 && room > DIVIDED_BLOCK) /* formats prepare themselves with the first one */
        room = DIVIDED_BLOCK;
    while (left > room) {
        TRY(file_find_end(s->divided, s->offset, room, &whole));
        if (whole > 0)
            break;
        if (room == most) {
            raw->block = (mst_block){
                .path = mst_in_path(s->in), .data = (const uint8_t *)"", .offset = s->offset, .line = 1};
            TRY(file_count_lines(s->divided, s->offset, &raw->block.line));
            return mst_block_fail(s->base.format, &raw->block, raw->block.data,
                                  "a record is longer than 64 MiB");
        }
        room = 2 * room < most ? 2 * room : most;
    }
    raw->block = (mst_block){.size = whole > 0 ? whole : (size_t)left, .offset = s->offset};
    if (raw->block.size > 0) {
        raw->file = s->divided;
        atomic_fetch_add(&raw->file->references, 1);
    }
    return MST_OK;
}

/* Reads the bytes of a block that was only divided; any thread. */
static mst_status block_load(mst_raw_block *raw)
{
    const size_t step = 64u << 10; /* sizes differ by less than a row: the memory need not grow again */
    if (raw->file == NULL || raw->block.data != NULL)
        return MST_OK;
    TRY(block_reserve(raw, (raw->block.size + step - 1) / step * step));
    TRY(mst_in_read_at(raw->file->in, raw->block.offset, raw->bytes, raw->block.size));
    raw->block.data = raw->bytes;
    return MST_OK;
}

/* Live: waits for bytes unless a whole record is available, then takes all available bytes; the first block
 * of the stream waits settle_ms for more. Sets in_done at the end. */
static mst_status stream_read_live(stream *s, uint8_t *bytes, size_t room, bool has_record, size_t *n)
{
    size_t got = 1;
    if (!has_record) {
        TRY(mst_in_read_some(s->in, bytes + *n, room - *n, -1, &got));
        s->in_done = got == 0;
        *n += got;
    }
    uint64_t begun = mst_now_ns();
    while (got > 0 && *n < room) {
        uint64_t waited_ms = (mst_now_ns() - begun) / MST_MS;
        int wait_ms = waited_ms < s->settle_ms ? (int)(s->settle_ms - waited_ms) : 0;
        TRY(mst_in_read_some(s->in, bytes + *n, room - *n, wait_ms, &got));
        *n += got;
    }
    return MST_OK;
}

/* Fills raw from the open file; raw->block.size is 0 when the file has no more. `room` bytes are examined,
 * block_bytes or twice the carried bytes; for a long record it grows to one byte more than a record may have:
 * when even that is full without a whole record, the record is too long. */
static mst_status stream_fill(stream *s, mst_raw_block *raw)
{
    const size_t most = (size_t)MST_STREAM_MAX_RECORD + 1;
    size_t n = s->n_carry, whole = 0, got, room = 2 * n < most ? 2 * n : most;
    if (room < s->block_bytes)
        room = s->block_bytes;
    TRY(block_reserve(raw, room));
    if (n > 0)
        memcpy(raw->bytes, s->carry, n);
    s->n_carry = 0;
    if (s->in_live && n > 0)
        TRY(stream_find_end(s, raw, n, &whole));
    for (;;) {
        if (s->in_live && !s->in_done) {
            TRY(stream_read_live(s, raw->bytes, room, whole > 0, &n));
        } else if (!s->in_done) {
            size_t want = room - n;
            TRY(mst_in_read(s->in, raw->bytes + n, want, &got));
            n += got;
            s->in_done = got < want;
        }
        if (n > 0)
            TRY(stream_find_end(s, raw, n, &whole));
        if (whole > 0 || n == 0)
            break;
        if (s->in_live && n < room)
            continue;
        if (n == most)
            return mst_block_fail(s->base.format, &raw->block, raw->bytes, "a record is longer than 64 MiB");
        room = 2 * room < most ? 2 * room : most;
        TRY(block_reserve(raw, room));
    }
    raw->block.size = whole;
    return whole > 0 ? stream_keep(s, raw->bytes + whole, n - whole) : MST_OK;
}

static mst_status stream_next_block(stream *s, mst_raw_block **out)
{
    mst_status st;
    mst_raw_block *raw = NULL;
    *out = NULL;
    while (s->file < s->paths.n) {
        if (s->in == NULL)
            TRY_OUT(st, stream_open_file(s));
        if (raw == NULL)
            TRY_OUT(st, block_take(s, &raw));
        raw->block.size = 0;
        TRY_OUT(st, s->divided != NULL ? stream_divide(s, raw) : stream_fill(s, raw));
        if (raw->block.size == 0) {
            stream_close_file(s);
            s->file++;
            continue;
        }
        raw->block.path = mst_path_shown(s->paths.items[s->file]);
        raw->sequence = s->sequence++;
        s->offset += raw->block.size;
        if (s->base.format->text && s->divided == NULL)
            s->line += mst_count_newlines(raw->block.data, raw->block.size);
        *out = raw;
        return MST_OK;
    }
    st = MST_OK;
out:
    block_give_back(s, raw);
    return st;
}

static mst_status stream_read(mst_dataset *self, mst_raw_block **out)
{
    stream *s = (stream *)self;
    if (s->at_start) {
        s->at_start = false;
        *out = s->first;
        s->first = NULL;
        return MST_OK;
    }
    return stream_next_block(s, out);
}

static mst_status stream_rewind(mst_dataset *self)
{
    stream *s = (stream *)self;
    if (s->at_start)
        return MST_OK;
    if (s->once_used)
        return mst_fail(MST_EINPUT, "%s can be read only once; give a file instead", s->once);
    stream_close_file(s);
    mst_bad_rows_rewind(&self->bad);
    s->file = 0;
    s->sequence = 0;
    TRY(stream_next_block(s, &s->first));
    s->at_start = true;
    return MST_OK;
}

static void stream_interrupt(mst_dataset *self)
{
    atomic_store(&((stream *)self)->interrupted, true);
}

static void stream_skip(mst_dataset *self, mst_raw_block *raw)
{
    block_give_back((stream *)self, raw);
}

static mst_status stream_deal(mst_dataset *self, uint32_t n_shards)
{
    stream *s = (stream *)self;
    if (s->once != NULL)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, so it cannot be dealt to %u workers; give a file, or use "
                        "--cache",
                        s->once, n_shards);
    uint64_t bytes = s->base.info.bytes / ((uint64_t)n_shards * DEALT_BLOCKS);
    s->block_bytes = bytes < MIN_DEALT_BLOCK ? MIN_DEALT_BLOCK
                     : bytes < s->most_bytes ? (size_t)bytes
                                             : s->most_bytes;
    block_give_back(s, s->first);
    s->first = NULL;
    s->at_start = false;
    TRY(stream_rewind(self));
    self->bad.most = 0; /* from here on only those of the reader's own blocks count */
    return MST_OK;
}

static mst_status stream_parse(mst_dataset *self, mst_raw_block *raw, mst_chunk_builder *builder,
                               mst_chunk **out)
{
    stream *s = (stream *)self;
    mst_status st;
    mst_chunk *chunk;
    builder->max_dense = s->context.max_dense;
    builder->pool = s->pool;
    TRY_OUT(st, block_load(raw));
    mst_chunk_builder_clear(builder);
    bool skip = s->context.options->skip_bad_rows, counts = s->context.options->counter != NULL;
    mst_bad_rows *bad = self->bad.silent ? NULL : &self->bad;
    /* A counter must not count the rows before a malformed one twice. */
    st = skip && counts ? mst_format_parse_good(s->base.format, &s->context, &raw->block, bad, builder)
                        : mst_format_parse(s->base.format, &s->context, &raw->block, builder);
    if (st == MST_EINPUT && raw->file != NULL &&
        raw->block.line == 0) { /* again, for a message with the line */
        TRY_OUT(st, file_count_lines(raw->file, raw->block.offset, &raw->block.line));
        mst_chunk_builder_clear(builder);
        st = mst_format_parse(s->base.format, &s->context, &raw->block, builder);
    }
    if (st == MST_EINPUT && skip && !counts) {
        mst_chunk_builder_clear(builder);
        st = mst_format_parse_good(s->base.format, &s->context, &raw->block, bad, builder);
    }
    TRY_OUT(st, mst_format_advise(&s->context, st));
    TRY_OUT(st, mst_chunk_builder_pack(builder, 0, builder->n_rows, &chunk));
    chunk->bytes_read = raw->block.size;
    *out = chunk;
out:
    block_give_back(s, raw);
    return st;
}

static void stream_destroy(mst_dataset *self)
{
    stream *s = (stream *)self;
    mst_parse_context_fini(&s->context, s->base.format);
    stream_close_file(s);
    mst_in_close(s->opened);
    block_free(s->first);
    while (s->free_blocks != NULL) {
        mst_raw_block *next = s->free_blocks->next;
        block_free(s->free_blocks);
        s->free_blocks = next;
    }
    pthread_mutex_destroy(&s->free_mutex);
    mst_chunk_pool_release(s->pool);
    mst_text_list_fini(&s->paths);
    mst_text_list_fini(&s->base.left_out);
    mst_text_list_fini(&s->base.doubts);
    mst_text_list_fini(&(mst_text_list){.items = s->base.class_names, .n = s->base.n_class_names});
    mst_free(s->carry);
    mst_free(s->head);
    mst_free(s->base.name);
    mst_free(s);
}

static const mst_dataset_ops stream_ops = {
    .read = stream_read,
    .parse = stream_parse,
    .skip = stream_skip,
    .deal = stream_deal,
    .interrupt = stream_interrupt,
    .rewind = stream_rewind,
    .destroy = stream_destroy,
};

const char *mst_stream_reads_once(const mst_dataset *dataset)
{
    return dataset->ops == &stream_ops ? ((const stream *)dataset)->once : NULL;
}

/* Takes the paths over, none of them twice that can be read only once. */
static mst_status stream_take_paths(stream *s, const mst_text_list *paths)
{
    for (size_t i = 0; i < paths->n; i++) {
        const char *path = paths->items[i];
        bool once = mst_path_reads_once(path);
        for (size_t j = 0; j < i && once; j++)
            if (strcmp(path, paths->items[j]) == 0)
                return mst_fail(MST_EUSAGE, "%s can be read only once and is named twice",
                                strcmp(path, "-") == 0 ? "standard input (-)" : path);
        TRY(mst_text_list_add(&s->paths, path));
        if (once && s->once == NULL)
            s->once = mst_path_shown(s->paths.items[i]);
    }
    return MST_OK;
}

/* Rows are images, which may take far more memory than the bytes they are read from: blocks of fewer rows. */
static mst_status stream_settle_images(stream *s)
{
    uint64_t bytes =
        s->first->block.size * (uint64_t)MST_IMAGE_BLOCK / (s->context.first_rows * s->context.max_dense);
    if (bytes >= s->most_bytes)
        return MST_OK;
    s->most_bytes = s->block_bytes = bytes < MIN_DEALT_BLOCK ? MIN_DEALT_BLOCK : (size_t)bytes;
    if (s->once != NULL) /* the first block does not change */
        return MST_OK;
    block_give_back(s, s->first);
    s->first = NULL;
    s->at_start = false;
    return stream_rewind(&s->base);
}

mst_status mst_stream_open(const mst_text_list *paths, const mst_format *format,
                           const mst_data_options *options, mst_in *opened, const uint8_t *head,
                           size_t n_head, mst_dataset **out)
{
    static const mst_block nothing = {.path = "", .data = (const uint8_t *)"", .line = 1};
    mst_status st;
    stream *s = mst_zalloc(sizeof *s);
    if (s == NULL) {
        mst_in_close(opened);
        return mst_fail_memory();
    }
    pthread_mutex_init(&s->free_mutex, NULL);
    s->base.ops = &stream_ops;
    s->base.kind = &format->kind;
    s->base.format = format;
    s->opened = opened;
    s->block_bytes = s->most_bytes = MST_STREAM_BLOCK;
    s->context.options = options;
    s->context.features = (uint64_t)options->features;
    s->context.any_key = options->any_key;
    s->base.info.bytes = mst_paths_bytes(paths);
    st = MST_ENOMEM;
    s->base.name = mst_paths_name(paths);
    s->head = n_head > 0 ? mst_alloc(n_head) : NULL;
    s->pool = mst_chunk_pool_new();
    if (s->base.name == NULL || s->pool == NULL || (n_head > 0 && s->head == NULL)) {
        mst_fail(st, "%s: out of memory for a stream", paths->items[0]);
        goto out;
    }
    if (n_head > 0)
        memcpy(s->head, head, n_head);
    s->n_head = n_head;
    TRY_OUT(st, stream_take_paths(s, paths));
    s->base.live = options->live && s->once != NULL;
    s->settle_ms = options->settle_ms;
    TRY_OUT(st, stream_next_block(s, &s->first));
    s->settle_ms = 0;
    s->at_start = true;
    s->base.read_is_cheap = s->first != NULL && s->first->file != NULL && s->once == NULL;
    if (s->first != NULL)
        TRY_OUT(st, block_load(s->first));
    TRY_OUT(st, mst_parse_context_init(&s->context, format, s->first != NULL ? &s->first->block : &nothing));
    TRY_OUT(st, mst_dataset_take_context(&s->base, &s->context));
    if (s->first != NULL && s->context.channels != 0)
        TRY_OUT(st, stream_settle_images(s));
    else if (s->first != NULL)
        mst_dataset_take_first(&s->base, &s->context, &s->first->block);
    s->base.info.n_dense = s->context.max_dense;
    if (s->context.features != 0 && s->context.max_dense > s->context.features) /* any_key */
        s->context.max_dense = (uint32_t)s->context.features;
    s->base.info.index_base = s->context.index_base;
    if (format->hashes || s->context.features != (uint64_t)options->features) /* settled by prepare */
        s->base.info.n_features = s->context.features;
    if (s->first != NULL) /* no rows fit everything */
        TRY_OUT(st, mst_format_origin(format, &s->context, &s->base.origin));
    *out = &s->base;
    return MST_OK;
out:
    stream_destroy(&s->base);
    return st;
}
