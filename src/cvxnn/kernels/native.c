/* Compiled kernels. Each has a NumPy twin in the package, which is used where this file was not
 * built and which the tests hold it against.
 *
 * hinge_coefficients, hinge_divergence: the constraint terms of the augmented Lagrangian, see
 * solvers/augmented_lagrangian.py. Projections onto cones are in projections.c, products with packed
 * bits in products.c. look_at_blocks: whether points are inside cones in spite of rounding, see
 * cones/cones.py.
 */
#include "kernels.h"

#include <math.h>

/* Sixteen partial sums let the compiler use wide registers without reordering what we wrote. */
#define LANES 16

uint64_t kernels_version(void) { return KERNELS_VERSION; }

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

/* sign <x, v>, and a bound on its rounding error from <|x|, |v|>. */
INLINE double product_of(index_t d, const double *x, const double *v, double sign, double unit,
                         double least, double *rounding)
{
    double lane[LANES] = {0}, size[LANES] = {0}, sum = 0.0, total = 0.0;
    index_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (int l = 0; l < LANES; l++) {
            double term = x[i + l] * v[i + l];
            lane[l] += term, size[l] += fabs(term);
        }
    for (; i < d; i++) sum += x[i] * v[i], total += fabs(x[i] * v[i]);
    for (int l = 0; l < LANES; l++) sum += lane[l], total += size[l];
    *rounding = unit * total + least;
    return sign * sum;
}

/* One block v: whether all its products are at least their rounding errors, and the step towards t
 * after which they are `margin` times as large. Those that the norms leave in doubt, of which most
 * are no more than rounding, are computed again with a bound of their own. */
FAST static int look_at_block(index_t n, index_t d, const double *X, const double *norms,
                              const uint8_t *rows, const int8_t *sign, const double *v,
                              double size, const double *product, const double *t, double unit,
                              double least, double margin, double loss, double *step)
{
    int proven = 1;
    for (index_t j = 0; j < n; j++) {
        double enough = margin * ((1.01 * unit) * (size * norms[j]) + least), rounding, lost;
        if ((sign[j] * product[j] >= enough && enough < INFINITY) || !rows[j]) continue;
        double exact = product_of(d, X + j * d, v, sign[j], unit, least, &rounding);
        double need = margin * rounding - exact, far = INFINITY;
        if (!(exact >= rounding && rounding < INFINITY)) proven = 0;
        if (!t || need <= 0.0) continue;
        double gain = product_of(d, X + j * d, t, sign[j], unit, least, &lost) - loss * lost;
        if (need > 0.0 && gain > 0.0) far = need / gain;
        if (far > *step) *step = far;
    }
    return proven;
}

void look_at_blocks(index_t n, index_t d, const double *X, const double *norms,
                    const uint8_t *rows, const int8_t *signs, index_t n_blocks, const double *V,
                    const double *sizes, const index_t *pattern, const double *products,
                    const double *towards, double unit, double least, double margin, double loss,
                    double *steps, uint8_t *proven, const int *stop)
{
    for (index_t b = 0; b < n_blocks && !stopped(stop); b++) {
        steps[b] = 0.0;
        proven[b] = look_at_block(n, d, X, norms, rows, signs + pattern[b] * n, V + b * d, sizes[b],
                                  products + b * n, towards ? towards + b * d : 0, unit, least,
                                  margin, loss, steps + b);
    }
}
