/* Bounds on a cone of branching.c: a point of least norm, by Wolfe's method. */
#ifndef CVXNN_WOLFE_H
#define CVXNN_WOLFE_H

#include "cones.h"

#define STEPS 60 /* at most */


INLINE double square_of(double x) { return x * x; }

/* What is asked of bounds. */
typedef struct {
    double total;     /* above sum_i |t_i| ||x_i|| */
    double threshold; /* cones whose bound is above are split */
    double goal;      /* bounds need not be lower */
    double *best;     /* the highest price so far, and its direction */
} aim_t;

typedef struct {
    double basis[MOST][MOST], inverse[MOST][MOST];
    double generator[MOST + 2][MOST], weight[MOST + 2], gram[MOST + 2][MOST + 2], y[MOST + 2][MOST];
    int ray[MOST + 2]; /* the vertex of a ray, or -1 for a point */
    double sigma2;
    int size;
} wolfe_t;

/* Orthonormal e_q with v_i = sum_q L_iq e_q (Gram and Schmidt), and L^-1. 0 where vertices are too
 * close to dependent. */
INLINE int invert(int r, const level_t *at, wolfe_t *wolfe)
{
    double L[MOST][MOST];
    for (int i = 0; i < r; i++) {
        double *e = wolfe->basis[i];
        memcpy(e, at->vertex[i], r * sizeof(double));
        for (int j = 0; j < i; j++) {
            L[i][j] = dot(r, e, wolfe->basis[j]);
            for (int q = 0; q < r; q++) e[q] -= L[i][j] * wolfe->basis[j][q];
        }
        L[i][i] = sqrt(dot(r, e, e));
        if (!(L[i][i] > 1e-12)) return 0;
        for (int q = 0; q < r; q++) e[q] /= L[i][i];
    }
    for (int j = 0; j < r; j++) {
        wolfe->inverse[j][j] = 1 / L[j][j];
        for (int i = j + 1; i < r; i++) {
            double x = 0;
            for (int q = j; q < i; q++) x -= L[i][q] * wolfe->inverse[q][j];
            wolfe->inverse[i][j] = x / L[i][i];
        }
    }
    return 1;
}

/* The rows with t_i < 0 that are positive at sum_j alpha_j v_j: minus their sums. */
INLINE void most_negative_of(int r, const level_t *at, const double *alpha, double *y)
{
    vector sums[MOST] = {{0}};
    const double *columns = at->columns + padded(at->positive);
    for (index_t i = 0; i < at->negative; i += LANES) {
        vector x[MOST], product = {0};
        for (int j = 0; j < r; j++) {
            x[j] = *(const vector *)(columns + j * at->stride + i);
            product += alpha[j] * x[j];
        }
        lanes above = ~NEGATIVE(product);
        for (int j = 0; j < r; j++) sums[j] += (vector)(above & (lanes)x[j]);
    }
    for (int j = 0; j < r; j++) y[j] = -sum_of(sums[j]);
}

/* sum_{t_i > 0} (a_i alpha)_+ over the open rows. */
INLINE double positive_part_of(int r, const level_t *at, const double *alpha)
{
    vector sum = {0};
    for (index_t i = 0; i < at->positive; i += LANES) {
        vector product = {0};
        for (int j = 0; j < r; j++)
            product += alpha[j] * *(const vector *)(at->columns + j * at->stride + i);
        sum += (vector)(~NEGATIVE(product) & (lanes)product);
    }
    return sum_of(sum);
}

FAST static void most_negative(int r, const level_t *at, const double *alpha, double *y)
{
#define CALL(R) most_negative_of(R, at, alpha, y)
    OF_EACH_RANK(CALL)
#undef CALL
}

FAST static double positive_part(int r, const level_t *at, const double *alpha)
{
    double sum;
#define CALL(R) sum = positive_part_of(R, at, alpha)
    OF_EACH_RANK(CALL)
#undef CALL
    return sum;
}

/* The weights of least norm for the generators at hand, if they are independent. */
INLINE int solve(const wolfe_t *at, double *x)
{
    double L[MOST + 2][MOST + 2], z[MOST + 2];
    for (int i = 0; i < at->size; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = at->gram[i][j];
            for (int q = 0; q < j; q++) sum -= L[i][q] * L[j][q];
            if (i == j) {
                if (!(sum > 1e-13 * at->gram[i][i])) return 0;
                L[i][i] = 1 / sqrt(sum);
            } else
                L[i][j] = sum * L[j][j];
        }
        double sum = at->ray[i] < 0 ? at->sigma2 : 0;
        for (int q = 0; q < i; q++) sum -= L[i][q] * z[q];
        z[i] = sum * L[i][i];
    }
    for (int i = at->size - 1; i >= 0; i--) {
        double sum = z[i];
        for (int q = i + 1; q < at->size; q++) sum -= L[q][i] * x[q];
        x[i] = sum * L[i][i];
    }
    return 1;
}

INLINE void drop(int r, wolfe_t *at, int k)
{
    int last = --at->size;
    if (k == last) return;
    memcpy(at->generator[k], at->generator[last], r * sizeof(double));
    memcpy(at->y[k], at->y[last], r * sizeof(double));
    at->weight[k] = at->weight[last], at->ray[k] = at->ray[last];
    for (int i = 0; i < last; i++)
        at->gram[k][i] = at->gram[i][k] = at->gram[last][i];
    at->gram[k][k] = at->gram[last][last];
}

/* Lawson and Hanson's inner loop after a generator was added. 0 if it depends on the others. */
INLINE int balance(int r, wolfe_t *at)
{
    for (;;) {
        double x[MOST + 2], step = 1;
        if (!solve(at, x)) return 0;
        int all = 1;
        for (int i = 0; i < at->size; i++)
            if (!(x[i] > 0)) {
                double way = at->weight[i] / (at->weight[i] - x[i]);
                all = 0;
                if (!(way >= step)) step = way > 0 ? way : 0;
            }
        double most = 0;
        for (int i = 0; i < at->size; i++) {
            at->weight[i] = all ? x[i] : at->weight[i] + step * (x[i] - at->weight[i]);
            if (at->weight[i] > most) most = at->weight[i];
        }
        if (all) return 1;
        int before = at->size;
        for (int i = at->size - 1; i >= 0; i--)
            if (!(x[i] > 0) && at->weight[i] <= 1e-14 * most) drop(r, at, i);
        if (at->size == before || at->size == 0) return 0;
    }
}

/* The generator that was written last becomes one of those at hand. */
INLINE int join(int r, wolfe_t *at, int ray)
{
    int k = at->size++;
    at->ray[k] = ray, at->weight[k] = 0;
    for (int i = 0; i <= k; i++)
        at->gram[i][k] = at->gram[k][i] = dot(r, at->generator[k], at->generator[i]) +
                                          (ray < 0 && at->ray[i] < 0 ? at->sigma2 : 0);
    return balance(r, at);
}

/* Add base + y as a point. */
INLINE int add_point(int r, wolfe_t *at, const double *base, const double *y)
{
    if (at->size > r) return 0;
    double *g = at->generator[at->size];
    for (int i = 0; i < r; i++) {
        g[i] = 0;
        for (int q = 0; q <= i; q++) g[i] += at->inverse[i][q] * (base[q] + y[q]);
    }
    memcpy(at->y[at->size], y, r * sizeof(double));
    if (at->size == 0) {
        double square = dot(r, g, g);
        at->sigma2 = square > 0 ? square : 1;
    }
    return join(r, at, -1);
}

/* Add the ray along the dual of a vertex, as long as the first point. */
INLINE int add_ray(int r, wolfe_t *at, int vertex)
{
    if (at->size > r) return 0;
    double *g = at->generator[at->size], square = 0;
    for (int i = 0; i < r; i++) {
        g[i] = i < vertex ? 0 : at->inverse[i][vertex];
        square += g[i] * g[i];
    }
    double scale = sqrt(at->sigma2 / square);
    for (int i = 0; i < r; i++) g[i] *= scale;
    return join(r, at, vertex);
}

/* No less than F on the cone, for the point at hand, whose coordinates are x; see `Branching`. */
INLINE double bound_above(const aim_t *aim, int r, const level_t *at, const wolfe_t *wolfe,
                          const double *x)
{
    double w[MOST] = {0}, square = 0, points = 0, excess = 0;
    for (int i = 0; i < r; i++)
        for (int q = 0; q < r; q++) w[q] += x[i] * wolfe->basis[i][q];
    for (int q = 0; q < r; q++) square += w[q] * w[q];
    for (int k = 0; k < wolfe->size; k++)
        if (wolfe->ray[k] < 0) points += wolfe->weight[k];
    if (!(points > 0)) return INFINITY;
    double norm = sqrt(square) * (1 + 32 * UNIT) + 0x1p-500;
    double roundings = (double)((at->positive + at->negative) / LANES + 3 * LANES + 16 + r);
    for (int j = 0; j < r; j++) {
        double y = at->base[j];
        for (int k = 0; k < wolfe->size; k++)
            if (wolfe->ray[k] < 0)
                y += wolfe->weight[k] / points * (1 - 32 * UNIT) * wolfe->y[k][j];
        double error = (at->error[j] + 2.02 * UNIT * roundings * at->length[j]) * aim->total;
        double over = y + error + 32 * UNIT * norm * at->length[j] - dot(r, w, at->vertex[j]);
        over /= at->length[j];
        if (isnan(over)) return INFINITY;
        if (over > excess) excess = over;
    }
    return (norm + r * excess) * (1 + 32 * UNIT);
}

/* Note the price of a direction in the cone. */
INLINE void note_price(const aim_t *aim, int r, const level_t *at, const double *alpha,
                       const double *y, double norm)
{
    double price = positive_part(r, at, alpha) + dot(r, alpha, at->linear) + dot(r, alpha, y);
    if (!(price > aim->best[0] * norm)) return;
    aim->best[0] = price / norm;
    for (int q = 0; q < r; q++) {
        double u = 0;
        for (int j = 0; j < r; j++) u += alpha[j] * at->vertex[j][q];
        aim->best[1 + q] = u / norm;
    }
}

/* A bound on the cone of a level, no lower than the goal asks for. It ends early where the cone has
 * to be split. */
FAST static double bound_of(const aim_t *aim, int r, level_t *at)
{
    wolfe_t wolfe;
    double best = INFINITY, alpha[MOST] = {0}, y[MOST] = {0};
    wolfe.size = 0;
    if (!invert(r, at, &wolfe)) return best;
    for (int j = 0; j < r; j++) alpha[j] = 1 / at->length[j], at->alpha[j] = 1.0 / r;
    most_negative(r, at, alpha, y);
    int going = add_point(r, &wolfe, at->base, y);
    for (int step = 0; step < STEPS && going; step++) {
        double w[MOST] = {0}, points = 0, square = 0, lowest = 0;
        int outside = -1;
        for (int k = 0; k < wolfe.size; k++) {
            if (wolfe.ray[k] < 0) points += wolfe.weight[k];
            for (int q = 0; q < r; q++) w[q] += wolfe.weight[k] * wolfe.generator[k][q];
        }
        if (!(points > 0)) break;
        for (int q = 0; q < r; q++) w[q] /= points, square += w[q] * w[q];
        double norm = sqrt(square);
        for (int j = 0; j < r; j++) {
            double dual = 0;
            alpha[j] = 0;
            for (int q = j; q < r; q++)
                alpha[j] += wolfe.inverse[q][j] * w[q], dual += square_of(wolfe.inverse[q][j]);
            double angle = alpha[j] / sqrt(dual);
            if (angle < lowest) lowest = angle, outside = j;
        }
        if (lowest < -1e-9 * norm) {
            going = add_ray(r, &wolfe, outside);
            if (going) continue;
        }
        for (int j = 0; j < r; j++) alpha[j] = alpha[j] > 0 ? alpha[j] : 0;
        double sum = dot(r, alpha, at->length);
        for (int j = 0; j < r; j++) at->alpha[j] = alpha[j] * at->length[j] / sum;
        double bound = bound_above(aim, r, at, &wolfe, w);
        if (bound < best) best = bound;
        if (best <= aim->goal || !going) break;
        most_negative(r, at, alpha, y);
        double below = (dot(r, alpha, at->base) + dot(r, alpha, y)) / norm;
        if ((best <= aim->threshold && below > aim->goal) || below > aim->threshold ||
            norm - below <= 0.01 * (norm - aim->goal)) {
            note_price(aim, r, at, alpha, y, norm);
            break;
        }
        going = add_point(r, &wolfe, at->base, y);
    }
    return best;
}

#endif
