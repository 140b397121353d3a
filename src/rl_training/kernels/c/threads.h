/* A pool of threads that share work of many parts. There is one for the process; a caller that finds it taken works alone,
   with the same results, as no result may depend on which thread made which part. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <xmmintrin.h>

#define MOST_THREADS 64
#define SPINS 20000 /* before a worker sleeps: some hundred microseconds, the time between two passes of an update */

typedef void (*Work)(const void *about, int64_t part, int thread);

static struct {
    pthread_mutex_t taken; /* by the caller whose work it is */
    pthread_mutex_t lock;  /* of what is below */
    pthread_cond_t wake;
    int workers, sleeping;
    unsigned seen[MOST_THREADS]; /* the round each worker was started in */
    atomic_uint round;          /* a new number is new work */
    atomic_int busy;            /* workers that have not yet left the current round */
    struct { _Alignas(64) atomic_llong next; } share[MOST_THREADS]; /* of the parts, one for each thread */
    Work work;
    const void *about;
    int64_t parts;
    int wanted;
    unsigned modes; /* the caller's: whether denormal numbers count as zero */
} pool = {.taken = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static int64_t first_part(int thread) { return pool.parts * thread / (pool.wanted + 1); }

/* A thread's own share first, then what the others have left. The shares of two pieces of work with as many parts are the same:
   what a thread has written in one of them is in its cache for the next. */
static void run_parts(int thread) {
    for (int i = 0; i <= pool.wanted; i++) {
        int whose = (thread + i) % (pool.wanted + 1);
        int64_t end = first_part(whose + 1);
        for (;;) {
            int64_t part = atomic_fetch_add_explicit(&pool.share[whose].next, 1, memory_order_relaxed);
            if (part >= end) break;
            pool.work(pool.about, part, thread);
        }
    }
}

static unsigned next_round(unsigned seen) {
    for (int i = 0; i < SPINS; i++) {
        unsigned now = atomic_load_explicit(&pool.round, memory_order_acquire);
        if (now != seen) return now;
        _mm_pause();
    }
    pthread_mutex_lock(&pool.lock);
    pool.sleeping++;
    while (atomic_load(&pool.round) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
    pool.sleeping--;
    unsigned now = atomic_load(&pool.round);
    pthread_mutex_unlock(&pool.lock);
    return now;
}

static void *work_on(void *number) {
    int thread = (int)(intptr_t)number;
    unsigned seen = pool.seen[thread];
    for (;;) {
        seen = next_round(seen);
        if (thread <= pool.wanted) {
            _mm_setcsr(pool.modes);
            run_parts(thread);
        }
        atomic_fetch_sub_explicit(&pool.busy, 1, memory_order_release);
    }
    return NULL;
}

static void after_fork(void) { /* a fork has none of its parent's threads */
    pthread_mutex_init(&pool.taken, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pool.workers = pool.sleeping = 0;
    atomic_store(&pool.busy, 0);
}

static void start_workers(int wanted) { /* the caller has taken the pool, and no worker is busy */
    static int prepared;
    if (pool.workers >= wanted) return;
    if (!prepared) prepared = !pthread_atfork(NULL, NULL, after_fork);
    sigset_t all, before; /* signals are Python's, and its own threads' */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        pthread_t thread;
        int number = pool.workers + 1;
        pool.seen[number] = atomic_load(&pool.round);
        if (pthread_create(&thread, NULL, work_on, (void *)(intptr_t)number)) break;
        pthread_detach(thread);
        pool.workers = number;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Every part done once, by up to `threads` threads; the caller is thread 0. */
static void share(Work work, const void *about, int64_t parts, int threads) {
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads < 2 || parts < 2 || pthread_mutex_trylock(&pool.taken)) {
        for (int64_t part = 0; part < parts; part++) work(about, part, 0);
        return;
    }
    start_workers(threads - 1);
    pool.work = work, pool.about = about, pool.parts = parts, pool.wanted = threads - 1;
    pool.modes = _mm_getcsr();
    for (int i = 0; i < threads; i++) atomic_store_explicit(&pool.share[i].next, first_part(i), memory_order_relaxed);
    atomic_store_explicit(&pool.busy, pool.workers, memory_order_relaxed);
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add_explicit(&pool.round, 1, memory_order_release);
    if (pool.sleeping) pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    run_parts(0);
    for (int i = 0; atomic_load_explicit(&pool.busy, memory_order_acquire) > 0; i++) {
        if (i < SPINS) _mm_pause();
        else sched_yield();
    }
    pthread_mutex_unlock(&pool.taken);
}
