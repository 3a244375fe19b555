# CUDNN_FOUND, CUDNN_VERSION and the target CUDNN::cudnn. NVIDIA's Python package (nvidia-cudnn-cu13, which PyTorch brings
# along) will do, too, if it is for the CUDA of the toolkit.
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
if(CUDNN_INCLUDE_DIR AND EXISTS ${CUDNN_INCLUDE_DIR}/cudnn_version.h)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h lines REGEX "#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCHLEVEL ([0-9]+).*" "\\1.\\2.\\3" CUDNN_VERSION "${lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY CUDNN_PYTHON)

if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES
    IMPORTED_LOCATION ${CUDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
endif()
