
/* Makes the constant weights ready, once for any number of calls. packed is PACKED_BYTES from an
   address that is a multiple of $line; nothing else goes there. */
int ${name}_prepare(
    $weights,
    void *packed);
