/* $alias

$about
   Threads may call these functions at the same time, each with an `out` and a `scratch` of its own.
   They write to `out`$written alone, which overlap nothing else, call no other
   function, and keep nothing between calls. They return TILEWISE_OK, or what is wrong and touch no
   memory. On a processor without the extensions named above only NAME_supported may be called. */

#ifndef ${name}_H
#define ${name}_H

#include <stddef.h>
#include <stdint.h>

#ifndef TILEWISE_RETURN_CODES
#define TILEWISE_RETURN_CODES
#define TILEWISE_OK $ok
#define TILEWISE_NULL $null                /* a pointer is null */
#define TILEWISE_MISALIGNED $misaligned          /* an address is no multiple of what is needed */
#define TILEWISE_NO_SUCH_PART $no_such_part        /* part is below 0 or not below PARTS */
#endif
$no_such_size
#ifdef __cplusplus
extern "C" {
#endif

$sizes

/* 1 where the processor and the operating system have what the kernel needs, else 0. */
int ${name}_supported(void);
$prepare
/* Computes out$adds. */
int ${name}($arguments);

/* One part of it: those from 0 to PARTS - 1 may run at the same time and in any order, each once,
   with the same arguments. They do not wait for each other; out is whole when all have returned. */
int ${name}_part($arguments,
    int64_t part);

#ifdef __cplusplus
}
#endif

/* The names without processor and schedule, of the header that comes first. */
#ifndef ${alias}_PARTS
$aliases
#endif

#endif
