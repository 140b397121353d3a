/* Threads that share work of many parts. There is one crew for the process; whoever finds it taken works alone, with the
   same results, as no result may depend on who made which part. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <xmmintrin.h>

#define MOST_THREADS 64
#define LOOKS 20000 /* for work before a helper sleeps: some hundred microseconds, the time between two passes of an update */

typedef void (*Work)(const void *about, int64_t part, int thread);

static struct {
    pthread_mutex_t taken; /* by the caller whose work it is */
    pthread_mutex_t lock;  /* of what is below */
    pthread_cond_t wake;
    int helpers, sleeping;
    unsigned met[MOST_THREADS]; /* the round each helper was begun in */
    atomic_uint round;          /* a new number is new work */
    atomic_int busy;            /* helpers that have not yet left the current round */
    struct { _Alignas(64) atomic_llong next; } share[MOST_THREADS]; /* of the parts, one for each thread */
    Work work;
    const void *about;
    int64_t parts;
    int wanted;
    unsigned modes; /* the caller's: whether denormal numbers count as zero */
} crew = {.taken = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static int64_t first_part(int thread) { return crew.parts * thread / (crew.wanted + 1); }

/* A thread's own share first, then what others have left. The shares of two pieces of work with as many parts are the same:
   what a thread has written in one of them is in its cache for the next. */
static void take_parts(int thread) {
    for (int i = 0; i <= crew.wanted; i++) {
        int whose = (thread + i) % (crew.wanted + 1);
        int64_t end = first_part(whose + 1);
        for (;;) {
            int64_t part = atomic_fetch_add_explicit(&crew.share[whose].next, 1, memory_order_relaxed);
            if (part >= end) break;
            crew.work(crew.about, part, thread);
        }
    }
}

static unsigned next_round(unsigned met) {
    for (int i = 0; i < LOOKS; i++) {
        unsigned now = atomic_load_explicit(&crew.round, memory_order_acquire);
        if (now != met) return now;
        _mm_pause();
    }
    pthread_mutex_lock(&crew.lock);
    crew.sleeping++;
    while (atomic_load(&crew.round) == met) pthread_cond_wait(&crew.wake, &crew.lock);
    crew.sleeping--;
    unsigned now = atomic_load(&crew.round);
    pthread_mutex_unlock(&crew.lock);
    return now;
}

static void *help(void *number) {
    int thread = (int)(intptr_t)number;
    unsigned met = crew.met[thread];
    for (;;) {
        met = next_round(met);
        if (thread <= crew.wanted) {
            _mm_setcsr(crew.modes);
            take_parts(thread);
        }
        atomic_fetch_sub_explicit(&crew.busy, 1, memory_order_release);
    }
    return NULL;
}

static void begin_anew(void) { /* in a fork, which has none of its parent's threads */
    pthread_mutex_init(&crew.taken, NULL);
    pthread_mutex_init(&crew.lock, NULL);
    pthread_cond_init(&crew.wake, NULL);
    crew.helpers = crew.sleeping = 0;
    atomic_store(&crew.busy, 0);
}

static void begin_helpers(int wanted) { /* whoever calls has taken the crew, and nobody is at work */
    static int prepared;
    if (crew.helpers >= wanted) return;
    if (!prepared) prepared = !pthread_atfork(NULL, NULL, begin_anew);
    sigset_t all, before; /* signals are Python's, and its own threads' */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (crew.helpers < wanted) {
        pthread_t thread;
        int number = crew.helpers + 1;
        crew.met[number] = atomic_load(&crew.round);
        if (pthread_create(&thread, NULL, help, (void *)(intptr_t)number)) break;
        pthread_detach(thread);
        crew.helpers = number;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Every part done once, by up to `threads` threads; the caller is thread 0. */
static void share(Work work, const void *about, int64_t parts, int threads) {
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads < 2 || parts < 2 || pthread_mutex_trylock(&crew.taken)) {
        for (int64_t part = 0; part < parts; part++) work(about, part, 0);
        return;
    }
    begin_helpers(threads - 1);
    crew.work = work, crew.about = about, crew.parts = parts, crew.wanted = threads - 1;
    crew.modes = _mm_getcsr();
    for (int i = 0; i < threads; i++) atomic_store_explicit(&crew.share[i].next, first_part(i), memory_order_relaxed);
    atomic_store_explicit(&crew.busy, crew.helpers, memory_order_relaxed);
    pthread_mutex_lock(&crew.lock);
    atomic_fetch_add_explicit(&crew.round, 1, memory_order_release);
    if (crew.sleeping) pthread_cond_broadcast(&crew.wake);
    pthread_mutex_unlock(&crew.lock);
    take_parts(0);
    for (int i = 0; atomic_load_explicit(&crew.busy, memory_order_acquire) > 0; i++) {
        if (i < LOOKS) _mm_pause();
        else sched_yield();
    }
    pthread_mutex_unlock(&crew.taken);
}
