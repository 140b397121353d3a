/* What an off-policy learner works out between its networks: some hundred numbers at a time, for one thread.

   A number that is none stays one: comparisons with it are false. */

/* as in models/mlp_sac.py, where the same mathematics stands in torch */
#define LOG_STD_MIN -20.0f
#define LOG_STD_MAX 2.0f

/* tanh(mean + std · noise), std · noise, and the logarithm of the density, for rows of means and of log-standard deviations. */
EXPORT void squash(const float *outputs, const float *noise, int64_t rows, int64_t width, float *actions, float *logprobs,
                   float *spreads) {
    memset(logprobs, 0, 4 * rows);
    for (int64_t first = 0; first < rows * width; first += LANES) {
        int64_t count = least(LANES, rows * width - first);
        float means[LANES] = {0}, stds[LANES] = {0}, shares[LANES];
        for (int64_t i = 0; i < count; i++) {
            const float *row = outputs + (first + i) / width * 2 * width + (first + i) % width;
            means[i] = row[0], stds[i] = row[width];
        }
        vec log_std = within(LOG_STD_MIN, load(stds), LOG_STD_MAX), drawn = some(noise + first, count);
        vec spread = exponential(log_std) * drawn, u = load(means) + spread, size = either(u < 0, -u, u);
        /* log|d tanh(u) / du|, which is the same on both sides, so that no exponential can overflow */
        vec log_slope = 2.0f * (0.69314718f - size - log_one_plus(exponential(-2.0f * size)));
        put(actions + first, hyperbolic_tangent(u), count);
        put(spreads + first, spread, count);
        store(shares, -0.5f * drawn * drawn - log_std - 0.91893853f - log_slope); /* the constant is log(2π) / 2 */
        for (int64_t i = 0; i < count; i++) logprobs[(first + i) / width] += shares[i];
    }
}

/* From gradients at actions (rows, width) and log-probabilities (rows,) to those at what the actor's network gave out. */
EXPORT void squash_back(const float *outputs, const float *actions, const float *spreads, const float *d_actions,
                        const float *d_logprobs, int64_t rows, int64_t width, float *d_outputs) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++) {
            int64_t at = r * width + i;
            float a = actions[at], log_std = outputs[2 * r * width + width + i];
            /* log p falls with log|d tanh(u) / du|, whose derivative in u is -2 tanh(u) */
            float d_u = d_actions[at] * (1.0f - a * a) + 2.0f * d_logprobs[r] * a;
            float inside = log_std > LOG_STD_MIN && log_std < LOG_STD_MAX;
            d_outputs[2 * r * width + i] = d_u;
            d_outputs[2 * r * width + width + i] = (d_u * spreads[at] - d_logprobs[r]) * inside;
        }
}
