# Everything comes from packages (docs/dependencies.md says why each is there).
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(ZLIB REQUIRED)
find_package(PNG 1.6 REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(Zip REQUIRED)
find_package(hwy 1.0.3 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.74 REQUIRED CONFIG)

# norma_find_optional(NAME PACKAGE DEBIAN SEVERITY LOSS [argument of find_package…]): sets NORMA_HAVE_NAME. NORMA_NAME is
# AUTO, ON (a fault where the package is missing) or OFF. What is lost without it is said with this severity.
function(norma_find_optional name package debian severity loss)
  set(found OFF)
  if(NOT NORMA_${name} STREQUAL "OFF")
    find_package(${package} QUIET ${ARGN})
    if(${package}_FOUND)
      set(found ON)
      set(version "${${package}_VERSION}${${package}_CXX_VERSION}")
      if(NOT version)
        set(version "${${package}_VERSION_STRING}")
      endif()
      set(NORMA_VERSION_OF_${name} ${version} PARENT_SCOPE)
      message(STATUS "${package} ${version}")
    elseif(NORMA_${name} STREQUAL "ON")
      message(FATAL_ERROR "NORMA_${name}=ON, but ${package} was not found (${debian})")
    else()
      message(${severity} "${package} was not found (${debian}): ${loss}")
    endif()
  endif()
  set(NORMA_HAVE_${name} ${found} PARENT_SCOPE)
  set(NORMA_HAS_${name} ${found} CACHE INTERNAL "")  # for ./run
endfunction()

norma_find_optional(ONEDNN oneDNN "Debian: libdnnl-dev" WARNING
                    "convolutions and matrix products fall back to Eigen, at about half the speed")
norma_find_optional(JPEG_TURBO JPEGTurbo "Debian: libjpeg62-turbo-dev" WARNING
                    "JPEG images are not read")
norma_find_optional(WEBP WebP "Debian: libwebp-dev" STATUS "WebP images are not read")
norma_find_optional(TIFF TIFF "Debian: libtiff-dev" STATUS "TIFF images are not read" 4.5)
norma_find_optional(GIF GIF "Debian: libgif-dev" STATUS "GIF images are not read" 5)
set(MPI_CXX_SKIP_MPICXX ON)  # the functions of C will do
find_program(NORMA_MPICXX mpicxx)
if(NORMA_MPICXX)  # Debian 13's openmpi-bin has it without MPI's headers, and FindMPI ends the configuration there
  execute_process(COMMAND echo "#include <mpi.h>" COMMAND ${NORMA_MPICXX} -fsyntax-only -x c++ -
                  RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
  if(NOT code EQUAL 0)
    set(CMAKE_DISABLE_FIND_PACKAGE_MPI ON)
  endif()
endif()
norma_find_optional(MPI MPI "Debian: openmpi-bin and libopenmpi-dev" STATUS "a run has one process" COMPONENTS CXX)

find_package(Protobuf QUIET)  # ONNX's package needs it, and does not look for it
if(NOT Protobuf_FOUND)
  set(CMAKE_DISABLE_FIND_PACKAGE_ONNX ON)
endif()
norma_find_optional(ONNX ONNX "Debian: libonnx-dev and libprotobuf-dev" STATUS "norma export writes no ONNX files")
# ONNX 1.17 has a namespace. The target says which of ONNX's headers are there (ONNX_ML).
set(NORMA_ONNX_TARGET onnx_proto)
if(TARGET ONNX::onnx_proto)
  set(NORMA_ONNX_TARGET ONNX::onnx_proto)
endif()

if(NORMA_CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
  find_package(CUDNN 9.8)
  if(NOT CUDNN_FOUND)
    message(FATAL_ERROR "NORMA_CUDA=ON, but cuDNN 9.8 or later was not found (NVIDIA's packages: cudnn; PyPI: "
                        "nvidia-cudnn-cu${CUDAToolkit_VERSION_MAJOR}). Without CUDA: NORMA_CUDA=OFF ./run …")
  endif()
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for GPUs of ${CMAKE_CUDA_ARCHITECTURES}, cuDNN ${CUDNN_VERSION}")
  norma_find_optional(NCCL NCCL "NVIDIA's packages: libnccl-dev; PyPI: nvidia-nccl-cu${CUDAToolkit_VERSION_MAJOR}" STATUS
                      "gradients of several processes travel through the memory of the host")
elseif(NORMA_NCCL STREQUAL "ON")
  message(FATAL_ERROR "NORMA_NCCL=ON: expected NORMA_CUDA=ON, too")
endif()
