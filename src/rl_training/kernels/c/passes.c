/* Passes through fully connected networks, forwards and backwards, in single precision: in one call for a network, or for
   several of one shape ("members"), what takes numpy and torch one for each product, activation and norm.

   The same numbers give the same bits, whatever the number of threads and wherever rows stand: a row's results depend on
   that row alone, and a gradient at parameters is summed over rows in their order. A number that is none stays one. */

#include <math.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#include "threads.h"
#include "tiles.h"
#include "numbers.h"
#include "loops.h"
#include "rows.h"
#include "squash.h"
#include "adam.h"
#include "losses.h"

#define MOST_LAYERS 12
#define BLOCK 64   /* rows that one thread takes through a network at a time */
#define PICKED 256 /* the same where it looks for those that have a gradient */
#define CHUNK 256  /* rows that a gradient at weights is summed over at a time */
#define SPAN 512   /* rows that a pass back takes at a time; whole chunks */
#define GROUP 128  /* columns of weights whose gradient one thread sums at a time; whole panels */

typedef struct {
    int64_t layers, members, activation, norm, sizes[MOST_LAYERS + 1];
    /* Where the first member's parameters begin in the flat vector; those of the next lie right behind. Gains and shifts are
       there with a norm, of hidden layers. */
    int64_t weights[MOST_LAYERS], biases[MOST_LAYERS], gains[MOST_LAYERS], shifts[MOST_LAYERS];
} Network;

/* ---- tapes: what a pass forwards keeps of each hidden layer of each member ---- */

typedef struct {
    float *output;   /* (rows, n) */
    float *before;   /* what the activation was given, where its slope is not to be seen from its output */
    float *product;  /* what the norm was given, with its statistics */
    float *mean, *rstd;
} Kept;

static int64_t kept_size(const Network *net, int64_t layer, int64_t rows) {
    int64_t matrices = 1 + (net->activation == SILU) + (net->norm != 0);
    return rounded(rows * net->sizes[layer + 1], 16) * matrices + (net->norm ? 2 * rounded(rows, 16) : 0);
}

static Kept kept_of(const Network *net, float *tape, int64_t member, int64_t layer, int64_t rows) {
    int64_t matrix = rounded(rows * net->sizes[layer + 1], 16);
    for (int64_t l = 0; l < net->layers - 1; l++) tape += (member + (l < layer)) * kept_size(net, l, rows);
    Kept kept = {tape, NULL, NULL, NULL, NULL};
    tape += matrix;
    if (net->activation == SILU) kept.before = tape, tape += matrix;
    if (net->norm) kept.product = tape, kept.mean = tape + matrix, kept.rstd = kept.mean + rounded(rows, 16);
    return kept;
}

/* Where in a tape of one member its last hidden layer's outputs begin. */
EXPORT int64_t features_at(const Network *net, int64_t rows) {
    int64_t at = 0;
    for (int64_t l = 0; l < net->layers - 2; l++) at += kept_size(net, l, rows);
    return at;
}

/* Floats of a tape of so many members. */
EXPORT int64_t tape_size(const Network *net, int64_t members, int64_t rows) {
    int64_t size = 0;
    for (int64_t l = 0; l < net->layers - 1; l++) size += members * kept_size(net, l, rows);
    return size;
}

/* ---- a pass ---- */

typedef struct {
    const Network *net;
    const float *flat;     /* all parameters of all members */
    const int64_t *chosen; /* members, by number; NULL for all in their order */
    int64_t members, rows, blocks, block;
    int64_t first, span; /* rows that a pass back is at: it goes through many a span at a time, to want little memory */
    const float *x;
    int64_t x_apart;       /* floats from one member's inputs to the next one's; 0 where they read the same */
    float *tape;           /* NULL to keep nothing */
    float *outputs;        /* (members, rows, out) */
    const float *gradient; /* at the outputs */
    const float *features; /* what another reader of the last hidden layer adds to the gradient there, (members, rows, n), or NULL */
    float *d_flat;         /* where the gradient at the parameters goes, in the order of `flat` */
    float *packed, *scratch;
    int64_t packed_apart, scratch_apart; /* floats from one member's, or thread's, to the next one's */
    float *d_inputs;                     /* (members, rows, in - start), or (rows, in - start) where they are summed */
    int64_t start, summed;
} Pass;

INLINE int64_t number_of(const Pass *p, int64_t member) { return p->chosen ? p->chosen[member] : member; }

INLINE const float *weight_of(const Pass *p, int64_t number, int64_t layer) {
    return p->flat + p->net->weights[layer] + number * p->net->sizes[layer] * p->net->sizes[layer + 1];
}

/* A bias, gain or shift of hidden or last layer, one number for each of its outputs. */
INLINE const float *row_of(const Pass *p, const int64_t *begins, int64_t number, int64_t layer) {
    return p->flat + begins[layer] + number * p->net->sizes[layer + 1];
}

static int64_t packed_layers(const Network *net, int64_t layers) { /* floats of so many packed weights, one way or the other */
    int64_t size = 0;
    for (int64_t l = 0; l < layers; l++)
        size += most(packed_size(net->sizes[l], net->sizes[l + 1]), packed_size(net->sizes[l + 1], net->sizes[l]));
    return size;
}

static void pack_part(const void *about, int64_t part, int thread) {
    const Pass *p = about;
    const Network *net = p->net;
    int64_t member = part / net->layers, l = part % net->layers;
    int64_t in = net->sizes[l], out = net->sizes[l + 1];
    const float *weight = weight_of(p, number_of(p, member), l);
    float *to = p->packed + member * p->packed_apart + packed_layers(net, l);
    (void)thread;
    if (!p->gradient && l == net->layers - 1 && out == 1) return; /* a last layer's single column is read where it lies */
    if (!p->gradient) pack_rest(weight, out, in, out, to);
    else if (l) pack_transposed(weight, out, out, in, to);
    else if (p->d_inputs) pack_transposed(weight + p->start * out, out, out, in - p->start, to);
}

static void forward_part(const void *about, int64_t part, int thread) {
    const Pass *p = about;
    const Network *net = p->net;
    int64_t member = part / p->blocks, number = number_of(p, member), from = part % p->blocks * p->block;
    int64_t end = least(from + p->block, p->rows);
    /* with nothing to keep, a block's own tape is written over by the next block's */
    float *tape = p->tape ? p->tape : p->scratch + thread * p->scratch_apart;
    int64_t tape_member = p->tape ? member : 0, tape_rows = p->tape ? p->rows : p->block, first = p->tape ? from : 0;
    const float *x = p->x + member * p->x_apart + from * net->sizes[0];
    for (int64_t l = 0; l < net->layers; l++) {
        int64_t in = net->sizes[l], out = net->sizes[l + 1], hidden = l < net->layers - 1;
        Right weight = {weight_of(p, number, l), out, p->packed + member * p->packed_apart + packed_layers(net, l)};
        const float *bias = row_of(p, net->biases, number, l);
        if (!hidden) {
            float *to = p->outputs + (member * p->rows + from) * out;
            if (out == 1) column_rows(x, in, end - from, weight.at, in, *bias, to);
            else rows_times(x, in, end - from, weight, in, out, bias, to, out);
            return;
        }
        Kept kept = kept_of(net, tape, tape_member, l, tape_rows);
        float *output = kept.output + first * out, *before = kept.before ? kept.before + first * out : output;
        float *product = kept.product ? kept.product + first * out : before;
        rows_times(x, in, end - from, weight, in, out, bias, product, out);
        for (int64_t i = 0; net->norm && i < end - from; i++)
            norm_row(product + i * out, out, row_of(p, net->gains, number, l), row_of(p, net->shifts, number, l),
                     kept.mean + first + i, kept.rstd + first + i, before + i * out);
        activate(net->activation, before, (end - from) * out, output);
        x = output;
    }
}

/* Rows of the gradient at what hidden layer `l` gave out, back through activation and norm to that at its product; what the
   norm was given from above is left in `above`. */
static void hidden_back(const Pass *p, int64_t number, int64_t l, const Kept *kept, int64_t row, int64_t count, float *above,
                        float *to) {
    const Network *net = p->net;
    int64_t n = net->sizes[l + 1];
    times_slope(net->activation, (net->activation == SILU ? kept->before : kept->output) + row * n, count * n, above);
    for (int64_t i = 0; net->norm && i < count; i++)
        norm_row_back(above + i * n, kept->product + (row + i) * n, n, row_of(p, net->gains, number, l), kept->mean[row + i],
                      kept->rstd[row + i], to + i * n);
}

/* Where gradients at a hidden layer's product are put, and behind them, with a norm, those at what it gave out. */
static float *at_product(const Pass *p, int64_t member, int64_t layer) {
    const Network *net = p->net;
    float *at = p->scratch;
    for (int64_t l = 0; l < net->layers - 1; l++)
        at += (member + (l < layer)) * (1 + (net->norm != 0)) * rounded(p->span * net->sizes[l + 1], 16);
    return at;
}

static float *above_norm(const Pass *p, int64_t member, int64_t layer) {
    return at_product(p, member, layer) + (p->net->norm ? rounded(p->span * p->net->sizes[layer + 1], 16) : 0);
}

static void backward_part(const void *about, int64_t part, int thread) {
    const Pass *p = about;
    const Network *net = p->net;
    int64_t member = part / p->blocks, number = number_of(p, member), from = part % p->blocks * p->block;
    int64_t end = least(from + p->block, p->span);
    (void)thread;
    const float *gradient = p->gradient + (member * p->rows + p->first) * net->sizes[net->layers];
    for (int64_t l = net->layers - 1; l; l--) {
        int64_t in = net->sizes[l], out = net->sizes[l + 1];
        Right turned = {NULL, 0, p->packed + member * p->packed_apart + packed_layers(net, l)};
        Kept kept = kept_of(net, p->tape, member, l - 1, p->rows);
        float *at = at_product(p, member, l - 1), *above = above_norm(p, member, l - 1);
        rows_times(gradient + from * out, out, end - from, turned, out, in, NULL, above + from * in, in);
        if (p->features && l == net->layers - 1) {
            const float *more = p->features + (member * p->rows + p->first + from) * in;
            OVER(i, (end - from) * in, put(above + from * in + i, some(above + from * in + i, left) + some(more + i, left), left);)
        }
        hidden_back(p, number, l - 1, &kept, p->first + from, end - from, above + from * in, at + from * in);
        gradient = at;
    }
}

/* Sums over a span's rows of some columns of `d` and, where x is given, of d times (x - mean) · rstd. */
static void column_sums(const Pass *p, const float *d, int64_t n, int64_t columns, const float *x, const Kept *kept, float *sums,
                        float *along) {
    OVER(c, columns, vec sum = {0}, by = {0}; for (int64_t r = 0; r < p->span; r++) {
        vec own = some(d + r * n + c, left);
        int64_t row = p->first + r;
        sum += own;
        if (x) by += own * ((some(x + row * n + c, left) - kept->mean[row]) * kept->rstd[row]);
    } put(sums + c, p->first ? some(sums + c, left) + sum : sum, left);
             if (x) put(along + c, p->first ? some(along + c, left) + by : by, left);)
}

/* Gradients at columns `j` to `end` of one layer's parameters. Rows are summed a chunk at a time, which stays in the cache
   for all of the columns. */
static void columns_back(const Pass *p, int64_t member, int64_t l, int64_t j, int64_t end) {
    const Network *net = p->net;
    int64_t number = number_of(p, member), in = net->sizes[l], out = net->sizes[l + 1], at = number * out + j;
    int64_t hidden = l < net->layers - 1;
    const float *gradient = hidden ? at_product(p, member, l) : p->gradient + (member * p->rows + p->first) * out;
    const float *x = (l ? kept_of(net, p->tape, member, l - 1, p->rows).output : p->x + member * p->x_apart) + p->first * in;
    float rest[CHUNK * NARROW], *d_weight = p->d_flat + net->weights[l] + number * in * out;
    for (int64_t from = 0; from < p->span; from += CHUNK) {
        int64_t count = least(CHUNK, p->span - from);
        if (out == 1) column_across(x + from * in, in, in, gradient + from, count, d_weight, p->first + from > 0);
        Right g = {gradient + from * out, out, rest};
        if (end == out) pack_rest(g.at, out, count, out, rest);
        for (int64_t c = j; out > 1 && c < end; c += panel_width(c, out))
            across_panel(x + from * in, in, in, g, count, c, out, d_weight, p->first + from > 0);
    }
    column_sums(p, gradient + j, out, end - j, NULL, NULL, p->d_flat + net->biases[l] + at, NULL);
    if (!net->norm || !hidden) return;
    Kept kept = kept_of(net, p->tape, member, l, p->rows);
    column_sums(p, above_norm(p, member, l) + j, out, end - j, kept.product + j, &kept, p->d_flat + net->shifts[l] + at,
                p->d_flat + net->gains[l] + at);
}

static int64_t groups_of(int64_t n) { return (n + GROUP - 1) / GROUP; }

static int64_t all_groups(const Network *net) {
    int64_t groups = 0;
    for (int64_t l = 0; l < net->layers; l++) groups += groups_of(net->sizes[l + 1]);
    return groups;
}

static void gradient_part(const void *about, int64_t part, int thread) {
    const Pass *p = about;
    int64_t groups = all_groups(p->net), member = part / groups, l = 0;
    (void)thread;
    for (part %= groups; part >= groups_of(p->net->sizes[l + 1]); l++) part -= groups_of(p->net->sizes[l + 1]);
    columns_back(p, member, l, part * GROUP, least((part + 1) * GROUP, p->net->sizes[l + 1]));
}

/* Gradients at the inputs of a block's rows, each member's own or all added up; rows without a gradient are left out. */
static void inputs_part(const void *about, int64_t part, int thread) {
    const Pass *p = about;
    const Network *net = p->net;
    int64_t from = part * p->block, end = least(from + p->block, p->rows), last = net->sizes[net->layers];
    int64_t wanted = net->sizes[0] - p->start, picked[PICKED];
    if (!wanted) return;
    float *here = p->scratch + thread * p->scratch_apart, *there = here + p->scratch_apart / 2;
    memset(p->d_inputs + (p->summed ? from * wanted : 0), 0, p->summed ? 4 * (end - from) * wanted : 0);
    for (int64_t member = 0; member < p->members; member++) {
        int64_t number = number_of(p, member), count = 0;
        const float *gradient = p->gradient + member * p->rows * last;
        for (int64_t r = from; r < end; r++) {
            int counts = !p->summed;
            for (int64_t c = 0; c < last; c++) counts |= !(gradient[r * last + c] == 0);
            if (counts) memcpy(here + count * last, gradient + r * last, 4 * last), picked[count++] = r;
        }
        for (int64_t l = net->layers - 1; l >= 0; l--) {
            int64_t in = l ? net->sizes[l] : wanted, out = net->sizes[l + 1];
            Right turned = {NULL, 0, p->packed + member * p->packed_apart + packed_layers(net, l)};
            Kept kept = l ? kept_of(net, p->tape, member, l - 1, p->rows) : (Kept){NULL, NULL, NULL, NULL, NULL};
            rows_times(here, out, count, turned, out, in, NULL, there, in);
            for (int64_t i = 0; l && i < count; i++)
                hidden_back(p, number, l - 1, &kept, picked[i], 1, there + i * in, there + i * in);
            float *swap = here;
            here = there, there = swap;
        }
        for (int64_t r = 0; r < count; r++) {
            float *to = p->d_inputs + ((p->summed ? 0 : member * p->rows) + picked[r]) * wanted;
            for (int64_t c = 0; c < wanted; c++) to[c] = (p->summed ? to[c] : 0) + here[r * wanted + c];
        }
    }
}

static int64_t widest(const Network *net) {
    int64_t width = 0;
    for (int64_t l = 0; l <= net->layers; l++) width = most(width, net->sizes[l]);
    return width;
}

/* ---- whole passes ---- */

static void run_forward(Pass *p, int threads) {
    p->blocks = (p->rows + BLOCK - 1) / BLOCK, p->block = BLOCK, p->scratch_apart = tape_size(p->net, 1, BLOCK);
    share(pack_part, p, p->members * p->net->layers, threads);
    share(forward_part, p, p->members * p->blocks, threads);
}

static void run_backward(Pass *p, int threads) {
    share(pack_part, p, p->members * p->net->layers, threads);
    p->block = BLOCK;
    for (p->first = 0; p->first < p->rows; p->first += SPAN) {
        p->span = least(SPAN, p->rows - p->first), p->blocks = (p->span + BLOCK - 1) / BLOCK;
        share(backward_part, p, p->members * p->blocks, threads);
        share(gradient_part, p, p->members * all_groups(p->net), threads);
    }
}

static void run_inputs_back(Pass *p, int threads) {
    int64_t each = rounded((p->rows + threads - 1) / threads, ROWS);
    p->block = least(PICKED / ROWS * ROWS, each), p->blocks = (p->rows + p->block - 1) / p->block;
    p->scratch_apart = 2 * rounded(PICKED * widest(p->net), 16);
    share(pack_part, p, p->members * p->net->layers, threads);
    share(inputs_part, p, p->blocks, threads);
}

/* Floats of scratch that these want for each member, or for each thread if there are more of them. */
static int64_t region(const Network *net, int64_t rows) {
    int64_t there = tape_size(net, 1, BLOCK), back = 2 * tape_size(net, 1, least(rows, SPAN));
    return most(most(there, back), 2 * rounded(PICKED * widest(net), 16));
}

/* A member's whole pass by one thread: what it writes is still in that thread's cache when it is read. */
static void member_part(const void *about, int64_t member, int thread) {
    const Pass *p = about;
    int64_t number = number_of(p, member), out = p->net->sizes[p->net->layers];
    Pass own = *p;
    own.chosen = &number, own.members = 1;
    own.x += member * p->x_apart;
    if (p->tape) own.tape += member * tape_size(p->net, 1, p->rows);
    if (p->outputs) own.outputs += member * p->rows * out;
    if (p->gradient) own.gradient += member * p->rows * out;
    if (p->features) own.features += member * p->rows * p->net->sizes[p->net->layers - 1];
    own.packed += thread * p->packed_apart;
    own.scratch += thread * region(p->net, p->rows);
    if (p->gradient) run_backward(&own, 1);
    else run_forward(&own, 1);
}

static Pass pass_of(const Network *net, const float *flat, const int64_t *chosen, int64_t members, int64_t rows, float *memory, int64_t threads) {
    int64_t apart = packed_layers(net, net->layers);
    return (Pass){.net = net, .flat = flat, .chosen = chosen, .members = members, .rows = rows, .packed = memory, .packed_apart = apart,
                  .scratch = memory + most(members, threads) * apart};
}

/* ---- what is called from Python ---- */

/* Floats of memory that any of the passes below wants for itself. */
EXPORT int64_t scratch_size(const Network *net, int64_t members, int64_t rows, int64_t threads) {
    return most(members, threads) * (packed_layers(net, net->layers) + region(net, rows));
}

EXPORT void forward(const Network *net, const float *flat, const int64_t *chosen, int64_t members, const float *x, int64_t x_apart, int64_t rows,
                    float *tape, float *outputs, float *memory, int64_t threads) {
    Pass p = pass_of(net, flat, chosen, members, rows, memory, threads);
    p.x = x, p.x_apart = x_apart, p.tape = tape, p.outputs = outputs;
    if (members % threads) run_forward(&p, (int)threads);
    else share(member_part, &p, members, (int)threads);
}

/* Fills the gradient at the parameters of the members, from those at the outputs and, where `features` is given, from what
   else reads their last hidden layer. */
EXPORT void backward(const Network *net, const float *flat, const int64_t *chosen, int64_t members, const float *x, int64_t x_apart,
                     int64_t rows, float *tape, const float *gradient, const float *features, float *d_flat, float *memory,
                     int64_t threads) {
    Pass p = pass_of(net, flat, chosen, members, rows, memory, threads);
    p.x = x, p.x_apart = x_apart, p.tape = tape, p.gradient = gradient, p.features = features, p.d_flat = d_flat;
    if (members % threads) run_backward(&p, (int)threads);
    else share(member_part, &p, members, (int)threads);
}

/* Fills gradients at the inputs from column `start` on. */
EXPORT void inputs_back(const Network *net, const float *flat, const int64_t *chosen, int64_t members, int64_t rows, float *tape,
                        const float *gradient, int64_t start, int64_t summed, float *d_inputs, float *memory, int64_t threads) {
    Pass p = pass_of(net, flat, chosen, members, rows, memory, threads);
    p.tape = tape, p.gradient = gradient, p.start = start, p.summed = summed, p.d_inputs = d_inputs;
    run_inputs_back(&p, (int)threads);
}

#include "imagined.h"
#include "policies.h"

/* The digest of the sources that this was compiled from (`library.digest`). */
EXPORT const char *sources(void) { return SOURCES; }
