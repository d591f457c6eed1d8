/* Turns: one thread at a time makes a call that may wait for long, such as reading a pipe. The others wait at
 * a condition: a thread sanitizer defers the signals of a thread that waits for a mutex until it has it. */
#ifndef MST_BASE_TURN_H
#define MST_BASE_TURN_H

#include <pthread.h>
#include <stdbool.h>

typedef struct mst_turn {
    pthread_mutex_t mutex;
    pthread_cond_t over;
    bool taken; /* guarded by mutex */
} mst_turn;

static inline void mst_turn_init(mst_turn *self)
{
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->over, NULL);
    self->taken = false;
}

static inline void mst_turn_fini(mst_turn *self)
{
    pthread_cond_destroy(&self->over);
    pthread_mutex_destroy(&self->mutex);
}

/* Waits until no other thread has the turn. */
static inline void mst_turn_begin(mst_turn *self)
{
    pthread_mutex_lock(&self->mutex);
    while (self->taken)
        pthread_cond_wait(&self->over, &self->mutex);
    self->taken = true;
    pthread_mutex_unlock(&self->mutex);
}

static inline void mst_turn_end(mst_turn *self)
{
    pthread_mutex_lock(&self->mutex);
    self->taken = false;
    pthread_cond_signal(&self->over);
    pthread_mutex_unlock(&self->mutex);
}

#endif
