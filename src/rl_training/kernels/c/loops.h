/* Loops over numbers that need not fill whole vectors. */

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
