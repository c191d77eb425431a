/* Products of a 0/1 matrix with a dense one by table look-up (the "four Russians"), for the
 * operator in operators.py: forward <x_j, (D U)_j> and adjoint D' (x_j r_j)_j.
 *
 * The matrix lies in words of 32 bits, word by word: bit b of bits[w * rows + r] is its entry
 * (r, 32 w + b). A word is eight look-ups of four bits. For the 32 rows of the dense factor that a
 * word stands for, tables hold the 16 sums of each four of them; they stay in the first cache
 * while the rows of the matrix pass by, and the sums of those rows in the second. (Tables of eight
 * bits need half as many additions, and were slower: they leave the first cache.)
 *
 * The second half of this file is the part with floating numbers; it includes itself for each of
 * the two precisions.
 */
#ifndef REAL

#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#define WORD 32
#define LOOKUPS 8  /* of four bits, in a word */
#define ENTRIES 16 /* of a table */
#define BYTES 64   /* of a vector */
#define VECTORS 4  /* at most, side by side in a tile: more tables would not fit the first cache */
#define ROWS 2048  /* at most, in a tile: more sums would not fit the second */

static index_t least(index_t a, index_t b) { return a < b ? a : b; }

/* From a mask (n, p) of bytes to bits, words first..last of each column: bit b of bits[w * p + i] is
 * mask[32 w + b][i]. */
FAST void pack_bits(index_t first, index_t last, index_t n, index_t p, const uint8_t *mask,
                    uint32_t *bits, const int *stop)
{
    memset(bits + first * p, 0, (last - first) * p * sizeof(uint32_t));
    for (index_t j = first * WORD; j < least(last * WORD, n) && !stopped(stop); j++) {
        uint32_t *word = bits + j / WORD * p;
        for (index_t i = 0; i < p; i++) word[i] |= (uint32_t)mask[j * p + i] << j % WORD;
    }
}

/* One of five equal steps that transpose a square of 32 x 32 bits: the highest bit of the row
 * index changes places with the bit of the column index that stands for `size`, and becomes the
 * lowest. */
typedef uint32_t half_t __attribute__((vector_size(WORD / 2 * sizeof(uint32_t))));

INLINE void transpose_step(uint32_t *square, int size, uint32_t low)
{
    half_t a, b;
    memcpy(&a, square, sizeof a);
    memcpy(&b, square + WORD / 2, sizeof b);
    half_t even = (a & low) | (b & low) << size, odd = (a >> size & low) | (b & ~low);
    for (int k = 0; k < WORD / 2; k++) square[2 * k] = even[k], square[2 * k + 1] = odd[k];
}

/* From the bits (ceil(n / 32), p) of a matrix to those (ceil(p / 32), n) of its transpose, words
 * first..last of that. */
FAST void transpose_bits(index_t first, index_t last, index_t n, index_t p, const uint32_t *bits,
                         uint32_t *transposed, const int *stop)
{
    for (index_t j = 0; j < n && !stopped(stop); j += WORD)
        for (index_t i = first * WORD; i < least(last * WORD, p); i += WORD) {
            uint32_t square[WORD] = {0};
            memcpy(square, bits + j / WORD * p + i, least(WORD, p - i) * sizeof(uint32_t));
            transpose_step(square, 16, 0x0000ffff);
            transpose_step(square, 8, 0x00ff00ff);
            transpose_step(square, 4, 0x0f0f0f0f);
            transpose_step(square, 2, 0x33333333);
            transpose_step(square, 1, 0x55555555);
            memcpy(transposed + i / WORD * n + j, square, least(WORD, n - j) * sizeof(uint32_t));
        }
}

#define REAL float
#define NAME(name) name##_float
#include "products.c"
#undef REAL
#undef NAME
#define REAL double
#define NAME(name) name##_double
#include "products.c"

#else

#define LANES ((index_t)(BYTES / sizeof(REAL)))
#define vec NAME(vec)

typedef REAL vec __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));

/* Lists the blocks U_i (size values each) that are not zero; returns how many. */
FAST index_t NAME(nonzero_blocks)(index_t p, index_t size, const REAL *U, index_t *list)
{
    index_t count = 0;
    for (index_t i = 0; i < p; i++, U += size) {
        int any = 0;
        for (index_t k = 0; k < size; k++) any |= U[k] != 0;
        if (any) list[count++] = i;
    }
    return count;
}

/* Table q holds the sums of the dense rows 4 q, ..., 4 q + 3 that the bits of its index select,
 * first those of the first vector of columns. */
INLINE void NAME(fill_tables)(const REAL *dense, REAL *tables, int vectors)
{
    for (int q = 0; q < LOOKUPS; q++)
        for (int v = 0; v < vectors; v++) {
            vec *table = (vec *)tables + (q * vectors + v) * ENTRIES;
            table[0] = (vec){0};
            for (int bit = 1, b = 4 * q; bit < ENTRIES; bit *= 2, b++) {
                vec row = *(const vec *)(dense + (b * vectors + v) * LANES);
                for (int k = 0; k < bit; k++) table[bit + k] = table[k] + row;
            }
        }
}

/* Adds to the sums of each row what its word selects. */
INLINE void NAME(look_up)(index_t rows, const uint32_t *word, const REAL *tables, REAL *sums,
                          int vectors)
{
    for (index_t r = 0; r < rows; r++, sums += vectors * LANES) {
        vec sum[VECTORS];
        for (int v = 0; v < vectors; v++) sum[v] = ((const vec *)sums)[v];
#pragma GCC unroll 8
        for (int q = 0; q < LOOKUPS; q++) {
            /* four bits times BYTES, in one shift */
            uint32_t at = (q < 2 ? word[r] << (6 - 4 * q) : word[r] >> (4 * q - 6)) & 15 * BYTES;
            const char *table = (const char *)tables + q * vectors * ENTRIES * BYTES + at;
            for (int v = 0; v < vectors; v++)
                sum[v] += *(const vec *)(table + v * ENTRIES * BYTES);
        }
        for (int v = 0; v < vectors; v++) ((vec *)sums)[v] = sum[v];
    }
}

/* The dense factor of a product, (depth, d) for each class: U, or x_j r_j where R is given. */
typedef struct {
    index_t depth, d, C;
    const REAL *values, *R;
    const int *stop;
} NAME(dense_t);

/* Row k, columns from `column` on, of the dense factor. */
INLINE void NAME(dense_row)(const NAME(dense_t) *W, index_t k, index_t column, index_t width,
                            index_t class, REAL *row)
{
    if (W->R) {
        REAL r = W->R[k * W->C + class];
        for (index_t i = 0; i < width; i++) row[i] = W->values[k * W->d + column + i] * r;
    } else {
        const REAL *values = W->values + (k * W->d + column) * W->C + class;
        for (index_t i = 0; i < width; i++) row[i] = values[i * W->C];
    }
}

/* sums (rows, vectors of columns) = bits @ dense for one tile; stride words lie between words. */
INLINE void NAME(sum_tile)(index_t rows, const uint32_t *bits, index_t stride,
                           const NAME(dense_t) *W, index_t column, index_t width, index_t class,
                           REAL *work, REAL *sums, int vectors)
{
    index_t tile = vectors * LANES;
    REAL *tables = work, *dense = work + LOOKUPS * ENTRIES * tile;
    memset(sums, 0, rows * tile * sizeof(REAL));
    memset(dense, 0, WORD * tile * sizeof(REAL));
    for (index_t k = 0; k < W->depth && !stopped(W->stop); k += WORD, bits += stride) {
        for (index_t b = 0; b < least(WORD, W->depth - k); b++)
            NAME(dense_row)(W, k + b, column, width, class, dense + b * tile);
        NAME(fill_tables)(dense, tables, vectors);
        NAME(look_up)(rows, bits, tables, sums, vectors);
    }
}

FAST static void NAME(sum_any_tile)(index_t rows, const uint32_t *bits, index_t stride,
                                    const NAME(dense_t) *W, index_t column, index_t width,
                                    index_t class, REAL *work, REAL *sums, int vectors)
{
#define CASE(v) \
    case v: \
        NAME(sum_tile)(rows, bits, stride, W, column, width, class, work, sums, v); \
        break
    switch (vectors) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
    }
#undef CASE
}

/* out[r, class] += <sums_r, x_r> over the columns of the tile. */
FAST static void NAME(add_dots)(index_t rows, index_t tile, const REAL *sums, index_t d,
                                const REAL *X, index_t column, index_t width, index_t C, REAL *out)
{
    for (index_t r = 0; r < rows; r++) {
        const REAL *x = X + r * d + column, *s = sums + r * tile;
        vec lanes = {0};
        REAL sum = 0;
        index_t i = 0;
        for (; i + LANES <= width; i += LANES)
            lanes += *(const vec *)(s + i) * *(const vec *)(x + i);
        for (; i < width; i++) sum += s[i] * x[i];
        for (int l = 0; l < LANES; l++) sum += lanes[l];
        out[r * C] += sum;
    }
}

/* Rows first..last of bits @ W, for each class: times the rows of X and summed into out (rows, C)
 * if X is given, else as they are into out, class by class: (C, stride, d). */
static int NAME(multiply)(index_t first, index_t last, const uint32_t *bits, index_t stride,
                          const NAME(dense_t) *W, const REAL *X, REAL *out)
{
    index_t d = W->d, C = W->C, widest = VECTORS * LANES, n_tables = LOOKUPS * ENTRIES;
    index_t size = (n_tables + WORD + least(ROWS, last - first)) * widest * sizeof(REAL);
    REAL *work = aligned_alloc(BYTES, size);
    if (!work) return 1;
    REAL *sums = work + (n_tables + WORD) * widest;
    if (X) memset(out + first * C, 0, (last - first) * C * sizeof(REAL));
    for (index_t row = first; row < last; row += ROWS)
        for (index_t class = 0; class < C; class++)
            for (index_t column = 0; column < d && !stopped(W->stop); column += widest) {
                index_t rows = least(ROWS, last - row), width = least(widest, d - column);
                int vectors = (width + LANES - 1) / LANES, tile = vectors * LANES;
                NAME(sum_any_tile)(rows, bits + row, stride, W, column, width, class, work, sums,
                                   vectors);
                if (X)
                    NAME(add_dots)(rows, tile, sums, d, X + row * d, column, width, C,
                                   out + row * C + class);
                else
                    for (index_t r = 0; r < rows; r++)
                        memcpy(out + (class * stride + row + r) * d + column, sums + r * tile,
                               width * sizeof(REAL));
            }
    free(work);
    return 0;
}

/* Rows first..last of M U (n, C), from bits (ceil(p / 32), n), X (n, d) and U (p, d, C). */
int NAME(forward)(index_t first, index_t last, index_t n, index_t p, index_t d, index_t C,
                  const uint32_t *bits, const REAL *X, const REAL *U, REAL *out, const int *stop)
{
    NAME(dense_t) W = {.depth = p, .d = d, .C = C, .values = U, .stop = stop};
    return NAME(multiply)(first, last, bits, n, &W, X, out);
}

/* Blocks first..last of M'R, class by class (C, p, d), from bits (ceil(n / 32), p), X (n, d) and R (n, C). */
int NAME(adjoint)(index_t first, index_t last, index_t n, index_t p, index_t d, index_t C,
                  const uint32_t *bits, const REAL *X, const REAL *R, REAL *out, const int *stop)
{
    NAME(dense_t) W = {.depth = n, .d = d, .C = C, .values = X, .R = R, .stop = stop};
    return NAME(multiply)(first, last, bits, p, &W, NULL, out);
}

/* The products for blocks that belong to one class each, class after class: offsets (C + 1) are
 * where classes begin among the blocks. For the forward one the bits of every class are words of
 * their own, (ceil(blocks of class / 32), n); both have predictions or residuals class by class,
 * (C, n). */
int NAME(ragged_forward)(index_t first, index_t last, index_t n, index_t d, index_t C,
                         const index_t *offsets, const uint32_t *bits, const REAL *X, const REAL *U,
                         REAL *out, const int *stop)
{
    int failed = 0;
    for (index_t k = 0; k < C && !failed; k++) {
        index_t p = offsets[k + 1] - offsets[k];
        NAME(dense_t) W = {.depth = p, .d = d, .C = 1, .values = U + offsets[k] * d, .stop = stop};
        failed = NAME(multiply)(first, last, bits, n, &W, X, out + k * n);
        bits += (p + WORD - 1) / WORD * n;
    }
    return failed;
}

/* Blocks first..last, from bits (ceil(n / 32), blocks). */
int NAME(ragged_adjoint)(index_t first, index_t last, index_t n, index_t d, index_t C,
                         const index_t *offsets, const uint32_t *bits, const REAL *X, const REAL *R,
                         REAL *out, const int *stop)
{
    int failed = 0;
    for (index_t k = 0; k < C && !failed; k++) {
        index_t from = first > offsets[k] ? first : offsets[k], to = least(last, offsets[k + 1]);
        NAME(dense_t) W = {.depth = n, .d = d, .C = 1, .values = X, .R = R + k * n, .stop = stop};
        if (from < to) failed = NAME(multiply)(from, to, bits, offsets[C], &W, NULL, out);
    }
    return failed;
}

#undef LANES
#undef vec
#endif
