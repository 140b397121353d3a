/* Losses over n rows and their gradients, in one pass. A number that is none stays one, and spoils its own row's gradient alone. */

/* Squared errors of each critic (critics, n), averaged over rows and summed over critics, and the mean of the targets. */
EXPORT void critic_loss(const float *q, const float *targets, int64_t critics, int64_t n, float *d_q, float *losses) {
    const vec zero = {0};
    vec squares = zero, sum = zero;
    OVER(i, n, vec target = some(targets + i, left); sum += target;
         for (int64_t c = 0; c < critics; c++) {
             vec error = some(q + c * n + i, left) - target;
             squares += error * error;
             put(d_q + c * n + i, error * (2.0f / n), left);
         })
    losses[0] = sum_of(squares) / n, losses[1] = sum_of(sum) / n;
}

/* Minus the value of sampled actions, by the lowest of the critics or by their mean, plus alpha times their log-probabilities. */
EXPORT void soft_actor_loss(const float *q, const float *logprobs, const float *alpha, int64_t critics, int64_t n,
                            int64_t pessimistic, float *d_q, float *d_logprobs, float *losses) {
    const vec zero = {0};
    vec values = zero, entropy = zero;
    OVER(i, n, vec low = some(q + i, left), sum = zero, equal = zero;
         entropy += *alpha * some(logprobs + i, left);
         put(d_logprobs + i, zero + *alpha / n, left);
         for (int64_t c = 0; c < critics; c++) {
             vec value = some(q + c * n + i, left);
             low = either((value < low) | (value != value), value, low), sum += value;
         }
         for (int64_t c = 0; c < critics; c++) equal += either(some(q + c * n + i, left) == low, zero + 1.0f, zero);
         values += pessimistic ? low : sum / (float)critics;
         vec share = pessimistic ? -1.0f / (equal * (float)n) : zero - 1.0f / (critics * n); /* equally low ones share a row */
         for (int64_t c = 0; c < critics; c++) {
             vec lowest = either(some(q + c * n + i, left) == low, zero + 1.0f, zero);
             put(d_q + c * n + i, pessimistic ? lowest * share : share, left);
         })
    losses[1] = sum_of(entropy) / n, losses[0] = losses[1] - sum_of(values) / n;
}

/* PPO's clipped objective. */

typedef struct {
    const float *logprobs, *new_logprobs, *advantages, *returns, *new_values, *entropy;
    const float *values; /* the old ones where the value loss is clipped too, else NULL */
    int64_t count;
    double clip_coef, ent_coef, vf_coef;
    float *d_logprobs, *d_values;
    float *losses; /* loss, policy loss, value loss, entropy, approximate KL, fraction of clipped ratios */
} Objective;

EXPORT void clipped_objective(const Objective *o) {
    const float clip = (float)o->clip_coef, share = 1.0f / o->count, pull = 2.0f * (float)o->vf_coef * share;
    const vec zero = {0};
    vec surrogate = zero, squares = zero, entropy = zero, divergence = zero, clipped = zero;
    OVER(i, o->count, vec a = some(o->advantages + i, left), v = some(o->new_values + i, left), r = some(o->returns + i, left);
         vec log_ratio = some(o->new_logprobs + i, left) - some(o->logprobs + i, left), ratio = exponential(log_ratio);
         vec weighted = ratio * a, held = within(1.0f - clip, ratio, 1.0f + clip) * a, error = v - r, square = error * error;
         vec d_value = error * pull, away = ratio - 1.0f;
         whole live = weighted <= held; /* the clipped branch has no gradient, and is active only where it is the smaller */
         if (o->values) {
             vec old = some(o->values + i, left), moved = v - old, late = old + within(-clip, moved, clip) - r;
             /* inside of the clip both are the same */
             whole moves = (error * error >= late * late) | ((moved >= -clip) & (moved <= clip));
             square = either(error * error >= late * late, square, late * late);
             d_value = either(moves | (d_value != d_value), d_value, zero);
         }
         surrogate += either(live, weighted, held); squares += square; entropy += some(o->entropy + i, left);
         divergence += away - log_ratio;
         clipped += either(either(away < 0, -away, away) > clip, zero + 1.0f, zero);
         put(o->d_logprobs + i, either(live | (weighted != weighted), weighted * -share, zero), left);
         put(o->d_values + i, d_value, left);)
    o->losses[1] = -sum_of(surrogate) * share, o->losses[2] = sum_of(squares) * share, o->losses[3] = sum_of(entropy) * share;
    o->losses[4] = sum_of(divergence) * share, o->losses[5] = sum_of(clipped) * share;
    o->losses[0] = o->losses[1] + (float)o->vf_coef * o->losses[2] - (float)o->ent_coef * o->losses[3];
}
