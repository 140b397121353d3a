/* What a hidden layer does to its product, row by row, and the way back. */

#define EPSILON 1e-6f

enum { RELU = 0, SILU = 1, TANH = 2 };

/* Less its mean, over its standard deviation, times gain, plus shift. */
static void norm_row(const float *x, int64_t n, const float *gain, const float *shift, float *mean, float *rstd, float *to) {
    vec sum = {0}, square = {0};
    OVER(i, n, sum += some(x + i, left);)
    float m = sum_of(sum) / (float)n;
    OVER(i, n, vec off = some(x + i, left) - m; if (left >= LANES) square += off * off; else {
        float lanes[LANES] = {0};
        for (int64_t j = 0; j < left; j++) lanes[j] = (x[i + j] - m) * (x[i + j] - m);
        square += load(lanes);
    })
    float r = 1.0f / sqrtf(sum_of(square) / (float)n + EPSILON);
    OVER(i, n, put(to + i, (some(x + i, left) - m) * r * some(gain + i, left) + some(shift + i, left), left);)
    *mean = m, *rstd = r;
}

/* From the gradient at a norm's outputs to that at its inputs. */
static void norm_row_back(const float *d, const float *x, int64_t n, const float *gain, float mean, float rstd, float *to) {
    vec sum = {0}, along = {0};
    OVER(i, n, vec own = some(d + i, left) * some(gain + i, left); sum += own;
             along += own * ((some(x + i, left) - mean) * rstd);)
    float mean_sum = sum_of(sum) / (float)n, mean_along = sum_of(along) / (float)n;
    OVER(i, n, vec own = some(d + i, left) * some(gain + i, left), normed = (some(x + i, left) - mean) * rstd;
             put(to + i, (own - mean_sum - normed * mean_along) * rstd, left);)
}

/* The activation of n numbers. */
static void activate(int64_t activation, const float *x, int64_t n, float *to) {
    if (activation == RELU) OVER(i, n, vec v = some(x + i, left); put(to + i, where_above_zero(v, v), left);)
    else if (activation == SILU) OVER(i, n, vec v = some(x + i, left); put(to + i, v / one_plus_falling(v), left);)
    else OVER(i, n, put(to + i, hyperbolic_tangent(some(x + i, left)), left);)
}

/* `d` times the slope of the activation, from what went in for SiLU, else from what came out. */
static void times_slope(int64_t activation, const float *known, int64_t n, float *d) {
    if (activation == RELU)
        OVER(i, n, put(d + i, where_above_zero(some(known + i, left), some(d + i, left)), left);)
    else if (activation == SILU)
        OVER(i, n, vec v = some(known + i, left), s = sigmoid(v);
                 put(d + i, some(d + i, left) * (s * (1.0f + v * (1.0f - s))), left);)
    else
        OVER(i, n, vec v = some(known + i, left); put(d + i, some(d + i, left) * (1.0f - v * v), left);)
}
