# Zip_FOUND and the target Zip::zip: libzip. Its own package file in Debian 12 asks for programs of other packages.
find_path(Zip_INCLUDE_DIR zip.h)
find_library(Zip_LIBRARY zip)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Zip REQUIRED_VARS Zip_LIBRARY Zip_INCLUDE_DIR)
mark_as_advanced(Zip_INCLUDE_DIR Zip_LIBRARY)

if(Zip_FOUND AND NOT TARGET Zip::zip)
  add_library(Zip::zip UNKNOWN IMPORTED)
  set_target_properties(Zip::zip PROPERTIES IMPORTED_LOCATION ${Zip_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${Zip_INCLUDE_DIR})
endif()
