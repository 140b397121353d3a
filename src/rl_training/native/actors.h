/* A deterministic actor, whose outputs are squashed by tanh, and critics of (obs, action): passes through both in one call. */

/* Rows of observations, `apart` floats from one to the next, without what lies between them. */
static void take_rows(const float *from, int64_t apart, int64_t rows, int64_t width, float *to) {
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * width, from + r * apart, 4 * width);
}

static void join_rows(const float *obs, int64_t obs_dim, const float *actions, int64_t action_dim, int64_t rows, float *to) {
    for (int64_t r = 0; r < rows; r++, to += obs_dim + action_dim) {
        memcpy(to, obs + r * obs_dim, 4 * obs_dim);
        memcpy(to + obs_dim, actions + r * action_dim, 4 * action_dim);
    }
}

/* What these passes keep of `rows` rows. */
typedef struct {
    float *obs, *actions, *x, *d_values, *d_actions, *actor_tape, *critic_tape, *memory;
    int64_t size;
} Desk;

static Desk desk_of(const Network *actor, const Network *critics, int64_t rows, int64_t threads, float *at) {
    int64_t in = actor->sizes[0], actions = rounded(rows * actor->sizes[actor->layers], 16);
    int64_t inner = most(scratch_size(actor, 1, rows, threads), scratch_size(critics, critics->members, rows, threads));
    int64_t sizes[] = {rows * in, actions, rows * critics->sizes[0], rows, actions, tape_size(actor, 1, rows),
                       tape_size(critics, 1, rows), inner};
    float *parts[8], *next = at;
    for (int i = 0; i < 8; i++) parts[i] = next, next += rounded(sizes[i], 16);
    return (Desk){parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], next - at};
}

/* Floats of memory that the two below want. */
EXPORT int64_t desk_size(const Network *actor, const Network *critics, int64_t rows, int64_t threads) {
    return desk_of(actor, critics, rows, threads, NULL).size;
}

/* All critics' values (critics, rows) of the actor's actions or, with noise, of those blurred by it. */
EXPORT void judge(const Network *actor, const Network *critics, const float *obs, int64_t obs_apart, const float *noise,
                  double std, double clip, int64_t rows, float *values, float *memory, int64_t threads) {
    Desk d = desk_of(actor, critics, rows, threads, memory);
    int64_t in = actor->sizes[0], out = actor->sizes[actor->layers];
    take_rows(obs, obs_apart, rows, in, d.obs);
    forward(actor, NULL, 1, d.obs, 0, rows, NULL, d.actions, d.memory, threads);
    activate(TANH, d.actions, rows * out, d.actions);
    if (noise) blur(d.actions, noise, rows * out, std, clip);
    join_rows(d.obs, in, d.actions, out, rows, d.x);
    forward(critics, NULL, critics->members, d.x, 0, rows, NULL, values, d.memory, threads);
}

/* The first critic's values (rows) of the actor's actions; fills the gradient at the actor's parameters of whatever has
   `share` for its gradient at each of them. */
EXPORT void climb(const Network *actor, const Network *critics, const float *obs, int64_t obs_apart, double share, int64_t rows,
                  float *values, float *memory, int64_t threads) {
    Desk d = desk_of(actor, critics, rows, threads, memory);
    int64_t in = actor->sizes[0], out = actor->sizes[actor->layers], first = 0;
    take_rows(obs, obs_apart, rows, in, d.obs);
    forward(actor, NULL, 1, d.obs, 0, rows, d.actor_tape, d.actions, d.memory, threads);
    activate(TANH, d.actions, rows * out, d.actions);
    join_rows(d.obs, in, d.actions, out, rows, d.x);
    forward(critics, &first, 1, d.x, 0, rows, d.critic_tape, values, d.memory, threads);
    for (int64_t r = 0; r < rows; r++) d.d_values[r] = (float)share;
    inputs_back(critics, &first, 1, rows, d.critic_tape, d.d_values, in, 0, d.d_actions, d.memory, threads);
    times_slope(TANH, d.actions, rows * out, d.d_actions);
    backward(actor, NULL, 1, d.obs, 0, rows, d.actor_tape, d.d_actions, d.memory, threads);
}
