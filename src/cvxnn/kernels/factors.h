/* Active rows of the blocks in projections.c, and the Cholesky factors by which they are known. */
#ifndef CVXNN_FACTORS_H
#define CVXNN_FACTORS_H

#include "kernels.h"
#include "vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TILE 64      /* rows that lie feature by feature, and candidates at most */
#define TOGETHER 4   /* blocks that share a scan */
#define CLOSE 0.01   /* squared distance from the span that asks for a second orthogonalisation */
#define REFINEMENTS 4

typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(64), aligned(4), may_alias));

typedef struct {
    const int *stop;        /* see kernels.h */
    index_t at;             /* which block this is, or -1 */
    index_t n, d, width;    /* rows, features, and those filled up to whole vectors */
    const double *X;        /* unit rows (n, width), or NULL for sparse ones, */
    const index_t *starts;  /* where each begins (n + 1) */
    const index_t *columns; /* of their entries */
    const double *values;
    const int8_t *sign;     /* (n) of this block's pattern */
    const double *offset;   /* (n) or NULL */
    double enough, size;    /* see Cones.project; the norm of x */
    double scale;           /* of the point and offsets in the scan */
    double limit;           /* a residual below this is a violation, */
    double again;           /* and a candidate that is not below this asks for a scan */
    double tolerance;       /* of a violation, relative to the size of x */
    double dependent;       /* squared distance from the span of others that counts as none */
    index_t left;           /* how many rows may still be added */
    index_t added, banned;  /* the row added last, and one just rejected; or -1 */
    int sweeping, rough;    /* whether sweeps go on, and are all that is wanted */
    int round, failed;      /* how many rounds of them there were; whether memory ran out */
    int scanned;            /* whether the candidates are those of the present point */
    int stale, rebuilt;     /* whether z was refined, and the factor made again */
    index_t k, most;        /* active rows, or those with multipliers in sweeps; how many fit */
    index_t violated;       /* rows that the last scan found so, */
    double moved;           /* and how far multipliers moved in the last sweep, at most */
    index_t n_start;        /* rows of the warm start, kept while sweeps go on */
    double *x, *w;          /* the point and its projection (width) */
    double *u;              /* work (width), zero in between */
    double *L;              /* (room, room): its rows without the diagonal, then zeros */
    index_t room;
    double *kept;           /* how many rows the kept factor has, these, and itself; or NULL */
    int factored, changed;  /* whether there is a factor, and another one than the kept one */
    double *inverse;        /* of the diagonal of L (most) */
    double *y;              /* L^-1 (b - A x) (most), filled up with zeros */
    double value;           /* of gamma, see value_of */
    double *z, *c, *t;      /* work (most), filled up */
    double *gamma;          /* the multipliers taken up so far, >= 0 */
    double *start_gamma;
    index_t *row, *start;   /* the active rows, and those of the warm start */
    uint8_t *active;        /* (n) */
    float *residual;        /* (n), filled up to whole tiles */
    float least[TILE];      /* the least residual in each place of a tile, */
    int32_t tile[TILE];     /* and the first row of its tile */
    int8_t last_sign[TILE]; /* of the last tile, if it is not whole */
    index_t candidate[TILE + WIDTH];
    index_t n_candidates;
} block_t;

INLINE double bound_of(const block_t *B, index_t j) { return B->offset ? B->offset[j] : 0.0; }
INLINE double size_of(const block_t *B, const double *v) { return sqrt(dot(v, v, B->width)); }

/* <x_j, v> */
INLINE double row_dot(const block_t *B, index_t j, const double *v)
{
    if (B->X) return dot(B->X + j * B->width, v, B->width);
    double sum = 0.0;
    for (index_t i = B->starts[j]; i < B->starts[j + 1]; i++)
        sum += B->values[i] * v[B->columns[i]];
    return sum;
}

/* v += t x_j */
INLINE void add_row(const block_t *B, double *v, double t, index_t j)
{
    if (B->X)
        add(v, t, B->X + j * B->width, B->width);
    else
        for (index_t i = B->starts[j]; i < B->starts[j + 1]; i++)
            v[B->columns[i]] += t * B->values[i];
}

INLINE double residual_of(const block_t *B, index_t j)
{
    return B->sign[j] * row_dot(B, j, B->w) - bound_of(B, j);
}

/* r = A v for the active rows */
FAST static void row_products(const block_t *B, const double *v, double *r)
{
    for (index_t a = 0; B->X && a < B->k; a += WIDTH) {
        const double *row[WIDTH];
        for (int l = 0; l < WIDTH; l++)
            row[l] = B->X + B->row[a + l < B->k ? a + l : a] * B->width;
        eight_dots(row, v, B->width, r + a);
    }
    for (index_t a = 0; a < B->k; a++)
        r[a] = B->sign[B->row[a]] * (B->X ? r[a] : row_dot(B, B->row[a], v));
}

/* v += A'g for the active rows */
FAST static void add_rows(block_t *B, double *v, const double *g)
{
    index_t i = 0;
    for (; B->X && i + 4 * WIDTH <= B->width; i += 4 * WIDTH) {
        vector sum[4];
        memcpy(sum, v + i, sizeof sum);
        for (index_t a = 0; a < B->k; a++) {
            const double *x = B->X + B->row[a] * B->width + i, c = g[a] * B->sign[B->row[a]];
            for (int l = 0; l < 4; l++) sum[l] += c * *(vector *)(x + l * WIDTH);
        }
        memcpy(v + i, sum, sizeof sum);
    }
    for (; B->X && i < B->width; i += WIDTH) {
        vector sum = *(vector *)(v + i);
        for (index_t a = 0; a < B->k; a++)
            sum += g[a] * B->sign[B->row[a]] * *(vector *)(B->X + B->row[a] * B->width + i);
        *(vector *)(v + i) = sum;
    }
    for (index_t a = 0; !B->X && a < B->k; a++)
        add_row(B, v, g[a] * B->sign[B->row[a]], B->row[a]);
}

/* w = x + A'g */
INLINE void move_to(block_t *B, const double *g)
{
    memcpy(B->w, B->x, B->width * sizeof(double));
    add_rows(B, B->w, g);
}

/* Room in the factor for this many rows. */
static int make_room(block_t *B, index_t k)
{
    if (k <= B->room) return 1;
    index_t most = whole(B->n < B->d ? B->n : B->d, WIDTH), room = whole(2 * k + 16, WIDTH);
    if (room > most) room = most;
    double *L = aligned_alloc(64, room * room * sizeof(double));
    if (!L) return 0;
    memset(L, 0, room * room * sizeof(double));
    for (index_t a = 0; a < B->k && a < B->room; a++)
        memcpy(L + a * room, B->L + a * B->room, B->room * sizeof(double));
    free(B->L);
    B->L = L, B->room = room;
    return 1;
}

/* L y = r, in place, eight rows at a time; y is filled up with zeros. */
FAST static void solve_lower(const block_t *B, double *y)
{
    index_t k = B->k, room = B->room;
    for (index_t b = k; b < whole(k, WIDTH); b++) y[b] = 0.0;
    for (index_t top = 0; top < k; top += WIDTH) {
        const double *row[WIDTH];
        double known[WIDTH];
        for (int l = 0; l < WIDTH; l++) row[l] = B->L + (top + l < k ? top + l : top) * room;
        eight_dots(row, y, top, known);
        for (index_t l = 0; l < WIDTH && top + l < k; l++) {
            double sum = y[top + l] - known[l];
            for (index_t m = 0; m < l; m++) sum -= row[l][top + m] * y[top + m];
            y[top + l] = sum * B->inverse[top + l];
        }
    }
}

/* L'z = y, in place. */
FAST static void solve_upper(const block_t *B, double *z)
{
    index_t k = B->k, room = B->room;
    for (index_t top = whole(k, WIDTH) - WIDTH; top >= 0; top -= WIDTH) {
        index_t many = k - top < WIDTH ? k - top : WIDTH;
        const double *L = B->L + top * room;
        for (index_t l = many - 1; l >= 0; l--) {
            double sum = z[top + l];
            for (index_t m = l + 1; m < many; m++) sum -= L[m * room + top + l] * z[top + m];
            z[top + l] = sum * B->inverse[top + l];
        }
        for (index_t i = 0; i < top; i += WIDTH) {
            vector sum = *(vector *)(z + i);
            for (index_t l = 0; l < many; l++) sum -= z[top + l] * *(vector *)(L + l * room + i);
            *(vector *)(z + i) = sum;
        }
    }
}

/* ||x + A'g||^2 / 2 - b'g, up to a constant, is ||L'g - y||^2 / 2 - ||y||^2 / 2. */
FAST static double value_of(block_t *B, const double *g)
{
    index_t size = whole(B->k, WIDTH);
    double *t = B->t;
    for (index_t a = 0; a < size; a++) t[a] = a < B->k ? -B->y[a] : 0.0;
    for (index_t b = 0; b < B->k; b++) {
        add(t, g[b], B->L + b * B->room, whole(b, WIDTH));
        t[b] += g[b] / B->inverse[b];
    }
    return 0.5 * dot(t, t, size) - 0.5 * dot(B->y, B->y, size);
}

/* Row j against the active ones: its row of L into c. Returns the square of its distance from the span. */
FAST static double distance_of(block_t *B, index_t j)
{
    index_t k = B->k;
    double *c = B->c, *u = B->u, sign = B->sign[j], rest;
    add_row(B, u, sign, j); /* which is zero otherwise */
    rest = sign * row_dot(B, j, u);
    row_products(B, u, c);
    if (B->X)
        memset(u, 0, B->width * sizeof(double));
    else
        for (index_t i = B->starts[j]; i < B->starts[j + 1]; i++) u[B->columns[i]] = 0.0;
    solve_lower(B, c);
    rest -= dot(c, c, whole(k, WIDTH));
    if (rest >= CLOSE) return rest;
    memcpy(B->z, c, k * sizeof(double));
    solve_upper(B, B->z);
    for (index_t a = 0; a < k; a++) B->z[a] = -B->z[a];
    add_row(B, u, sign, j);
    add_rows(B, u, B->z);
    row_products(B, u, B->t);
    solve_lower(B, B->t);
    for (index_t a = 0; a < k; a++) c[a] += B->t[a];
    rest = dot(u, u, B->width) - dot(B->t, B->t, whole(k, WIDTH));
    memset(u, 0, B->width * sizeof(double));
    return rest;
}

/* Take in row j, whose row of L is in c. */
FAST static void append(block_t *B, index_t j, double gamma, double distance2)
{
    index_t k = B->k;
    B->changed = 1;
    if (!make_room(B, k + 1)) {
        B->failed = 1;
        return;
    }
    double *L = B->L + k * B->room;
    memcpy(L, B->c, k * sizeof(double));
    memset(L + k, 0, (B->room - k) * sizeof(double));
    B->inverse[k] = 1.0 / sqrt(distance2);
    B->row[k] = j;
    B->gamma[k] = gamma;
    double short_of = bound_of(B, j) - B->sign[j] * row_dot(B, j, B->x);
    for (index_t a = k; a < whole(k + 1, WIDTH); a++) B->y[a] = 0.0;
    B->y[k] = (short_of - dot(L, B->y, whole(k, WIDTH))) * B->inverse[k];
    B->active[j] = 1;
    B->k++;
}

/* Let an active row go: rotations of neighbouring columns restore the triangle, below it eight rows
 * at a time. s and c of column i are in z and c. */
FAST static void drop(block_t *B, index_t at)
{
    index_t k = --B->k, room = B->room;
    B->changed = 1;
    double *c = B->c, *s = B->z, *L = B->L;
    for (index_t top = at; top < k; top += WIDTH) {
        index_t many = k - top < WIDTH ? k - top : WIDTH;
        double carry[WIDTH];
        for (index_t l = 0; l < many; l++) carry[l] = L[(top + 1 + l) * room + at];
        for (index_t i = at; i < top; i++)
            for (index_t l = 0; l < many; l++) {
                double next = L[(top + 1 + l) * room + i + 1];
                L[(top + 1 + l) * room + i] = c[i] * carry[l] + s[i] * next;
                carry[l] = c[i] * next - s[i] * carry[l];
            }
        for (index_t l = 0; l < many; l++) {
            double *from = L + (top + 1 + l) * room, *to = from - room;
            index_t r = top + l;
            for (index_t i = top; i < r; i++) {
                double next = from[i + 1];
                from[i] = c[i] * carry[l] + s[i] * next;
                carry[l] = c[i] * next - s[i] * carry[l];
            }
            double diagonal = 1.0 / B->inverse[r + 1];
            double norm = sqrt(carry[l] * carry[l] + diagonal * diagonal);
            c[r] = carry[l] / norm, s[r] = diagonal / norm;
            memcpy(to, from, r * sizeof(double));
            to[r] = 0.0;
            B->inverse[r] = 1.0 / norm;
        }
    }
    double carry = B->y[at];
    B->active[B->row[at]] = 0;
    for (index_t a = at; a < k; a++) {
        double next = B->y[a + 1];
        B->y[a] = c[a] * carry + s[a] * next;
        carry = c[a] * next - s[a] * carry;
        B->row[a] = B->row[a + 1], B->gamma[a] = B->gamma[a + 1];
    }
    B->y[k] = 0.0;
}

/* Kept factors: the number of rows, the rows, and those of L one after the other, each with the
 * inverse of its diagonal at the end. */
INLINE index_t most_active(const block_t *B) { return B->n < B->d ? B->n : B->d; }

/* Whether the kept factor is that of the rows in the list. */
FAST static int is_kept(const block_t *B)
{
    if (!B->kept || B->kept[0] != (double)B->k) return 0;
    int same = 1;
    for (index_t a = 0; a < B->k; a++) same &= B->kept[1 + a] == (double)B->row[a];
    return same;
}

FAST static index_t recall(block_t *B)
{
    if (!make_room(B, B->k)) return 0;
    const double *from = B->kept + 1 + most_active(B);
    for (index_t a = 0; a < B->k; a++, from += a) {
        double *L = B->L + a * B->room;
        memcpy(L, from, a * sizeof(double));
        memset(L + a, 0, (B->room - a) * sizeof(double));
        B->inverse[a] = from[a];
    }
    B->changed = 0;
    return B->k;
}

/* Keep the factor. A copy that is cut short, by a fork, is known by its number of rows. */
FAST static void keep_factor(block_t *B)
{
    if (!B->kept || !B->factored || !B->changed || B->failed) return;
    volatile double *count = B->kept;
    double *to = B->kept + 1 + most_active(B);
    *count = -1.0;
    for (index_t a = 0; a < B->k; a++, to += a) {
        B->kept[1 + a] = (double)B->row[a];
        memcpy(to, B->L + a * B->room, a * sizeof(double));
        to[a] = B->inverse[a];
    }
    *count = (double)B->k;
}

/* The factor of the rows in the list, tile by tile, as far as they are far from each other's span;
 * returns how many are. */
FAST static index_t factor_tiles(block_t *B, index_t count)
{
    if (!B->X || !make_room(B, count)) return 0;
    index_t room = B->room;
    double *L = B->L, *inverse = B->inverse;
    for (index_t top = 0; top < count; top += WIDTH) {
        const double *x[WIDTH], *y[WIDTH], *l_x[WIDTH], *l_y[WIDTH];
        double sign[WIDTH];
        for (int l = 0; l < WIDTH; l++) {
            index_t a = top + l < count ? top + l : top;
            x[l] = B->X + B->row[a] * B->width, sign[l] = B->sign[B->row[a]];
            l_x[l] = L + a * room;
            memset(L + a * room, 0, room * sizeof(double));
        }
        if (stopped(B->stop)) return 0;
        for (index_t left = 0; left <= top; left += WIDTH) {
            double gram[WIDTH * WIDTH], known[WIDTH * WIDTH];
            for (int l = 0; l < WIDTH; l++) {
                index_t a = left + l < count ? left + l : left;
                y[l] = B->X + B->row[a] * B->width, l_y[l] = L + a * room;
            }
            tile_dots(x, y, B->width, gram);
            tile_dots(l_x, l_y, left, known);
            for (index_t l = 0; l < WIDTH && top + l < count; l++) {
                index_t end = left < top ? WIDTH : l;
                double *to = L + (top + l) * room + left;
                for (index_t m = 0; m <= end && m < WIDTH; m++) {
                    const double *other = L + (left + m) * room + left;
                    double sum = gram[l * WIDTH + m] * sign[l] * B->sign[B->row[left + m]];
                    sum -= known[l * WIDTH + m];
                    for (index_t i = 0; i < m; i++) sum -= to[i] * other[i];
                    if (left < top || m < l)
                        to[m] = sum * inverse[left + m];
                    else if (sum < CLOSE) /* too close for what Gram matrices tell */
                        return top + l;
                    else
                        inverse[top + l] = 1.0 / sqrt(sum);
                }
            }
        }
    }
    return count;
}

/* Make the rows in the list, with their multipliers, the active ones; those that depend on others
 * are left out. Their factor is the kept one if that is theirs, unless it shall be made `anew`. */
FAST static void activate(block_t *B, int anew)
{
    index_t count = B->k;
    B->factored = B->changed = 1;
    index_t first = !anew && is_kept(B) ? recall(B) : factor_tiles(B, count);
    B->k = first;
    row_products(B, B->x, B->y);
    for (index_t a = 0; a < first; a++) B->y[a] = bound_of(B, B->row[a]) - B->y[a];
    solve_lower(B, B->y);
    for (index_t a = first; a < count; a++) B->active[B->row[a]] = 0;
    for (index_t a = first; a < count && !stopped(B->stop) && !B->failed; a++) {
        index_t j = B->row[a];
        double gamma = B->gamma[a], distance2 = B->k < B->d ? distance_of(B, j) : 0.0;
        if (distance2 >= B->dependent) append(B, j, gamma, distance2);
    }
    B->value = value_of(B, B->gamma);
}

/* Whether some multipliers are not positive. */
INLINE int falls(const block_t *B)
{
    int any = 0;
    for (index_t a = 0; a < B->k; a++) any |= !(B->z[a] > 0.0);
    return any;
}

/* Go from gamma towards z and drop the rows whose multipliers vanish. */
FAST static void step_towards(block_t *B)
{
    index_t size = whole(B->k, WIDTH);
    double *gamma = B->gamma, *z = B->z, *t = B->t, step = 2.0;
    double best = -0.5 * dot(B->y, B->y, size);
    memset(t, 0, size * sizeof(double));
    for (index_t a = 0; a < B->k; a++)
        if (!(z[a] > 0.0)) {
            double fall = gamma[a] - z[a], ratio = fall > 0.0 ? gamma[a] / fall : 0.0;
            if (ratio < step) step = ratio;
            add(t, z[a], B->L + a * B->room, whole(a, WIDTH));
            t[a] += z[a] / B->inverse[a];
        }
    double clipped = best + 0.5 * dot(t, t, size); /* the value without these rows */
    int all = clipped < B->value;
    B->value = all ? clipped : best + (1.0 - step) * (1.0 - step) * (B->value - best);
    for (index_t a = 0; a < B->k; a++) {
        double fall = gamma[a] - z[a];
        int leaves = !(z[a] > 0.0) &&
                     (all || !(fall > 0.0) || gamma[a] / fall <= step * (1.0 + 1e-12));
        /* thrown out again at once: its violation was rounding */
        if (leaves && gamma[a] == 0.0 && B->row[a] == B->added) B->banned = B->added;
        double moved = all ? z[a] : gamma[a] + step * (z[a] - gamma[a]);
        gamma[a] = leaves ? -1.0 : moved > 0.0 ? moved : 0.0;
    }
    for (index_t a = B->k - 1; a >= 0 && !stopped(B->stop); a--)
        if (gamma[a] < 0.0) drop(B, a);
}

/* Take up the multipliers that hold the active rows tight; rows whose multiplier would turn
 * negative leave on the way. With `tiny` >= 0 they are refined until all are tight up to that;
 * returns whether they are. */
FAST static int settle(block_t *B, double tiny)
{
    int tight = 0;
    for (int refined = 0; !stopped(B->stop);) {
        if (!refined) {
            memcpy(B->z, B->y, B->k * sizeof(double));
            solve_upper(B, B->z);
        }
        if (falls(B)) {
            step_towards(B);
            refined = 0;
            continue;
        }
        move_to(B, B->z);
        if (tiny < 0.0 || refined == REFINEMENTS) break;
        double worst = 0.0;
        row_products(B, B->w, B->c);
        for (index_t a = 0; a < B->k; a++) {
            B->c[a] = bound_of(B, B->row[a]) - B->c[a];
            if (!(fabs(B->c[a]) <= worst)) worst = fabs(B->c[a]);
        }
        tight = worst <= tiny;
        if (tight) break;
        solve_lower(B, B->c);
        solve_upper(B, B->c);
        for (index_t a = 0; a < B->k; a++) B->z[a] += B->c[a];
        refined++;
    }
    memcpy(B->gamma, B->z, B->k * sizeof(double));
    B->value = -0.5 * dot(B->y, B->y, whole(B->k, WIDTH));
    B->stale = tiny < 0.0;
    return tight;
}

#endif
