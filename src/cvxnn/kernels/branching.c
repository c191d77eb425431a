/* Branch and bound over cones for the price max F, F(u) = sum_i t_i (x_i u)_+ over ||u|| <= 1. The
 * mathematics and the rounding errors are in bounds/branching.py, the form of the tree in trees.py.
 *
 * A cone has r vertices v_j, whole numbers that are exact, and copies of them of length 1 to 2. For
 * the rows whose sign is open in the cone the products a_ij = |t_i| x_i v_j lie column by column,
 * those with t_i > 0 first. Splitting an edge makes one new column; in each half the rows that are
 * decided move into the linear part. Depth first, one level of memory for each depth: a level holds
 * the cone of its node until both halves are done.
 *
 * On a cone F(sum_j alpha_j v_j) <= sum_j alpha_j y_j for y = base + sum_k lambda_k y^k with
 * base_j = linear part + sum_{t_i > 0} (a_ij)_+ and y^k_j = -sum_{i in S_k} a_ij for any sets S_k
 * of rows with t_i < 0 and lambda >= 0 with sum at most 1. The best of these bounds is a point of
 * least norm in conv{base + y^k} + {gamma >= 0}, in the norm y'(V'V)^-1 y. It is found by Wolfe's
 * method: the next S_k are the rows that are positive at the direction of the last point, which
 * also proves how low the bound can get, so hopeless cones are split at once.
 */
#include "cones.h"
#include "wolfe.h"

#define DEPTH 512    /* of a tree */
#define SHORTER 0.25 /* 1 - cos of an edge that may be split, relative to the longest one */

/* what a call ends with; growing.py has the same */
enum { PROVEN, PAUSED, FULL, STUCK, FOUND, NO_MEMORY };
#define LEAF 255

typedef struct {
    index_t capacity, count, left;
    int32_t *child;
    uint8_t *edge;
    double *bound, *value, found;
    aim_t aim;
    scratch_t scratch;
    const int *stop;
    int status;
    level_t *levels;
} search_t;

static double cosine(int r, const level_t *at, int a, int b)
{
    return dot(r, at->vertex[a], at->vertex[b]) / (at->length[a] * at->length[b]);
}

/* The middle of an edge, and the powers of 2 that make it of both ends; 0 if it is not exact. */
static int set_middle(int r, level_t *at, int a, int b)
{
    int of_a, of_b;
    if (!middle_of(r, at->exact[a], at->exact[b], at->middle, &of_a, &of_b)) return 0;
    at->a = a, at->b = b;
    at->powers[0] = of_a + at->exponent[a], at->powers[1] = of_b + at->exponent[b];
    return 1;
}

/* How far G(u) = sum_{t_i > 0} (a_i)_+ at the middle of each edge is below the interpolation. */
INLINE void gaps_of(int r, const level_t *at, double *gap)
{
    vector sum[EDGES] = {{0}};
    for (index_t i = 0; i < at->positive; i += LANES) {
        vector x[MOST], plus[MOST];
        for (int j = 0; j < r; j++) {
            x[j] = *(const vector *)(at->columns + j * at->stride + i);
            plus[j] = (vector)(~NEGATIVE(x[j]) & (lanes)x[j]);
        }
        for (int a = 0, k = 0; a < r; a++)
            for (int b = a + 1; b < r; b++, k++) {
                vector both = x[a] + x[b];
                sum[k] += plus[a] + plus[b] - (vector)(~NEGATIVE(both) & (lanes)both);
            }
    }
    for (int k = 0; k < r * (r - 1) / 2; k++) gap[k] = sum_of(sum[k]);
}

FAST static void gaps(int r, const level_t *at, double *gap)
{
#define CALL(R) gaps_of(R, at, gap)
    OF_EACH_RANK(CALL)
#undef CALL
}

/* The edge to split: its number in the order (0,1), (0,2) ... (r-2,r-1), or -1 if no middle is
 * exact.
 * Among the edges that are not much shorter than the longest one (without that, cones would become
 * slivers) it is the one whose split lowers the bound the most where it is attained now. */
static int best_edge(int r, level_t *at)
{
    double length[EDGES], score[EDGES], longest = 0;
    const int n = r * (r - 1) / 2;
    gaps(r, at, score);
    for (int a = 0, k = 0; a < r; a++)
        for (int b = a + 1; b < r; b++, k++) {
            length[k] = 1 - cosine(r, at, a, b);
            if (length[k] > longest) longest = length[k];
            score[k] *= 1e-3 + fmin(at->alpha[a], at->alpha[b]);
        }
    for (int k = 0; k < n; k++)
        if (length[k] < SHORTER * longest) score[k] = length[k] - 2; /* after all others */
    for (int left = n; left > 0; left--) {
        int best = 0;
        for (int k = 1; k < n; k++)
            if (score[k] > score[best]) best = k;
        for (int a = 0, k = 0; a < r; a++)
            for (int b = a + 1; b < r; b++, k++)
                if (k == best && set_middle(r, at, a, b)) return best;
        score[best] = -INFINITY;
    }
    return -1;
}

static void numbered_edge(int r, level_t *at, int edge)
{
    int k = 0;
    for (int a = 0; a < r; a++)
        for (int b = a + 1; b < r; b++, k++)
            if (k == edge) set_middle(r, at, a, b);
}

/* The column of the middle, which both halves share. */
FAST static void fill_middle(int r, level_t *at)
{
    double scale[2], *to = at->columns + r * at->stride;
    const double *a = at->columns + at->a * at->stride, *b = at->columns + at->b * at->stride;
    level_t probe;
    set_vertex(r, &probe, 0, at->middle);
    for (int k = 0; k < 2; k++) scale[k] = ldexp(1.0, at->powers[k] - probe.exponent[0]);
    index_t size = padded(at->positive) + padded(at->negative);
    for (index_t i = 0; i < size; i += LANES)
        *(vector *)(to + i) =
            scale[0] * *(const vector *)(a + i) + scale[1] * *(const vector *)(b + i);
    at->middle_linear = scale[0] * at->linear[at->a] + scale[1] * at->linear[at->b];
    at->middle_error = scale[0] * at->error[at->a] + scale[1] * at->error[at->b] +
                       2.02 * UNIT * probe.length[0];
}

/* One half of the cone of a level, into the next. */
static int descend(search_t *search, int r, const level_t *at, level_t *next, int half)
{
    int replaced = half ? at->b : at->a;
    double *column[MOST];
    for (int j = 0; j < r; j++) {
        if (j == replaced) {
            set_vertex(r, next, j, at->middle);
            next->linear[j] = at->middle_linear, next->error[j] = at->middle_error;
        } else {
            memcpy(next->exact[j], at->exact[j], sizeof at->exact[j]);
            memcpy(next->vertex[j], at->vertex[j], sizeof at->vertex[j]);
            next->length[j] = at->length[j], next->exponent[j] = at->exponent[j];
            next->linear[j] = at->linear[j], next->error[j] = at->error[j];
        }
        column[j] = at->columns + (j == replaced ? r : j) * at->stride;
    }
    return decide(search->scratch, r, column, at->positive, at->negative, next);
}

/* The cone of the root, from rows (r, n) that lie column by column. */
static int begin(search_t *search, int r, index_t positive, index_t negative, const double *rows,
                 const int64_t *vertices)
{
    level_t *at = search->levels;
    index_t size = padded(positive) + padded(negative);
    double *products = malloc((size_t)(r * size + 1) * sizeof(double)), *column[MOST];
    if (products == NULL) return 0;
    for (int j = 0; j < r; j++) {
        set_vertex(r, at, j, vertices + j * r);
        column[j] = products + j * size;
        memset(column[j], 0, (size_t)size * sizeof(double));
        for (int q = 0; q < r; q++)
            for (index_t i = 0; i < size; i += LANES)
                *(vector *)(column[j] + i) +=
                    at->vertex[j][q] * *(const vector *)(rows + q * size + i);
        at->linear[j] = 0, at->error[j] = 1.01 * UNIT * (r + 3) * at->length[j];
    }
    int done = decide(search->scratch, r, column, positive, negative, at);
    free(products);
    at->node = 0, at->half = 0;
    return done;
}

/* What the halves of a node prove about it. */
static void gather(search_t *search, index_t node)
{
    index_t child = search->child[node];
    double worst = search->value[child];
    if (search->value[child + 1] > worst) worst = search->value[child + 1];
    if (worst < search->value[node]) search->value[node] = worst;
}

/* Bound or split the node of a level. Returns 1 to go on into its halves, 0 if it is done, and -1
 * to leave it for another call. */
static int visit(search_t *search, int r, level_t *at, index_t depth)
{
    index_t node = at->node;
    if (search->child[node]) {
        numbered_edge(r, at, search->edge[node]);
        fill_middle(r, at);
        return 1;
    }
    if (search->left-- <= 0 || stopped(search->stop)) return -1;
    double bound = bound_of(&search->aim, r, at);
    if (bound < search->bound[node]) search->bound[node] = search->value[node] = bound;
    if (search->aim.best[0] > search->found) {
        search->status = FOUND;
        return -1;
    }
    if (search->value[node] <= search->aim.threshold) return 0;
    int edge = depth + 1 < DEPTH ? best_edge(r, at) : -1;
    if (edge < 0) {
        search->status = STUCK;
        return -1;
    }
    if (search->count + 2 > search->capacity) {
        search->status = FULL;
        return -1;
    }
    index_t child = search->count;
    search->count += 2;
    for (index_t k = child; k < child + 2; k++) {
        search->child[k] = 0, search->edge[k] = LEAF;
        search->bound[k] = search->value[k] = search->bound[node];
    }
    search->child[node] = (int32_t)child, search->edge[node] = (uint8_t)edge;
    fill_middle(r, at);
    return 1;
}

/* Depth first through all that is above the threshold. */
static void walk(search_t *search, int r)
{
    index_t depth = 0;
    int going = 1;
    while (depth >= 0) {
        level_t *at = search->levels + depth;
        if (at->half == 0 && going) {
            int done = search->value[at->node] <= search->aim.threshold;
            int way = done ? 0 : visit(search, r, at, depth);
            if (way < 0) going = 0;
            at->half = way > 0 ? 1 : 3;
        }
        index_t child = search->child[at->node];
        if (going && (at->half == 1 || at->half == 2)) {
            index_t node = child + at->half - 1;
            level_t *next = at + 1;
            at->half++;
            if (search->value[node] <= search->aim.threshold) continue;
            if (!descend(search, r, at, next, at->half - 2)) {
                search->status = NO_MEMORY;
                going = 0;
                continue;
            }
            next->node = node, next->half = 0;
            depth++;
            continue;
        }
        if (child) gather(search, at->node);
        depth--;
    }
}

static void release(search_t *search)
{
    for (index_t k = 0; k < DEPTH && search->levels; k++) free(search->levels[k].columns);
    free(search->levels), free(search->scratch.flags), free(search->scratch.list);
}

static int run(search_t *search, int r, index_t positive, index_t negative, const double *rows,
               const int64_t *vertices)
{
    if (!begin(search, r, positive, negative, rows, vertices)) return NO_MEMORY;
    walk(search, r);
    if (search->status == PAUSED && search->value[0] <= search->aim.threshold) return PROVEN;
    return search->status;
}

/* Grow the tree of one cone by up to max_nodes bounds, until all of it is below the threshold. Rows
 * |t_i| x_i lie column by column, those with t_i > 0 first; both parts are whole vectors, filled up
 * with zeros. best[0] is the highest price met; one above `found` ends the call. */
int branch_cone(index_t r, index_t positive, index_t negative, const double *rows,
                const int64_t *vertices, double total, double threshold, double goal, double found,
                index_t max_nodes, index_t capacity, index_t *count, int32_t *child, uint8_t *edge,
                double *bound, double *value, double *best, const int *stop)
{
    index_t size = padded(positive) + padded(negative);
    search_t search = {.capacity = capacity, .count = *count, .left = max_nodes, .child = child,
                       .edge = edge, .bound = bound, .value = value, .found = found,
                       .aim = {total, threshold, goal, best}, .stop = stop, .status = PAUSED};
    search.levels = calloc(DEPTH, sizeof(level_t));
    search.scratch.flags = malloc((size_t)(size + 1) * sizeof(int64_t));
    search.scratch.list = malloc((size_t)(size + 1) * sizeof(int32_t));
    int status = NO_MEMORY;
    if (search.levels && search.scratch.flags && search.scratch.list)
        status = run(&search, (int)r, positive, negative, rows, vertices);
    *count = search.count;
    release(&search);
    return status;
}

/* The nodes of a tree in order, the edges of splits and 255 for leaves; a node whose own bound is
 * within the threshold is a leaf. Returns how many there are. */
index_t list_cones(const int32_t *child, const uint8_t *edge, const double *bound,
                   double threshold, uint8_t *nodes)
{
    int32_t waiting[DEPTH + 1];
    index_t count = 0, n = 0;
    waiting[n++] = 0;
    while (n > 0) {
        int32_t node = waiting[--n];
        int leaf = child[node] == 0 || bound[node] <= threshold;
        nodes[count++] = leaf ? LEAF : edge[node];
        if (leaf) continue;
        waiting[n++] = child[node] + 1;
        waiting[n++] = child[node];
    }
    return count;
}
