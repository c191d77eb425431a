/* Compiled kernels. Each has a NumPy twin in the package, which is used where this file was not
 * built and which the tests hold it against.
 *
 * hinge_coefficients, hinge_divergence: the constraint terms of the augmented Lagrangian, see
 * solvers/augmented_lagrangian.py. Projections onto cones are in projections.c, products with packed
 * bits in products.c.
 */
#include "kernels.h"

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
