/* Steps of a learnt model of an environment: members that say a mean and a log-variance of (next_obs - obs, reward) each.
   What leads to their passes and follows from them is shared by rows, as the passes are. */

typedef struct {
    const Network *net;
    const float *flat; /* its parameters */
    int64_t obs_dim, action_dim;
    const float *input_mean;    /* (obs_dim + action_dim), taken off the inputs; their scale stands in the weights */
    const float *upper, *lower; /* (members, obs_dim + 1): soft bounds of log-variances; NULL where there are means alone */
} Dynamics;

INLINE int64_t outputs_of(const Dynamics *d) { return d->net->sizes[d->net->layers]; }

/* Up to LANES numbers that lie apart. */
INLINE vec apart(const float *from, int64_t stride, int64_t count) {
    float lanes[LANES] = {0};
    for (int64_t i = 0; i < count; i++) lanes[i] = from[i * stride];
    return load(lanes);
}

INLINE vec softplus(vec x) { return where_above_zero(x, x) + log_one_plus(exponential(either(x < 0, x, -x))); }

/* The log-variances in dimension `dim` of up to LANES rows of a member's outputs. */
INLINE vec log_variances(const Dynamics *d, int64_t member, const float *outputs, int64_t dim, int64_t count) {
    int64_t dims = d->obs_dim + 1;
    float upper = d->upper[member * dims + dim], lower = d->lower[member * dims + dim];
    vec raw = apart(outputs + dims + dim, outputs_of(d), count);
    return lower + softplus(upper - softplus(upper - raw) - lower);
}

static void join_inputs(const Dynamics *d, const float *obs, const float *actions, int64_t rows, float *to) {
    for (int64_t r = 0; r < rows; r++, to += d->obs_dim + d->action_dim) {
        for (int64_t i = 0; i < d->obs_dim; i++) to[i] = obs[r * d->obs_dim + i] - d->input_mean[i];
        for (int64_t i = 0; i < d->action_dim; i++)
            to[d->obs_dim + i] = actions[r * d->action_dim + i] - d->input_mean[d->obs_dim + i];
    }
}

/* ---- particles ---- */

typedef struct {
    const Dynamics *model;
    const float *obs, *actions, *noise;
    int64_t obs_apart, actions_apart, rows;
    int64_t each, asked; /* particles of a member, and how many times a row it is asked for them */
    float *x, *outputs, *next_obs, *rewards;
} Particles;

static void join_particle(const void *about, int64_t part, int thread) {
    const Particles *p = about;
    const Dynamics *d = p->model;
    int64_t particle = part / p->asked * p->each + part % p->asked;
    (void)thread;
    join_inputs(d, p->obs + particle * p->obs_apart, p->actions + particle * p->actions_apart, p->rows,
                p->x + part * p->rows * d->net->sizes[0]);
}

/* Where a particle's rows lead, by its member's outputs for them and its own noise. */
static void move_particle(const void *about, int64_t particle, int thread) {
    const Particles *p = about;
    const Dynamics *model = p->model;
    int64_t dims = model->obs_dim, out = outputs_of(model), member = particle / p->each;
    int64_t at = member * p->asked + (p->asked > 1 ? particle % p->each : 0);
    const float *outputs = p->outputs + at * p->rows * out, *obs = p->obs + particle * p->obs_apart;
    const float *noise = p->noise ? p->noise + particle * dims : NULL;
    float *next_obs = p->next_obs + particle * p->rows * dims, *rewards = p->rewards + particle * p->rows;
    (void)thread;
    for (int64_t r = 0; r < p->rows; r += LANES) {
        int64_t count = least(LANES, p->rows - r);
        const float *here = outputs + r * out;
        for (int64_t d = 0; d < dims; d++) {
            float off[LANES] = {0};
            if (noise && model->upper) store(off, noise[d] * exponential(0.5f * log_variances(model, member, here, d, count)));
            for (int64_t i = 0; i < count; i++)
                next_obs[(r + i) * dims + d] = obs[(r + i) * dims + d] + here[i * out + d] + off[i];
        }
        for (int64_t i = 0; i < count; i++) rewards[r + i] = here[i * out + dims];
    }
}

/* One step of particles, each in as many rows; a member has as many particles as the next. The `_apart` are floats from one
   particle's rows to the next one's, 0 where all read the same; those of one member that read the same ask it once. `noise`
   is (particles, obs_dim), or NULL to follow the means. `memory` has members · rows · (in + out) floats before what `forward`
   wants, for all of a member's particles. */
EXPORT void imagine_particles(const Dynamics *d, const float *obs, int64_t obs_apart, const float *actions, int64_t actions_apart,
                              const float *noise, int64_t particles, int64_t rows, float *next_obs, float *rewards, float *memory,
                              int64_t threads) {
    int64_t members = d->net->members, each = particles / members, asked = obs_apart || actions_apart ? each : 1;
    int64_t inputs = asked * rows * d->net->sizes[0];
    float *outputs = memory + members * inputs, *rest = outputs + members * asked * rows * outputs_of(d);
    Particles p = {d, obs, actions, noise, obs_apart, actions_apart, rows, each, asked, memory, outputs, next_obs, rewards};
    share(join_particle, &p, members * asked, (int)threads);
    forward(d->net, d->flat, NULL, members, p.x, inputs, asked * rows, NULL, outputs, rest, threads);
    share(move_particle, &p, particles, (int)threads);
}

/* ---- rows, each with a member of its own ---- */

typedef struct {
    const Dynamics *model;
    const float *obs, *actions, *noise;
    const int64_t *chosen;
    int64_t rows;
    float *x, *outputs, *next_obs, *rewards, *disagreement, *max_std;
} Rows;

static void join_rows(const void *about, int64_t part, int thread) {
    const Rows *p = about;
    const Dynamics *d = p->model;
    int64_t from = part * BLOCK;
    (void)thread;
    join_inputs(d, p->obs + from * d->obs_dim, p->actions + from * d->action_dim, least(BLOCK, p->rows - from),
                p->x + from * d->net->sizes[0]);
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

/* What the members say of rows `r` to `r + count`: the largest norm of any one's standard deviation is given back. */
static vec move_lanes(const Rows *p, int64_t r, int64_t count) {
    const Dynamics *model = p->model;
    int64_t out = outputs_of(model), obs_dim = model->obs_dim, dims = obs_dim + 1;
    vec largest = {0};
    for (int64_t m = 0; m < model->net->members; m++) {
        const float *here = p->outputs + (m * p->rows + r) * out;
        vec total = {0};
        for (int64_t d = 0; d < dims; d++) {
            vec std = {0};
            if (model->upper) std = exponential(0.5f * log_variances(model, m, here, d, count));
            total += std * std;
            float stds[LANES];
            store(stds, std);
            for (int64_t i = 0; i < count; i++) {
                if (p->chosen[r + i] != m) continue;
                float drawn = here[i * out + d] + stds[i] * p->noise[(r + i) * dims + d];
                if (d < obs_dim) p->next_obs[(r + i) * obs_dim + d] = p->obs[(r + i) * obs_dim + d] + drawn;
                else p->rewards[r + i] = drawn;
            }
        }
        largest = either((total > largest) | (total != total), total, largest);
    }
    return root(largest);
}

static void move_rows(const void *about, int64_t part, int thread) {
    const Rows *p = about;
    const Network *net = p->model->net;
    int64_t out = outputs_of(p->model), end = least((part + 1) * BLOCK, p->rows);
    (void)thread;
    for (int64_t r = part * BLOCK; r < end; r += LANES) {
        int64_t count = least(LANES, end - r);
        put(p->max_std + r, move_lanes(p, r, count), count);
        vec distance = means_apart(p->outputs + r * out, p->rows * out, net->members, p->model->obs_dim + 1, out, count);
        put(p->disagreement + r, distance, count);
    }
}

/* One step of each row by the member chosen for it, with that row's own noise (obs_dim + 1); and how unsure all of them are:
   how far their means lie apart, and the largest norm of any one's standard deviation. */
EXPORT void imagine_rows(const Dynamics *d, const float *obs, const float *actions, const int64_t *chosen, const float *noise,
                         int64_t rows, float *next_obs, float *rewards, float *disagreement, float *max_std, float *memory,
                         int64_t threads) {
    int64_t members = d->net->members, parts = (rows + BLOCK - 1) / BLOCK;
    float *outputs = memory + rows * d->net->sizes[0], *rest = outputs + members * rows * outputs_of(d);
    Rows p = {d, obs, actions, noise, chosen, rows, memory, outputs, next_obs, rewards, disagreement, max_std};
    share(join_rows, &p, parts, (int)threads);
    forward(d->net, d->flat, NULL, members, p.x, 0, rows, NULL, outputs, rest, threads);
    share(move_rows, &p, parts, (int)threads);
}
