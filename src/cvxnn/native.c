/* Compiled kernels. Each has a NumPy twin in the package, which is used where this file was not
 * built and which the tests hold it against.
 *
 * hinge_coefficients, hinge_divergence: the constraint terms of the augmented Lagrangian, see
 * solvers/augmented_lagrangian.py.
 *
 * project_blocks: many projections onto {w : s_j <x_j, w> >= b_j for all rows j}, see cones.py.
 * The active rows A of a block are kept through an orthonormal basis Q = T'A of their span: a row
 * (q | s | t) of `basis` is a vector of Q, its product s = t'b with their offsets and the
 * combination t of the active rows that it is. The projection onto the active rows and their
 * multipliers lie in the same way, and so all of it follows by the same linear combinations:
 * a row joins by reorthogonalised Gram-Schmidt and leaves by a Householder reflection.
 */
#include <math.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif
#define INLINE static inline __attribute__((always_inline))

typedef int64_t index_t;
#ifdef STATS
index_t stats[8];
#define COUNT(i, m) (stats[i] += (m))
#else
#define COUNT(i, m)
#endif

#define LANES 16 /* partial sums let the compiler use wide registers in the order we wrote */
#define ZERO 1e-14 /* a projection this small, relative to the point, is zero up to rounding */
#define WIDTH 8    /* doubles in a vector; rows are filled up with zeros to whole vectors */
#define TILE 64    /* rows in a tile of floats */
#ifndef CANDIDATES
#define CANDIDATES 64
#endif
#ifndef WINDOW
#define WINDOW 0.3f
#endif
#ifndef REORTH
#define REORTH 0.01
#endif
#ifndef AGAIN
#define AGAIN 0.3
#endif

typedef double vector __attribute__((vector_size(64), aligned(8), may_alias));
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int64_t lanes __attribute__((vector_size(64)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif

INLINE index_t whole(index_t n, index_t size) { return (n + size - 1) / size * size; }

INLINE double sum_of(vector v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

INLINE double dot(const double *a, const double *b, index_t d)
{
    vector sum = {0};
    for (index_t i = 0; i < d; i += WIDTH) sum += *(vector *)(a + i) * *(vector *)(b + i);
    return sum_of(sum);
}

/* The products of eight rows with w: their vectors of partial sums are added crosswise. */
INLINE void eight_dots(const double *const *row, const double *w, index_t d, double *out)
{
    vector s[WIDTH] = {0};
    for (index_t i = 0; i < d; i += WIDTH) {
        vector x = *(vector *)(w + i);
        for (int l = 0; l < WIDTH; l++) s[l] += x * *(vector *)(row[l] + i);
    }
    for (int l = 0; l < 4; l++)
        s[l] = SHUFFLE(s[2 * l], s[2 * l + 1], 0, 8, 2, 10, 4, 12, 6, 14) +
               SHUFFLE(s[2 * l], s[2 * l + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    for (int l = 0; l < 2; l++)
        s[l] = SHUFFLE(s[2 * l], s[2 * l + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
               SHUFFLE(s[2 * l], s[2 * l + 1], 2, 3, 10, 11, 6, 7, 14, 15);
    *(vector *)out = SHUFFLE(s[0], s[1], 0, 1, 2, 3, 8, 9, 10, 11) +
                     SHUFFLE(s[0], s[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

/* v -= c'M for k rows of M, over the first `size` columns. */
INLINE void subtract(double *v, const double *M, index_t stride, const double *c, index_t k,
                     index_t size)
{
    index_t i = 0;
    for (; i + 4 * WIDTH <= size; i += 4 * WIDTH) {
        vector sum[4];
        memcpy(sum, v + i, sizeof sum);
        for (index_t a = 0; a < k; a++)
            for (int l = 0; l < 4; l++)
                sum[l] -= c[a] * *(vector *)(M + a * stride + i + l * WIDTH);
        memcpy(v + i, sum, sizeof sum);
    }
    for (; i < size; i += WIDTH) {
        vector sum = *(vector *)(v + i);
        for (index_t a = 0; a < k; a++) sum -= c[a] * *(vector *)(M + a * stride + i);
        *(vector *)(v + i) = sum;
    }
}

typedef struct {
    index_t n, d, k;         /* rows, features, active rows */
    index_t width, stride;   /* features and rows of `basis`, filled up */
    const double *X;         /* unit rows (n, width) */
    const float *tiles;      /* the same, in tiles of rows that lie feature by feature */
    const int8_t *sign;      /* (n) of this block's pattern */
    const double *offset;    /* (n) or NULL */
    double offset_size;      /* the largest of them */
    const double *x;         /* the point (width) */
    index_t *row;            /* active rows */
    double *gamma;           /* their multipliers */
    double *basis;           /* (k, stride) */
    double *w;               /* (w | . | z), the point and multipliers that hold them tight */
    double *u, *c;           /* work */
    uint8_t *active;         /* (n) */
    float *residual;         /* (n), filled up to whole tiles */
    float *unit;             /* (d) */
    index_t candidate[CANDIDATES + WIDTH], n_candidates;
    double worst;
    int dropped;             /* whether one was dropped since */
} block_t;

INLINE double *multipliers(double *v, const block_t *B) { return v + B->width + 1; }
INLINE double bound_of(const block_t *B, index_t j) { return B->offset ? B->offset[j] : 0.0; }
INLINE index_t used(const block_t *B, index_t k) { return B->width + whole(1 + k, WIDTH); }

INLINE void basis_dots(const block_t *B, const double *v, double *c)
{
    for (index_t a = 0; a < B->k; a += WIDTH) {
        const double *row[WIDTH];
        for (int l = 0; l < WIDTH; l++) row[l] = B->basis + (a + l) * B->stride;
        eight_dots(row, v, B->width, c + a);
    }
}

/* Orthogonalise row j against the active ones into u; c has the coefficients. Returns the squared
 * distance of the (unit) row from their span. */
INLINE double orthogonalise(block_t *B, index_t j)
{
    double *u = B->u, sign = B->sign[j];
    const double *x = B->X + j * B->width;
    for (index_t i = 0; i < B->width; i++) u[i] = sign * x[i];
    memset(u + B->width, 0, (B->stride - B->width) * sizeof(double));
    u[B->width] = bound_of(B, j);
    multipliers(u, B)[B->k] = 1.0;
    double distance2 = 1.0;
    for (int pass = 0; pass < 2 && B->k > 0; pass++) {
        basis_dots(B, u, B->c);
        subtract(u, B->basis, B->stride, B->c, B->k, used(B, B->k + 1));
        distance2 = dot(u, u, B->width);
        if (distance2 > REORTH) break; /* little was lost to cancellation */
    }
    if (B->k == 0) distance2 = dot(u, u, B->width);
    return distance2;
}

/* Take in row j, just orthogonalised, and move the point onto it. */
INLINE void append(block_t *B, index_t j, double gamma, double distance2)
{
    index_t k = B->k++;
    double *q = B->basis + k * B->stride, scale = 1.0 / sqrt(distance2);
    for (index_t i = 0; i < B->stride; i++) q[i] = scale * B->u[i];
    B->row[k] = j;
    B->gamma[k] = gamma;
    B->active[j] = 1;
    double slack = dot(q, B->w, B->width) - q[B->width];
    subtract(B->w, q, B->stride, &slack, 1, used(B, k + 1));
    COUNT(1, 1);
}

/* Let an active row go: a reflection leaves all but the last vector of the basis without it. */
INLINE void drop(block_t *B, index_t at)
{
    index_t k = B->k - 1, size = used(B, k + 1);
    double *last = B->basis + k * B->stride, *c = B->c, *u = B->u;
    double norm2 = 0.0;
    for (index_t a = 0; a <= k; a++) {
        c[a] = multipliers(B->basis + a * B->stride, B)[at];
        norm2 += c[a] * c[a];
    }
    double norm = sqrt(norm2), scale = -1.0 / (norm * (norm + fabs(c[k])));
    c[k] += copysign(norm, c[k]);
    memset(u, 0, size * sizeof(double));
    subtract(u, B->basis, B->stride, c, k + 1, size);
    for (index_t a = 0; a <= k; a++) {
        double t = scale * c[a];
        subtract(B->basis + a * B->stride, u, 0, &t, 1, size);
    }
    double pull = last[B->width] - dot(last, B->x, B->width);
    subtract(B->w, last, 0, &pull, 1, size);
    B->active[B->row[at]] = 0;
    B->row[at] = B->row[k];
    B->gamma[at] = B->gamma[k];
    for (index_t a = 0; a < k; a++) {
        double *t = multipliers(B->basis + a * B->stride, B);
        t[at] = t[k];
        t[k] = 0.0;
    }
    double *z = multipliers(B->w, B);
    z[at] = z[k];
    z[k] = 0.0;
    B->k = k;
    B->dropped = 1;
    COUNT(2, 1);
}

INLINE void start_from(block_t *B, const index_t *row, const double *gamma, index_t count,
                       double dependent)
{
    memcpy(B->w, B->x, B->width * sizeof(double));
    memset(B->w + B->width, 0, (B->stride - B->width) * sizeof(double));
    B->k = B->dropped = 0;
    for (index_t a = 0; a < count && B->k < B->d; a++) {
        if (B->active[row[a]]) continue;
        double distance2 = orthogonalise(B, row[a]);
        if (distance2 >= dependent) append(B, row[a], gamma[a], distance2);
    }
}

/* Take up the point and multipliers that hold the active rows tight; rows whose multiplier would
 * turn negative leave on the way. Returns the row `added` if it is thrown out at once, else -1. */
INLINE index_t settle(block_t *B, index_t added)
{
    index_t bounced = -1;
    const double *z = multipliers(B->w, B);
    while (B->k > 0) {
        double *gamma = B->gamma, step = 2.0;
        for (index_t a = 0; a < B->k; a++)
            if (z[a] <= 0.0) {
                double fall = gamma[a] - z[a];
                double ratio = fall > 0.0 ? gamma[a] / fall : 0.0;
                if (ratio < step) step = ratio;
            }
        if (step > 1.0) {
            memcpy(gamma, z, B->k * sizeof(double));
            break;
        }
        for (index_t a = 0; a < B->k; a++) {
            double fall = gamma[a] - z[a];
            int leaves =
                z[a] <= 0.0 && (fall <= 0.0 || gamma[a] / fall <= step * (1.0 + 1e-12));
            if (leaves && B->row[a] == added && gamma[a] == 0.0) bounced = added;
            gamma[a] += step * (z[a] - gamma[a]);
            gamma[a] = leaves ? -1.0 : gamma[a] > 0.0 ? gamma[a] : 0.0;
        }
        for (index_t a = B->k - 1; a >= 0; a--)
            if (B->gamma[a] < 0.0) drop(B, a);
    }
    return bounced;
}

INLINE double residual_of(const block_t *B, index_t j)
{
    return B->sign[j] * dot(B->X + j * B->width, B->w, B->width) - bound_of(B, j);
}

/* The point and multipliers afresh from the basis: steps add up their rounding. */
INLINE void refresh(block_t *B)
{
    memcpy(B->w, B->x, B->width * sizeof(double));
    memset(B->w + B->width, 0, (B->stride - B->width) * sizeof(double));
    basis_dots(B, B->w, B->c);
    for (index_t a = 0; a < B->k; a++) B->c[a] -= B->basis[a * B->stride + B->width];
    subtract(B->w, B->basis, B->stride, B->c, B->k, used(B, B->k));
}

/* Whether rounding kept w = x + A'z; the combinations suffer where rows left that lay close to the
 * span of others. */
INLINE int accurate(block_t *B, double tiny)
{
    double *u = B->u;
    const double *z = multipliers(B->w, B);
    for (index_t i = 0; i < B->width; i++) u[i] = B->w[i] - B->x[i];
    double worst = 0.0;
    for (index_t a = 0; a < B->k; a++) {
        double t = z[a] * B->sign[B->row[a]];
        subtract(u, B->X + B->row[a] * B->width, 0, &t, 1, B->width);
        double r = fabs(residual_of(B, B->row[a]));
        worst = r > worst ? r : worst;
    }
    return worst <= tiny && sqrt(dot(u, u, B->width)) <= tiny;
}

/* Make a list of violated rows; none is left out only if there is none. The residuals in single
 * precision, of the point scaled to about unit norm, are off by `error` at most: rows above it hold
 * for sure. */
INLINE void scan(block_t *B, double limit, index_t banned)
{
    double size = sqrt(dot(B->w, B->w, B->width));
    index_t n = B->n, d = B->d;
    double unit = size > B->offset_size ? size : B->offset_size;
    double scale = unit > 0.0 ? 1.0 / unit : 1.0;
    float error = 6e-8f * (d + 8);
    float *r = B->residual, *w = B->unit;
    for (index_t i = 0; i < d; i++) w[i] = scale * B->w[i];
    float lane[TILE] = {0};
    for (index_t t = 0; t < n; t += TILE) {
        const float *x = B->tiles + t * d;
        float sum[TILE] = {0};
        for (index_t i = 0; i < d; i++)
            for (int l = 0; l < TILE; l++) sum[l] += w[i] * x[i * TILE + l];
        memcpy(r + t, sum, sizeof sum);
    }
    for (index_t j = 0; j < n; j++) r[j] *= B->sign[j];
    if (B->offset)
        for (index_t j = 0; j < n; j++) r[j] -= (float)(scale * B->offset[j]);
    for (index_t a = 0; a < B->k; a++) r[B->row[a]] = 2.0f;
    if (banned >= 0) r[banned] = 2.0f;
    for (index_t j = n; j < whole(n, TILE); j++) r[j] = 2.0f;
    for (index_t t = 0; t < n; t += TILE)
        for (int l = 0; l < TILE; l++) lane[l] = r[t + l] < lane[l] ? r[t + l] : lane[l];
    float worst = 0.0f;
    for (int l = 0; l < TILE; l++) worst = lane[l] < worst ? lane[l] : worst;
    int sure = worst < -2.0f * error;
    float level = sure ? WINDOW * worst : error;
    COUNT(0, 1);
    B->worst = 1.0;
again:
    B->n_candidates = 0;
    for (index_t t = 0; t < n; t += TILE) {
        int any = 0;
        for (int l = 0; l < TILE; l++) any |= r[t + l] <= level;
        if (!any) continue;
        for (index_t j = t; j < t + TILE; j++) {
            if (r[j] > level || (!sure && !(residual_of(B, j) < limit))) continue;
            if (B->n_candidates == CANDIDATES) {
                if (!sure || level < 0.9f * worst) return;
                level = 0.5f * (level + worst);
                goto again;
            }
            B->candidate[B->n_candidates++] = j;
        }
    }
}

/* The most violated of the candidates, or -1. */
INLINE index_t worst_candidate(block_t *B, double limit, index_t banned)
{
    double r[WIDTH], least = limit;
    index_t found = -1;
    for (index_t a = 0; a < B->n_candidates;) {
        if (B->active[B->candidate[a]])
            B->candidate[a] = B->candidate[--B->n_candidates];
        else
            a++;
    }
    if (B->worst <= 0.0 && limit > AGAIN * B->worst) least = AGAIN * B->worst;
    for (int l = 0; l < WIDTH; l++) B->candidate[B->n_candidates + l] = 0;
    for (index_t a = 0; a < B->n_candidates; a += WIDTH) {
        const double *row[WIDTH];
        for (int l = 0; l < WIDTH; l++) row[l] = B->X + B->candidate[a + l] * B->width;
        eight_dots(row, B->w, B->width, r);
        for (int l = 0; l < WIDTH && a + l < B->n_candidates; l++) {
            index_t j = B->candidate[a + l];
            double residual = B->sign[j] * r[l] - bound_of(B, j);
            if (residual < least && j != banned) {
                least = residual;
                found = j;
            }
        }
    }
    COUNT(4, 1);
    COUNT(5, B->n_candidates);
    if (B->worst > 0.0 && found >= 0) B->worst = least;
    return found;
}

/* Row j = A'y depends on the active rows, -y is what u has as multipliers: its own rises while
 * theirs fall along y, until one of them is zero and makes room. */
INLINE void exchange(block_t *B, index_t j)
{
    index_t leaver = -1;
    double step = HUGE_VAL, *y = multipliers(B->u, B);
    for (index_t a = 0; a < B->k; a++)
        if (y[a] < -1e-12 && -B->gamma[a] / y[a] < step) {
            step = -B->gamma[a] / y[a];
            leaver = a;
        }
    if (leaver < 0) leaver = B->k - 1, step = 0.0;
    for (index_t a = 0; a < B->k; a++) {
        B->gamma[a] += step * y[a];
        if (B->gamma[a] < 0.0) B->gamma[a] = 0.0;
    }
    drop(B, leaver);
    double distance2 = orthogonalise(B, j);
    if (distance2 > 0.0) append(B, j, step, distance2);
}

FAST static void project_block(block_t *B, const index_t *start, const double *start_gamma,
                               index_t n_start, double enough, double tolerance, double dependent,
                               index_t max_rows, index_t max_iter)
{
    double size_x = sqrt(dot(B->x, B->x, B->width));
    start_from(B, start, start_gamma, n_start, dependent);
    B->n_candidates = 0;
    B->offset_size = 0.0;
    if (B->offset)
        for (index_t j = 0; j < B->n; j++)
            if (fabs(B->offset[j]) > B->offset_size) B->offset_size = fabs(B->offset[j]);
    index_t banned = -1, j = -1;
    for (index_t it = 0; it < max_iter; it++) {
        index_t bounced = settle(B, j);
        if (bounced >= 0) banned = bounced;
        double size = sqrt(dot(B->w, B->w, B->width));
        if (!B->offset && (B->k == B->d || size <= ZERO * size_x)) {
            memset(B->w, 0, B->width * sizeof(double));
            break;
        }
        if (!B->offset && size <= enough) break;
        if (it >= max_rows) break;
        double limit = -tolerance * (size > size_x ? size : size_x);
        j = worst_candidate(B, limit, banned);
        if (j < 0) {
            if (B->dropped) {
                refresh(B);
                settle(B, -1);
            }
            scan(B, limit, banned);
            j = worst_candidate(B, limit, banned);
        }
        if (j < 0) {
            if (!B->dropped || accurate(B, -0.1 * limit)) break;
            index_t k = B->k;
            for (index_t a = 0; a < k; a++) B->active[B->row[a]] = 0;
            start_from(B, B->row, B->gamma, k, dependent); 
            COUNT(3, 1);
            continue;
        }
        banned = -1;
        double distance2 = orthogonalise(B, j);
        if (B->k > 0 && (distance2 < dependent || B->k == B->d))
            exchange(B, j);
        else
            append(B, j, 0.0, distance2);
    }
}

/* X (n, width), tiles and points (n_blocks, width) are filled up with zeros. rows, gamma (n_blocks,
 * d + 1) and count (n_blocks) hold the warm start on entry and the active rows on exit. Returns 0,
 * or 1 if memory ran out. */
int project_blocks(index_t n, index_t d, const double *X, const float *tiles, const int8_t *signs,
                   index_t n_blocks, const double *points, const index_t *pattern,
                   const double *offsets, const double *enough, index_t *rows, double *gamma,
                   index_t *count, double *result, double tolerance, double dependent,
                   index_t max_rows, index_t max_iter)
{
    index_t width = whole(d, WIDTH), stride = width + whole(d + 2, WIDTH);
    index_t doubles = stride * (width + WIDTH + 2) + 3 * (width + WIDTH) + width;
    double *work = aligned_alloc(64, doubles * sizeof(double));
    float *floats = aligned_alloc(64, (whole(n, TILE) + whole(d, TILE)) * sizeof(float));
    index_t *row = malloc((d + 1) * sizeof(index_t));
    uint8_t *active = calloc(n, 1);
    if (!work || !floats || !row || !active) {
        free(work), free(floats), free(row), free(active);
        return 1;
    }
    memset(work, 0, doubles * sizeof(double));
    block_t B = {.n = n, .d = d, .X = X, .row = row, .active = active, .tiles = tiles};
    B.width = width, B.stride = stride;
    B.basis = work, B.w = work + stride * (width + WIDTH), B.u = B.w + stride, B.c = B.u + stride;
    B.gamma = B.c + width + WIDTH;
    double *x = B.gamma + width + WIDTH;
    B.x = x;
    B.residual = floats, B.unit = floats + whole(n, TILE);
    for (index_t b = 0; b < n_blocks; b++) {
        index_t at = b * (d + 1);
        B.sign = signs + pattern[b] * n;
        B.offset = offsets ? offsets + b * n : NULL;
        memcpy(x, points + b * d, d * sizeof(double));
        project_block(&B, rows + at, gamma + at, count[b], enough[b], tolerance, dependent,
                      max_rows, max_iter);
        memcpy(result + b * d, B.w, d * sizeof(double));
        memcpy(rows + at, B.row, B.k * sizeof(index_t));
        memcpy(gamma + at, B.gamma, B.k * sizeof(double));
        count[b] = B.k;
        for (index_t a = 0; a < B.k; a++) active[B.row[a]] = 0;
    }
    free(work), free(floats), free(row), free(active);
    return 0;
}

/* In place, products <x_j, u_b> become s_j (gamma_bj - delta s_j <x_j, u_b>)_+. Products have a row
 * for each block listed in `block`, gamma and pattern for every block. */
FAST static void coefficients_of_block(index_t n, const int8_t *sign, const double *gamma,
                                       double delta, double *product)
{
    for (index_t j = 0; j < n; j++) {
        double s = sign[j], hinge = gamma[j] - delta * s * product[j];
        product[j] = hinge > 0.0 ? s * hinge : 0.0;
    }
}

void hinge_coefficients(index_t n, const int8_t *signs, index_t n_blocks, const index_t *block,
                        const index_t *pattern, const double *gamma, double delta,
                        double *products)
{
    for (index_t b = 0; b < n_blocks; b++)
        coefficients_of_block(n, signs + pattern[block[b]] * n, gamma + block[b] * n, delta,
                              products + b * n);
}

/* (h' - h)^2 + 2 h (h' - a') with a = c - s <x, u>, h = a_+, and the primes for the new block: the
 * divergence of one hinge, over delta / 2. */
static inline __attribute__((always_inline)) double divergence_of_hinge(double c, double s,
                                                                        double new, double old)
{
    double a_new = c - s * new, a = c - s * old;
    double h_new = a_new > 0.0 ? a_new : 0.0, h = a > 0.0 ? a : 0.0;
    return (h_new - h) * (h_new - h) + 2.0 * h * (h_new - a_new);
}

FAST static double divergence_of_block(index_t n, const int8_t *sign, const double *gamma,
                                       double delta, const double *new, const double *old)
{
    double lane[LANES] = {0}, sum = 0.0, scale = 1.0 / delta;
    index_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += divergence_of_hinge(scale * gamma[j + l], sign[j + l], new[j + l],
                                           old[j + l]);
    for (; j < n; j++) sum += divergence_of_hinge(scale * gamma[j], sign[j], new[j], old[j]);
    for (int l = 0; l < LANES; l++) sum += lane[l];
    return sum;
}

void hinge_divergence(index_t n, const int8_t *signs, index_t n_blocks, const index_t *block,
                      const index_t *pattern, const double *gamma, double delta,
                      const double *new_products, const double *products, double *divergence)
{
    for (index_t b = 0; b < n_blocks; b++)
        divergence[b] = divergence_of_block(n, signs + pattern[block[b]] * n, gamma + block[b] * n,
                                            delta, new_products + b * n, products + b * n);
}
