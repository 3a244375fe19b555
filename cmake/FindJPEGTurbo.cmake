# JPEGTurbo_FOUND, JPEGTurbo_VERSION and the target JPEGTurbo::jpeg: libjpeg's interface, where libjpeg-turbo provides it.
find_path(JPEGTurbo_INCLUDE_DIR jpeglib.h)
find_path(JPEGTurbo_CONFIG_DIR jconfig.h HINTS ${JPEGTurbo_INCLUDE_DIR})  # Debian has it apart
find_library(JPEGTurbo_LIBRARY jpeg)
if(JPEGTurbo_CONFIG_DIR)
  file(STRINGS ${JPEGTurbo_CONFIG_DIR}/jconfig.h line REGEX "#define LIBJPEG_TURBO_VERSION ")
  string(REGEX REPLACE "#define LIBJPEG_TURBO_VERSION +" "" JPEGTurbo_VERSION "${line}")  # empty: another libjpeg
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(JPEGTurbo REQUIRED_VARS JPEGTurbo_LIBRARY JPEGTurbo_INCLUDE_DIR JPEGTurbo_VERSION
                                  VERSION_VAR JPEGTurbo_VERSION)
mark_as_advanced(JPEGTurbo_INCLUDE_DIR JPEGTurbo_CONFIG_DIR JPEGTurbo_LIBRARY)

if(JPEGTurbo_FOUND AND NOT TARGET JPEGTurbo::jpeg)
  add_library(JPEGTurbo::jpeg UNKNOWN IMPORTED)
  set_target_properties(JPEGTurbo::jpeg PROPERTIES IMPORTED_LOCATION ${JPEGTurbo_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES "${JPEGTurbo_INCLUDE_DIR};${JPEGTurbo_CONFIG_DIR}")
endif()
