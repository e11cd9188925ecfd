# Compiler switches: the language, the warnings and the sanitizers.

AC_DEFUN([X_BELLOWS_CXX20], [
  AX_CHECK_COMPILE_FLAG([-std=c++20], [CXX="$CXX -std=c++20"],
    [AC_MSG_ERROR([a C++20 compiler is needed (g++ 12 or later); set CXX])])
  AX_CHECK_COMPILE_FLAG([-fvisibility=hidden], [AC_SUBST([HIDDEN_CXXFLAGS], [-fvisibility=hidden])])
])

# Warnings are errors only where a developer asks for it: a newer compiler must not
# break a user's build.
AC_DEFUN([X_BELLOWS_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [turn compiler warnings into errors])])
  AX_APPEND_COMPILE_FLAGS([-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wundef], [WARN_CXXFLAGS])
  AS_IF([test "x$enable_werror" = xyes], [AX_APPEND_COMPILE_FLAGS([-Werror], [WARN_CXXFLAGS])])
  AC_SUBST([WARN_CXXFLAGS])
])

# To build takes a fifth less, but a file that forgets to include something compiles all the same, and ccache
# doesn't take such files as it is configured by default.
AC_DEFUN([X_BELLOWS_PRECOMPILED], [
  AC_ARG_ENABLE([precompiled-header],
    [AS_HELP_STRING([--enable-precompiled-header], [compile the headers that most files include once (g++ only)])])
  AM_CONDITIONAL([PRECOMPILED], [test "x$enable_precompiled_header" = xyes])
  AM_COND_IF([PRECOMPILED], [PRECOMPILED_CXXFLAGS='-include $(top_builddir)/common/precompiled/product.h'])
  AM_COND_IF([PRECOMPILED], [PRECOMPILED_TEST_CXXFLAGS='-include $(top_builddir)/tests/unit/precompiled/tests.h'])
  # Where the compiled one isn't there, or is for other flags, these are included.
  AC_CONFIG_LINKS([common/precompiled/product.h:common/precompiled.h])
  AC_CONFIG_LINKS([tests/unit/precompiled/tests.h:tests/unit/support/precompiled.h])
  AC_SUBST([PRECOMPILED_CXXFLAGS])
  AC_SUBST([PRECOMPILED_TEST_CXXFLAGS])
])

AC_DEFUN([X_BELLOWS_SANITIZER], [
  AC_ARG_ENABLE([sanitizer],
    [AS_HELP_STRING([--enable-sanitizer=LIST], [build with -fsanitize=LIST: address,undefined or thread])],
    [], [enable_sanitizer=no])
  AS_CASE([$enable_sanitizer],
    [no], [],
    [yes], [enable_sanitizer=address,undefined],
    [address|undefined|address,undefined|thread], [],
    [AC_MSG_ERROR([--enable-sanitizer takes address, undefined, "address,undefined" or thread, not "$enable_sanitizer"])])
  AS_IF([test "x$enable_sanitizer" != xno], [
    SANITIZER_FLAGS="-fsanitize=$enable_sanitizer -fno-omit-frame-pointer -g"
    AC_LANG_PUSH([C++])
    saved_CXXFLAGS=$CXXFLAGS
    CXXFLAGS="$CXXFLAGS $SANITIZER_FLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [],
      [AC_MSG_ERROR([this compiler cannot link with -fsanitize=$enable_sanitizer])])
    CXXFLAGS=$saved_CXXFLAGS
    AC_LANG_POP([C++])
  ])
  AC_SUBST([SANITIZER_FLAGS])
  AM_CONDITIONAL([SANITIZER], [test "x$enable_sanitizer" != xno])
  # Sanitizers are shared libraries.
  STATIC_LDFLAGS=
  AS_IF([test "x$enable_sanitizer" = xno], [
    AC_MSG_CHECKING([whether $CXX links static programs])
    AC_LANG_PUSH([C++])
    saved_LDFLAGS=$LDFLAGS
    LDFLAGS="$LDFLAGS -static"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <string>]], [[std::string text("x"); return text.size() != 1;]])],
      [STATIC_LDFLAGS='-all-static -L.'])
    LDFLAGS=$saved_LDFLAGS
    AC_LANG_POP([C++])
    AS_IF([test -n "$STATIC_LDFLAGS"], [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])
  ])
  AC_SUBST([STATIC_LDFLAGS])
  AM_CONDITIONAL([STATIC_PROGRAMS], [test -n "$STATIC_LDFLAGS"])
])
