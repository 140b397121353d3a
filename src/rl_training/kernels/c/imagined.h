/* Steps of a learnt model of an environment: members that say a mean and a log-variance of (next_obs - obs, reward) each. */

typedef struct {
    const Network *net;
    const float *flat; /* its parameters */
    int64_t obs_dim, action_dim;
    const float *input_mean;    /* (obs_dim + action_dim), taken off the inputs; their scale stands in the weights */
    const float *upper, *lower; /* (members, obs_dim + 1): soft bounds of log-variances; NULL where there are means alone */
} World;

INLINE int64_t outputs_of(const World *w) { return w->net->sizes[w->net->layers]; }

/* Up to LANES numbers that lie apart. */
INLINE vec apart(const float *from, int64_t stride, int64_t count) {
    float lanes[LANES] = {0};
    for (int64_t i = 0; i < count; i++) lanes[i] = from[i * stride];
    return load(lanes);
}

INLINE vec softplus(vec x) { return where_above_zero(x, x) + log_one_plus(exponential(either(x < 0, x, -x))); }

/* The log-variances in dimension `d` of up to LANES rows of a member's outputs. */
INLINE vec log_variances(const World *w, int64_t member, const float *outputs, int64_t d, int64_t count) {
    int64_t dims = w->obs_dim + 1;
    float upper = w->upper[member * dims + d], lower = w->lower[member * dims + d];
    vec raw = apart(outputs + dims + d, outputs_of(w), count);
    return lower + softplus(upper - softplus(upper - raw) - lower);
}

static void join_inputs(const World *w, const float *obs, const float *actions, int64_t rows, float *to) {
    for (int64_t r = 0; r < rows; r++, to += w->obs_dim + w->action_dim) {
        for (int64_t i = 0; i < w->obs_dim; i++) to[i] = obs[r * w->obs_dim + i] - w->input_mean[i];
        for (int64_t i = 0; i < w->action_dim; i++)
            to[w->obs_dim + i] = actions[r * w->action_dim + i] - w->input_mean[w->obs_dim + i];
    }
}

/* Where a particle's rows lead: its member's outputs for them, and its own luck (obs_dim), or NULL to follow the means. */
static void move_particle(const World *w, int64_t member, const float *outputs, const float *obs, const float *luck, int64_t rows,
                          float *next_obs, float *rewards) {
    int64_t dims = w->obs_dim, out = outputs_of(w);
    for (int64_t r = 0; r < rows; r += LANES) {
        int64_t count = least(LANES, rows - r);
        const float *here = outputs + r * out;
        for (int64_t d = 0; d < dims; d++) {
            float off[LANES] = {0};
            if (luck && w->upper) store(off, luck[d] * exponential(0.5f * log_variances(w, member, here, d, count)));
            for (int64_t i = 0; i < count; i++)
                next_obs[(r + i) * dims + d] = obs[(r + i) * dims + d] + here[i * out + d] + off[i];
        }
        for (int64_t i = 0; i < count; i++) rewards[r + i] = here[i * out + dims];
    }
}

/* One step of particles, each in as many rows; a member has as many particles as the next. The `_apart` are floats from one
   particle's rows to the next one's, 0 where all read the same; those of one member that read the same ask it once.
   `memory` has members · rows · (in + out) floats before what `forward` wants, for all of a member's particles. */
EXPORT void imagine_particles(const World *w, const float *obs, int64_t obs_apart, const float *actions, int64_t actions_apart,
                              const float *luck, int64_t particles, int64_t rows, float *next_obs, float *rewards, float *memory,
                              int64_t threads) {
    int64_t members = w->net->members, each = particles / members, in = w->net->sizes[0], out = outputs_of(w);
    int64_t asked = obs_apart || actions_apart ? each : 1;
    float *x = memory, *outputs = x + members * asked * rows * in;
    for (int64_t i = 0; i < members * asked; i++) {
        int64_t particle = i / asked * each + i % asked;
        join_inputs(w, obs + particle * obs_apart, actions + particle * actions_apart, rows, x + i * rows * in);
    }
    forward(w->net, w->flat, NULL, members, x, asked * rows * in, asked * rows, NULL, outputs, outputs + members * asked * rows * out, threads);
    for (int64_t particle = 0; particle < particles; particle++) {
        int64_t member = particle / each, at = member * asked + (asked > 1 ? particle % each : 0);
        move_particle(w, member, outputs + at * rows * out, obs + particle * obs_apart,
                      luck ? luck + particle * w->obs_dim : NULL, rows, next_obs + particle * rows * w->obs_dim,
                      rewards + particle * rows);
    }
}

/* Of up to LANES rows: how far the members' means lie apart, as the norm of their standard deviation. */
static vec means_apart(const float *outputs, int64_t member_apart, int64_t members, int64_t dims, int64_t out, int64_t count) {
    vec sum = {0};
    for (int64_t d = 0; d < dims; d++) {
        vec middle = {0};
        for (int64_t m = 0; m < members; m++) middle += apart(outputs + m * member_apart + d, out, count);
        middle /= (float)members;
        for (int64_t m = 0; m < members; m++) {
            vec off = apart(outputs + m * member_apart + d, out, count) - middle;
            sum += off * off;
        }
    }
    return root(sum / (float)members);
}

/* One step of each row by the member chosen for it, with that row's own noise (obs_dim + 1); and how unsure all of them are:
   how far their means lie apart, and the largest norm of any one's standard deviation. */
EXPORT void imagine_rows(const World *w, const float *obs, const float *actions, const int64_t *chosen, const float *noise,
                         int64_t rows, float *next_obs, float *rewards, float *disagreement, float *max_std, float *memory,
                         int64_t threads) {
    int64_t members = w->net->members, in = w->net->sizes[0], out = outputs_of(w), dims = w->obs_dim + 1;
    float *outputs = memory + rows * in;
    join_inputs(w, obs, actions, rows, memory);
    forward(w->net, w->flat, NULL, members, memory, 0, rows, NULL, outputs, outputs + members * rows * out, threads);
    for (int64_t r = 0; r < rows; r += LANES) {
        int64_t count = least(LANES, rows - r);
        vec largest = {0};
        for (int64_t m = 0; m < members; m++) {
            const float *here = outputs + (m * rows + r) * out;
            vec total = {0};
            for (int64_t d = 0; d < dims; d++) {
                vec std = {0};
                if (w->upper) std = exponential(0.5f * log_variances(w, m, here, d, count));
                total += std * std;
                float stds[LANES];
                store(stds, std);
                for (int64_t i = 0; i < count; i++) {
                    if (chosen[r + i] != m) continue;
                    float drawn = here[i * out + d] + stds[i] * noise[(r + i) * dims + d];
                    if (d < w->obs_dim) next_obs[(r + i) * w->obs_dim + d] = obs[(r + i) * w->obs_dim + d] + drawn;
                    else rewards[r + i] = drawn;
                }
            }
            largest = either((total > largest) | (total != total), total, largest);
        }
        put(max_std + r, root(largest), count);
        put(disagreement + r, means_apart(outputs + r * out, rows * out, members, dims, out, count), count);
    }
}
