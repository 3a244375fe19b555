# CUDNN_FOUND, CUDNN_VERSION and the target CUDNN::cudnn. NVIDIA's Python package (nvidia-cudnn-cu13, which PyTorch brings
# along) will do, too, if it is for the CUDA of the toolkit.
include(${CMAKE_CURRENT_LIST_DIR}/found_library.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/nvidia_in_python.cmake)
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  find_program(CUDNN_PYTHON NAMES python3 python)
  set(CUDNN_PYTHON_FOLDER "")
  if(CUDNN_PYTHON)
    norma_nvidia_in_python(CUDNN_PYTHON_FOLDER cuDNN ${CUDNN_PYTHON} ${CUDAToolkit_VERSION_MAJOR})
  endif()
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_PYTHON_FOLDER}
            PATH_SUFFIXES include)
  # The Python package has no link without a number.
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}
               ${CUDNN_PYTHON_FOLDER} PATH_SUFFIXES lib lib64)
endif()
norma_version_in(CUDNN_VERSION ${CUDNN_INCLUDE_DIR}/cudnn_version.h CUDNN)
mark_as_advanced(CUDNN_PYTHON)
norma_found_library(CUDNN CUDNN::cudnn INCLUDES ${CUDAToolkit_INCLUDE_DIRS})
