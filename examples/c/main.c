/* One layer of a network: out = max(0, a * b + bias), by a tuned kernel and by three loops.

   The names end without a schedule's hash: after the next search the same source is compiled
   against another header. */

#define _POSIX_C_SOURCE 200809L
#include "tilewise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LAYER(name) tilewise_matmul_m128_n96_k80_f32_bias_relu_constant##name

enum { M = 128, N = 96, K = 80, CALLS = 1000 };

static float a[M * K], b[K * N], bias[N], out[M * N], expected[M * N];

static void fill(float *to, int count, unsigned seed) {
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) / (1 << 23) - 1.0f;
    }
}

static void *aligned(size_t bytes) {
    void *to = NULL;
    if (posix_memalign(&to, LAYER(_ALIGNMENT), bytes ? bytes : 1)) {
        fprintf(stderr, "layer: out of memory\n");
        exit(1);
    }
    return to;
}

static void plain_loops(void) {
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = bias[j];
            for (int k = 0; k < K; k++) sum += a[i * K + k] * b[k * N + j];
            expected[i * N + j] = sum > 0 ? sum : 0;
        }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(void) {
    if (!LAYER(_supported)()) {
        fprintf(stderr, "layer: this processor lacks what the kernel needs; tune on this machine\n");
        return 1;
    }
    fill(a, M * K, 1), fill(b, K * N, 2), fill(bias, N, 3);

    void *packed = aligned(LAYER(_PACKED_BYTES)); /* the weights, made ready once */
    void *scratch = aligned(LAYER(_SCRATCH_BYTES));
    int code = LAYER(_prepare)(b, packed);

    double begin = seconds();
    for (int call = 0; call < CALLS && code == TILEWISE_OK; call++)
        code = LAYER()(a, packed, bias, out, scratch);
    double took = (seconds() - begin) / CALLS;
    if (code != TILEWISE_OK) {
        fprintf(stderr, "layer: the kernel refused its arguments with code %d\n", code);
        return 1;
    }

    plain_loops();
    float worst = 0;
    for (int i = 0; i < M * N; i++) worst = fmaxf(worst, fabsf(out[i] - expected[i]));
    printf("largest difference %.2g, %.1f GFLOP/s\n", worst, 2.0 * M * N * K / took / 1e9);
    free(packed), free(scratch);
    return worst < 1e-4f ? 0 : 1;
}
