# Zip_FOUND and the target Zip::zip: libzip. Its own package file in Debian 12 asks for programs of other packages.
include(${CMAKE_CURRENT_LIST_DIR}/found_library.cmake)
find_path(Zip_INCLUDE_DIR zip.h)
find_library(Zip_LIBRARY zip)
norma_found_library(Zip Zip::zip)
