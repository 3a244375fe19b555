# WebP_FOUND, WebP_VERSION and the target WebP::webpdemux: libwebp with what finds the pictures in a file.
include(${CMAKE_CURRENT_LIST_DIR}/found_library.cmake)
find_path(WebP_INCLUDE_DIR webp/demux.h)
find_library(WebP_LIBRARY webp)
find_library(WebP_DEMUX_LIBRARY webpdemux)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(WebP_PC QUIET libwebp)
  set(WebP_VERSION ${WebP_PC_VERSION})
endif()
mark_as_advanced(WebP_DEMUX_LIBRARY)
# The demultiplexer calls the decoder.
norma_found_library(WebP WebP::webpdemux REQUIRES WebP_DEMUX_LIBRARY LINKS ${WebP_DEMUX_LIBRARY} ${WebP_LIBRARY})
