# Libraries that have no pkg-config file of their own, and the optional ones.

AC_DEFUN([X_BELLOWS_SLURM], [
  AC_ARG_WITH([slurm], [AS_HELP_STRING([--with-slurm=DIR], [Slurm's prefix, when it is not in the system's])],
    [SLURM_CPPFLAGS="-I$withval/include"; SLURM_LDFLAGS="-L$withval/lib"])
  AC_ARG_WITH([slurm-plugindir],
    [AS_HELP_STRING([--with-slurm-plugindir=DIR], [where the Slurm plugins are installed, default LIBDIR/slurm-bellows])],
    [slurmplugindir=$withval], [slurmplugindir='${libdir}/slurm-bellows'])
  saved_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"
  AC_CHECK_HEADERS([slurm/slurm.h], [],
    [AC_MSG_ERROR([slurm/slurm.h was not found: install libslurm-dev, or pass --with-slurm=DIR])])
  AC_CHECK_HEADERS([slurm/spank.h], [], [AC_MSG_ERROR([slurm/spank.h was not found: install libslurm-dev])],
    [#include <sys/types.h>])
  CPPFLAGS=$saved_CPPFLAGS
  AC_CHECK_LIB([slurm], [slurm_load_job], [SLURM_LIBS="$SLURM_LDFLAGS -lslurm"],
    [AC_MSG_ERROR([libslurm was not found: install libslurm-dev])], [$SLURM_LDFLAGS])
  AC_SUBST([SLURM_CPPFLAGS])
  AC_SUBST([SLURM_LIBS])
  AC_SUBST([slurmplugindir])
])

# Named explicitly: plain "hdf5" is the parallel build on Debian, which is not thread-safe.
AC_DEFUN([X_BELLOWS_HDF5], [
  PKG_CHECK_MODULES([HDF5], [hdf5-serial], [],
    [AC_MSG_ERROR([the serial HDF5 library was not found: install libhdf5-dev])])
])

AC_DEFUN([X_BELLOWS_CLI11], [
  AC_LANG_PUSH([C++])
  AC_CHECK_HEADERS([CLI/CLI.hpp], [], [AC_MSG_ERROR([CLI11 was not found: install libcli11-dev])])
  AC_LANG_POP([C++])
])

# The build as C++, by name: errors of the one as C jump over destructors.
AC_DEFUN([X_BELLOWS_LUA], [
  PKG_CHECK_MODULES([LUA], [lua5.4-c++ >= 5.4.4], [],
    [AC_MSG_ERROR([Lua 5.4, built as C++, was not found: install liblua5.4-dev])])
])

# The compiler of protobuf's files, and its plugin for services in C++.
AC_DEFUN([X_BELLOWS_PROTOC], [
  AC_PATH_PROG([PROTOC], [protoc])
  AC_PATH_PROG([GRPC_CPP_PLUGIN], [grpc_cpp_plugin])
  AS_IF([test -z "$PROTOC" || test -z "$GRPC_CPP_PLUGIN"],
    [AC_MSG_ERROR([protoc or grpc_cpp_plugin was not found: install protobuf-compiler-grpc])])
])

AC_DEFUN([X_BELLOWS_MPI], [
  PKG_CHECK_MODULES([MPI], [ompi-c], [have_mpi=yes], [have_mpi=no])
  AM_CONDITIONAL([HAVE_MPI], [test "x$have_mpi" = xyes])
])

# For programs that bring their ranks together without MPI.
AC_DEFUN([X_BELLOWS_PMIX], [
  PKG_CHECK_MODULES([PMIX], [pmix], [have_pmix=yes], [have_pmix=no])
  AM_CONDITIONAL([HAVE_PMIX], [test "x$have_pmix" = xyes])
])

AC_DEFUN([X_BELLOWS_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit with NCCL, or no; default: /usr/local/cuda when there])],
    [], [with_cuda=auto])
  have_nccl=no
  cuda_dir=$with_cuda
  AS_CASE([$with_cuda], [auto|yes], [cuda_dir=/usr/local/cuda])
  AS_IF([test "x$with_cuda" != xno && test -x "$cuda_dir/bin/nvcc"], [
    AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_dir/bin])
    CUDA_CPPFLAGS="-isystem $cuda_dir/include"
    CUDA_LIBDIR=$cuda_dir/lib64
    saved_CPPFLAGS=$CPPFLAGS
    saved_LDFLAGS=$LDFLAGS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
    LDFLAGS="$LDFLAGS -L$CUDA_LIBDIR"
    # libcuda itself is never linked: such a program does not even start without a driver.
    AC_CHECK_HEADER([nccl.h], [AC_CHECK_LIB([nccl], [ncclGetVersion],
      [have_nccl=yes; NCCL_LIBS="-L$CUDA_LIBDIR -Wl,-rpath,$CUDA_LIBDIR -lnccl -lcudart"], [], [-lcudart])])
    CPPFLAGS=$saved_CPPFLAGS
    LDFLAGS=$saved_LDFLAGS
  ])
  AS_IF([test "x$have_nccl" = xno && test "x$with_cuda" != xauto && test "x$with_cuda" != xno],
    [AC_MSG_ERROR([no CUDA toolkit with NCCL under $cuda_dir])])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([NCCL_LIBS])
  AM_CONDITIONAL([HAVE_NCCL], [test "x$have_nccl" = xyes])
])

AC_DEFUN([X_BELLOWS_CRITERION], [
  PKG_CHECK_MODULES([CRITERION], [criterion], [have_criterion=yes], [have_criterion=no])
  AM_CONDITIONAL([HAVE_CRITERION], [test "x$have_criterion" = xyes])
])

AC_DEFUN([X_BELLOWS_BENCHMARK], [
  PKG_CHECK_MODULES([BENCHMARK], [benchmark], [have_benchmark=yes], [have_benchmark=no])
  AM_CONDITIONAL([HAVE_BENCHMARK], [test "x$have_benchmark" = xyes])
])

# Only its version and place count: the package is plain Python. Debian's Python looks into
# dist-packages, which Automake does not know.
AC_DEFUN([X_BELLOWS_PYTHON], [
  AM_PATH_PYTHON([3.8], [], [:])
  python_prefix=$prefix
  AS_IF([test "x$prefix" = xNONE], [python_prefix=$ac_default_prefix])
  searched=`$PYTHON -c 'import site, sys; print(*(d for d in site.getsitepackages()
    if d.startswith(sys.argv@<:@1@:>@ + "/lib/")))' "$python_prefix" 2>/dev/null`
  searched=${searched%% *}
  AS_IF([test -n "$searched"], [pythondir="\${prefix}${searched#"$python_prefix"}"])
  AM_CONDITIONAL([HAVE_PYTHON], [test "x$PYTHON" != x:])
])

AC_DEFUN([X_BELLOWS_SUMMARY], [
  AC_MSG_NOTICE([
    bellows $PACKAGE_VERSION
    MPI example:    $have_mpi
    PMIx:           $have_pmix
    NCCL and CUDA:  $have_nccl
    Python package: $PYTHON
    unit tests:     $have_criterion
    sanitizers:     $enable_sanitizer
    Slurm plugins:  $slurmplugindir])
])
