# JPEGTurbo_FOUND, JPEGTurbo_VERSION and the target JPEGTurbo::jpeg: libjpeg's interface, where libjpeg-turbo provides it.
include(${CMAKE_CURRENT_LIST_DIR}/found_library.cmake)
find_path(JPEGTurbo_INCLUDE_DIR jpeglib.h)
find_path(JPEGTurbo_CONFIG_DIR jconfig.h HINTS ${JPEGTurbo_INCLUDE_DIR})  # Debian has it apart
find_library(JPEGTurbo_LIBRARY jpeg)
if(JPEGTurbo_CONFIG_DIR)
  file(STRINGS ${JPEGTurbo_CONFIG_DIR}/jconfig.h line REGEX "#define LIBJPEG_TURBO_VERSION ")
  string(REGEX REPLACE "#define LIBJPEG_TURBO_VERSION +" "" JPEGTurbo_VERSION "${line}")  # empty: another libjpeg
endif()
mark_as_advanced(JPEGTurbo_CONFIG_DIR)
norma_found_library(JPEGTurbo JPEGTurbo::jpeg REQUIRES JPEGTurbo_VERSION INCLUDES ${JPEGTurbo_CONFIG_DIR})
