# WebP_FOUND, WebP_VERSION and the target WebP::webpdemux: libwebp with what finds the pictures in a file.
find_path(WebP_INCLUDE_DIR webp/demux.h)
find_library(WebP_LIBRARY webp)
find_library(WebP_DEMUX_LIBRARY webpdemux)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(WebP_PC QUIET libwebp)
  set(WebP_VERSION ${WebP_PC_VERSION})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(WebP REQUIRED_VARS WebP_LIBRARY WebP_DEMUX_LIBRARY WebP_INCLUDE_DIR
                                  VERSION_VAR WebP_VERSION)
mark_as_advanced(WebP_INCLUDE_DIR WebP_LIBRARY WebP_DEMUX_LIBRARY)

if(WebP_FOUND AND NOT TARGET WebP::webpdemux)
  add_library(WebP::webpdemux UNKNOWN IMPORTED)
  set_target_properties(WebP::webpdemux PROPERTIES IMPORTED_LOCATION ${WebP_DEMUX_LIBRARY}
                        INTERFACE_LINK_LIBRARIES ${WebP_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${WebP_INCLUDE_DIR})
endif()
