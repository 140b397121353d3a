/* Many small tanh policies around one: its parameters plus or minus a step. With a few rows for each, a pass is the reading of
   parameters, so sums are never written down: what is read again and again is the policy in the middle, and each step twice. */

#define ABREAST 4 /* vectors of columns that are summed side by side, so that none waits for the sum before it */

/* Sizes, and where everything lies. */
typedef struct {
    int64_t layers, sizes[MOST_LAYERS + 1], biased; /* whether biases (out) follow each layer's weights (in, out) */
    int64_t bounded;                                /* whether outputs are cut off at -1 and 1 */
    const float *center, *steps;
    int64_t apart;          /* floats from one step to the next */
    const int64_t *members; /* by number: 2 n adds step n, 2 n + 1 subtracts it */
    int64_t count, rows;    /* of members, and of observations of each */
    const float *x;         /* (count, rows, in) */
    float *memory;          /* two rows of the widest layer */
    float *to;              /* (count, rows, out) */
} Population;

INLINE vec masked(const float *from, int64_t left) { /* as `some`, for what is read in the innermost loop */
    if (left >= LANES) return load(from);
#ifdef __AVX512F__
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1 << left) - 1), from);
#else
    static const int32_t masks[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return (vec)_mm256_maskload_ps(from, _mm256_loadu_si256((const __m256i *)(masks + LANES - left)));
#endif
}

/* The center's numbers with the step's, as one addition rounds them. */
INLINE vec moved(const float *center, const float *step, float sign, int64_t left) {
    return masked(center, left) + masked(step, left) * sign;
}

/* `count` vectors of columns of x · w + bias, the last of them `left` wide; terms of even and of odd number are summed apart. */
INLINE void columns_of_row(const int count, int64_t left, const float *x, int64_t in, const float *center, const float *step,
                           float sign, int64_t out, int64_t bias, float *to) {
    vec even[ABREAST], odd[ABREAST];
    int64_t p = 0, at = 0;
    for (int c = 0; c < count; c++) even[c] = odd[c] = (vec){0};
    for (; p + 1 < in; p += 2, at += 2 * out)
        _Pragma("GCC unroll 4") for (int c = 0; c < count; c++) {
            const int64_t width = c < count - 1 ? LANES : left, i = at + c * LANES;
            even[c] += moved(center + i, step + i, sign, width) * x[p];
            odd[c] += moved(center + i + out, step + i + out, sign, width) * x[p + 1];
        }
    for (int c = 0; c < count; c++) {
        const int64_t width = c < count - 1 ? LANES : left, i = c * LANES;
        vec sum = even[c] + odd[c];
        if (p < in) sum += moved(center + at + i, step + at + i, sign, width) * x[p];
        if (bias) sum += moved(center + bias + i, step + bias + i, sign, width);
        put(to + i, sum, width);
    }
}

/* A single column, summed a vector at a time. */
static float column_of_row(const float *x, int64_t in, const float *center, const float *step, float sign, int64_t biased) {
    vec sum = {0};
    for (int64_t p = 0; p < in; p += LANES) sum += moved(center + p, step + p, sign, in - p) * masked(x + p, in - p);
    return sum_of(sum) + (biased ? center[in] + sign * step[in] : 0);
}

static void layer_of(const float *x, int64_t in, const float *center, const float *step, float sign, int64_t out, int64_t biased,
                     float *to) {
    int64_t j = 0, bias = biased ? in * out : 0;
    if (out == 1) *to = column_of_row(x, in, center, step, sign, biased), j = 1;
    for (; j + ABREAST * LANES <= out; j += ABREAST * LANES)
        columns_of_row(ABREAST, LANES, x, in, center + j, step + j, sign, out, bias, to + j);
    for (; j < out; j += LANES)
        columns_of_row(1, least(LANES, out - j), x, in, center + j, step + j, sign, out, bias, to + j);
}

/* What each member gives out. */
EXPORT void act_as_many(const Population *p) {
    int64_t widest = 0, in = p->sizes[0], last = p->sizes[p->layers];
    for (int64_t l = 0; l <= p->layers; l++) widest = most(widest, p->sizes[l]);
    for (int64_t row = 0; row < p->count * p->rows; row++) {
        int64_t member = p->members[row / p->rows];
        const float *center = p->center, *step = p->steps + member / 2 * p->apart, *from = p->x + row * in;
        float sign = member % 2 ? -1.0f : 1.0f, *to = p->to + row * last;
        for (int64_t l = 0; l < p->layers; l++) {
            int64_t n = p->sizes[l], out = p->sizes[l + 1], hidden = l < p->layers - 1;
            float *into = hidden ? p->memory + l % 2 * widest : to;
            layer_of(from, n, center, step, sign, out, p->biased, into);
            if (hidden) activate(TANH, into, out, into);
            center += n * out + (p->biased ? out : 0), step += n * out + (p->biased ? out : 0), from = into;
        }
        if (p->bounded) OVER(i, last, put(to + i, within(-1.0f, some(to + i, left), 1.0f), left);)
    }
}
