/* The walk of the symbol tables finds what the system's own lookup finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "intercept/resolve/resolve.h"

static void *libc_handle(void)
{
    void *handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    assert_non_null(handle);
    return handle;
}

static void the_walk_agrees_with_the_systems_lookup(void **state)
{
    /* realpath and regexec have older versions beside the default one. */
    const char *const names[] = {"realpath", "regexec", "qsort", "setlocale", "dl_iterate_phdr"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ptr_equal(resolve_symbol_in("libc.so.6", names[i]), dlsym(libc_handle(), names[i]));
}

static void the_real_dlsym_is_libcs_own(void **state)
{
    resolve_find_dlsym();
    const char *const names[] = {"dlsym", "dlvsym"};
    void *const found[] = {(void *)resolve_real_dlsym, (void *)resolve_real_dlvsym};
    for (size_t i = 0; i < 2; i++) {
        /* Since 2.34 in libc, before in libdl. */
        void *expected = dlsym(libc_handle(), names[i]);
        if (!expected)
            expected = dlsym(dlopen("libdl.so.2", RTLD_LAZY), names[i]);
        assert_non_null(expected);
        assert_ptr_equal(found[i], expected);
    }
    assert_ptr_not_equal(found[0], (void *)dlsym); /* linked here: ours */
}

static void what_is_not_there_is_not_found(void **state)
{
    assert_null(resolve_symbol_in("libc.so.6", "no_such_symbol_anywhere"));
    assert_null(resolve_symbol_in("libnothing.so.9", "qsort"));
    /* An indirect function's address is its chooser's. */
    assert_null(resolve_symbol_in("libc.so.6", "strlen"));
    /* Referenced there, defined elsewhere. */
    assert_null(resolve_symbol_in("libc.so.6", "__tls_get_addr"));
}

static void libcs_functions_around_dlsym_work(void **state)
{
    Dl_info info;
    void *handle = resolve_libc()->dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    assert_ptr_equal(handle, libc_handle());
    assert_int_not_equal(resolve_libc()->dladdr((void *)resolve_real_dlsym, &info), 0);
    assert_null(resolve_libc()->dlerror());
    assert_int_equal(resolve_libc()->dlclose(handle), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_walk_agrees_with_the_systems_lookup),
        cmocka_unit_test(the_real_dlsym_is_libcs_own),
        cmocka_unit_test(what_is_not_there_is_not_found),
        cmocka_unit_test(libcs_functions_around_dlsym_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
