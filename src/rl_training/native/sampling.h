/* Batches drawn from a matrix of transitions. Numbers come from numpy's generator, and are those that its `integers` would give. */

typedef uint32_t (*NextNumber)(void *state);

/* A whole number below `count`, each as likely (Lemire, 2019, arXiv:1805.10941): the upper half of a product, unless the lower
   half falls where some numbers would come up once too often. */
INLINE int64_t number_below(uint32_t count, NextNumber next, void *state) {
    uint64_t product = (uint64_t)next(state) * count;
    if ((uint32_t)product < count) {
        uint32_t uneven = -count % count;
        while ((uint32_t)product < uneven) product = (uint64_t)next(state) * count;
    }
    return (int64_t)(product >> 32);
}

/* `rows` rows of `width` floats, each drawn from the first `count` of a matrix. */
EXPORT void draw_rows(const float *matrix, int64_t count, int64_t width, NextNumber next, void *state, int64_t rows, float *to) {
    for (int64_t r = 0; r < rows; r++) {
        int64_t drawn = count > 1 ? number_below((uint32_t)count, next, state) : 0;
        memcpy(to + r * width, matrix + drawn * width, 4 * width);
    }
}
