/* Server-sent events (sse.h). The format is that of the HTML standard, "Server-sent events". */
#include "dash/sse.h"

#include <string.h>

#include "dash/board.h"

void mst_sse_add(mst_string *out, const char *event, const char *data)
{
    if (data == NULL)
        return;
    mst_string_format(out, "event: %s\n", event);
    for (;;) {
        size_t n = strcspn(data, "\r\n");
        mst_string_add(out, "data: ");
        mst_string_addn(out, data, n);
        mst_string_add(out, "\n");
        data += n;
        if (*data == '\0')
            break;
        data += data[0] == '\r' && data[1] == '\n' ? 2 : 1;
    }
    mst_string_add(out, "\n");
}

void mst_listener_fini(mst_listener *self)
{
    mst_string_fini(&self->pending);
    *self = (mst_listener){0};
}

static size_t sse_waiting(const mst_listener *self)
{
    return self->pending.size - self->at;
}

/* Moves the queued bytes to the front. */
static void sse_tidy(mst_listener *self)
{
    if (self->at == 0 || self->pending.text == NULL)
        return;
    memmove(self->pending.text, self->pending.text + self->at, sse_waiting(self) + 1);
    self->pending.size -= self->at;
    self->at = 0;
}

void mst_listener_offer(mst_listener *self, const mst_board *board, const char *common)
{
    if (!self->begun || self->behind)
        return;
    size_t more = strlen(common);
    for (size_t i = 0; i < board->n; i++)
        more += board->runs[i]->id <= self->given ? board->runs[i]->delta.size : 0;
    if (sse_waiting(self) > 0 && sse_waiting(self) + more > MST_LISTENER_PENDING) {
        self->behind = true;
        return;
    }
    sse_tidy(self);
    mst_string_add(&self->pending, common);
    for (size_t i = 0; i < board->n; i++)
        if (board->runs[i]->id <= self->given && board->runs[i]->delta.size > 0)
            mst_string_addn(&self->pending, board->runs[i]->delta.text, board->runs[i]->delta.size);
}

/* When nothing is queued: the first events, or the next run that was not sent yet. */
static void sse_refill(mst_listener *self, const mst_board *board, const char *common)
{
    mst_string_fini(&self->pending);
    self->at = 0;
    if (!self->begun || self->behind) {
        self->begun = true;
        self->behind = false;
        self->given = 0;
        mst_sse_add(&self->pending, "begin", "{}");
        mst_string_add(&self->pending, common);
        return;
    }
    for (size_t i = 0; i < board->n; i++)
        if (board->runs[i]->id > self->given) {
            self->given = board->runs[i]->id;
            mst_board_snapshot(board->runs[i], &self->pending);
            return;
        }
}

size_t mst_listener_take(mst_listener *self, const mst_board *board, const char *common, char *to,
                         size_t size)
{
    if (sse_waiting(self) == 0)
        sse_refill(self, board, common);
    if (self->pending.failed)
        return SIZE_MAX;
    size_t n = sse_waiting(self) < size ? sse_waiting(self) : size;
    if (n > 0)
        memcpy(to, self->pending.text + self->at, n);
    self->at += n;
    return n;
}
