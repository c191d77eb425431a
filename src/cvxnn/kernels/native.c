/* Compiled kernels. Each has a NumPy twin in the package, which is used where this file was not
 * built and which the tests hold it against.
 *
 * hinge_coefficients, hinge_divergence: the constraint terms of the augmented Lagrangian, see
 * solvers/augmented_lagrangian.py.
 *
 * project_blocks: many projections onto {w : s_j <x_j, w> >= b_j for all rows j}, see cones.py.
 * The signed active rows A of a block are kept through an orthonormal basis Q = T'A of their span.
 * A vector q = A't of it lies in `basis` as (q | b't | t), and the point w = x + A'z that holds the
 * active rows tight as (w | . | z): operations on the basis keep its combinations, and one step of
 * the point is one of its multipliers, too. A row joins by Gram-Schmidt and leaves by rotations.
 *
 * Rows to add come from a list of candidates as long as some are violated much. Then a scan of all
 * rows, in single precision and for several blocks at once, makes a new list.
 */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sixteen partial sums let the compiler use wide registers without reordering what we wrote. */
#define LANES 16
#define ZERO 1e-14 /* a projection this small, relative to the point, is zero up to rounding */
#define WIDTH 8    /* doubles in a vector: rows are filled up with zeros to whole vectors */
#define TILE 64    /* rows that lie feature by feature, and candidates at most */
#define TOGETHER 4 /* blocks that share a scan */
#define WINDOW 0.3 /* how much candidates are violated, at least, of the worst at the last scan */
#define CLOSE 0.01 /* squared distance from the span that asks for a second orthogonalisation */

typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(64), aligned(4), may_alias));
typedef double vector __attribute__((vector_size(64), aligned(8), may_alias));
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int64_t lanes __attribute__((vector_size(64)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif

uint64_t kernels_version(void) { return KERNELS_VERSION; }

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
    vector s[WIDTH];
    for (int l = 0; l < WIDTH; l++) s[l] = (vector){0};
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
    const int *stop;         /* see kernels.h */
    index_t at;              /* which block this is, or -1 */
    index_t n, d, k;         /* rows, features, active rows */
    index_t width, stride;   /* of a row of X and of `basis`, filled up */
    const double *X;         /* unit rows (n, width) */
    const int8_t *sign;      /* (n) of this block's pattern */
    const double *offset;    /* (n) or NULL */
    double enough, size;     /* see Cones.project; the norm of x */
    double scale;            /* of the point and offsets in the scan */
    double limit;            /* a residual below this is a violation, */
    double again;            /* and a candidate that is not below this asks for a scan */
    index_t left;            /* how many rows may still be added */
    index_t added, banned;   /* the row added last, and one just rejected; or -1 */
    int scanned;             /* whether the candidates are those of the present point */
    int stale;               /* whether rounding has added up in w, */
    int worn, rebuilt;       /* or may have in the basis; and whether this was built again */
    double *x;               /* the point (width) */
    double *w;               /* (stride), the projection and multipliers: see above */
    double *basis;           /* (k, stride) */
    double *u, *c;           /* work (stride) */
    double *gamma;           /* the multipliers taken up so far, >= 0 */
    index_t *row;            /* the active rows */
    index_t *first;          /* the first vector of the basis that contains each */
    uint8_t *active;         /* (n) */
    float *residual;         /* (n), filled up to whole tiles */
    float least[TILE];       /* the least residual in each place of a tile, */
    int32_t tile[TILE];      /* and the first row of its tile */
    int8_t last_sign[TILE];  /* of the last tile, if it is not whole */
    index_t candidate[TILE + WIDTH];
    index_t n_candidates;
} block_t;

INLINE double *multipliers(const block_t *B, double *v) { return v + B->width + 1; }
INLINE index_t used(const block_t *B, index_t k) { return B->width + whole(1 + k, WIDTH); }
INLINE double bound_of(const block_t *B, index_t j) { return B->offset ? B->offset[j] : 0.0; }
INLINE double size_of(const block_t *B, const double *v) { return sqrt(dot(v, v, B->width)); }

INLINE double residual_of(const block_t *B, index_t j)
{
    return B->sign[j] * dot(B->X + j * B->width, B->w, B->width) - bound_of(B, j);
}

/* c = Q v */
INLINE void basis_dots(const block_t *B, const double *v, double *c)
{
    for (index_t a = 0; a < B->k; a += WIDTH) {
        const double *row[WIDTH];
        for (int l = 0; l < WIDTH; l++) row[l] = B->basis + (a + l) * B->stride;
        eight_dots(row, v, B->width, c + a);
    }
}

/* Orthogonalise row j against the active ones into u. Returns the squared distance of the (unit)
 * row from their span. */
INLINE double orthogonalise(block_t *B, index_t j)
{
    const double *x = B->X + j * B->width;
    double *u = B->u, sign = B->sign[j], distance2 = 0.0;
    for (index_t i = 0; i < B->width; i++) u[i] = sign * x[i];
    memset(u + B->width, 0, (B->stride - B->width) * sizeof(double));
    u[B->width] = bound_of(B, j);
    multipliers(B, u)[B->k] = 1.0;
    for (int twice = 0; twice < 2 && distance2 < CLOSE; twice++) {
        basis_dots(B, u, B->c);
        subtract(u, B->basis, B->stride, B->c, B->k, used(B, B->k + 1));
        distance2 = dot(u, u, B->width);
    }
    return distance2;
}

/* Take in row j, just orthogonalised, and move the point onto it. */
INLINE void append(block_t *B, index_t j, double gamma, double distance2)
{
    index_t k = B->k++;
    double *q = B->basis + k * B->stride, scale = 1.0 / sqrt(distance2);
    for (index_t i = 0; i < B->stride; i++) q[i] = scale * B->u[i];
    B->row[k] = j;
    B->first[k] = k;
    B->gamma[k] = gamma;
    B->active[j] = 1;
    double slack = dot(q, B->w, B->width) - q[B->width];
    subtract(B->w, q, B->stride, &slack, 1, used(B, k + 1));
}

/* Let an active row go: rotations of neighbours pass it on to the last vector of the basis. */
INLINE void drop(block_t *B, index_t at)
{
    index_t k = --B->k, first = B->first[at], size = used(B, k + 1), stride = B->stride;
    double *basis = B->basis, *last = basis + k * stride, *c = B->c, *s = B->u, norm2 = 0.0;
    for (index_t a = first; a <= k; a++) {
        double t = multipliers(B, basis + a * stride)[at], before = norm2;
        norm2 += t * t;
        s[a] = t / sqrt(norm2);
        c[a] = sqrt(before / norm2);
    }
    for (index_t i = 0; i < size; i += 2 * WIDTH) {
        double *v = basis + first * stride + i;
        vector carry[2];
        carry[0] = s[first] * *(vector *)v, carry[1] = s[first] * *(vector *)(v + WIDTH);
        for (index_t a = first + 1; a <= k; a++, v += stride)
            for (int l = 0; l < 2; l++) {
                vector next = *(vector *)(v + stride + l * WIDTH);
                *(vector *)(v + l * WIDTH) = c[a] * next - s[a] * carry[l];
                carry[l] = c[a] * carry[l] + s[a] * next;
            }
        memcpy(v, carry, sizeof carry);
    }
    double pull = last[B->width] - dot(last, B->x, B->width);
    subtract(B->w, last, 0, &pull, 1, size);
    for (index_t a = B->first[k] < first ? B->first[k] : first; a < k; a++) {
        double *t = multipliers(B, basis + a * stride);
        t[at] = t[k];
        t[k] = 0.0;
    }
    double *z = multipliers(B, B->w);
    z[at] = z[k];
    z[k] = 0.0;
    B->active[B->row[at]] = 0;
    B->row[at] = B->row[k];
    B->gamma[at] = B->gamma[k];
    B->first[at] = B->first[k];
    for (index_t a = 0; a < k; a++) B->first[a] -= B->first[a] > first;
    B->stale = B->worn = 1;
}

INLINE void start_at_x(block_t *B)
{
    memcpy(B->w, B->x, B->width * sizeof(double));
    memset(B->w + B->width, 0, (B->stride - B->width) * sizeof(double));
    B->stale = 0;
}

INLINE void start_from(block_t *B, const index_t *row, const double *gamma, index_t count,
                       double dependent)
{
    start_at_x(B);
    B->k = B->worn = 0;
    for (index_t a = 0; a < count && B->k < B->d && !stopped(B->stop); a++) {
        if (B->active[row[a]]) continue;
        double distance2 = orthogonalise(B, row[a]);
        if (distance2 >= dependent) append(B, row[a], gamma[a], distance2);
    }
}

/* Take up the multipliers that hold the active rows tight; rows whose multiplier would turn
 * negative leave on the way. */
INLINE void settle(block_t *B)
{
    double *gamma = B->gamma;
    const double *z = multipliers(B, B->w);
    while (!stopped(B->stop)) {
        double step = 2.0;
        int falls = 0;
        for (index_t a = 0; a < B->k; a++) falls |= z[a] <= 0.0;
        if (!falls) break;
        for (index_t a = 0; a < B->k; a++)
            if (z[a] <= 0.0) {
                double fall = gamma[a] - z[a], ratio = fall > 0.0 ? gamma[a] / fall : 0.0;
                if (ratio < step) step = ratio;
            }
        for (index_t a = 0; a < B->k; a++) {
            double fall = gamma[a] - z[a];
            int leaves =
                z[a] <= 0.0 && (fall <= 0.0 || gamma[a] / fall <= step * (1.0 + 1e-12));
            /* thrown out again at once: its violation was rounding */
            if (leaves && gamma[a] == 0.0 && B->row[a] == B->added) B->banned = B->added;
            gamma[a] += step * (z[a] - gamma[a]);
            gamma[a] = leaves ? -1.0 : gamma[a] > 0.0 ? gamma[a] : 0.0;
        }
        for (index_t a = B->k - 1; a >= 0 && !stopped(B->stop); a--)
            if (gamma[a] < 0.0) drop(B, a);
    }
    memcpy(gamma, z, B->k * sizeof(double));
}

/* The point and multipliers afresh from the basis: steps add up their rounding. */
INLINE void refresh(block_t *B)
{
    start_at_x(B);
    basis_dots(B, B->w, B->c);
    for (index_t a = 0; a < B->k; a++) B->c[a] -= B->basis[a * B->stride + B->width];
    subtract(B->w, B->basis, B->stride, B->c, B->k, used(B, B->k));
}

/* Whether w = x + A'z and A w = b. Combinations are worn where rows left that had lain close to
 * the span of the others. */
INLINE int accurate(block_t *B, double tiny)
{
    const double *z = multipliers(B, B->w);
    double worst = 0.0;
    for (index_t i = 0; i < B->width; i++) B->u[i] = B->w[i] - B->x[i];
    for (index_t a = 0; a < B->k; a++) {
        index_t j = B->row[a];
        double t = z[a] * B->sign[j], r = fabs(residual_of(B, j));
        subtract(B->u, B->X + j * B->width, 0, &t, 1, B->width);
        if (r > worst) worst = r;
    }
    return worst <= tiny && size_of(B, B->u) <= tiny;
}

/* The residuals of a tile, and where they are the least so far. */
INLINE void note_tile(block_t *B, index_t start, const float *product)
{
    const int8_t *sign = start + TILE <= B->n ? B->sign + start : B->last_sign;
    float *r = B->residual + start, *least = B->least;
    for (int l = 0; l < TILE; l++) r[l] = sign[l] * product[l];
    if (B->offset)
        for (index_t l = 0; l < TILE && start + l < B->n; l++)
            r[l] -= (float)(B->scale * B->offset[start + l]);
    for (int l = 0; l < TILE; l += 2 * WIDTH) {
        ints *tile = (ints *)(B->tile + l);
        *tile += (*(floats *)(r + l) < *(floats *)(least + l)) & ((int32_t)start - *tile);
    }
    for (int l = 0; l < TILE; l++) least[l] = r[l] < least[l] ? r[l] : least[l];
}

/* List violated rows; none only if there is none. Products of unit vectors in single precision are
 * off by `error` at most: rows above it hold for sure, others are looked at in double precision. */
INLINE void list_candidates(block_t *B)
{
    float *r = B->residual, error = 6e-8f * (B->d + 8), worst = 0.0f;
    index_t count = 0;
    for (int l = 0; l < TILE; l++) worst = B->least[l] < worst ? B->least[l] : worst;
    if (worst < -4.0f * error && B->banned < 0)
        for (index_t l = 0; l < TILE; l++) { /* without branches: half of them would be missed */
            B->candidate[count] = B->tile[l] + l;
            count += (B->least[l] < (float)WINDOW * worst) & !B->active[B->candidate[count]];
        }
    if (count == 0) {
        for (index_t a = 0; a < B->k; a++) r[B->row[a]] = 1.0f;
        if (B->banned >= 0) r[B->banned] = 1.0f;
        for (index_t start = 0; start < B->n; start += TILE) {
            int any = 0;
            for (int l = 0; l < TILE; l++) any |= r[start + l] <= error;
            for (index_t j = start; any && j < start + TILE && j < B->n; j++)
                if (r[j] <= error && count < TILE && residual_of(B, j) < B->limit)
                    B->candidate[count++] = j;
        }
    }
    B->n_candidates = count;
    B->again = B->limit;
    B->scanned = 1;
}

/* Look at all rows, for all blocks at once that are under way. The points are scaled so that they
 * and the offsets are at most one. */
INLINE void scan(block_t *block, const float *tiles, float *point)
{
    index_t n = block->n, d = block->d;
    for (block_t *B = block; B < block + TOGETHER; B++) {
        double size = size_of(B, B->w);
        for (index_t j = 0; B->offset && j < n; j++)
            size = B->offset[j] > size ? B->offset[j] : size;
        B->scale = size > 0.0 ? 1.0 / size : 1.0;
        for (index_t i = 0; i < d; i++) point[i * TOGETHER + (B - block)] = B->scale * B->w[i];
        memset(B->least, 0, sizeof B->least);
        memset(B->tile, 0, sizeof B->tile);
    }
    for (index_t start = 0; start < n && !stopped(block->stop); start += TILE) {
        float product[TOGETHER][TILE];
        for (int half = 0; half < TILE; half += TILE / 2) {
            const float *x = tiles + start * d + half, *w = point;
            floats sum[TOGETHER][2];
            for (int b = 0; b < TOGETHER; b++) sum[b][0] = sum[b][1] = (floats){0};
            for (index_t i = 0; i < d; i++, x += TILE, w += TOGETHER)
                for (int b = 0; b < TOGETHER; b++) {
                    sum[b][0] += w[b] * *(floats *)x;
                    sum[b][1] += w[b] * *(floats *)(x + 2 * WIDTH);
                }
            for (int b = 0; b < TOGETHER; b++) memcpy(product[b] + half, sum[b], sizeof sum[b]);
        }
        for (int b = 0; b < TOGETHER; b++)
            if (block[b].at >= 0) note_tile(block + b, start, product[b]);
    }
    for (int b = 0; b < TOGETHER; b++)
        if (block[b].at >= 0) list_candidates(block + b);
}

/* Take the most violated candidate off the list; -1 if none is violated enough. */
INLINE index_t take_candidate(block_t *B)
{
    index_t count = B->n_candidates, found = -1;
    double worst = B->again < B->limit ? B->again : B->limit;
    memset(B->candidate + count, 0, WIDTH * sizeof(index_t));
    for (index_t a = 0; a < count; a += WIDTH) {
        const double *row[WIDTH];
        double product[WIDTH];
        for (int l = 0; l < WIDTH; l++) row[l] = B->X + B->candidate[a + l] * B->width;
        eight_dots(row, B->w, B->width, product);
        for (index_t l = 0; l < WIDTH && a + l < count; l++) {
            index_t j = B->candidate[a + l];
            double r = B->sign[j] * product[l] - bound_of(B, j);
            if (r < worst && j != B->banned) worst = r, found = a + l;
        }
    }
    if (found < 0) return -1;
    if (B->scanned) B->again = WINDOW * worst;
    B->scanned = 0;
    index_t j = B->candidate[found];
    B->candidate[found] = B->candidate[--B->n_candidates];
    return j;
}

/* Row j = A'y depends on the active rows, -y is what u has as multipliers: its own rises while
 * theirs fall along y, until one of them is zero and makes room. */
INLINE void exchange(block_t *B, index_t j)
{
    index_t leaver = -1;
    double step = HUGE_VAL;
    const double *y = multipliers(B, B->u);
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

/* Go on until the block is finished, or all rows have to be looked at, or somebody asks to stop.
 * Returns whether it is finished. */
INLINE int advance(block_t *B, double tolerance, double dependent)
{
    while (!stopped(B->stop)) {
        settle(B);
        double size = size_of(B, B->w);
        int zero = !B->offset && (B->k == B->d || size <= ZERO * B->size);
        int done = zero || (!B->offset && size <= B->enough) || B->left <= 0;
        B->limit = -tolerance * (size > B->size ? size : B->size);
        index_t j = done ? -1 : take_candidate(B);
        if (j < 0 && B->stale) {
            refresh(B);
            continue;
        }
        if (zero) memset(B->w, 0, B->width * sizeof(double));
        if (done) return 1;
        if (j < 0 && !B->scanned) return 0;
        if (j < 0) {
            if (!B->worn || B->rebuilt || accurate(B, -0.1 * B->limit)) return 1;
            for (index_t a = 0; a < B->k; a++) B->active[B->row[a]] = 0;
            start_from(B, B->row, B->gamma, B->k, dependent);
            B->scanned = 0, B->rebuilt = 1;
            continue;
        }
        B->left--;
        B->added = j, B->banned = -1;
        double distance2 = orthogonalise(B, j);
        if (B->k > 0 && (distance2 < dependent || B->k == B->d))
            exchange(B, j);
        else
            append(B, j, 0.0, distance2);
    }
    return 0;
}

/* Memory for the blocks under way, to be freed; NULL if there is none. */
static char *make_blocks(block_t *block, index_t n, index_t d, const double *X, const int *stop)
{
    index_t width = whole(d, WIDTH), stride = whole(width + d + 2, 2 * WIDTH);
    index_t doubles = stride * (width + 3) + 2 * width, indices = 2 * width;
    index_t bytes = whole(8 * (doubles + indices) + 5 * whole(n, TILE), 64);
    char *memory = aligned_alloc(64, TOGETHER * bytes);
    if (!memory) return NULL;
    memset(memory, 0, TOGETHER * bytes);
    for (int b = 0; b < TOGETHER; b++) {
        double *part = (double *)(memory + b * bytes);
        block_t B = {.at = -1, .n = n, .d = d, .width = width, .stride = stride, .X = X};
        B.stop = stop;
        B.basis = part, B.w = part + stride * width, B.u = B.w + stride, B.c = B.u + stride;
        B.x = B.c + stride, B.gamma = B.x + width;
        B.row = (index_t *)(B.gamma + width), B.first = B.row + width;
        B.residual = (float *)(B.first + width);
        B.active = (uint8_t *)(B.residual + whole(n, TILE));
        block[b] = B;
    }
    return memory;
}

/* X (n, whole vectors) and tiles are those of native.layout_rows. rows, gamma (n_blocks, d + 1) and
 * count (n_blocks) hold the warm start on entry and the active rows on exit. */
FAST int project_blocks(index_t n, index_t d, const double *X, const float *tiles,
                        const int8_t *signs, index_t n_blocks, const double *points,
                        const index_t *pattern, const double *offsets, const double *enough,
                        index_t *rows, double *gamma, index_t *count, double *result,
                        double tolerance, double dependent, index_t max_rows, const int *stop)
{
    block_t block[TOGETHER];
    char *memory = make_blocks(block, n, d, X, stop);
    float *scanned = malloc(TOGETHER * d * sizeof(float));
    int failed = !memory || !scanned;
    for (index_t next = 0, waiting = !failed; waiting && !stopped(stop);) {
        waiting = 0;
        for (block_t *B = block; B < block + TOGETHER; B++) {
            for (;; B->at = -1) {
                if (B->at < 0) {
                    if (next == n_blocks) break;
                    index_t b = B->at = next++;
                    B->sign = signs + pattern[b] * n;
                    B->offset = offsets ? offsets + b * n : NULL;
                    B->enough = enough[b];
                    B->left = max_rows;
                    memcpy(B->x, points + b * d, d * sizeof(double));
                    memcpy(B->last_sign, B->sign + n / TILE * TILE, n % TILE);
                    B->size = size_of(B, B->x);
                    B->added = B->banned = -1;
                    B->n_candidates = B->scanned = B->rebuilt = 0;
                    B->again = 0.0;
                    start_from(B, rows + b * (d + 1), gamma + b * (d + 1), count[b], dependent);
                }
                if (!advance(B, tolerance, dependent)) break;
                index_t b = B->at;
                memcpy(result + b * d, B->w, d * sizeof(double));
                memcpy(rows + b * (d + 1), B->row, B->k * sizeof(index_t));
                memcpy(gamma + b * (d + 1), B->gamma, B->k * sizeof(double));
                count[b] = B->k;
                for (index_t a = 0; a < B->k; a++) B->active[B->row[a]] = 0;
            }
            waiting += B->at >= 0;
        }
        if (waiting) scan(block, tiles, scanned);
    }
    free(memory), free(scanned);
    return failed;
}

/* s_j (gamma_bj - delta s_j <x_j, u_b>)_+ from the products <x_j, u_b>. Products have a row for each
 * block listed in `block`, gamma and pattern for every block. */
FAST static void coefficients_of_block(index_t n, const int8_t *sign, const double *gamma,
                                       double delta, const double *product, double *coefficient)
{
    for (index_t j = 0; j < n; j++) {
        double s = sign[j], hinge = gamma[j] - delta * s * product[j];
        coefficient[j] = hinge > 0.0 ? s * hinge : 0.0;
    }
}

void hinge_coefficients(index_t n, const int8_t *signs, index_t n_blocks, const index_t *block,
                        const index_t *pattern, const double *gamma, double delta,
                        const double *products, double *coefficients, const int *stop)
{
    for (index_t b = 0; b < n_blocks && !stopped(stop); b++)
        coefficients_of_block(n, signs + pattern[block[b]] * n, gamma + block[b] * n, delta,
                              products + b * n, coefficients + b * n);
}

/* (h' - h)^2 + 2 h (h' - a') with a = c - s <x, u>, h = a_+, and the primes for the new block: the
 * divergence of one hinge, over delta / 2. */
INLINE double divergence_of_hinge(double c, double s, double new, double old)
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
                      const double *new_products, const double *products, double *divergence,
                      const int *stop)
{
    for (index_t b = 0; b < n_blocks && !stopped(stop); b++)
        divergence[b] = divergence_of_block(n, signs + pattern[block[b]] * n, gamma + block[b] * n,
                                            delta, new_products + b * n, products + b * n);
}
