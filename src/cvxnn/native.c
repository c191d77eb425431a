/* Compiled kernels. Each has a NumPy twin in the package, which is used where this file was not
 * built and which the tests hold it against.
 *
 * hinge_coefficients, hinge_divergence: the constraint terms of the augmented Lagrangian, see
 * solvers/augmented_lagrangian.py.
 *
 * project_blocks: many projections onto {w : s_j <x_j, w> >= b_j for all rows j}, see cones.py.
 * The active rows A of a block are kept as A' = Q R (Q by rows in `Qt`), appended by
 * reorthogonalised Gram-Schmidt and removed by Givens rotations.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

typedef int64_t index_t;

/* Sixteen partial sums let the compiler use wide registers without reordering what we wrote. */
#define LANES 16
#define ZERO 1e-14 /* a projection this small, relative to the point, is zero up to rounding */
static inline __attribute__((always_inline)) double dot(const double *a, const double *b, index_t d)
{
    double lane[LANES] = {0};
    double sum = 0.0;
    index_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += a[i + l] * b[i + l];
    for (; i < d; i++) sum += a[i] * b[i];
    for (int l = 0; l < LANES; l++) sum += lane[l];
    return sum;
}

static inline __attribute__((always_inline)) void axpy(double t, const double *a, double *b,
                                                       index_t d)
{
    for (index_t i = 0; i < d; i++) b[i] += t * a[i];
}

/* X in tiles of TILE rows that lie feature by feature, the last one filled up with zeros. */
#define TILE 32
static index_t padded(index_t n) { return (n + TILE - 1) / TILE * TILE; }

static double *make_tiles(const double *X, index_t n, index_t d)
{
    double *tiles = calloc(padded(n) * d, sizeof(double));
    if (tiles)
        for (index_t j = 0; j < n; j++)
            for (index_t i = 0; i < d; i++)
                tiles[(j / TILE * d + i) * TILE + j % TILE] = X[j * d + i];
    return tiles;
}

/* The products of all rows with w; each tile is summed in registers. */
static inline __attribute__((always_inline)) void products(const double *tiles, index_t n,
                                                           index_t d, const double *w, double *out)
{
    for (index_t t = 0; t < padded(n) / TILE; t++) {
        const double *x = tiles + t * d * TILE;
        double sum[TILE] = {0};
        for (index_t i = 0; i < d; i++)
            for (int l = 0; l < TILE; l++) sum[l] += w[i] * x[i * TILE + l];
        memcpy(out + t * TILE, sum, sizeof sum);
    }
}

typedef struct {
    index_t n, d, k;         /* rows, features, active rows */
    const double *X;         /* unit rows (n, d) */
    const int8_t *sign;      /* (n) of this block's pattern */
    const double *offset;    /* (n) or NULL */
    const double *x;         /* the point */
    index_t *row;            /* active rows */
    double *gamma;           /* their multipliers */
    double *Qt, *R;          /* (d, d) each, row by row */
    double *c, *s, *z, *q;   /* work */
    double *w;               /* the projection */
    uint8_t *active;         /* (n) */
    double *residual;        /* (n), rounded up to whole tiles */
    const double *tiles;     /* X again, in tiles: see products() */
} block_t;

static inline double bound_of(const block_t *B, index_t j) { return B->offset ? B->offset[j] : 0.0; }

/* Orthogonalise row j against the active ones into Qt[k], coefficients into column k of R.
 * Returns the squared distance of the (unit) row from their span. */
static inline __attribute__((always_inline)) double orthogonalise(block_t *B, index_t j)
{
    index_t d = B->d, k = B->k;
    double *q = B->q;
    for (index_t i = 0; i < d; i++) q[i] = B->sign[j] * B->X[j * d + i];
    for (index_t a = 0; a < k; a++) B->c[a] = 0.0;
    for (int twice = 0; twice < 2; twice++)
        for (index_t a = 0; a < k; a++) {
            double t = dot(B->Qt + a * d, q, d);
            B->c[a] += t;
            axpy(-t, B->Qt + a * d, q, d);
        }
    return dot(q, q, d);
}

static inline __attribute__((always_inline)) void append(block_t *B, index_t j, double gamma,
                                                         double distance2)
{
    index_t d = B->d, k = B->k;
    double norm = sqrt(distance2);
    for (index_t a = 0; a < k; a++) B->R[a * d + k] = B->c[a];
    B->R[k * d + k] = norm;
    for (index_t i = 0; i < d; i++) B->Qt[k * d + i] = B->q[i] / norm;
    B->row[k] = j;
    B->gamma[k] = gamma;
    B->active[j] = 1;
    B->k = k + 1;
}

static inline __attribute__((always_inline)) void drop(block_t *B, index_t at)
{
    index_t d = B->d, k = B->k;
    B->active[B->row[at]] = 0;
    for (index_t a = at; a + 1 < k; a++) {
        B->row[a] = B->row[a + 1];
        B->gamma[a] = B->gamma[a + 1];
        for (index_t i = 0; i <= a + 1; i++) B->R[i * d + a] = B->R[i * d + a + 1];
    }
    for (index_t a = at; a + 1 < k; a++) {
        double u = B->R[a * d + a], v = B->R[(a + 1) * d + a], r = hypot(u, v);
        if (r == 0.0) continue;
        double cos = u / r, sin = v / r;
        for (index_t l = a; l + 1 < k; l++) {
            double t = B->R[a * d + l], b = B->R[(a + 1) * d + l];
            B->R[a * d + l] = cos * t + sin * b;
            B->R[(a + 1) * d + l] = cos * b - sin * t;
        }
        for (index_t i = 0; i < d; i++) {
            double t = B->Qt[a * d + i], b = B->Qt[(a + 1) * d + i];
            B->Qt[a * d + i] = cos * t + sin * b;
            B->Qt[(a + 1) * d + i] = cos * b - sin * t;
        }
    }
    B->k = k - 1;
}

/* R z = t, in place; R is upper triangular. */
static void back_substitute(const block_t *B, double *t)
{
    index_t d = B->d;
    for (index_t a = B->k - 1; a >= 0; a--) {
        double sum = t[a];
        for (index_t l = a + 1; l < B->k; l++) sum -= B->R[a * d + l] * t[l];
        t[a] = sum / B->R[a * d + a];
    }
}

/* Multipliers and point that hold the active rows tight; rows whose multiplier would turn negative
 * leave on the way. Returns a row that left although it was added last, else -1. */
static inline __attribute__((always_inline)) index_t solve_on_active_rows(block_t *B)
{
    index_t d = B->d, bounced = -1;
    while (B->k > 0) {
        index_t k = B->k;
        for (index_t a = 0; a < k; a++) {
            double sum = bound_of(B, B->row[a]);
            for (index_t l = 0; l < a; l++) sum -= B->R[l * d + a] * B->s[l];
            B->s[a] = sum / B->R[a * d + a]; /* R' s = b */
            B->c[a] = dot(B->Qt + a * d, B->x, d);
            B->z[a] = B->s[a] - B->c[a];
        }
        back_substitute(B, B->z);
        double step = 2.0;
        for (index_t a = 0; a < k; a++)
            if (B->z[a] <= 0.0) {
                double fall = B->gamma[a] - B->z[a];
                double ratio = fall > 0.0 ? B->gamma[a] / fall : 0.0;
                if (ratio < step) step = ratio;
            }
        if (step > 1.0) {
            memcpy(B->gamma, B->z, k * sizeof(double));
            memcpy(B->w, B->x, d * sizeof(double));
            for (index_t a = 0; a < k; a++) axpy(B->s[a] - B->c[a], B->Qt + a * d, B->w, d);
            return bounced;
        }
        for (index_t a = k - 1; a >= 0; a--) {
            double fall = B->gamma[a] - B->z[a];
            int leaves = B->z[a] <= 0.0 &&
                         (fall <= 0.0 || B->gamma[a] / fall <= step * (1.0 + 1e-12));
            B->gamma[a] += step * (B->z[a] - B->gamma[a]);
            if (B->gamma[a] < 0.0) B->gamma[a] = 0.0;
            if (leaves) {
                if (a == k - 1) bounced = B->row[a];
                drop(B, a);
            }
        }
    }
    memcpy(B->w, B->x, d * sizeof(double));
    return bounced;
}

static inline __attribute__((always_inline)) index_t most_violated(block_t *B, double limit,
                                                                   index_t banned)
{
    index_t n = B->n;
    double *r = B->residual;
    products(B->tiles, n, B->d, B->w, r);
    for (index_t j = 0; j < n; j++) r[j] *= B->sign[j];
    if (B->offset)
        for (index_t j = 0; j < n; j++) r[j] -= B->offset[j];
    for (index_t a = 0; a < B->k; a++) r[B->row[a]] = 0.0;
    if (banned >= 0) r[banned] = 0.0;
    double lane[LANES];
    for (int l = 0; l < LANES; l++) lane[l] = limit;
    index_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = r[j + l] < lane[l] ? r[j + l] : lane[l];
    for (; j < n; j++) lane[0] = r[j] < lane[0] ? r[j] : lane[0];
    double least = limit;
    for (int l = 0; l < LANES; l++) least = lane[l] < least ? lane[l] : least;
    if (least >= limit) return -1;
    for (j = 0; r[j] != least;) j++;
    return j;
}

/* Row j = A'y depends on the active rows (y from the coefficients in c): its multiplier rises while
 * theirs fall along y, until one of them is zero and makes room. */
static inline __attribute__((always_inline)) void exchange(block_t *B, index_t j)
{
    index_t leaver = -1;
    double step = HUGE_VAL;
    memcpy(B->z, B->c, B->k * sizeof(double));
    back_substitute(B, B->z);
    for (index_t a = 0; a < B->k; a++)
        if (B->z[a] > 1e-12 && B->gamma[a] / B->z[a] < step) {
            step = B->gamma[a] / B->z[a];
            leaver = a;
        }
    if (leaver < 0) leaver = B->k - 1, step = 0.0;
    for (index_t a = 0; a < B->k; a++) {
        B->gamma[a] -= step * B->z[a];
        if (B->gamma[a] < 0.0) B->gamma[a] = 0.0;
    }
    drop(B, leaver);
    double distance2 = orthogonalise(B, j);
    if (distance2 > 0.0) append(B, j, step, distance2);
}

FAST static void project_block(block_t *B, const index_t *start, const double *start_gamma,
                               index_t n_start, double enough, double tolerance, double dependent,
                               index_t max_iter)
{
    index_t d = B->d;
    double size_x = sqrt(dot(B->x, B->x, d));
    B->k = 0;
    for (index_t a = 0; a < n_start && B->k < d; a++) {
        if (B->active[start[a]]) continue;
        double distance2 = orthogonalise(B, start[a]);
        if (distance2 >= dependent) append(B, start[a], start_gamma[a], distance2);
    }
    index_t banned = -1;
    for (index_t it = 0; it < max_iter; it++) {
        index_t bounced = solve_on_active_rows(B);
        if (bounced >= 0) banned = bounced;
        double size = sqrt(dot(B->w, B->w, d));
        if (!B->offset && size <= ZERO * size_x) {
            memset(B->w, 0, d * sizeof(double));
            break;
        }
        if (!B->offset && size <= enough) break;
        double scale = size > size_x ? size : size_x;
        index_t j = most_violated(B, -tolerance * scale, banned);
        if (j < 0) break;
        banned = -1;
        double distance2 = orthogonalise(B, j);
        if (B->k > 0 && (distance2 < dependent || B->k == d))
            exchange(B, j);
        else
            append(B, j, 0.0, distance2);
    }
}

/* rows, gamma (n_blocks, d + 1) and count (n_blocks) hold the warm start on entry and the active
 * rows on exit. Returns 0, or 1 if memory ran out. */
int project_blocks(index_t n, index_t d, const double *X, const int8_t *signs, index_t n_blocks,
                   const double *points, const index_t *pattern, const double *offsets,
                   const double *enough, index_t *rows, double *gamma, index_t *count,
                   double *result, double tolerance, double dependent, index_t max_iter)
{
    double *work = malloc((2 * d * d + 6 * (d + 1) + padded(n)) * sizeof(double));
    double *tiles = make_tiles(X, n, d);
    index_t *row = malloc((d + 1) * sizeof(index_t));
    uint8_t *active = calloc(n, 1);
    if (!work || !tiles || !row || !active) {
        free(work), free(tiles), free(row), free(active);
        return 1;
    }
    block_t B = {.n = n, .d = d, .X = X, .row = row, .active = active, .tiles = tiles};
    B.Qt = work, B.R = B.Qt + d * d, B.c = B.R + d * d;
    B.s = B.c + d + 1, B.z = B.s + d + 1, B.q = B.z + d + 1, B.gamma = B.q + d + 1;
    B.residual = B.gamma + d + 1;
    for (index_t b = 0; b < n_blocks; b++) {
        index_t at = b * (d + 1);
        B.sign = signs + pattern[b] * n;
        B.offset = offsets ? offsets + b * n : NULL;
        B.x = points + b * d;
        B.w = result + b * d;
        project_block(&B, rows + at, gamma + at, count[b], enough[b], tolerance, dependent,
                      max_iter);
        memcpy(rows + at, B.row, B.k * sizeof(index_t));
        memcpy(gamma + at, B.gamma, B.k * sizeof(double));
        count[b] = B.k;
        for (index_t a = 0; a < B.k; a++) active[B.row[a]] = 0;
    }
    free(work), free(tiles), free(row), free(active);
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
