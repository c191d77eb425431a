/* orthonormal_rows: bases of the spans of tight rows, and of the faces that lie orthogonal to them. */
#include "vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* v <- H v for the reflection H = I - scale u u'; the entries of u before `first` are zero. */
INLINE void reflect(double *v, const double *u, double scale, index_t first, index_t width)
{
    index_t start = first / WIDTH * WIDTH;
    add(v + start, -scale * dot(u + start, v + start, width - start), u + start, width - start);
}

/* The reflection that leaves nothing of v behind its entry `first`: v becomes u, and the scale is
 * returned. Entries before `first` are set to zero. */
INLINE double reflection_of(double *v, index_t first, index_t width)
{
    memset(v, 0, first * sizeof(double));
    double norm = sqrt(dot(v, v, width)), entry = v[first];
    if (!(norm > 0.0)) return 0.0;
    v[first] += entry < 0.0 ? -norm : norm;
    return 1.0 / (norm * (norm + fabs(entry)));
}

/* For each of the blocks, whose tight rows are those of X (n, d) that `rows` (n_blocks, most) lists
 * first, count of them: an orthonormal basis of their span or, with `complement`, of what is
 * orthogonal to them. The basis of block b takes the rows first[b], ... of `bases` (., d). It is
 * found by reflections that turn the rows into a triangle, as in a QR factorisation. */
FAST int orthonormal_rows(index_t d, const double *X, index_t n_blocks, index_t most,
                          const index_t *rows, const index_t *count, const index_t *first,
                          int complement, double *bases, const int *stop)
{
    index_t width = whole(d, WIDTH);
    double *memory = aligned_alloc(64, (d + 2) * width * sizeof(double));
    if (!memory) return 1;
    double *u = memory, *q = u + d * width, *scale = q + width;
    for (index_t b = 0; b < n_blocks && !stopped(stop); b++) {
        index_t k = count[b] < d ? count[b] : d;
        memset(u, 0, k * width * sizeof(double));
        for (index_t j = 0; j < k && !stopped(stop); j++) {
            memcpy(u + j * width, X + rows[b * most + j] * d, d * sizeof(double));
            for (index_t i = 0; i < j; i++) reflect(u + j * width, u + i * width, scale[i], i, width);
            scale[j] = reflection_of(u + j * width, j, width);
        }
        double *to = bases + first[b] * d;
        for (index_t j = complement ? k : 0; j < (complement ? d : k) && !stopped(stop); j++) {
            memset(q, 0, width * sizeof(double));
            q[j] = 1.0;
            for (index_t i = j < k ? j : k - 1; i >= 0; i--)
                reflect(q, u + i * width, scale[i], i, width);
            memcpy(to, q, d * sizeof(double));
            to += d;
        }
    }
    free(memory);
    return 0;
}
