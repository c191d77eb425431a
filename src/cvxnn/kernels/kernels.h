/* What the compiled kernels have in common, and their prototypes; prototypes.py has the same list.
 *
 * Each works on a range of blocks, rows or words of its own, so that several threads can share one
 * call. Those that can take long poll `stop` and return early once it is not zero; what they have
 * written by then is of no use. Those that return an int return 0, or 1 if memory ran out.
 */
#ifndef CVXNN_KERNELS_H
#define CVXNN_KERNELS_H

#include <stdint.h>

#ifndef FAST /* one clone for each generation of processors; sanitizers cannot have them */
#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif
#endif
#define INLINE static inline __attribute__((always_inline))

typedef int64_t index_t;

/* Another thread sets the flag. No order with other memory is asked for. */
INLINE int stopped(const int *stop) { return __atomic_load_n(stop, __ATOMIC_RELAXED); }

/* A digest of the files that these kernels were compiled from. */
uint64_t kernels_version(void);

int project_blocks(index_t n, index_t d, const double *X, const float *tiles,
                   const index_t *starts, const index_t *columns, const double *values,
                   const int8_t *signs, index_t n_blocks, const double *points,
                   const index_t *pattern, const double *offsets, const double *enough,
                   index_t start_width, const index_t *start_rows, const double *start_gamma,
                   const index_t *start_count, index_t most, index_t *rows, double *gamma,
                   index_t *count, double *result, double *factors, const index_t *slots,
                   double tolerance, double dependent, index_t max_rows, int rough,
                   const int *stop);

int orthonormal_rows(index_t d, const double *X, index_t n_blocks, index_t most,
                     const index_t *rows, const index_t *count, const index_t *first,
                     int complement, double *bases, const int *stop);

void look_at_blocks(index_t n, index_t d, const double *X, const double *norms,
                    const uint8_t *rows, const int8_t *signs, index_t n_blocks, const double *V,
                    const double *sizes, const index_t *pattern, const double *products,
                    const double *towards, double unit, double least, double margin, double loss,
                    double *steps, uint8_t *proven, const int *stop);

void hinge_coefficients(index_t n, const int8_t *signs, index_t n_blocks, const index_t *block,
                        const index_t *pattern, const double *gamma, double delta,
                        const double *products, double *coefficients, const int *stop);

void hinge_divergence(index_t n, const int8_t *signs, index_t n_blocks, const index_t *block,
                      const index_t *pattern, const double *gamma, double delta,
                      const double *new_products, const double *products, double *divergence,
                      const int *stop);

void pack_bits(index_t first, index_t last, index_t n, index_t p, const uint8_t *mask,
               uint32_t *bits, const int *stop);

void transpose_bits(index_t first, index_t last, index_t n, index_t p, const uint32_t *bits,
                    uint32_t *transposed, const int *stop);

void logistic_minimum(index_t n, index_t C, const double *Z, const double *Y, const double *weight,
                      double *bias, double *value, double *gradient, double *scale,
                      const int *stop);

void logistic_dual(index_t n, index_t C, index_t n_limits, const double *Theta, const double *Y,
                   const double *weight, double *limit, double *value);

/* How it ends: 0 all is proven, 1 not yet, 2 no room for nodes, 3 a cone that cannot be split, 4 a
 * price above `found`, 5 no memory. */
int branch_cone(index_t r, index_t positive, index_t negative, const double *rows,
                const int64_t *vertices, double total, double threshold, double goal, double found,
                index_t max_nodes, index_t capacity, index_t *count, int32_t *child, uint8_t *edge,
                double *bound, double *value, double *best, const int *stop);

index_t list_cones(const int32_t *child, const uint8_t *edge, const double *bound,
                   double threshold, uint8_t *nodes);

#define PRODUCTS(REAL, NAME) \
    index_t nonzero_blocks_##NAME(index_t p, index_t size, const REAL *U, index_t *list); \
    int forward_##NAME(index_t first, index_t last, index_t n, index_t p, index_t d, index_t C, \
                       const uint32_t *bits, const REAL *X, const REAL *U, REAL *out, \
                       const int *stop); \
    int adjoint_##NAME(index_t first, index_t last, index_t n, index_t p, index_t d, index_t C, \
                       const uint32_t *bits, const REAL *X, const REAL *R, REAL *out, \
                       const int *stop); \
    int ragged_forward_##NAME(index_t first, index_t last, index_t n, index_t d, index_t C, \
                              const index_t *offsets, const uint32_t *bits, const REAL *X, \
                              const REAL *U, REAL *out, const int *stop); \
    int ragged_adjoint_##NAME(index_t first, index_t last, index_t n, index_t d, index_t C, \
                              const index_t *offsets, const uint32_t *bits, const REAL *X, \
                              const REAL *R, REAL *out, const int *stop); \
    index_t solve_system_##NAME(index_t n, index_t a, index_t d, index_t m, index_t R, \
                                const uint32_t *rows, const uint32_t *columns, const REAL *X, \
                                const double *scale, const double *weight, const double *along, \
                                const double *unit, const double *Q, const float *root, \
                                const float *V, const float *factor, double *r, double *x, \
                                double tol, double error, index_t max_iter, const int *stop);
PRODUCTS(float, float)
PRODUCTS(double, double)
#undef PRODUCTS

#endif
