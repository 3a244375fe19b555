# oneDNN_FOUND, oneDNN_VERSION and the target DNNL::dnnl.
# Debian's own package config also wants the OpenCL headers, which the CPU engine does not need.
include(${CMAKE_CURRENT_LIST_DIR}/found_library.cmake)
find_path(oneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(oneDNN_LIBRARY dnnl)
norma_version_in(oneDNN_VERSION ${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h DNNL_VERSION)
norma_found_library(oneDNN DNNL::dnnl)
