/* The logistic loss with the output bias that is best for its predictions, in one call: the search
 * for the bias, and value, gradient and curvature there. Its NumPy twin is `column_roots` in
 * losses/base.py with the formulas of losses/likelihoods.py.
 *
 * With the margin m = y (z + b) and e = exp(-|m|) all of them come from one exponential: the
 * probability of the other class is e / (1 + e), or 1 / (1 + e) where m < 0.
 */
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PART 128      /* rows whose terms are computed at a time, and summed up at once */
#define MAX_STEPS 200 /* of the search for a bias */
#define SMALLEST -708.0 /* exp of less is no normal number, and counts as zero */

/* exp(x) for x <= 0, within 2e-16 of it: with k the whole number next to x / log 2, the series in
 * r = x - k log 2, |r| < 0.35. Adding `shift` rounds to whole numbers, which then lie in the lowest
 * bits. There is no branch, so that loops over it become vectors. */
INLINE double exp_of(double x)
{
    const double shift = 0x1.8p52;
    double y = x > SMALLEST ? x : SMALLEST, moved = y * 0x1.71547652b82fep0 + shift, k = moved - shift;
    double r = (y - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
    double r2 = r * r;
    double high = 1.0 / 40320 + r * (1.0 / 362880) + r2 * (1.0 / 3628800 + r * (1.0 / 39916800)) +
                  r2 * r2 * (1.0 / 479001600 + r * (1.0 / 6227020800.0));
    double middle = 1.0 / 24 + r * (1.0 / 120) + r2 * (1.0 / 720 + r * (1.0 / 5040));
    double series = 1.0 + (r + r2 * (0.5 + r * (1.0 / 6) + r2 * (middle + r2 * r2 * high)));
    int64_t bits;
    memcpy(&bits, &moved, sizeof bits);
    bits = (int64_t)((uint64_t)bits << 52) + 0x3ff0000000000000;
    double power;
    memcpy(&power, &bits, sizeof power);
    double value = series * power;
    return x > SMALLEST ? value : x <= SMALLEST ? 0.0 : x; /* NaN stays */
}

/* A sum with the rounding error of its additions (Neumaier), of terms that come in parts. */
typedef struct {
    double sum, rest;
} sum_t;

INLINE void add_to(sum_t *total, double x)
{
    double sum = total->sum + x;
    total->rest += fabs(total->sum) >= fabs(x) ? (total->sum - sum) + x : (x - sum) + total->sum;
    total->sum = sum;
}

/* Eight partial sums, which are one vector or several. */
INLINE double sum_of(const double *terms, index_t n)
{
    double lane[8] = {0};
    index_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) lane[l] += terms[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += terms[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* One column of predictions and targets, with `stride` numbers from row to row. */
typedef struct {
    index_t n, stride;
    const double *Z, *Y, *weight;
    const int *stop;
} column_t;

/* Gradient and curvature of the rows of a part at the bias b. */
INLINE void slopes(const column_t *of, index_t first, index_t rows, double b, double *gradient,
                   double *curvature)
{
    const double *Z = of->Z + first * of->stride, *Y = of->Y + first * of->stride;
    for (index_t i = 0; i < rows; i++) {
        double y = Y[i * of->stride], m = y * (Z[i * of->stride] + b);
        double e = exp_of(-fabs(m)), near = 1 / (1 + e), far = e * near, w = of->weight[first + i];
        gradient[i] = -y * w * (m < 0 ? near : far);
        curvature[i] = w * near * far;
    }
}

/* The sums of gradients, of their absolute values, and of curvatures at the bias b. */
INLINE void add_slopes(const column_t *of, double b, double *slope, double *size, double *curved)
{
    sum_t sums[3] = {{0}};
    double gradient[PART], curvature[PART], absolute[PART];
    for (index_t first = 0; first < of->n && !stopped(of->stop); first += PART) {
        index_t rows = of->n - first < PART ? of->n - first : PART;
        if (of->stride == 1) { /* a constant that the compiler knows makes vectors of the loop */
            column_t plain = *of;
            plain.stride = 1;
            slopes(&plain, first, rows, b, gradient, curvature);
        } else
            slopes(of, first, rows, b, gradient, curvature);
        for (index_t i = 0; i < rows; i++) absolute[i] = fabs(gradient[i]);
        add_to(&sums[0], sum_of(gradient, rows));
        add_to(&sums[1], sum_of(absolute, rows));
        add_to(&sums[2], sum_of(curvature, rows));
    }
    *slope = sums[0].sum + sums[0].rest;
    *size = sums[1].sum + sums[1].rest;
    *curved = sums[2].sum + sums[2].rest;
}

/* The b at which the gradients sum to zero, from a start. Newton steps are taken while each is at
 * most half the last one. Otherwise the bracket is bisected or, while there is none, searched for
 * with steps that double. */
INLINE double best_bias(const column_t *of, double b)
{
    double low = -INFINITY, high = INFINITY, reach = 1, last = 2;
    for (int k = 0; k < MAX_STEPS && !stopped(of->stop); k++) {
        double slope, size, curvature;
        add_slopes(of, b, &slope, &size, &curvature);
        if (slope <= 0) low = b;
        if (slope >= 0) high = b;
        if (fabs(slope) <= 1e-14 * size || high - low <= 4e-16 * fabs(b)) break;
        double newton = curvature > 1e-100 * fabs(slope) ? -slope / curvature : 0;
        int good = newton != 0 && low < b + newton && b + newton < high && 2 * fabs(newton) <= last;
        double step = newton;
        if (!good) {
            step = isfinite(high - low) ? (low + high) / 2 - b : slope < 0 ? reach : -reach;
            reach *= 2;
        }
        if (b + step == b || isnan(slope)) break;
        b += step, last = fabs(step);
    }
    return b;
}

/* -q log q, 0 at 0; NaN stays. */
INLINE double entropy(double q) { return q == 0 ? 0.0 : -q * log(q); }

/* For a dual candidate Theta (n, C): the longest scaling up to `limit`, of each column (C) or of all
 * (1), inside the domain of the conjugate, which overwrites the limit, and the value of the dual
 * there. With q = -y Theta / w that is q in [0, 1], and the weighted sum of its entropies. */
FAST void logistic_dual(index_t n, index_t C, index_t n_limits, const double *Theta, const double *Y,
                        const double *weight, double *limit, double *value)
{
    sum_t total = {0};
    double common = INFINITY, terms[PART];
    for (index_t c = 0; c < C; c++) {
        double top = 1, bottom = 0;
        for (index_t i = 0; i < n; i++) {
            double q = -Y[i * C + c] * Theta[i * C + c] / weight[i];
            if (!(q <= top)) top = q;
            if (!(q >= bottom)) bottom = q;
        }
        double allowed = bottom < 0 ? 0.0 : 1 / top;
        if (n_limits > 1 || C == 1)
            limit[c] = limit[c] < allowed ? limit[c] : allowed;
        else
            common = common < allowed ? common : allowed;
    }
    if (n_limits == 1 && C > 1) limit[0] = limit[0] < common ? limit[0] : common;
    for (index_t c = 0; c < C; c++) {
        double tau = limit[n_limits > 1 ? c : 0];
        for (index_t first = 0; first < n; first += PART) {
            index_t rows = n - first < PART ? n - first : PART;
            for (index_t i = 0; i < rows; i++) {
                index_t at = (first + i) * C + c;
                double q = tau * (-Y[at] * Theta[at] / weight[first + i]);
                terms[i] = weight[first + i] * (entropy(q) + entropy(1 - q));
            }
            add_to(&total, sum_of(terms, rows));
        }
    }
    *value = total.sum + total.rest;
}

/* For predictions Z (n, C), targets Y (n, C) of -1 and 1, and row weights (n): the best bias of each
 * column from a start, (C), which is overwritten; and the loss there, its gradient and the square
 * root of its curvature, (n, C). */
FAST void logistic_minimum(index_t n, index_t C, const double *Z, const double *Y,
                           const double *weight, double *bias, double *value, double *gradient,
                           double *scale, const int *stop)
{
    sum_t total = {0};
    double g[PART], h[PART], losses[PART];
    for (index_t c = 0; c < C; c++) {
        column_t of = {n, C, Z + c, Y + c, weight, stop};
        double b = bias[c] = best_bias(&of, bias[c]);
        for (index_t first = 0; first < n && !stopped(stop); first += PART) {
            index_t rows = n - first < PART ? n - first : PART;
            slopes(&of, first, rows, b, g, h);
            for (index_t i = 0; i < rows; i++) {
                index_t at = (first + i) * C + c;
                double m = Y[at] * (Z[at] + b);
                losses[i] = weight[first + i] * ((m < 0 ? -m : 0.0) + log1p(exp_of(-fabs(m))));
                gradient[at] = g[i], scale[at] = sqrt(h[i]);
            }
            add_to(&total, sum_of(losses, rows));
        }
    }
    *value = total.sum + total.rest;
}
