/* $model for $target, accuracy=$accuracy: a network of tuned kernels.

   It needs of an x86-64 processor: $features.
   It calls the C library alone, with its mathematics: link with -lm. It allocates nothing, and
   keeps nothing but what is in `activations`.
   `activations` has ${macro}_ACTIVATIONS_BYTES, which are zero before the first run; `weights` is
   what weights.bin has. Both begin at a multiple of ${macro}_ALIGNMENT. Arguments and results lie
   in `activations`, at the offsets below. */

#ifndef ${macro}_H
#define ${macro}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ${macro}_ALIGNMENT 64
#define ${macro}_ACTIVATIONS_BYTES $activations
#define ${macro}_WEIGHTS_BYTES $weights
#define ${macro}_PARTS $parts
$arrays
/* 1 where the processor and the operating system have what the code needs, else 0.
   Call this first, once in each process. */
int ${name}_supported(void);

/* Computes the results of the arguments, on this thread. */
void ${name}_run(void *activations, const void *weights);
$threads
#ifdef __cplusplus
}
#endif

#endif
