/* Critics of (obs, action) and a deterministic actor, whose outputs are squashed by tanh: passes through them, with what is done
   to a batch before and to its values after, in one call. Columns of a batch are read where they lie, `apart` floats from one
   row to the next. */

static void take_rows(const float *from, int64_t apart, int64_t rows, int64_t width, float *to, int64_t to_apart) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++) to[r * to_apart + i] = from[r * apart + i];
}

/* Observations with actions beside them. */
static void join_rows(const float *obs, int64_t obs_apart, int64_t obs_dim, const float *actions, int64_t actions_apart,
                      int64_t action_dim, int64_t rows, float *to) {
    take_rows(obs, obs_apart, rows, obs_dim, to, obs_dim + action_dim);
    take_rows(actions, actions_apart, rows, action_dim, to + obs_dim, obs_dim + action_dim);
}

/* ---- critics ---- */

/* Floats of memory that `fit_values` wants. */
EXPORT int64_t fit_size(const Network *critics, int64_t rows, int64_t threads) {
    int64_t tapes = most(critics->members, threads) * tape_size(critics, 1, rows);
    return rounded(rows * critics->sizes[0], 16) + rounded(critics->members * rows, 16) +
           scratch_size(critics, critics->members, rows, threads) + tapes;
}

/* `regress` of all critics to the target (rows); fills their values (critics, rows). */
EXPORT void fit_values(const Network *critics, const float *obs, int64_t obs_apart, int64_t obs_dim, const float *actions,
                       int64_t actions_apart, const float *target, int64_t rows, float *values, float *memory, int64_t threads) {
    float *x = memory, *errors = x + rounded(rows * critics->sizes[0], 16);
    join_rows(obs, obs_apart, obs_dim, actions, actions_apart, critics->sizes[0] - obs_dim, rows, x);
    regress(critics, critics->members, x, rows, target, values, errors, errors + rounded(critics->members * rows, 16), threads);
}

/* ---- an actor, and critics that judge it ---- */

/* The actor's actions or, with noise, those blurred by it, of rows that lie side by side. */
EXPORT void choose(const Network *actor, const float *obs, const float *noise, double std, double clip, int64_t rows, float *tape,
                   float *actions, float *memory, int64_t threads) {
    int64_t count = rows * actor->sizes[actor->layers];
    forward(actor, NULL, 1, obs, 0, rows, tape, actions, memory, threads);
    activate(TANH, actions, count, actions);
    if (noise) blur(actions, noise, count, std, clip);
}

/* What the two below keep of `rows` rows. */
typedef struct {
    float *obs, *actions, *x, *values, *d_values, *d_actions, *actor_tape, *critic_tape, *memory;
} Desk;

enum { DESK_PARTS = 9 };

static int64_t desk_parts(const Network *actor, const Network *critics, int64_t rows, int64_t threads, int64_t *sizes) {
    int64_t in = actor->sizes[0], actions = rows * actor->sizes[actor->layers], all = 0;
    int64_t inner = most(scratch_size(actor, 1, rows, threads), scratch_size(critics, critics->members, rows, threads));
    int64_t each[DESK_PARTS] = {rows * in, actions, rows * critics->sizes[0], rows * critics->members, rows, actions,
                                tape_size(actor, 1, rows), tape_size(critics, 1, rows), inner};
    for (int i = 0; i < DESK_PARTS; i++) all += sizes[i] = rounded(each[i], 16);
    return all;
}

static Desk desk_of(const Network *actor, const Network *critics, int64_t rows, int64_t threads, float *at) {
    int64_t sizes[DESK_PARTS];
    float *parts[DESK_PARTS];
    desk_parts(actor, critics, rows, threads, sizes);
    for (int i = 0; i < DESK_PARTS; i++) parts[i] = at, at += sizes[i];
    return (Desk){parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], parts[8]};
}

/* Floats of memory that they want. */
EXPORT int64_t desk_size(const Network *actor, const Network *critics, int64_t rows, int64_t threads) {
    int64_t sizes[DESK_PARTS];
    return desk_parts(actor, critics, rows, threads, sizes);
}

/* The actor's actions, blurred where there is noise, beside the observations in `d->x`. */
static void sit_down(const Network *actor, const float *obs, int64_t obs_apart, const float *noise, double std, double clip,
                     int64_t rows, float *tape, const Desk *d, int64_t threads) {
    int64_t in = actor->sizes[0], out = actor->sizes[actor->layers];
    take_rows(obs, obs_apart, rows, in, d->obs, in);
    choose(actor, d->obs, noise, std, clip, rows, tape, d->actions, d->memory, threads);
    join_rows(d->obs, in, in, d->actions, out, out, rows, d->x);
}

/* reward + gamma · (1 - done) · the lowest of the critics' values of the actor's actions or, with noise, of those blurred. */
EXPORT void foresee(const Network *actor, const Network *critics, const float *obs, int64_t obs_apart, const float *rewards,
                    int64_t rewards_apart, const float *dones, int64_t dones_apart, const float *noise, double std, double clip,
                    double gamma, int64_t rows, float *to, float *memory, int64_t threads) {
    Desk d = desk_of(actor, critics, rows, threads, memory);
    sit_down(actor, obs, obs_apart, noise, std, clip, rows, NULL, &d, threads);
    forward(critics, NULL, critics->members, d.x, 0, rows, NULL, d.values, d.memory, threads);
    targets(d.values, critics->members, rewards, dones, rewards_apart, dones_apart, NULL, gamma, rows, to);
}

/* The first critic's values (rows) of the actor's actions; fills the gradient at the actor's parameters of whatever has
   `share` for its gradient at each of them. */
EXPORT void climb(const Network *actor, const Network *critics, const float *obs, int64_t obs_apart, double share, int64_t rows,
                  float *values, float *memory, int64_t threads) {
    Desk d = desk_of(actor, critics, rows, threads, memory);
    int64_t first = 0;
    sit_down(actor, obs, obs_apart, NULL, 0, 0, rows, d.actor_tape, &d, threads);
    forward(critics, &first, 1, d.x, 0, rows, d.critic_tape, values, d.memory, threads);
    for (int64_t r = 0; r < rows; r++) d.d_values[r] = (float)share;
    inputs_back(critics, &first, 1, rows, d.critic_tape, d.d_values, actor->sizes[0], 0, d.d_actions, d.memory, threads);
    times_slope(TANH, d.actions, rows * actor->sizes[actor->layers], d.d_actions);
    backward(actor, NULL, 1, d.obs, 0, rows, d.actor_tape, d.d_actions, d.memory, threads);
}
