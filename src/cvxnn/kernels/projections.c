/* project_blocks: many projections onto {w : s_j <x_j, w> >= b_j for all rows j}, see cones.py.
 *
 * The signed active rows A of a block are known by the Cholesky factor L of A A', which is made for
 * many rows at once in tiles, and where rows join and leave one by one. Multipliers that hold the
 * active rows tight are z = (A A')^-1 (b - A x), and the point is w = x + A'z. The Gram matrix
 * squares the condition number: z is refined before it is relied on. Of those that are not positive
 * all rows leave at once if that lowers ||w||, else the first that vanishes.
 *
 * Rows to add come from a list of candidates as long as some are violated much, several at a time.
 * Then a scan of all rows, in single precision and for several blocks at once, makes a new list.
 *
 * A block may end as soon as ||x + A'gamma|| <= enough for any gamma >= 0. Where factors are dear,
 * sweeps come first: gamma_j <- (gamma_j - s_j <x_j, w>)_+ row by row, over the rows with multipliers
 * and those that a scan finds violated. They go on while they promise to get there, or else
 * propose the first active rows of a block that has none, or whose warm start leaves too many rows
 * violated.
 *
 * Rows are dense, or sparse (CSR, X = NULL), which are multiplied entry by entry.
 */
#include "factors.h"

#define AT_ONCE 0.3  /* how much candidates are violated, at least, of the worst to be added with it, */
#define MANY 16      /* so many at most, */
#define CLEARLY 1e3  /* if that is so much more than rounding: of rows that come and go, one at a time */
#define WINDOW 0.3   /* how much candidates are violated, at least, of the worst at the last scan */
#define WIDE 128     /* features from which on sweeps cost less than factors, and steps as much */
#define SWEEPS 3     /* between two scans, */
#define ROUNDS 30    /* which are so many at most */
#define PATIENCE 4.0 /* gains of the last round that may still be missing for another one */
#define LOST 1.0     /* violated rows, over those of a warm start, with which that is no start */
#define FIRST_GAIN 0.01 /* relative, of a round without which rows of a first guess have settled */
#define CONVERGING 0.3  /* by which rounds shorten the moves of multipliers that converge soon */
#define ZERO 1e-14   /* a projection this small, relative to the point, is zero up to rounding */

/* The residuals of a tile, and where they are the least so far. */
INLINE void note_tile(block_t *B, index_t start, const float *product)
{
    const int8_t *sign = start + TILE <= B->n ? B->sign + start : B->last_sign;
    float *r = B->residual + start, *least = B->least;
    for (int l = 0; l < TILE; l++) r[l] = sign[l] * product[l];
    if (B->offset)
        for (index_t l = 0; l < TILE && start + l < B->n; l++)
            r[l] -= (float)(B->scale * B->offset[start + l]);
    for (int l = 0; l < TILE; l += 2 * WIDTH) {
        ints *tile = (ints *)(B->tile + l);
        *tile += (*(floats *)(r + l) < *(floats *)(least + l)) & ((int32_t)start - *tile);
    }
    for (int l = 0; l < TILE; l++) least[l] = r[l] < least[l] ? r[l] : least[l];
}

/* Products of unit vectors in single precision are off by this at most; those of sparse rows were
 * in double precision, and are as violated as they look. */
INLINE float error_of(const block_t *B)
{
    return B->X ? 6e-8f * (B->d + 8) : (float)(0.25 * B->tolerance * B->size * B->scale);
}

/* List violated rows; none only if there is none. Rows above the error hold for sure, others are
 * looked at in double precision. */
FAST static void list_candidates(block_t *B)
{
    float *r = B->residual, error = error_of(B), worst = 0.0f;
    index_t count = 0;
    for (int l = 0; l < TILE; l++) worst = B->least[l] < worst ? B->least[l] : worst;
    if (worst < -4.0f * error && B->banned < 0)
        for (index_t l = 0; l < TILE; l++) { /* without branches: half of them would be missed */
            B->candidate[count] = B->tile[l] + l;
            count += (B->least[l] < (float)WINDOW * worst) & !B->active[B->candidate[count]];
        }
    if (count == 0) {
        for (index_t a = 0; a < B->k; a++) r[B->row[a]] = 1.0f;
        if (B->banned >= 0) r[B->banned] = 1.0f;
        for (index_t start = 0; start < B->n; start += TILE) {
            int any = 0;
            for (int l = 0; l < TILE; l++) any |= r[start + l] <= error;
            for (index_t j = start; any && j < start + TILE && j < B->n; j++)
                if (r[j] <= error && count < TILE && residual_of(B, j) < B->limit)
                    B->candidate[count++] = j;
        }
    }
    B->n_candidates = count;
    B->again = B->limit;
}

/* Give violated rows a multiplier, zero for now: the most violated ones where all do not fit. */
FAST static void list_for_sweeps(block_t *B)
{
    float *r = B->residual, worst = 0.0f, from = -4.0f * error_of(B);
    for (index_t a = 0; a < B->k; a++) r[B->row[a]] = 1.0f;
    for (index_t j = 0; j < B->n; j++) worst = r[j] < worst ? r[j] : worst;
    for (int trial = 0; trial < 6; trial++) {
        index_t count = 0;
        for (index_t j = 0; j < B->n; j++) count += r[j] < from;
        if (!trial) B->violated = count;
        if (B->k + count <= B->most) break;
        from = trial ? 0.5f * (from + worst) : (float)WINDOW * worst;
    }
    for (index_t j = 0; j < B->n && B->k < B->most; j++)
        if (r[j] < from) {
            B->row[B->k] = j, B->gamma[B->k++] = 0.0;
            B->active[j] = 1;
        }
}

/* Look at all rows, for all blocks at once that are under way. The points are scaled so that they
 * and the offsets are at most one. */
INLINE void scan_tile(block_t *block, const float *tiles, const float *point, index_t start)
{
    float product[TOGETHER][TILE];
    index_t d = block->d;
    for (int half = 0; half < TILE; half += TILE / 2) {
        const float *x = tiles + start * d + half, *w = point;
        floats sum[TOGETHER][2];
        for (int b = 0; b < TOGETHER; b++) sum[b][0] = sum[b][1] = (floats){0};
        for (index_t i = 0; i < d; i++, x += TILE, w += TOGETHER)
            for (int b = 0; b < TOGETHER; b++) {
                sum[b][0] += w[b] * *(floats *)x;
                sum[b][1] += w[b] * *(floats *)(x + 2 * WIDTH);
            }
        for (int b = 0; b < TOGETHER; b++) memcpy(product[b] + half, sum[b], sizeof sum[b]);
    }
    for (int b = 0; b < TOGETHER; b++)
        if (block[b].at >= 0) note_tile(block + b, start, product[b]);
}

INLINE void scan_sparse_tile(block_t *B, index_t start)
{
    float product[TILE] = {0};
    for (index_t l = 0; l < TILE && start + l < B->n; l++)
        product[l] = (float)(B->scale * row_dot(B, start + l, B->w));
    note_tile(B, start, product);
}

FAST static void scan(block_t *block, const float *tiles, float *point)
{
    index_t n = block->n, d = block->d;
    for (block_t *B = block; B < block + TOGETHER; B++) {
        double size = size_of(B, B->w);
        for (index_t j = 0; B->offset && j < n; j++)
            size = B->offset[j] > size ? B->offset[j] : size;
        B->scale = size > 0.0 ? 1.0 / size : 1.0;
        for (index_t i = 0; tiles && i < d; i++)
            point[i * TOGETHER + (B - block)] = B->scale * B->w[i];
        memset(B->least, 0, sizeof B->least);
        memset(B->tile, 0, sizeof B->tile);
    }
    for (index_t start = 0; start < n && !stopped(block->stop); start += TILE)
        if (tiles)
            scan_tile(block, tiles, point, start);
        else
            for (int b = 0; b < TOGETHER; b++)
                if (block[b].at >= 0) scan_sparse_tile(block + b, start);
    for (block_t *B = block; B < block + TOGETHER; B++)
        if (B->at >= 0) {
            if (B->sweeping)
                list_for_sweeps(B);
            else
                list_candidates(B);
            B->scanned = 1;
        }
}

/* Take the most violated candidates off the list, the worst first, and return how many they are;
 * none if none is violated enough. Each costs a row of the factor, but all together one step. */
FAST static index_t take_candidates(block_t *B, index_t *taken)
{
    index_t count = B->n_candidates, n_taken = 0, left = 0, found = -1, many = 1;
    double worst = B->again < B->limit ? B->again : B->limit, violation[TILE + WIDTH];
    memset(B->candidate + count, 0, WIDTH * sizeof(index_t));
    for (index_t a = 0; a < count; a += WIDTH) {
        const double *row[WIDTH];
        double product[WIDTH];
        for (int l = 0; B->X && l < WIDTH; l++) row[l] = B->X + B->candidate[a + l] * B->width;
        if (B->X) eight_dots(row, B->w, B->width, product);
        for (index_t l = 0; l < WIDTH && a + l < count; l++) {
            index_t j = B->candidate[a + l];
            double r = B->X ? B->sign[j] * product[l] - bound_of(B, j) : residual_of(B, j);
            violation[a + l] = j == B->banned ? 0.0 : r;
            if (violation[a + l] < worst) worst = r, found = a + l;
        }
    }
    if (found < 0) return 0;
    if (B->scanned) B->again = WINDOW * worst;
    B->scanned = 0;
    if (worst < CLEARLY * B->limit && B->d >= WIDE) many = B->left < MANY ? B->left : MANY;
    taken[n_taken++] = B->candidate[found];
    for (index_t a = 0; a < count; a++) {
        index_t j = B->candidate[a];
        if (a == found) continue;
        if (n_taken < many && violation[a] < AT_ONCE * worst)
            taken[n_taken++] = j;
        else
            B->candidate[left++] = j;
    }
    B->n_candidates = left;
    return n_taken;
}

/* Row j = A'y depends on the active rows: its multiplier rises while theirs fall along y, until one
 * of them is zero and makes room. */
FAST static void exchange(block_t *B, index_t j)
{
    index_t leaver = -1;
    double step = HUGE_VAL, *y = B->c;
    solve_upper(B, y);
    for (index_t a = 0; a < B->k; a++)
        if (y[a] > 1e-12 && B->gamma[a] / y[a] < step) {
            step = B->gamma[a] / y[a];
            leaver = a;
        }
    if (leaver < 0) leaver = B->k - 1, step = 0.0;
    for (index_t a = 0; a < B->k; a++) {
        B->gamma[a] -= step * y[a];
        if (!(B->gamma[a] > 0.0)) B->gamma[a] = 0.0;
    }
    drop(B, leaver);
    double distance2 = distance_of(B, j);
    if (distance2 > 0.0) append(B, j, step, distance2);
    B->value = value_of(B, B->gamma);
}

/* Sweep over the rows with multipliers; those that lose theirs leave. Returns how far multipliers
 * moved at most. */
FAST static double sweep(block_t *B)
{
    index_t k = 0;
    double moved = 0.0;
    for (index_t a = 0; a < B->k; a++) {
        index_t j = B->row[a];
        double r = residual_of(B, j), old = B->gamma[a], new = old - r;
        new = new > 0.0 ? new : 0.0;
        if (new != old) add_row(B, B->w, (new - old) * B->sign[j], j);
        moved = fabs(new - old) > moved ? fabs(new - old) : moved;
        B->active[j] = new > 0.0;
        B->row[k] = j;
        B->gamma[k] = new;
        k += new > 0.0;
    }
    B->k = k;
    return moved;
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The rows with the largest multipliers, as many as may be active. */
static void keep_largest(block_t *B)
{
    index_t most = B->d < B->n ? B->d : B->n, k = 0, equal = most;
    if (B->k <= most) return;
    memcpy(B->c, B->gamma, B->k * sizeof(double));
    qsort(B->c, B->k, sizeof(double), descending);
    double least = B->c[most - 1];
    for (index_t a = 0; a < most; a++) equal -= B->c[a] > least;
    for (index_t a = 0; a < B->k; a++) {
        int stays = B->gamma[a] > least || (B->gamma[a] == least && equal-- > 0);
        B->active[B->row[a]] = stays;
        B->row[k] = B->row[a], B->gamma[k] = B->gamma[a];
        k += stays;
    }
    B->k = k;
}

/* Rows with small multipliers last: they are the first to leave, and rows leave the end of a factor
 * cheaply. The list is nearly in order as a rule. */
FAST static void sort_rows(block_t *B)
{
    for (index_t a = 1; a < B->k; a++) {
        double gamma = B->gamma[a];
        index_t row = B->row[a], to = a;
        for (; to > 0 && B->gamma[to - 1] < gamma; to--)
            B->gamma[to] = B->gamma[to - 1], B->row[to] = B->row[to - 1];
        B->gamma[to] = gamma, B->row[to] = row;
    }
}

/* From sweeps to active rows: those of the warm start, or of the sweeps if there was none. */
FAST static void end_sweeps(block_t *B)
{
    B->sweeping = 0;
    if (B->n_start) {
        for (index_t a = 0; a < B->k; a++) B->active[B->row[a]] = 0;
        B->k = B->n_start;
        memcpy(B->row, B->start, B->k * sizeof(index_t));
        memcpy(B->gamma, B->start_gamma, B->k * sizeof(double));
        for (index_t a = 0; a < B->k; a++) B->active[B->row[a]] = 1;
    }
    keep_largest(B);
    if (B->d >= WIDE && !is_kept(B)) sort_rows(B);
    activate(B, 0);
    settle(B, -1.0);
    B->scanned = 0, B->n_candidates = 0;
}

/* Sweeps, as long as they promise to come below `enough`, or to the projection itself: those over
 * sparse rows, which are nearly orthogonal, often do. Returns whether the block is finished;
 * without a scan of the present point it is not. */
FAST static int sweep_on(block_t *B)
{
    double before = dot(B->w, B->w, B->width), goal = B->enough > 0.0 ? B->enough * B->enough : 0.0;
    double moved = 0.0, farthest = 0.0, last = B->moved;
    if (before <= goal) return 1;
    if (!B->scanned) return 0;
    if (!B->round && B->violated > LOST * B->n_start) B->n_start = 0;
    B->scanned = 0;
    for (int s = 0; s < SWEEPS && !stopped(B->stop); s++) {
        moved = sweep(B);
        farthest = moved > farthest ? moved : farthest;
        if (dot(B->w, B->w, B->width) <= goal) break;
    }
    move_to(B, B->gamma);
    double after = dot(B->w, B->w, B->width), gain = before - after;
    if (sqrt(after) <= ZERO * B->size) memset(B->w, 0, B->width * sizeof(double)), after = 0.0;
    if (after <= goal) return 1;
    int few = !B->X && 2 * B->k <= B->d; /* which may depend on each other all the same */
    if (few && !B->violated && farthest <= 0.1 * B->tolerance * B->size) return 1;
    int hopeful = goal > 0.0 && after - goal <= PATIENCE * gain;
    if (!B->rough && B->X) hopeful |= !B->n_start && gain > FIRST_GAIN * after;
    if (!B->rough && few) hopeful |= !B->round || moved < CONVERGING * last;
    B->moved = moved;
    if (!hopeful || ++B->round >= ROUNDS) {
        if (B->rough) return 1;
        end_sweeps(B);
    }
    return 0;
}

/* Go on until the block is finished, or all rows have to be looked at, or somebody asks to stop.
 * Returns whether it is finished. */
INLINE int advance(block_t *B)
{
    if (B->sweeping) {
        if (sweep_on(B)) return 1;
        if (B->sweeping) return 0;
    }
    while (!stopped(B->stop) && !B->failed) {
        double size = size_of(B, B->w);
        if (!B->offset && size <= B->enough) return 1;
        int zero = !B->offset && (B->k == B->d || size <= ZERO * B->size);
        int done = zero || B->left <= 0;
        B->limit = -B->tolerance * (size > B->size ? size : B->size);
        index_t taken[MANY], n_taken = done ? 0 : take_candidates(B, taken);
        if (!n_taken && B->stale) {
            if (!settle(B, -0.1 * B->limit) && !B->rebuilt) {
                B->rebuilt = 1;
                activate(B, 1);
                settle(B, -1.0);
            }
            continue;
        }
        if (zero) memset(B->w, 0, B->width * sizeof(double));
        if (done) return 1;
        if (!n_taken) return B->scanned;
        B->added = n_taken > 1 ? -1 : taken[0], B->banned = -1;
        for (index_t i = 0; i < n_taken && !B->failed; i++) {
            index_t j = taken[i];
            double distance2 = distance_of(B, j);
            if (B->k == 0 || (distance2 >= B->dependent && B->k < B->d))
                append(B, j, 0.0, distance2);
            else if (i == 0)
                exchange(B, j);
        }
        B->left -= n_taken;
        settle(B, -1.0);
    }
    return B->failed;
}

/* The best multiple of the multipliers to start with, and the point that they lead to. */
FAST static void start_block(block_t *B, const index_t *row, const double *gamma, index_t count)
{
    B->k = 0;
    for (index_t a = 0; a < count && B->k < B->most; a++) {
        if (B->active[row[a]]) continue;
        B->active[row[a]] = 1;
        B->row[B->k] = row[a];
        B->gamma[B->k++] = gamma[a] > 0.0 ? gamma[a] : 0.0;
    }
    add_rows(B, B->u, B->gamma);
    double square = dot(B->u, B->u, B->width), pull = -dot(B->u, B->x, B->width);
    double share = square > 0.0 && pull > 0.0 && !B->offset ? pull / square : 0.0;
    if (!(share < HUGE_VAL)) share = 0.0;
    for (index_t a = 0; a < B->k; a++) B->gamma[a] = B->offset ? B->gamma[a] : share * B->gamma[a];
    memcpy(B->w, B->x, B->width * sizeof(double));
    add(B->w, share, B->u, B->width);
    memset(B->u, 0, B->width * sizeof(double));
}

/* Memory for the blocks under way, to be freed; NULL if there is none. */
static char *make_blocks(block_t *block, const block_t *shape)
{
    index_t n = shape->n, width = shape->width, rows = whole(shape->most + 1, WIDTH);
    index_t bytes = 8 * (3 * width + 7 * rows + 2 * rows) + 5 * whole(n, TILE);
    bytes = whole(bytes, 64);
    char *memory = aligned_alloc(64, TOGETHER * bytes);
    if (!memory) return NULL;
    memset(memory, 0, TOGETHER * bytes);
    for (int b = 0; b < TOGETHER; b++) {
        double *part = (double *)(memory + b * bytes);
        block_t B = *shape;
        B.x = part, B.w = B.x + width, B.u = B.w + width;
        B.z = B.u + width, B.c = B.z + rows, B.t = B.c + rows, B.y = B.t + rows;
        B.inverse = B.y + rows, B.gamma = B.inverse + rows, B.start_gamma = B.gamma + rows;
        B.row = (index_t *)(B.start_gamma + rows), B.start = B.row + rows;
        B.residual = (float *)(B.start + rows);
        B.active = (uint8_t *)(B.residual + whole(n, TILE));
        block[b] = B;
    }
    return memory;
}

/* X (n, whole vectors) and tiles are those of native.layout_rows, or NULL for sparse rows.
 * start_rows, start_gamma (n_blocks, start_width) and start_count (n_blocks) hold the warm start, or
 * NULL; rows, gamma (n_blocks, most + 1) and count (n_blocks) the active rows on exit. factors are
 * kept ones (see factors.h), and slots (n_blocks) say which of them belongs to a block, -1 for none;
 * NULL where none are kept. */
FAST int project_blocks(index_t n, index_t d, const double *X, const float *tiles,
                        const index_t *starts, const index_t *columns, const double *values,
                        const int8_t *signs, index_t n_blocks, const double *points,
                        const index_t *pattern, const double *offsets, const double *enough,
                        index_t start_width, const index_t *start_rows, const double *start_gamma,
                        const index_t *start_count, index_t most, index_t *rows, double *gamma,
                        index_t *count, double *result, double *factors, const index_t *slots,
                        double tolerance, double dependent, index_t max_rows, int rough,
                        const int *stop)
{
    block_t block[TOGETHER], shape = {.at = -1, .n = n, .d = d, .width = whole(d, WIDTH)};
    shape.stop = stop, shape.most = most, shape.dependent = dependent, shape.rough = rough;
    shape.tolerance = tolerance;
    shape.X = X, shape.starts = starts, shape.columns = columns, shape.values = values;
    index_t rank = most_active(&shape), size = 1 + rank + rank * (rank + 1) / 2;
    char *memory = make_blocks(block, &shape);
    float *scanned = malloc(TOGETHER * d * sizeof(float));
    int failed = !memory || !scanned;
    for (index_t next = 0, waiting = !failed; waiting && !stopped(stop) && !failed;) {
        waiting = 0;
        for (block_t *B = block; B < block + TOGETHER; B++) {
            for (;; B->at = -1) {
                if (B->at < 0) {
                    if (next == n_blocks) break;
                    index_t b = B->at = next++;
                    B->sign = signs + pattern[b] * n;
                    B->offset = offsets ? offsets + b * n : NULL;
                    B->enough = enough[b];
                    B->left = max_rows;
                    B->kept = slots && slots[b] >= 0 ? factors + slots[b] * size : NULL;
                    B->factored = 0;
                    memcpy(B->x, points + b * d, d * sizeof(double));
                    memcpy(B->last_sign, B->sign + n / TILE * TILE, n % TILE);
                    B->size = size_of(B, B->x);
                    B->added = B->banned = -1;
                    B->n_candidates = B->scanned = B->rebuilt = B->round = 0;
                    B->again = 0.0;
                    if (start_count)
                        start_block(B, start_rows + b * start_width,
                                    start_gamma + b * start_width, start_count[b]);
                    else
                        start_block(B, NULL, NULL, 0);
                    B->sweeping = !B->offset && (d >= WIDE || !X || rough) && max_rows > most &&
                                  (!X || enough[b] > 0.0 || B->k == 0);
                    B->n_start = B->k;
                    memcpy(B->start, B->row, B->k * sizeof(index_t));
                    memcpy(B->start_gamma, B->gamma, B->k * sizeof(double));
                    if (!B->sweeping && (B->offset || !(size_of(B, B->w) <= B->enough)))
                        end_sweeps(B);
                }
                if (!advance(B)) break;
                failed |= B->failed;
                index_t b = B->at;
                memcpy(result + b * d, B->w, d * sizeof(double));
                memcpy(rows + b * (most + 1), B->row, B->k * sizeof(index_t));
                memcpy(gamma + b * (most + 1), B->gamma, B->k * sizeof(double));
                count[b] = B->k;
                keep_factor(B);
                for (index_t a = 0; a < B->k; a++) B->active[B->row[a]] = 0;
            }
            waiting += B->at >= 0;
        }
        if (waiting) scan(block, tiles, scanned);
    }
    for (int b = 0; memory && b < TOGETHER; b++) free(block[b].L);
    free(memory), free(scanned);
    return failed;
}
