"""Link an object, run it between guard pages, compare and time it, in a child process."""
