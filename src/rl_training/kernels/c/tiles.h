/* Matrix products by tiles: some rows by a panel of columns, whose sums stay in registers while the inner length goes by.

   Whole panels are read where they lie. Copied beforehand ("packed"), row by row in one piece, are panels of a matrix that is
   to be transposed, and those whose last columns are made up by zeros. An element is summed from the first term to the last,
   however tiles lie. */

#include <immintrin.h>
#include <stdint.h>

#ifdef __AVX512F__
#define LANES 16 /* floats of a vector */
#define ROWS 8   /* of a tile */
#else
#define LANES 8
#define ROWS 6
#endif
#define PANEL (2 * LANES) /* columns of a panel; the last ones are narrower */
#define NARROW 8

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_anywhere __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float narrow __attribute__((vector_size(4 * NARROW)));
typedef float narrow_anywhere __attribute__((vector_size(4 * NARROW), aligned(4)));

INLINE vec load(const float *from) { return *(const vec_anywhere *)from; }
INLINE void store(float *to, vec x) { *(vec_anywhere *)to = x; }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t rounded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* The width of the panel that begins at column `j` of `n`. */
INLINE int64_t panel_width(int64_t j, int64_t n) { return n - j >= PANEL ? PANEL : n - j >= LANES ? LANES : NARROW; }

/* Floats that a packed matrix of k rows takes. */
INLINE int64_t packed_size(int64_t k, int64_t n) { return rounded(k * rounded(n, NARROW), 16); }

/* The last columns of b (k, n), where they do not fill a panel. */
static void pack_rest(const float *b, int64_t ldb, int64_t k, int64_t n, float *to) {
    int64_t rest = n % NARROW;
    b += n - rest;
    for (int64_t p = 0; rest && p < k; p++, b += ldb, to += NARROW)
        for (int64_t c = 0; c < NARROW; c++) to[c] = c < rest ? b[c] : 0;
}

/* Eight rows of eight numbers, turned. */
INLINE void turn(const float *b, int64_t ldb, float *to, int64_t width) {
    __m256 r[8], s[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(b + i * ldb);
    for (int i = 0; i < 8; i += 2) s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]), s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44), r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44), r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

/* The transpose of b (n, k), packed. */
static void pack_transposed(const float *b, int64_t ldb, int64_t k, int64_t n, float *to) {
    for (int64_t j = 0, width; j < n; j += width, to += k * width) {
        width = panel_width(j, n);
        int64_t even = n - j >= width ? k / 8 * 8 : 0; /* as far as there are whole squares */
        for (int64_t p = 0; p < even; p += 8)
            for (int64_t c = 0; c < width; c += 8) turn(b + (j + c) * ldb + p, ldb, to + p * width + c, width);
        for (int64_t p = even; p < k; p++)
            for (int64_t c = 0; c < width; c++) to[p * width + c] = j + c < n ? b[(j + c) * ldb + p] : 0;
    }
}

typedef struct {
    const float *a; /* (rows, k), or (k, rows) where it is taken across */
    int64_t lda, k;
    const float *panel;
    int64_t ldb; /* from one row of the panel to the next */
    float *c;
    int64_t ldc, real; /* columns of the panel that are the matrix's own */
    const float *bias; /* added to each row, or NULL */
    int adds;          /* to what is in c, rather than writing over it */
} Tile;

/* A tile of `rows` by `count` vectors of the type; rows, count and across are constants wherever this is expanded. */
#define DEFINE_TILE(NAME, VEC, WIDTH)                                                                                         \
    INLINE void NAME(const int rows, const int count, const int across, const Tile *t) {                                      \
        VEC sums[ROWS][2];                                                                                                    \
        const float *a = t->a, *b = t->panel;                                                                                 \
        const int64_t lda = t->lda, ldb = t->ldb, k = t->k;                                                                   \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++)                                                                \
            _Pragma("GCC unroll 2") for (int j = 0; j < count; j++) sums[i][j] = (VEC){0};                                    \
        for (int64_t p = 0; p < k; p++, b += ldb) {                                                                           \
            VEC right[2];                                                                                                     \
            _Pragma("GCC unroll 2") for (int j = 0; j < count; j++) right[j] = *(const VEC##_anywhere *)(b + j * (WIDTH));    \
            _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {                                                          \
                const float left = across ? a[p * lda + i] : a[i * lda + p];                                                  \
                _Pragma("GCC unroll 2") for (int j = 0; j < count; j++) sums[i][j] += right[j] * left;                        \
            }                                                                                                                 \
        }                                                                                                                     \
        if (count == 1 && t->real < (WIDTH)) {                                                                                \
            _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {                                                          \
                float row[WIDTH];                                                                                             \
                *(VEC##_anywhere *)row = sums[i][0];                                                                          \
                for (int64_t j = 0; j < t->real; j++) {                                                                       \
                    float *to = t->c + i * t->ldc + j, sum = row[j] + (t->bias ? t->bias[j] : 0);                             \
                    *to = t->adds ? *to + sum : sum;                                                                          \
                }                                                                                                             \
            }                                                                                                                 \
            return;                                                                                                           \
        }                                                                                                                     \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++)                                                                \
            _Pragma("GCC unroll 2") for (int j = 0; j < count; j++) {                                                         \
            VEC##_anywhere *to = (VEC##_anywhere *)(t->c + i * t->ldc + j * (WIDTH));                                         \
            VEC sum = sums[i][j];                                                                                             \
            if (t->bias) sum += *(const VEC##_anywhere *)(t->bias + j * (WIDTH));                                             \
            *to = t->adds ? *to + sum : sum;                                                                                  \
        }                                                                                                                     \
    }
DEFINE_TILE(tile, vec, LANES)
DEFINE_TILE(narrow_tile, narrow, NARROW)

INLINE void tile_of_width(const int rows, const int across, int64_t width, const Tile *t) {
    if (width == PANEL) tile(rows, 2, across, t);
    else if (width == LANES) tile(rows, 1, across, t);
    else narrow_tile(rows, 1, across, t);
}

INLINE void tile_of_rows(int64_t rows, const int across, int64_t width, const Tile *t) {
    switch (rows) {
        case 1: tile_of_width(1, across, width, t); break;
        case 2: tile_of_width(2, across, width, t); break;
        case 3: tile_of_width(3, across, width, t); break;
        case 4: tile_of_width(4, across, width, t); break;
        case 5: tile_of_width(5, across, width, t); break;
#if ROWS == 8
        case 6: tile_of_width(6, across, width, t); break;
        case 7: tile_of_width(7, across, width, t); break;
#endif
        default: tile_of_width(ROWS, across, width, t);
    }
}

/* A right-hand matrix: where it lies, with its rest packed, or all of it packed (`at` is NULL). */
typedef struct {
    const float *at;
    int64_t ld;
    const float *packed;
} Right;

INLINE Tile with_panel(Right b, int64_t k, int64_t j, int64_t n) {
    int64_t width = panel_width(j, n), real = least(width, n - j);
    if (!b.at) return (Tile){.panel = b.packed + j * k, .ldb = width, .k = k, .real = real};
    if (real < width) return (Tile){.panel = b.packed, .ldb = width, .k = k, .real = real};
    return (Tile){.panel = b.at + j, .ldb = b.ld, .k = k, .real = real};
}

/* a · b + bias for a (rows, k) and b (k, n). A panel stays in the nearest cache for all of the rows. */
static void rows_times(const float *a, int64_t lda, int64_t rows, Right b, int64_t k, int64_t n, const float *bias, float *c,
                       int64_t ldc) {
    for (int64_t j = 0, width; j < n; j += width) {
        Tile t = with_panel(b, k, j, n);
        width = panel_width(j, n);
        t.lda = lda, t.ldc = ldc, t.bias = bias ? bias + j : NULL;
        for (int64_t r = 0; r < rows; r += ROWS) {
            t.a = a + r * lda, t.c = c + r * ldc + j;
            tile_of_rows(least(ROWS, rows - r), 0, width, &t);
        }
    }
}

/* aᵀ · b for one panel of b (k, n): columns j and on of c (m, n) from a (k, m), added to what is there or not. */
static void across_panel(const float *a, int64_t lda, int64_t m, Right b, int64_t k, int64_t j, int64_t n, float *c, int adds) {
    Tile t = with_panel(b, k, j, n);
    t.lda = lda, t.ldc = n, t.adds = adds;
    for (int64_t i = 0; i < m; i += ROWS) {
        t.a = a + i, t.c = c + i * n + j;
        tile_of_rows(least(ROWS, m - i), 1, panel_width(j, n), &t);
    }
}

/* ---- a single column, which tiles would do eight times over ---- */

INLINE float sum_of(vec x) { /* halves added to halves */
    float lanes[LANES];
    store(lanes, x);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

/* Rows of a · b + bias, for b of one column. */
static void column_rows(const float *a, int64_t lda, int64_t rows, const float *b, int64_t k, float bias, float *c) {
    for (int64_t i = 0; i < rows; i++, a += lda) {
        vec sums[2] = {{0}, {0}};
        int64_t p = 0;
        for (; p + PANEL <= k; p += PANEL)
            sums[0] += load(a + p) * load(b + p), sums[1] += load(a + p + LANES) * load(b + p + LANES);
        float sum = sum_of(sums[0] + sums[1]);
        for (; p < k; p++) sum += a[p] * b[p];
        c[i] = sum + bias;
    }
}

/* aᵀ · b for a (k, m) and b of one column, added to c or not. */
static void column_across(const float *a, int64_t lda, int64_t m, const float *b, int64_t k, float *c, int adds) {
    int64_t i = 0;
    for (; i + 4 * LANES <= m; i += 4 * LANES) {
        vec sums[4] = {{0}, {0}, {0}, {0}};
        for (int64_t p = 0; p < k; p++)
            for (int j = 0; j < 4; j++) sums[j] += load(a + p * lda + i + j * LANES) * b[p];
        for (int j = 0; j < 4; j++) store(c + i + j * LANES, adds ? load(c + i + j * LANES) + sums[j] : sums[j]);
    }
    for (; i < m; i++) {
        float sum = 0;
        for (int64_t p = 0; p < k; p++) sum += a[p * lda + i] * b[p];
        c[i] = adds ? c[i] + sum : sum;
    }
}
