/* Conjugate gradients for one Newton system by products, from the first iteration to the last; the
 * NumPy twin is `conjugate_gradients` in solvers/newton/systems.py with the products, roots and
 * preconditioners that it is given there. Vectors are in double precision; the products with the
 * patterns are in either, and preconditioners in single precision.
 *
 * The second half of this file includes itself for each precision of the products.
 */
#ifndef REAL

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 16 /* partial sums of a product of vectors */
#define FAILED INT64_MIN /* memory ran out */

INLINE double dot(const double *a, const double *b, index_t n)
{
    double lane[WIDTH] = {0}, sum = 0;
    index_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        for (int l = 0; l < WIDTH; l++) lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++) sum += a[i] * b[i];
    for (int l = 0; l < WIDTH; l++) sum += lane[l];
    return sum;
}

INLINE float dot_single(const float *a, const float *b, index_t n)
{
    float lane[2 * WIDTH] = {0}, sum = 0;
    index_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH)
        for (int l = 0; l < 2 * WIDTH; l++) lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++) sum += a[i] * b[i];
    for (int l = 0; l < 2 * WIDTH; l++) sum += lane[l];
    return sum;
}

/* a += c b */
INLINE void add_multiple(float *a, float c, const float *b, index_t n)
{
    for (index_t i = 0; i < n; i++) a[i] += c * b[i];
}

/* b <- (L L')^-1 b for the lower half L of a matrix (n, n). */
INLINE void solve_factored(const float *L, index_t n, float *b)
{
    for (index_t i = 0; i < n; i++) b[i] = (b[i] - dot_single(L + i * n, b, i)) / L[i * n + i];
    for (index_t i = n - 1; i >= 0; i--) {
        b[i] /= L[i * n + i];
        add_multiple(b, -b[i], L + i * n, i);
    }
}

/* The preconditioner: (D^2 + W'W)^-1 with W = V D by Woodbury's formula for D = diag(root), V (R, n)
 * and the factor of I + V V' (R, R), or without V the inverse of the matrix whose factor (n, n) is
 * given. `work` has room for n + R floats. */
FAST static void precondition(index_t n, index_t R, const float *root, const float *V,
                              const float *factor, const double *r, double *z, float *work)
{
    float *short_r = work, *inner = work + n;
    if (!V) {
        for (index_t i = 0; i < n; i++) short_r[i] = (float)r[i];
        solve_factored(factor, n, short_r);
        for (index_t i = 0; i < n; i++) z[i] = short_r[i];
        return;
    }
    for (index_t i = 0; i < n; i++) short_r[i] = (float)r[i] / root[i];
    for (index_t k = 0; k < R; k++) inner[k] = dot_single(V + k * n, short_r, n);
    solve_factored(factor, R, inner);
    for (index_t k = 0; k < R; k++) add_multiple(short_r, -inner[k], V + k * n, n);
    for (index_t i = 0; i < n; i++) z[i] = short_r[i] / root[i];
}

/* x without its part in the span of the rows of Q (m, n), which are orthonormal. */
FAST static void leave_span(index_t n, index_t m, const double *Q, double *x)
{
    for (index_t k = 0; k < m; k++, Q += n) {
        double along = dot(Q, x, n);
        for (index_t i = 0; i < n; i++) x[i] -= along * Q[i];
    }
}

FAST static double product_of(const double *a, const double *b, index_t n) { return dot(a, b, n); }

/* a <- a + c b, or b + c a */
FAST static void move(double *a, double c, const double *b, index_t n)
{
    for (index_t i = 0; i < n; i++) a[i] += c * b[i];
}

FAST static void turn(double *a, double c, const double *b, index_t n)
{
    for (index_t i = 0; i < n; i++) a[i] = b[i] + c * a[i];
}

#define REAL float
#define NAME(name) name##_float
#include "systems.c"
#undef REAL
#undef NAME
#define REAL double
#define NAME(name) name##_double
#include "systems.c"

#else

/* Each row r of `rows` (a, d) <- weight r + along <r, u> u with its unit vector u. */
FAST static void NAME(shrink)(index_t a, index_t d, const double *weight, const double *along,
                              const double *unit, REAL *rows)
{
    for (index_t k = 0; k < a; k++, rows += d, unit += d) {
        double sum = 0;
        for (index_t i = 0; i < d; i++) sum += rows[i] * unit[i];
        sum *= along[k];
        for (index_t i = 0; i < d; i++) rows[i] = (REAL)(weight[k] * rows[i] + sum * unit[i]);
    }
}

/* One system: I + S M P M'S for the a patterns of M, whose bits are given by rows and by columns,
 * S = diag(scale), and P, which is `shrink`. */
typedef struct {
    index_t n, a, d, m;
    const uint32_t *rows, *columns;
    const REAL *X;
    const double *scale, *weight, *along, *unit, *Q;
    const int *stop;
} NAME(system_t);

/* out <- its product with x, without the part in the span of Q. `work` has room for a d + 2 n
 * numbers. Returns 1 if memory ran out. */
static int NAME(multiply_by)(const NAME(system_t) *of, const double *x, double *out, REAL *work)
{
    index_t n = of->n, a = of->a, d = of->d;
    REAL *scaled = work + a * d, *fit = scaled + n;
    for (index_t i = 0; i < n; i++) scaled[i] = (REAL)(of->scale[i] * x[i]);
    if (NAME(adjoint)(0, a, n, a, d, 1, of->rows, of->X, scaled, work, of->stop)) return 1;
    NAME(shrink)(a, d, of->weight, of->along, of->unit, work);
    if (NAME(forward)(0, n, n, a, d, 1, of->columns, of->X, work, fit, of->stop)) return 1;
    for (index_t i = 0; i < n; i++) out[i] = x[i] + of->scale[i] * fit[i];
    leave_span(n, of->m, of->Q, out);
    return 0;
}

/* The solution of a system with the right side r (n), which is overwritten, among vectors orthogonal
 * to Q (m, n), to a residual of tol ||r|| and error ||x||; x (n) is where to start. Returns the
 * iterations, with a minus sign if they did not suffice, or the least number if memory ran out. */
index_t NAME(solve_system)(index_t n, index_t a, index_t d, index_t m, index_t R,
                           const uint32_t *rows, const uint32_t *columns, const REAL *X,
                           const double *scale, const double *weight, const double *along,
                           const double *unit, const double *Q, const float *root, const float *V,
                           const float *factor, double *r, double *x, double tol, double error,
                           index_t max_iter, const int *stop)
{
    double *work = malloc(3 * n * sizeof(double) + (n + R) * sizeof(float));
    REAL *blocks = malloc((a * d + 2 * n) * sizeof(REAL));
    if (!work || !blocks) {
        free(work), free(blocks);
        return FAILED;
    }
    double *step = work, *z = step + n, *product = z + n;
    float *single = (float *)(product + n);
    NAME(system_t) system = {n, a, d, m, rows, columns, X, scale, weight, along, unit, Q, stop};
    memset(step, 0, n * sizeof(double));
    double size = sqrt(product_of(r, r, n)), rz = INFINITY;
    index_t count = size == 0 ? 0 : -max_iter;
    if (product_of(x, x, n) != 0) {
        if (NAME(multiply_by)(&system, x, product, blocks)) count = FAILED;
        move(r, -1.0, product, n);
    }
    for (index_t k = 1; k <= max_iter && count < 0 && count != FAILED && !stopped(stop); k++) {
        precondition(n, R, root, V, factor, r, z, single);
        leave_span(n, m, Q, z);
        double before = rz;
        rz = product_of(r, z, n);
        turn(step, rz / before, z, n);
        if (NAME(multiply_by)(&system, step, product, blocks)) {
            count = FAILED;
            break;
        }
        double curvature = product_of(step, product, n);
        if (!(0 < rz && rz < INFINITY && 0 < curvature && curvature < INFINITY)) {
            count = -k; /* single precision is exhausted */
            break;
        }
        move(x, rz / curvature, step, n);
        move(r, -rz / curvature, product, n);
        double left = sqrt(product_of(r, r, n)), length = sqrt(product_of(x, x, n));
        if (left <= fmin(tol * size, error * length)) {
            count = k;
            break;
        }
    }
    free(work), free(blocks);
    return count;
}

#endif
