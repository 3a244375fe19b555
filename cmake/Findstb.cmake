# stb_FOUND and the target stb::stb: readers and writers of image files (Debian: libstb-dev).
find_path(stb_INCLUDE_DIR stb_image.h PATH_SUFFIXES stb)
find_library(stb_LIBRARY stb)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(stb REQUIRED_VARS stb_LIBRARY stb_INCLUDE_DIR)
mark_as_advanced(stb_INCLUDE_DIR stb_LIBRARY)

if(stb_FOUND AND NOT TARGET stb::stb)
  add_library(stb::stb UNKNOWN IMPORTED)
  set_target_properties(stb::stb PROPERTIES IMPORTED_LOCATION ${stb_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${stb_INCLUDE_DIR})
endif()
