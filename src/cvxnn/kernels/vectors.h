/* Vectors of doubles, whose length is a whole number of those of the processor. */
#ifndef CVXNN_VECTORS_H
#define CVXNN_VECTORS_H

#include "kernels.h"

#define WIDTH 8 /* doubles in a vector: rows are filled up with zeros to whole vectors */

typedef double vector __attribute__((vector_size(64), aligned(8), may_alias));
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int64_t lanes __attribute__((vector_size(64)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif

INLINE index_t whole(index_t n, index_t size) { return (n + size - 1) / size * size; }

INLINE double sum_of(vector v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

INLINE double dot(const double *a, const double *b, index_t d)
{
    vector sum = {0}, other = {0};
    index_t i = 0;
    for (; i + 2 * WIDTH <= d; i += 2 * WIDTH) {
        sum += *(vector *)(a + i) * *(vector *)(b + i);
        other += *(vector *)(a + i + WIDTH) * *(vector *)(b + i + WIDTH);
    }
    if (i < d) sum += *(vector *)(a + i) * *(vector *)(b + i);
    return sum_of(sum + other);
}

INLINE void add(double *v, double t, const double *u, index_t d)
{
    for (index_t i = 0; i < d; i += WIDTH) *(vector *)(v + i) += t * *(vector *)(u + i);
}

/* The sums of eight vectors, which are added crosswise. */
INLINE void eight_sums(vector *s, double *out)
{
    for (int l = 0; l < 4; l++)
        s[l] = SHUFFLE(s[2 * l], s[2 * l + 1], 0, 8, 2, 10, 4, 12, 6, 14) +
               SHUFFLE(s[2 * l], s[2 * l + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    for (int l = 0; l < 2; l++)
        s[l] = SHUFFLE(s[2 * l], s[2 * l + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
               SHUFFLE(s[2 * l], s[2 * l + 1], 2, 3, 10, 11, 6, 7, 14, 15);
    *(vector *)out = SHUFFLE(s[0], s[1], 0, 1, 2, 3, 8, 9, 10, 11) +
                     SHUFFLE(s[0], s[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

/* The products of eight rows with w. */
INLINE void eight_dots(const double *const *row, const double *w, index_t d, double *out)
{
    vector s[WIDTH];
    for (int l = 0; l < WIDTH; l++) s[l] = (vector){0};
    for (index_t i = 0; i < d; i += WIDTH) {
        vector x = *(vector *)(w + i);
        for (int l = 0; l < WIDTH; l++) s[l] += x * *(vector *)(row[l] + i);
    }
    eight_sums(s, out);
}

/* The products of eight rows with eight others: (8, 8). */
INLINE void tile_dots(const double *const *a, const double *const *b, index_t d, double *out)
{
    for (int top = 0; top < WIDTH; top += 2) {
        vector s[2 * WIDTH];
        for (int l = 0; l < 2 * WIDTH; l++) s[l] = (vector){0};
        for (index_t i = 0; i < d; i += WIDTH) {
            vector x = *(vector *)(a[top] + i), y = *(vector *)(a[top + 1] + i);
            for (int l = 0; l < WIDTH; l++) {
                vector v = *(vector *)(b[l] + i);
                s[l] += x * v;
                s[WIDTH + l] += y * v;
            }
        }
        eight_sums(s, out + top * WIDTH);
        eight_sums(s + WIDTH, out + (top + 1) * WIDTH);
    }
}

#endif
