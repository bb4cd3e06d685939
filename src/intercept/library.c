/* library.c - what the compiler's start files would bring. The library is linked without them, since they are
 * constructors and destructors, which every program would run. */

/* Names this library to __register_atfork() (pthread_atfork). It is never unloaded. */
extern void *const __dso_handle;
__attribute__((visibility("hidden"))) void *const __dso_handle = (void *)&__dso_handle;
