/* What is done to whole vectors of parameters after a pass back. Threads take pieces of a vector. */

#include <math.h>

#define PIECE 8192

/* Vectors over n numbers, the last one over a copy of those that do not fill one. */
#define OVER(i, n, ...)                                                                                                       \
    {                                                                                                                         \
        int64_t i = 0;                                                                                                        \
        for (; i + LANES <= (n); i += LANES) { const int64_t left = LANES; __VA_ARGS__ }                                      \
        if (i < (n)) { const int64_t left = (n) - i; __VA_ARGS__ }                                                            \
    }
INLINE vec some(const float *from, int64_t left) {
    if (left >= LANES) return load(from);
    float lanes[LANES] = {0};
    memcpy(lanes, from, 4 * left);
    return load(lanes);
}
INLINE void put(float *to, vec x, int64_t left) {
    if (left >= LANES) { store(to, x); return; }
    float lanes[LANES];
    store(lanes, x);
    memcpy(to, lanes, 4 * left);
}

INLINE vec root(vec x) {
#ifdef __AVX512F__
    return (vec)_mm512_sqrt_ps((__m512)x);
#else
    return (vec)_mm256_sqrt_ps((__m256)x);
#endif
}

typedef struct {
    float *parameters, *mean, *square;
    const float *gradient;
    int64_t count;
    float rate, beta1, beta2, epsilon, decay, correction; /* `rate` is divided by the first correction already */
} AdamStep;

static void adam_part(const void *about, int64_t part, int thread) {
    const AdamStep *s = about;
    int64_t from = part * PIECE, n = least(PIECE, s->count - from);
    float *p = s->parameters + from, *m = s->mean + from, *v = s->square + from;
    const float *gradient = s->gradient + from;
    (void)thread;
    OVER(i, n, vec here = some(p + i, left), g = some(gradient + i, left) + s->decay * here;
         vec mean = some(m + i, left), square = some(v + i, left) * s->beta2 + (1.0f - s->beta2) * g * g;
         mean += (1.0f - s->beta1) * (g - mean);
         put(m + i, mean, left); put(v + i, square, left);
         put(p + i, here - s->rate * (mean / (root(square) * s->correction + s->epsilon)), left);)
}

/* One step of Adam, which is counted in `steps`. */
EXPORT void adam(float *parameters, const float *gradient, float *mean, float *square, float *steps, int64_t count, double rate,
                 double beta1, double beta2, double epsilon, double decay, int64_t threads) {
    double step = *steps += 1;
    AdamStep s = {parameters, mean, square, gradient, count, (float)(rate / (1 - pow(beta1, step))), (float)beta1, (float)beta2,
                  (float)epsilon, (float)decay, (float)(1 / sqrt(1 - pow(beta2, step)))};
    share(adam_part, &s, (count + PIECE - 1) / PIECE, (int)threads);
}

typedef struct {
    const float *source;
    float *target, tau;
    int64_t count;
} Following;

static void follow_part(const void *about, int64_t part, int thread) {
    const Following *f = about;
    int64_t from = part * PIECE, n = least(PIECE, f->count - from);
    const float *source = f->source + from;
    float *target = f->target + from;
    (void)thread;
    OVER(i, n, vec at = some(target + i, left); put(target + i, at + f->tau * (some(source + i, left) - at), left);)
}

/* `target` moved a fraction `tau` of the way to `source`. */
EXPORT void follow(const float *source, float *target, int64_t count, double tau, int64_t threads) {
    Following f = {source, target, (float)tau, count};
    share(follow_part, &f, (count + PIECE - 1) / PIECE, (int)threads);
}
