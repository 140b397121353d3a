/* Functions of vectors of numbers; what is not a number stays so. */

typedef int32_t whole __attribute__((vector_size(4 * LANES)));

INLINE vec either(whole which, vec a, vec b) { return (vec)((which & (whole)a) | (~which & (whole)b)); }

/* x within bounds; what is not a number stays so, as the processor gives out the second of two if one is none. */
INLINE vec within(float low, vec x, float high) {
    const vec zero = {0};
#ifdef __AVX512F__
    return (vec)_mm512_min_ps((__m512)(zero + high), _mm512_max_ps((__m512)(zero + low), (__m512)x));
#else
    return (vec)_mm256_min_ps((__m256)(zero + high), _mm256_max_ps((__m256)(zero + low), (__m256)x));
#endif
}

/* d where x is above zero or no number, else zero. */
INLINE vec where_above_zero(vec x, vec d) {
#ifdef __AVX512F__
    return (vec)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_NLE_UQ), (__m512)d);
#else
    return (vec)_mm256_and_ps(_mm256_cmp_ps((__m256)x, _mm256_setzero_ps(), _CMP_NLE_UQ), (__m256)d);
#endif
}

/* e to the power of x, within two units of the last place. */
#ifdef __AVX512F__
static const float ROOTS[32] = {/* 2 to the power of 0, 1/32 and so on */
    1.0f, 1.02189715f, 1.04427378f, 1.0671404f, 1.09050773f, 1.11438674f, 1.13878863f, 1.16372486f,
    1.18920712f, 1.21524736f, 1.24185781f, 1.26905096f, 1.29683955f, 1.32523664f, 1.35425555f, 1.38390988f,
    1.41421356f, 1.44518081f, 1.47682615f, 1.50916443f, 1.54221083f, 1.57598085f, 1.61049033f, 1.64575548f,
    1.68179283f, 1.7186193f, 1.75625216f, 1.79470908f, 1.83400809f, 1.87416763f, 1.91520656f, 1.95714412f};

/* 2 to the power of n + r, where n stands in the last bits of `shifted`, as a 32nd, and r is what it was rounded by. */
#define SHIFT 393216.0f /* 1.5 · 2¹⁸: adding it rounds to a 32nd */
INLINE vec power_of_two(vec shifted, vec r) {
    vec root = (vec)_mm512_permutex2var_ps(_mm512_loadu_ps(ROOTS), (__m512i)shifted, _mm512_loadu_ps(ROOTS + 16));
    vec y = root * r * ((r * 5.5504109e-2f + 0.24022651f) * r + 0.69314718f) + root;
    return (vec)_mm512_scalef_ps((__m512)y, (__m512)(shifted - SHIFT));
}

INLINE vec exponential(vec x) {
    x = within(-87.0f, x, 88.0f);
    vec shifted = x * 1.44269502f + SHIFT;
    return power_of_two(shifted, x * 1.44269502f - (shifted - SHIFT) + x * 1.92596303e-8f);
}

/* 1 + e to the power of -x, in fewer steps: its rounding grows with x, to four units of the last place at -20. What is lower
   gives infinity, which is right for all who divide by it. */
INLINE vec one_plus_falling(vec x) {
    const vec zero = {0};
    x = (vec)_mm512_min_ps((__m512)(zero + 100.0f), (__m512)x); /* the second, if it is no number */
    vec shifted = x * -1.44269502f + SHIFT;
    return 1.0f + power_of_two(shifted, x * -1.44269502f - (shifted - SHIFT));
}
#else
INLINE vec exponential(vec x) {
    x = within(-87.0f, x, 88.0f);
    const float shift = 12582912.0f; /* 1.5 · 2²³: adding it rounds to a whole number, which then stands in the last bits */
    vec shifted = x * 1.44269504f + shift;
    vec power = shifted - shift;
    vec r = x - power * 0.693359375f;
    r = r + power * 2.12194440e-4f;
    vec y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    whole scale = ((whole)shifted + (127 - 0x4b400000)) << 23;
    return y * (vec)scale;
}

INLINE vec one_plus_falling(vec x) { return 1.0f + exponential(-x); }
#endif

INLINE vec sigmoid(vec x) { return 1.0f / one_plus_falling(x); }

/* By its series where 1 - 2 / (e^2x + 1) would lose digits. */
INLINE vec hyperbolic_tangent(vec x) {
    vec far = 1.0f - 2.0f / (1.0f + exponential(2.0f * x)), z = x * x;
    vec y = z * -5.70498872745e-3f + 2.06390887954e-2f;
    y = y * z - 5.37397155531e-2f;
    y = y * z + 1.33314422036e-1f;
    y = y * z - 3.33332819422e-1f;
    return either(z < 0.390625f, y * z * x + x, far);
}

/* The logarithm of 1 + x, for x from 0 to 1. */
INLINE vec log_one_plus(vec x) {
    const vec zero = {0}, one = zero + 1.0f;
    whole upper = x > 0.41421356f; /* 1 + x is halved there, which the logarithm of 2 makes up for */
    vec z = either(upper, 0.5f * (x - one), x), square = z * z;
    vec y = z * 7.0376836292e-2f - 1.1514610310e-1f;
    y = y * z + 1.1676998740e-1f;
    y = y * z - 1.2420140846e-1f;
    y = y * z + 1.4249322787e-1f;
    y = y * z - 1.6668057665e-1f;
    y = y * z + 2.0000714765e-1f;
    y = y * z - 2.4999993993e-1f;
    y = y * z + 3.3333331174e-1f;
    y = y * z * square - 0.5f * square;
    return z + (y + either(upper, zero + 0.69314718f, zero));
}
