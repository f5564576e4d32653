
#ifndef TILEWISE_NO_SUCH_SIZE
#define TILEWISE_NO_SUCH_SIZE $code  /* no $size of the range */
#endif
