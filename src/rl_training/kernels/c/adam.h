/* Adam over a whole vector of parameters. Threads take pieces of it. */

#define PIECE 8192

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
