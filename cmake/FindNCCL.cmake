# NCCL_FOUND, NCCL_VERSION and the target NCCL::nccl. NVIDIA's Python package (nvidia-nccl-cu13, which PyTorch brings along)
# will do, too, if it is for the CUDA of the toolkit.
include(${CMAKE_CURRENT_LIST_DIR}/found_library.cmake)
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
norma_version_in(NCCL_VERSION ${NCCL_INCLUDE_DIR}/nccl.h NCCL)
mark_as_advanced(NCCL_PYTHON)
norma_found_library(NCCL NCCL::nccl INCLUDES ${CUDAToolkit_INCLUDE_DIRS})
