# `cpack --config build/cpu-release/CPackConfig.cmake` makes norma-….tar.gz and norma_….deb of what `cmake --install` puts
# somewhere. For other machines, configure with -DNORMA_NATIVE=OFF.
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_CONTACT "The Norma authors <norma@example.org>")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
# What normaConfig.cmake looks for; the libraries of the program are among them.
set(packages g++ libfmt-dev zlib1g-dev libssl-dev libhwy-dev libpng-dev libzip-dev)
foreach(optional "ONEDNN;libdnnl-dev" "JPEG_TURBO;libjpeg62-turbo-dev" "WEBP;libwebp-dev" "TIFF;libtiff-dev"
                 "GIF;libgif-dev" "MPI;libopenmpi-dev" "MPI;openmpi-bin"
                 "ONNX;libonnx-dev" "ONNX;libprotobuf-dev")
  list(GET optional 0 library)
  list(GET optional 1 package)
  if(NORMA_HAVE_${library})
    list(APPEND packages ${package})
  endif()
endforeach()
list(JOIN packages ", " CPACK_DEBIAN_PACKAGE_DEPENDS)
include(CPack)
