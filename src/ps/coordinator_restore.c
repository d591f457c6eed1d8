/* Restored floats; contract in coordinator_restore.h. */
#include "ps/coordinator_impl.h"

#define PIECE_FLOATS (1u << 18) /* 1 MB */
#define WINDOW       4          /* pieces in flight to one server */

mst_status mst_restore_own(mst_server *s)
{
    mst_params *params = s->model.params;
    for (uint32_t slot = 0; slot <= params->n_slots; slot++)
        for (uint32_t i = 0; i < s->owned.n; i++) {
            const mst_extent *extent = &s->owned.extents[i];
            float *to = (slot == 0 ? params->w : params->slots[slot - 1]) + extent->first;
            TRY(s->hooks->checkpoint->read(s->hooks->arg, slot, extent->first, extent->count, to));
        }
    return MST_OK;
}

/* Sends the next pieces. */
static mst_status restore_send_pieces(mst_server *s, uint32_t server)
{
    mst_restore *r = &s->co->restores[server];
    while (r->in_flight < WINDOW && !mst_float_cursor_at_end(&r->next, &r->owned, s->model.params->n_slots)) {
        uint64_t count, first = mst_float_cursor_piece(&r->next, &r->owned, PIECE_FLOATS, &count);
        mst_body *piece = mst_body_take(&s->bodies, PIECE_FLOATS * sizeof(float));
        if (piece == NULL)
            return mst_fail_memory();
        mst_message m = {.type = MST_PS_FLOATS, .count = r->next.slot, .step = first};
        mst_status st =
            s->hooks->checkpoint->read(s->hooks->arg, r->next.slot, first, count, (float *)piece->data);
        if (st != MST_OK) {
            mst_body_release(&s->bodies, piece);
            return st;
        }
        piece->restores = server + 1;
        TRY(mst_unless_gone(mst_body_lend(&s->bodies, s->servers[server], &m, piece, count * sizeof(float))));
        r->in_flight++;
        mst_float_cursor_advance(&r->next, &r->owned, count);
    }
    return MST_OK;
}

void mst_restore_sent(mst_server *s, uint32_t server)
{
    s->co->restores[server].in_flight--;
    mst_status st = restore_send_pieces(s, server);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

mst_status mst_restore_begin(mst_server *s, uint32_t server)
{
    TRY(mst_placement_owned(&s->table, server, &s->co->restores[server].owned));
    return restore_send_pieces(s, server);
}
