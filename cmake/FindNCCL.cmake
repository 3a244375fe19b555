# NCCL_FOUND, NCCL_VERSION and the target NCCL::nccl. NVIDIA's Python package (nvidia-nccl-cu13, which PyTorch brings along)
# will do, too, if it is for the CUDA of the toolkit.
include(${CMAKE_CURRENT_LIST_DIR}/nvidia_in_python.cmake)
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  find_program(NCCL_PYTHON NAMES python3 python)
  set(NCCL_PYTHON_FOLDER "")
  if(NCCL_PYTHON)
    norma_nvidia_in_python(NCCL_PYTHON_FOLDER NCCL ${NCCL_PYTHON} ${CUDAToolkit_VERSION_MAJOR})
  endif()
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_PYTHON_FOLDER} PATH_SUFFIXES include)
  # The Python package has no link without a number.
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}
               ${NCCL_PYTHON_FOLDER} PATH_SUFFIXES lib lib64)
endif()
if(NCCL_INCLUDE_DIR AND EXISTS ${NCCL_INCLUDE_DIR}/nccl.h)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" NCCL_VERSION "${lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY NCCL_PYTHON)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
endif()
