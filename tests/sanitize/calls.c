/* Random calls of every kernel, for the sanitizers: `calls COUNT SEED`.
 *
 * Arrays are exactly as long as the kernels may use, so one step beyond is an error. Each call is
 * made twice, by two threads with a half each and by one, and both have to agree to the last bit;
 * where values are tame, products and bits agree with the plain definition, too, and projections
 * lie in their cones. In some calls values are wild (NaN, infinite, huge), in some a third thread
 * sets the flag to stop in their middle: then only memory is watched.
 *
 * The second half of this file is about products; it includes itself for each precision.
 */
#ifndef REAL

#include "kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;
static int wild, stop, never;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) % below;
}

/* Around the lengths of vectors, words and tiles. */
static index_t draw_size(index_t least, index_t most)
{
    static const index_t edges[] = {0, 1, 2, 8, 16, 32, 64, 96, 128};
    index_t size = draw(4) ? edges[draw(9)] + (index_t)draw(3) - 1 : (index_t)draw(most + 1);
    return size < least ? least : size > most ? most : size;
}

static double draw_value(void)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300, 1e-320, 0.0, -0.0};
    if (wild && draw(8) == 0) return odd[draw(8)];
    return (double)draw(2000001) / 1000000.0 - 1.0;
}

static void *room(index_t size)
{
    void *memory = malloc(size);
    if (!memory) abort();
    memset(memory, 0xee, size);
    return memory;
}

static double *draw_doubles(index_t size)
{
    double *values = room(size * sizeof(double));
    for (index_t i = 0; i < size; i++) values[i] = draw_value();
    return values;
}

static void check(int holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "%s: not as it should be\n", what);
    exit(1);
}

/* Rows by their entries. */
typedef struct {
    index_t *starts, *columns;
    double *values;
} sparse_t;

/* One call: `run` does blocks first..last of it into the results number `which`. */
typedef struct call call_t;
struct call {
    void (*run)(const call_t *, index_t first, index_t last, int which, const int *stop);
    index_t n, d, p, C, n_blocks, width;
    const void *a, *b, *c, *e, *f, *g;
    void *out[2], *rows[2], *gamma[2], *count[2];
    double delta;
    const sparse_t *sparse;
    int rough, cold;
    double *factors[2];
    index_t *slots;
};

typedef struct {
    const call_t *call;
    index_t first, last;
} half_call_t;

static void *run_half(void *argument)
{
    half_call_t *half = argument;
    half->call->run(half->call, half->first, half->last, 0, &stop);
    return NULL;
}

static void *set_stop(void *argument)
{
    for (volatile uint64_t wait = *(uint64_t *)argument; wait > 0; wait--) continue;
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Both ways. Returns whether there are results, which nobody has stopped. */
static int run_call(const call_t *call)
{
    index_t middle = draw(call->n_blocks + 1);
    half_call_t halves[2] = {{call, 0, middle}, {call, middle, call->n_blocks}};
    uint64_t wait = draw(20000);
    int interrupted = draw(4) == 0;
    pthread_t thread[3];
    stop = 0;
    for (int t = 0; t < 2; t++)
        if (pthread_create(&thread[t], NULL, run_half, &halves[t])) abort();
    if (interrupted && pthread_create(&thread[2], NULL, set_stop, &wait)) abort();
    for (int t = 0; t < 2 + interrupted; t++) pthread_join(thread[t], NULL);
    call->run(call, 0, call->n_blocks, 1, &never);
    return !interrupted;
}

static void run_projections(const call_t *call, index_t first, index_t last, int which,
                            const int *flag)
{
    index_t d = call->d, most = call->C;
    const double *offsets = call->f;
    const sparse_t *sparse = call->sparse;
    index_t *rows = (index_t *)call->rows[which] + first * (most + 1);
    double *gamma = (double *)call->gamma[which] + first * (most + 1);
    index_t *count = (index_t *)call->count[which] + first;
    check(!project_blocks(call->n, d, sparse ? NULL : call->a, sparse ? NULL : call->b,
                          sparse ? sparse->starts : NULL, sparse ? sparse->columns : NULL,
                          sparse ? sparse->values : NULL, call->c, last - first,
                          (const double *)call->e + first * d, (const index_t *)call->g + first,
                          offsets ? offsets + first * call->n : NULL,
                          (const double *)call->out[1] - call->n_blocks + first, most + 1, rows,
                          gamma, call->cold ? NULL : count, most, rows, gamma, count,
                          (double *)call->out[which] + first * d, call->factors[which],
                          call->slots ? call->slots + first : NULL, 1e-9, 1e-12, 20 * d + 100,
                          call->rough, flag),
          "memory for projections");
}

/* Rows of length one, as native.layout_rows lays them out. */
static void draw_rows(index_t n, index_t d, double **X, float **tiles)
{
    index_t width = (d + 7) / 8 * 8;
    *X = room(n * width * sizeof(double));
    *tiles = room((n + 63) / 64 * 64 * d * sizeof(float));
    memset(*X, 0, n * width * sizeof(double));
    memset(*tiles, 0, (n + 63) / 64 * 64 * d * sizeof(float));
    for (index_t j = 0; j < n; j++) {
        double *x = *X + j * width, norm = 0.0;
        for (index_t i = 0; i < d; i++) x[i] = draw_value(), norm += x[i] * x[i];
        for (index_t i = 0; i < d; i++) {
            x[i] /= norm > 0.0 ? sqrt(norm) : 1.0;
            (*tiles)[(j / 64 * d + i) * 64 + j % 64] = (float)x[i];
        }
    }
}

/* The entries of rows that are not zero, and some that are. */
static sparse_t entries_of(index_t n, index_t d, const double *X)
{
    index_t width = (d + 7) / 8 * 8, count = 0;
    sparse_t sparse = {room((n + 1) * sizeof(index_t)), room(n * d * sizeof(index_t)),
                       room(n * d * sizeof(double))};
    for (index_t j = 0; j < n; j++) {
        sparse.starts[j] = count;
        for (index_t i = 0; i < d; i++)
            if (X[j * width + i] != 0.0 || draw(4) == 0)
                sparse.columns[count] = i, sparse.values[count++] = X[j * width + i];
    }
    sparse.starts[n] = count;
    return sparse;
}

static int8_t *draw_signs(index_t size)
{
    int8_t *signs = room(size);
    for (index_t j = 0; j < size; j++) signs[j] = draw(2) ? 1 : -1;
    return signs;
}

static void check_cones(const call_t *call)
{
    const double *points = call->e;
    for (index_t b = 0; b < call->n_blocks; b++) {
        const double *w = (const double *)call->out[1] + b * call->d;
        const int8_t *sign = (const int8_t *)call->c + ((const index_t *)call->g)[b] * call->n;
        double size = 0.0;
        for (index_t i = 0; i < call->d; i++) size += fabs(points[b * call->d + i]);
        for (index_t j = 0; j < call->n; j++) {
            double r = 0.0;
            for (index_t i = 0; i < call->d; i++)
                r += sign[j] * w[i] * ((const double *)call->a)[j * call->width + i];
            check(r >= -1e-8 * size, "a projection");
        }
    }
}

static void call_projections(void)
{
    index_t n = draw_size(0, 140), d = draw_size(1, draw(4) ? 40 : 100), p = 3;
    index_t blocks = draw_size(0, 12), most = n < 2 * d ? n : 2 * d, rows;
    if (most < 1) most = 1;
    rows = blocks * (most + 1);
    int is_sparse = draw(3) == 0;
    int offset = draw(3) == 0 && n > 0 && !is_sparse;
    double *X, *results = room((blocks * d + blocks) * sizeof(double));
    float *tiles;
    draw_rows(n, d, &X, &tiles);
    int8_t *signs = draw_signs(p * n);
    double *points = draw_doubles(blocks * d), *offsets = offset ? draw_doubles(blocks * n) : NULL;
    index_t *pattern = room(blocks * sizeof(index_t));
    for (index_t b = 0; b < blocks; b++) pattern[b] = draw(p);
    int rough = draw(4) == 0, bounds = rough || draw(4) == 0;
    for (index_t b = 0; b < blocks; b++) results[b] = bounds ? draw_value() : 0.0; /* enough */
    sparse_t sparse = entries_of(n, d, X);
    call_t call = {run_projections, n, d, p, most, blocks, (d + 7) / 8 * 8, X, tiles, signs, points,
                   offsets, pattern, {NULL}, {NULL}, {NULL}, {NULL}, 0.0,
                   is_sparse ? &sparse : NULL, rough, draw(8) == 0, {NULL}, NULL};
    index_t rank = n < d ? n : d, size = 1 + rank + rank * (rank + 1) / 2;
    if (draw(2)) { /* every third block keeps no factor */
        call.slots = room(blocks * sizeof(index_t));
        for (index_t b = 0; b < blocks; b++) call.slots[b] = b % 3 ? blocks - 1 - b : -1;
        for (int which = 0; which < 2; which++) {
            call.factors[which] = room(blocks * size * sizeof(double));
            for (index_t b = 0; b < blocks; b++) call.factors[which][b * size] = -1.0;
        }
    }
    call.out[0] = room(blocks * d * sizeof(double)), call.out[1] = results + blocks;
    for (int which = 0; which < 2; which++) {
        index_t *row = call.rows[which] = room(rows * sizeof(index_t));
        double *gamma = call.gamma[which] = room(rows * sizeof(double));
        index_t *count = call.count[which] = room(blocks * sizeof(index_t));
        for (index_t b = 0; b < blocks; b++) { /* a warm start, with rows twice sometimes */
            count[b] = n ? (b + n) % (most + 1) : 0;
            for (index_t a = 0; a < count[b]; a++) {
                row[b * (most + 1) + a] = (b + 5 * a) % n;
                gamma[b * (most + 1) + a] = wild && a % 3 == 1 ? NAN : 0.5;
            }
        }
    }
    if (run_call(&call)) {
        check(!memcmp(call.out[0], call.out[1], blocks * d * sizeof(double)), "projections");
        check(!memcmp(call.count[0], call.count[1], blocks * sizeof(index_t)), "active rows");
    }
    if (!wild && !offset && !bounds) check_cones(&call);
    call.run(&call, 0, blocks, 1, &never); /* once more, from the factors that were kept */
    if (!wild && !offset && !bounds) check_cones(&call);
    free(call.slots), free(call.factors[0]), free(call.factors[1]);
    free(sparse.starts), free(sparse.columns), free(sparse.values);
    free(X), free(tiles), free(signs), free(points), free(offsets), free(pattern), free(results);
    free(call.out[0]);
    for (int which = 0; which < 2; which++)
        free(call.rows[which]), free(call.gamma[which]), free(call.count[which]);
}

static void run_bases(const call_t *call, index_t first, index_t last, int which, const int *flag)
{
    check(!orthonormal_rows(call->d, call->a, last - first, call->width,
                            (const index_t *)call->b + first * call->width,
                            (const index_t *)call->c + first, (const index_t *)call->e + first,
                            call->rough, call->out[which], flag),
          "memory for bases");
}

/* Bases of the spans of random rows, or of what is orthogonal to them. */
static void call_bases(void)
{
    index_t n = draw_size(1, 140), d = draw_size(1, draw(4) ? 40 : 100), blocks = draw_size(0, 12);
    index_t most = n < d ? n : d, size = 0;
    double *X = draw_doubles(n * d);
    index_t *rows = room(blocks * most * sizeof(index_t)), *count = room(blocks * sizeof(index_t));
    index_t *first = room(blocks * sizeof(index_t));
    int complement = draw(2);
    for (index_t b = 0; b < blocks; b++) {
        count[b] = draw(most + 1), first[b] = size;
        size += complement ? d - count[b] : count[b];
        for (index_t a = 0; a < count[b]; a++) rows[b * most + a] = (b + a) % n;
    }
    call_t call = {run_bases, n, d, 0, 0, blocks, most, X, rows, count, first, NULL, NULL,
                   {room(size * d * sizeof(double)), room(size * d * sizeof(double))},
                   {NULL}, {NULL}, {NULL}, 0.0, NULL, complement, 0, {NULL}, NULL};
    if (run_call(&call))
        check(!memcmp(call.out[0], call.out[1], size * d * sizeof(double)), "bases");
    const double *Q = call.out[1];
    for (index_t b = 0; !wild && b < blocks; b++) {
        index_t end = b + 1 < blocks ? first[b + 1] : size;
        for (index_t j = first[b]; j < end; j++) {
            for (index_t i = first[b]; i <= j; i++) {
                double product = 0.0;
                for (index_t l = 0; l < d; l++) product += Q[i * d + l] * Q[j * d + l];
                check(fabs(product - (i == j)) <= 1e-12 * d, "a basis");
            }
            for (index_t a = 0; complement && a < count[b]; a++) {
                double product = 0.0;
                for (index_t l = 0; l < d; l++)
                    product += Q[j * d + l] * X[rows[b * most + a] * d + l];
                check(fabs(product) <= 1e-11 * d, "a complement");
            }
        }
    }
    free(X), free(rows), free(count), free(first), free(call.out[0]), free(call.out[1]);
}

static void run_coefficients(const call_t *call, index_t first, index_t last, int which,
                             const int *flag)
{
    hinge_coefficients(call->n, call->a, last - first, (const index_t *)call->b + first, call->c,
                       call->e, call->delta, (const double *)call->f + first * call->n,
                       (double *)call->out[which] + first * call->n, flag);
}

static void run_divergence(const call_t *call, index_t first, index_t last, int which,
                           const int *flag)
{
    hinge_divergence(call->n, call->a, last - first, (const index_t *)call->b + first, call->c,
                     call->e, call->delta, (const double *)call->f + first * call->n,
                     (const double *)call->g + first * call->n,
                     (double *)call->out[which] + first, flag);
}

static void run_look(const call_t *call, index_t first, index_t last, int which, const int *flag)
{
    const double *towards = call->f;
    index_t n = call->n, d = call->d;
    look_at_blocks(n, d, call->a, call->b, call->c, call->e, last - first,
                   (const double *)call->g + first * d, (const double *)call->rows[0] + first,
                   (const index_t *)call->rows[1] + first,
                   (const double *)call->gamma[0] + first * n, towards ? towards + first * d : NULL,
                   1e-15, 1e-300, 1.5, 1.5, (double *)call->out[which] + first,
                   (uint8_t *)call->count[which] + first, flag);
}

static void call_look(void)
{
    index_t n = draw_size(0, 140), d = draw_size(1, 70), n_blocks = draw_size(0, 20), p = 3;
    double *X = draw_doubles(n * d), *norms = draw_doubles(n), *V = draw_doubles(n_blocks * d);
    double *towards = draw_doubles(n_blocks * d), *sizes = draw_doubles(n_blocks);
    double *products = draw_doubles(n_blocks * n);
    int8_t *signs = draw_signs(p * n);
    uint8_t *rows = room(n);
    index_t *pattern = room(n_blocks * sizeof(index_t));
    for (index_t j = 0; j < n; j++) rows[j] = draw(4) > 0;
    for (index_t b = 0; b < n_blocks; b++) pattern[b] = draw(p);
    call_t call = {run_look, n, d, p, 1, n_blocks, 0, X, norms, rows, signs,
                   draw(3) ? towards : NULL, V, {NULL}, {sizes, pattern}, {products}, {NULL}, 1.0};
    for (int which = 0; which < 2; which++) {
        call.out[which] = room(n_blocks * sizeof(double));
        call.count[which] = room(n_blocks);
    }
    if (run_call(&call)) {
        check(!memcmp(call.out[0], call.out[1], n_blocks * sizeof(double)), "steps into cones");
        check(!memcmp(call.count[0], call.count[1], n_blocks), "blocks inside their cones");
    }
    free(X), free(norms), free(V), free(towards), free(sizes), free(products);
    free(signs), free(rows), free(pattern);
    for (int which = 0; which < 2; which++) free(call.out[which]), free(call.count[which]);
}

static void call_hinges(int divergence)
{
    index_t n = draw_size(0, 140), listed = draw_size(0, 20), all = 25, p = 3;
    index_t size = listed * (divergence ? 1 : n);
    int8_t *signs = draw_signs(p * n);
    index_t *block = room(listed * sizeof(index_t)), *pattern = room(all * sizeof(index_t));
    double *gamma = draw_doubles(all * n);
    double *new = draw_doubles(listed * n), *old = draw_doubles(listed * n);
    for (index_t b = 0; b < listed; b++) block[b] = draw(all);
    for (index_t b = 0; b < all; b++) pattern[b] = draw(p);
    call_t call = {divergence ? run_divergence : run_coefficients, n, 0, p, 1, listed, 0, signs,
                   block, pattern, gamma, new, old, {NULL}, {NULL}, {NULL}, {NULL}, 1.3};
    for (int which = 0; which < 2; which++) call.out[which] = room(size * sizeof(double));
    if (run_call(&call))
        check(!memcmp(call.out[0], call.out[1], size * sizeof(double)), "hinges");
    free(signs), free(block), free(pattern), free(gamma), free(new), free(old);
    free(call.out[0]), free(call.out[1]);
}

static uint8_t *draw_mask(index_t size)
{
    uint8_t *mask = room(size);
    for (index_t k = 0; k < size; k++) mask[k] = draw(2);
    return mask;
}

static void run_pack(const call_t *call, index_t first, index_t last, int which, const int *flag)
{
    pack_bits(first, last, call->n, call->p, call->a, call->out[which], flag);
}

static void run_transpose(const call_t *call, index_t first, index_t last, int which,
                          const int *flag)
{
    transpose_bits(first, last, call->n, call->p, call->a, call->out[which], flag);
}

/* Bits of a mask (n, p), of its columns or of its rows, without the kernels. */
static uint32_t *bits_of(const uint8_t *mask, index_t n, index_t p, int columns)
{
    index_t depth = columns ? p : n, length = columns ? n : p;
    index_t size = (depth + 31) / 32 * length;
    uint32_t *bits = room(size * sizeof(uint32_t));
    memset(bits, 0, size * sizeof(uint32_t));
    for (index_t j = 0; j < n; j++)
        for (index_t i = 0; i < p; i++) {
            index_t k = columns ? i : j, at = columns ? j : i;
            bits[k / 32 * length + at] |= (uint32_t)mask[j * p + i] << k % 32;
        }
    return bits;
}

static void call_bits(int transposed)
{
    index_t n = draw_size(0, 140), p = draw_size(0, 140);
    index_t words = ((transposed ? p : n) + 31) / 32;
    index_t size = words * (transposed ? n : p) * sizeof(uint32_t);
    uint8_t *mask = draw_mask(n * p);
    uint32_t *rows = bits_of(mask, n, p, 0), *expected = bits_of(mask, n, p, transposed);
    call_t call = {transposed ? run_transpose : run_pack, n, 0, p, 1, words, 0,
                   transposed ? (void *)rows : mask, NULL, NULL, NULL, NULL, NULL,
                   {room(size), room(size)}, {NULL}, {NULL}, {NULL}, 0.0};
    if (run_call(&call)) check(!memcmp(call.out[0], expected, size), "bits by threads");
    check(!memcmp(call.out[1], expected, size), "bits");
    free(mask), free(rows), free(expected), free(call.out[0]), free(call.out[1]);
}

/* Kernels that one thread runs from the first row to the last: a flag that another one sets in their
 * middle in some calls. Returns whether it does; the caller joins it by `end_of_stop`. */
static pthread_t stopper;
static uint64_t stop_after;

static int begin_stop(void)
{
    stop = 0, stop_after = draw(20000);
    int interrupted = draw(4) == 0;
    if (interrupted && pthread_create(&stopper, NULL, set_stop, &stop_after)) abort();
    return interrupted;
}

/* Labels of both signs and positive weights that sum to 1, as all callers have them; predictions may
 * be wild. At the bias that is found the gradients sum to zero, and scaling leaves the domain of the
 * dual in peace. */
static void call_logistic(void)
{
    index_t n = draw_size(0, 300), C = draw_size(1, 4), size = n * C * sizeof(double);
    double *Z = draw_doubles(n * C + 1), *Y = room(size + 1), *weight = room(n * sizeof(double) + 1);
    double *gradient = room(size + 1), *scale = room(size + 1), *bias = room(C * sizeof(double));
    double *limit = room(C * sizeof(double)), value, dual;
    for (index_t i = 0; i < n * C; i++) Y[i] = i / C == 0 || (i / C > 1 && draw(2)) ? 1.0 : -1.0;
    for (index_t i = 0; i < n; i++) weight[i] = 1.0 / n;
    for (index_t c = 0; c < C; c++) bias[c] = 0.0;
    int interrupted = begin_stop();
    logistic_minimum(n, C, Z, Y, weight, bias, &value, gradient, scale, &stop);
    if (interrupted) pthread_join(stopper, NULL);
    for (index_t c = 0; c < C; c++) bias[c] = draw_value(), limit[c] = 1.0;
    logistic_minimum(n, C, Z, Y, weight, bias, &value, gradient, scale, &never);
    for (index_t c = 0; c < C && !wild && n > 1; c++) {
        double sum = 0, sizes = 0;
        for (index_t i = 0; i < n; i++)
            sum += gradient[i * C + c], sizes += fabs(gradient[i * C + c]);
        check(fabs(sum) <= 1e-12 * sizes, "a balanced gradient");
    }
    index_t n_limits = draw(2) ? C : 1;
    logistic_dual(n, C, n_limits, gradient, Y, weight, limit, &dual);
    if (!wild && n > 1) {
        check(limit[0] > 0.999999 && limit[0] <= 1.0, "a gradient is in the domain");
        check(fabs(dual - value) <= value + 1e-9, "a dual value");
    }
    free(Z), free(Y), free(weight), free(gradient), free(scale), free(bias), free(limit);
}

/* Trees of cones: one is grown in one go, the other in small steps, while room for nodes is added
 * and the first of them may be stopped. Where nothing is wild, both are the same. */
static void call_cones(void)
{
    index_t r = 1 + draw(8), positive = 8 * draw(4), negative = 8 * draw(4), size = positive + negative;
    double *rows = draw_doubles(r * size), total = 0;
    int64_t *vertices = room(r * r * sizeof(int64_t));
    for (index_t k = 0; k < r * r; k++) vertices[k] = k % (r + 1) ? 0 : draw(2) ? 1 : -1;
    for (index_t k = 0; k < r * size; k++) total += fabs(rows[k]);
    double threshold = total * (double)draw(100) / 400;
    int32_t *child[2];
    uint8_t *edge[2];
    double *bound[2], *value[2], best[2][9] = {{0}};
    index_t count[2] = {1, 1}, most = 2001;
    for (int t = 0; t < 2; t++) {
        index_t capacity = t ? most : 1;
        child[t] = room(capacity * sizeof(int32_t)), edge[t] = room(capacity);
        bound[t] = room(capacity * sizeof(double)), value[t] = room(capacity * sizeof(double));
        child[t][0] = 0, edge[t][0] = 255, bound[t][0] = value[t][0] = INFINITY;
        int interrupted = t == 0 && begin_stop();
        for (int status = 1, calls = 0; (status == 1 || status == 2) && calls < 2000; calls++) {
            status = branch_cone(r, positive, negative, rows, vertices, total, threshold, threshold,
                                 INFINITY, t ? 100000 : 1 + draw(20), capacity, &count[t], child[t],
                                 edge[t], bound[t], value[t], best[t], t ? &never : &stop);
            check(count[t] <= capacity, "the number of nodes");
            if (status == 2 && capacity == most) break;
            if (interrupted && stopped(&stop)) break;
            if (status != 2) continue;
            index_t more = 2 * capacity + 1 < most ? 2 * capacity + 1 : most;
            child[t] = realloc(child[t], more * sizeof(int32_t)), edge[t] = realloc(edge[t], more);
            bound[t] = realloc(bound[t], more * sizeof(double));
            value[t] = realloc(value[t], more * sizeof(double));
            capacity = more;
        }
        if (interrupted) pthread_join(stopper, NULL), stop = 0, count[0] = -1;
    }
    uint8_t *nodes = room(count[1]);
    index_t listed = list_cones(child[1], edge[1], bound[1], -1.0, nodes);
    check(listed == count[1], "every node is listed");
    if (!wild && count[0] > 0) {
        check(count[0] == count[1], "as many nodes in small steps");
        check(!memcmp(bound[0], bound[1], count[0] * sizeof(double)), "bounds in small steps");
    }
    for (int t = 0; t < 2; t++) free(child[t]), free(edge[t]), free(bound[t]), free(value[t]);
    free(rows), free(vertices), free(nodes);
}

#define REAL float
#define NAME(name) name##_float
#include "calls.c"
#undef REAL
#undef NAME
#define REAL double
#define NAME(name) name##_double
#include "calls.c"

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    state = 88172645463325252ull + (argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
    check(kernels_version() == KERNELS_VERSION, "the version");
    for (int k = 0; k < count; k++) {
        wild = draw(4) == 0;
        call_projections();
        call_bases();
        call_look();
        call_hinges(k % 2);
        call_bits(k % 2);
        call_logistic();
        call_cones();
        call_system_float();
        call_system_double();
        call_products_float(k % 4 < 2);
        call_products_double(k % 4 < 2);
        call_ragged_float(k % 4 < 2);
        call_ragged_double(k % 4 < 2);
    }
    printf("%d calls of each kernel\n", count);
    return 0;
}

#else

static void NAME(run_product)(const call_t *call, index_t first, index_t last, int which,
                              const int *flag)
{
    index_t n = call->n, p = call->p, d = call->d, C = call->C;
    int failed = call->width
                     ? NAME(forward)(first, last, n, p, d, C, call->a, call->b, call->c,
                                     call->out[which], flag)
                     : NAME(adjoint)(first, last, n, p, d, C, call->a, call->b, call->c,
                                     call->out[which], flag);
    check(!failed, "memory for products");
}

/* The products as they are defined, up to the rounding of sums of values between -1 and 1. */
static void NAME(check_product)(const call_t *call, const uint8_t *mask)
{
    index_t n = call->n, p = call->p, d = call->d, C = call->C;
    const REAL *X = call->b, *factor = call->c, *out = call->out[1];
    index_t size = call->width ? n * C : p * d * C;
    double *sums = calloc(size + 1, sizeof(double));
    for (index_t j = 0; j < n; j++)
        for (index_t i = 0; i < p; i++)
            for (index_t k = 0; mask[j * p + i] && k < d * C; k++) {
                index_t block = (i * d + k / C) * C + k % C, row = j * C + k % C;
                if (call->width)
                    sums[row] += (double)X[j * d + k / C] * factor[block];
                else /* class by class */
                    sums[(k % C * p + i) * d + k / C] += (double)X[j * d + k / C] * factor[row];
            }
    for (index_t k = 0; k < size; k++)
        check(fabs(sums[k] - out[k]) <= (sizeof(REAL) == 4 ? 1e-3 : 1e-11), "a product");
    free(sums);
}

static void NAME(call_products)(int forward)
{
    index_t n = draw_size(1, 140), p = draw_size(1, 140), d = draw_size(1, 140);
    index_t C = 1 + draw(3);
    uint8_t *mask = draw_mask(n * p);
    uint32_t *bits = bits_of(mask, n, p, forward);
    index_t factors = (forward ? p * d : n) * C, size = (forward ? n : p * d) * C * sizeof(REAL);
    REAL *X = room(n * d * sizeof(REAL)), *factor = room(factors * sizeof(REAL));
    for (index_t k = 0; k < n * d; k++) X[k] = (REAL)draw_value();
    for (index_t k = 0; k < factors; k++) factor[k] = (REAL)draw_value();
    call_t call = {NAME(run_product), n, d, p, C, forward ? n : p, forward, bits, X, factor, NULL,
                   NULL, NULL, {room(size), room(size)}, {NULL}, {NULL}, {NULL}, 0.0};
    if (run_call(&call)) check(!memcmp(call.out[0], call.out[1], size), "products");
    if (!wild) NAME(check_product)(&call, mask);
    if (forward) {
        index_t *list = room(p * sizeof(index_t)), count = 0;
        if (draw(2)) memset(factor, 0, d * C * sizeof(REAL));
        index_t found = NAME(nonzero_blocks)(p, d * C, factor, list);
        for (index_t i = 0; i < p; i++) {
            int any = 0;
            for (index_t k = 0; k < d * C; k++) any |= factor[i * d * C + k] != 0;
            if (any) check(count < found && list[count++] == i, "a block that is not zero");
        }
        check(count == found, "blocks that are not zero");
        free(list);
    }
    free(mask), free(bits), free(X), free(factor), free(call.out[0]), free(call.out[1]);
}

static void NAME(run_ragged)(const call_t *call, index_t first, index_t last, int which,
                             const int *flag)
{
    int failed = call->width
                     ? NAME(ragged_forward)(first, last, call->n, call->d, call->C, call->e,
                                            call->a, call->b, call->c, call->out[which], flag)
                     : NAME(ragged_adjoint)(first, last, call->n, call->d, call->C, call->e,
                                            call->a, call->b, call->c, call->out[which], flag);
    check(!failed, "memory for products");
}

/* Sets of patterns for each class, some of them empty; the result is that of each class alone. */
static void NAME(call_ragged)(int forward)
{
    index_t n = draw_size(1, 140), d = draw_size(1, 70), C = 1 + draw(4), words = 0;
    index_t *offsets = room((C + 1) * sizeof(index_t));
    offsets[0] = 0;
    for (index_t k = 0; k < C; k++) {
        index_t p = draw(3) ? draw_size(1, 70) : 0;
        offsets[k + 1] = offsets[k] + p, words += (p + 31) / 32;
    }
    index_t K = offsets[C], at = 0, size = (forward ? C * n : K * d) * sizeof(REAL);
    uint8_t *mask = draw_mask(n * K + 1);
    uint32_t *bits = room((forward ? words * n : (n + 31) / 32 * K) * sizeof(uint32_t) + 4);
    if (forward)
        for (index_t k = 0; k < C; k++) {
            index_t p = offsets[k + 1] - offsets[k];
            uint8_t *its = room(n * p + 1);
            for (index_t j = 0; j < n; j++) memcpy(its + j * p, mask + j * K + offsets[k], p);
            uint32_t *packed = p ? bits_of(its, n, p, 1) : NULL;
            if (p) memcpy(bits + at * n, packed, (p + 31) / 32 * n * sizeof(uint32_t));
            at += (p + 31) / 32;
            free(its), free(packed);
        }
    else if (K) {
        uint32_t *packed = bits_of(mask, n, K, 0);
        memcpy(bits, packed, (n + 31) / 32 * K * sizeof(uint32_t));
        free(packed);
    }
    index_t factors = forward ? K * d : C * n;
    REAL *X = room(n * d * sizeof(REAL)), *factor = room(factors * sizeof(REAL) + 1);
    for (index_t k = 0; k < n * d; k++) X[k] = (REAL)draw_value();
    for (index_t k = 0; k < factors; k++) factor[k] = (REAL)draw_value();
    call_t call = {NAME(run_ragged), n, d, K, C, forward ? n : K, forward, bits, X, factor, offsets,
                   NULL, NULL, {room(size + 1), room(size + 1)}, {NULL}, {NULL}, {NULL}, 0.0};
    if (run_call(&call)) check(!memcmp(call.out[0], call.out[1], size), "ragged products");
    for (index_t k = 0; k < C && !wild; k++)
        for (index_t i = offsets[k]; i < offsets[k + 1]; i++)
            for (index_t c = 0; c < d && !forward; c++) {
                double sum = 0;
                for (index_t j = 0; j < n; j++)
                    if (mask[j * K + i]) sum += (double)X[j * d + c] * factor[k * n + j];
                double found = ((REAL *)call.out[1])[i * d + c];
                check(fabs(sum - found) <= (sizeof(REAL) == 4 ? 1e-3 : 1e-11), "a ragged sum");
            }
    for (index_t k = 0; k < C && !wild && forward; k++)
        for (index_t j = 0; j < n; j++) {
            double sum = 0;
            for (index_t i = offsets[k]; i < offsets[k + 1]; i++)
                for (index_t c = 0; mask[j * K + i] && c < d; c++)
                    sum += (double)X[j * d + c] * factor[i * d + c];
            double found = ((REAL *)call.out[1])[k * n + j];
            check(fabs(sum - found) <= (sizeof(REAL) == 4 ? 1e-3 : 1e-11), "a ragged prediction");
        }
    free(offsets), free(mask), free(bits), free(X), free(factor);
    free(call.out[0]), free(call.out[1]);
}

/* A system without a preconditioner, or with a very simple one: V = 0. */
static void NAME(call_system)(void)
{
    index_t n = draw_size(1, 100), a = draw_size(1, 70), d = draw_size(1, 20), m = draw(2);
    index_t R = draw(2) ? draw_size(1, 20) : n, woodbury = R != n;
    uint8_t *mask = draw_mask(n * a);
    uint32_t *rows = bits_of(mask, n, a, 0), *columns = bits_of(mask, n, a, 1);
    REAL *X = room(n * d * sizeof(REAL));
    for (index_t k = 0; k < n * d; k++) X[k] = (REAL)draw_value();
    double *scale = draw_doubles(n), *unit = draw_doubles(a * d), *Q = draw_doubles(m * n + 1);
    double *weight = draw_doubles(a), *along = draw_doubles(a), *r = draw_doubles(n);
    double *x = room(n * sizeof(double)), *right = room(n * sizeof(double));
    float *root = room(n * sizeof(float)), *V = room(R * n * sizeof(float));
    float *factor = room(R * R * sizeof(float));
    for (index_t i = 0; i < a; i++) weight[i] = fabs(weight[i]), along[i] = fabs(along[i]);
    for (index_t i = 0; i < n; i++) root[i] = 1.0f;
    for (index_t i = 0; i < R * n; i++) V[i] = 0.0f;
    for (index_t i = 0; i < R * R; i++) factor[i] = i % (R + 1) ? 0.0f : 1.0f;
    memcpy(right, r, n * sizeof(double));
    int interrupted = begin_stop();
    for (int again = 0; again < 2; again++) {
        memset(x, 0, n * sizeof(double));
        if (again) x[0] = 0.5; /* a start */
        memcpy(r, right, n * sizeof(double));
        index_t count = NAME(solve_system)(n, a, d, m, R, rows, columns, X, scale, weight, along,
                                           unit, Q, woodbury ? root : NULL, woodbury ? V : NULL,
                                           factor, r, x, 1e-4, INFINITY, 300, again ? &never : &stop);
        check(count >= -300 && count <= 300, "the count of iterations");
        if (!again && interrupted) pthread_join(stopper, NULL);
        if (wild || m || !again || count <= 0) continue;
        double left = 0, size = 0;
        double *blocks = calloc(a * d, sizeof(double));
        for (index_t j = 0; j < n; j++)
            for (index_t i = 0; i < a; i++)
                for (index_t c = 0; mask[j * a + i] && c < d; c++)
                    blocks[i * d + c] += X[j * d + c] * scale[j] * x[j];
        for (index_t i = 0; i < a; i++) {
            double sum = 0;
            for (index_t c = 0; c < d; c++) sum += blocks[i * d + c] * unit[i * d + c];
            for (index_t c = 0; c < d; c++)
                blocks[i * d + c] = weight[i] * blocks[i * d + c] + along[i] * sum * unit[i * d + c];
        }
        for (index_t j = 0; j < n; j++) {
            double fit = 0;
            for (index_t i = 0; i < a; i++)
                for (index_t c = 0; mask[j * a + i] && c < d; c++)
                    fit += X[j * d + c] * blocks[i * d + c];
            double residual = x[j] + scale[j] * fit - right[j];
            left += residual * residual, size += right[j] * right[j];
        }
        check(sqrt(left) <= 1e-2 * sqrt(size) + 1e-9, "a solution");
        free(blocks);
    }
    free(mask), free(rows), free(columns), free(X), free(scale), free(unit), free(Q), free(weight);
    free(along), free(r), free(x), free(right), free(root), free(V), free(factor);
}

#endif
