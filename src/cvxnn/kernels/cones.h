/* Cones of branching.c: their vertices, and the rows whose sign is open in them. */
#ifndef CVXNN_CONES_H
#define CVXNN_CONES_H

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8       /* columns */
#define EDGES (MOST * (MOST - 1) / 2)
#define LANES 8      /* of a vector */
#define UNIT 0x1p-53 /* the rounding error of one operation */
#define LARGEST 0x1p53

typedef double vector __attribute__((vector_size(64), aligned(8), may_alias));
typedef int64_t lanes __attribute__((vector_size(64), aligned(8), may_alias));
typedef unsigned __int128 wide;

/* The cone of a node on the way from the root. */
typedef struct {
    int64_t exact[MOST][MOST];
    double vertex[MOST][MOST], length[MOST];
    int exponent[MOST];    /* vertex = exact 2^-exponent */
    double linear[MOST];   /* the decided rows at the vertices */
    double base[MOST];     /* and the open ones with t_i > 0 */
    double error[MOST];    /* of products and of the linear part, in units of sum |t_i| ||x_i|| */
    index_t positive, negative, stride; /* open rows; padded length of a column */
    double *columns;       /* r of them, and one for the vertex in the middle of the edge */
    index_t room, node;
    double alpha[MOST];    /* where the bound is attained, with sum 1 */
    int64_t middle[MOST];  /* of the edge {a, b}, */
    int powers[2];         /* of 2, that the copies of both ends get in it, */
    double middle_linear, middle_error; /* and linear part and error there */
    int a, b, half;
} level_t;

/* As long as a column of the root. */
typedef struct {
    int64_t *flags;
    int32_t *list;
} scratch_t;

INLINE index_t padded(index_t n) { return (n + LANES - 1) / LANES * LANES; }

/* All ones where x < 0, or -0; by bits, which are faster than comparisons. */
#define NEGATIVE(x) ((lanes)(x) >> 63)

INLINE double sum_of(vector x)
{
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

INLINE double dot(int r, const double *x, const double *y)
{
    double sum = 0;
    for (int j = 0; j < r; j++) sum += x[j] * y[j];
    return sum;
}

/* -- vertices -- */

static wide squared(int r, const int64_t *v)
{
    wide sum = 0;
    for (int j = 0; j < r; j++) sum += (wide)((__int128)v[j] * v[j]);
    return sum;
}

/* The middle of an edge: 2^k v_a + v_b with the k for which both parts are closest in length, over
 * the largest power of 2 that divides it, and the powers of both ends. 0 if it is too large. */
static int middle_of(int r, const int64_t *a, const int64_t *b, int64_t *middle, int *of_a,
                     int *of_b)
{
    wide A = squared(r, a), B = squared(r, b);
    int k = (int)floor(0.5 * log2((double)B / (double)A) + 0.5);
    for (;;) {
        wide left = k > 0 ? A << 2 * k : A, right = k < 0 ? B << -2 * k : B;
        if (2 * left < right) k++;
        else if (2 * right <= left) k--;
        else break;
    }
    int up_a = k > 0 ? k : 0, up_b = k < 0 ? -k : 0;
    uint64_t all = 0;
    for (int j = 0; j < r; j++) {
        if (ldexp(fabs((double)a[j]), up_a) + ldexp(fabs((double)b[j]), up_b) > LARGEST) return 0;
        middle[j] = a[j] * ((int64_t)1 << up_a) + b[j] * ((int64_t)1 << up_b);
        all |= (uint64_t)(middle[j] < 0 ? -middle[j] : middle[j]);
    }
    int common = __builtin_ctzll(all);
    for (int j = 0; j < r; j++) middle[j] /= (int64_t)1 << common;
    *of_a = up_a - common, *of_b = up_b - common;
    return 1;
}

static void set_vertex(int r, level_t *at, int j, const int64_t *exact)
{
    double square = 0;
    for (int q = 0; q < r; q++) square += (double)exact[q] * (double)exact[q];
    at->exponent[j] = ilogb(sqrt(square));
    double scale = ldexp(1.0, -at->exponent[j]);
    for (int q = 0; q < r; q++) {
        at->exact[j][q] = exact[q];
        at->vertex[j][q] = scale * (double)exact[q];
    }
    at->length[j] = scale * sqrt(square);
}

/* -- rows -- */

static int make_room(level_t *at, index_t size)
{
    if (size <= at->room) return 1;
    free(at->columns);
    at->room = 0;
    at->columns = malloc((size_t)size * sizeof(double));
    if (at->columns == NULL) return 0;
    at->room = size;
    return 1;
}

/* Flag the rows first..last that stay open, and sum up those that are positive at every vertex in
 * `decided`, the positive parts of the open ones in `plus`. Returns how many are decided so. */
INLINE index_t sift_of(int r, double *const *column, index_t first, index_t last, int64_t *flags,
                       vector *decided, vector *plus)
{
    lanes count = {0};
    vector ups[MOST] = {{0}}, pluses[MOST] = {{0}}; /* in registers */
    for (index_t i = first; i < last; i += LANES) {
        vector x[MOST];
        lanes any = {0}, all = ~any;
        for (int j = 0; j < r; j++) {
            x[j] = *(const vector *)(column[j] + i);
            any |= (lanes)x[j], all &= (lanes)x[j];
        }
        lanes up = ~(any >> 63), open = (any & ~all) >> 63;
        count -= up;
        *(lanes *)(flags + i) = open;
        for (int j = 0; j < r; j++) {
            ups[j] += (vector)(up & (lanes)x[j]);
            pluses[j] += (vector)(open & ~NEGATIVE(x[j]) & (lanes)x[j]);
        }
    }
    for (int j = 0; j < r; j++) decided[j] = ups[j], plus[j] = pluses[j];
    index_t total = 0;
    for (int l = 0; l < LANES; l++) total += count[l];
    return total;
}

/* Loops over rows are compiled for each rank, so that what they sum up stays in registers. */
#define OF_EACH_RANK(CALL) \
    switch (r) { \
    case 1: CALL(1); break; \
    case 2: CALL(2); break; \
    case 3: CALL(3); break; \
    case 4: CALL(4); break; \
    case 5: CALL(5); break; \
    case 6: CALL(6); break; \
    case 7: CALL(7); break; \
    default: CALL(8); \
    }

FAST static index_t sift(int r, double *const *column, index_t first, index_t last, int64_t *flags,
                         vector *decided, vector *plus)
{
    index_t count;
#define CALL(R) count = sift_of(R, column, first, last, flags, decided, plus)
    OF_EACH_RANK(CALL)
#undef CALL
    return count;
}

/* The rows first..first + n of `column` that are open, compressed into the level from `start`. */
FAST static index_t compress(int r, double *const *column, index_t first, index_t n,
                             const int64_t *flags, int32_t *list, level_t *at, index_t start)
{
    index_t m = 0;
    for (index_t i = first; i < first + n; i++) list[m] = (int32_t)i, m -= flags[i];
    for (int j = 0; j < r; j++) {
        double *to = at->columns + j * at->stride + start;
        for (index_t k = 0; k < m; k++) to[k] = column[j][list[k]];
        for (index_t k = m; k < padded(m); k++) to[k] = 0;
    }
    return m;
}

/* The rows of a cone from columns with `positive` and `negative` rows; error and linear part of the
 * level are those before the decisions. */
static int decide(scratch_t scratch, int r, double *const *column, index_t positive,
                  index_t negative, level_t *at)
{
    vector up[MOST] = {{0}}, down[MOST] = {{0}}, plus[MOST] = {{0}}, minus[MOST] = {{0}};
    index_t middle = padded(positive), end = middle + padded(negative);
    index_t decided = sift(r, column, 0, middle, scratch.flags, up, plus) +
                      sift(r, column, middle, end, scratch.flags, down, minus);
    index_t open = 0;
    for (index_t i = 0; i < end; i++) open -= scratch.flags[i];
    at->stride = padded(open) + 2 * LANES;
    if (!make_room(at, (r + 1) * at->stride)) return 0;
    at->positive = compress(r, column, 0, positive, scratch.flags, scratch.list, at, 0);
    at->negative = compress(r, column, middle, negative, scratch.flags, scratch.list, at,
                            padded(at->positive));
    index_t shortest = end / LANES + 2 * LANES < decided ? end / LANES + 2 * LANES : decided;
    for (int j = 0; j < r; j++) {
        at->linear[j] += sum_of(up[j]) - sum_of(down[j]);
        at->base[j] = at->linear[j] + sum_of(plus[j]);
        if (decided) at->error[j] += 1.01 * UNIT * (double)(shortest + 3) * at->length[j];
    }
    return 1;
}

#endif
