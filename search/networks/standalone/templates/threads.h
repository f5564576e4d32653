
/* One part of it: PARTS threads call this at the same time, each with a part of its own from 0 on.
   They wait for each other. */
void ${name}_part(void *activations, const void *weights, int64_t part);
